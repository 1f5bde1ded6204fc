// JSON record -> Signal, by a schema.
//
// What the schema does not know is not an error: a value under a new key is compiled by its JSON type, with the key's
// words for a position; a new category value is the field's "other"; a number under a new key shares one number field;
// what has no modality in the model (a vector of another width, an image without images in the training data) is the
// category "unknown". A value of another type than the schema says is an error, except null.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "signal/schema.h"
#include "signal/signal.h"
#include "signal/text_vectors.h"

namespace ramify::signal {

// What is wrong with a record; the reader of the file adds its name and the line.
class BadRecord : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class TargetUse {
  required,  // a record without one, or with an unknown class, is a bad record
  optional,  // then SignalTarget::known is false
};

enum class Labels { none, all };

struct CompilerOptions {
  TargetUse target = TargetUse::required;  // of no matter if the schema has no target
  Labels labels = Labels::none;
  std::string images;                               // a .tar that image paths are looked up in; "": files
  std::shared_ptr<const TextVectors> text_vectors;  // where the schema wants them (Schema::has_text_vectors)
};

// Immutable; many threads may compile at once.
class Compiler {
 public:
  // io::Error if the .tar cannot be read; std::invalid_argument for text vectors that are not those of the schema.
  explicit Compiler(std::shared_ptr<const Schema> schema, const CompilerOptions& options = {});
  ~Compiler();

  // `folder`: where relative image paths start. Throws BadRecord.
  Signal compile(std::string_view json, const std::string& folder = ".") const;

  const std::shared_ptr<const Schema>& schema() const;

 private:
  class State;
  std::unique_ptr<const State> state_;
};

}  // namespace ramify::signal
