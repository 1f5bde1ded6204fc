// Finds the schema of records by looking at all of them once, in bounded memory.
//
// The kind of a field, by the values at its path (null is allowed everywhere):
//   objects, arrays     object, array
//   numbers             number
//   true, false         boolean
//   strings             category, if there are at most max_categories different ones, short, no sentences, and each
//                       comes twice on average; else text
//   a mixture of these  category by the same rule, else text: numbers as they are written
// Arrays and objects may come beside others: both are kept, as two fields of one path. What is declared (schema file)
// wins.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "signal/schema.h"
#include "text/tokenizer.h"

namespace ramify::signal {

enum class OnBad { fail, skip };
OnBad on_bad_of(std::string_view name);

struct Declaration {
  Kind kind = Kind::text;
  std::optional<std::vector<TextLevel>> levels;  // of a text
};

struct SchemaOptions {
  std::string target;               // path; "": none
  std::string target_of;            // path of the array whose items have the labels
  std::optional<Task> task;         // else by the target's values
  std::vector<std::string> fields;  // not empty: only these
  std::vector<std::string> ignore;
  std::map<std::string, Declaration> declared;
  std::vector<TextLevel> text_levels = {TextLevel::paragraph, TextLevel::sentence, TextLevel::token};
  std::shared_ptr<const text::Tokenizer> tokenizer;  // none: a vocabulary of the data's words is built
  std::optional<LeafEncoding> leaf_encoding;         // where vectors of texts come from; they need no vocabulary
  text::VocabularyLimits vocabulary = {.min_count = 2, .max_size = 50'000};
  int64_t max_categories = 64;
  int64_t max_category_bytes = 64;
  int64_t max_text_leaves = 50'000;  // known values of a text-leaf
  int64_t max_class_integers = 20;   // a target of more different integers is a number
  int64_t max_classes = 10'000;
  int64_t max_fields = 10'000;  // further paths are treated as keys that are not in the schema
  ImageOptions image;
  int64_t graph_features = 8;
  int64_t max_leaves = 4096;
  int64_t max_depth = 1000;
  OnBad on_bad = OnBad::fail;
};

// A schema file: {"fields": {"image": "image", "notes": "ignore", "title": {"kind": "text", "levels": ["token"]}},
// "image": {"patch": 8, "width": 64, "height": 64}}. "image" is optional. io::Error names the file.
void read_schema_file(const std::string& path, SchemaOptions& options);

struct ReadProgress {
  int64_t records = 0;
  int64_t bytes = 0;        // taken from the files so far
  int64_t bytes_total = 0;  // of all files; -1: not known
};

// Where a record stands, for messages; line 0: that is not known.
struct RecordPlace {
  std::string_view file;
  int64_t line = 0;
};

// One record after the other:
//   SchemaInference inference(options);
//   for (...) inference.add(json);          // BadRecord: not counted
//   Schema schema = inference.finish();     // io::Error: nothing there, or no field as asked for
class SchemaInference {
 public:
  explicit SchemaInference(SchemaOptions options);
  ~SchemaInference();
  void add(std::string_view json, const RecordPlace& place = {});
  Schema finish();

 private:
  class State;
  std::unique_ptr<State> state_;
};

// Of all records in the files. io::Error("FILE:LINE: ...") for a bad record, unless those are skipped. Standard input
// ("-") can be read once more afterwards, from its start.
Schema infer_schema(const std::vector<std::string>& files, const SchemaOptions& options,
                    const std::function<void(const ReadProgress&)>& on_progress = {});

}  // namespace ramify::signal
