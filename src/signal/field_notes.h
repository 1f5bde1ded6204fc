// What a user may want to know about the values of a field: one string among many numbers, names of image files, values
// that are all different. Only notes: nothing is decided here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "signal/document.h"
#include "signal/inference.h"
#include "signal/schema.h"

namespace ramify::signal {

// Numbers, strings and booleans that are mixed: how many of each, and where the first of each stands.
class ScalarMixture {
 public:
  void add(Value::Type type, const RecordPlace& place);

  int64_t count(Kind kind) const;  // number, text or boolean
  // number or boolean, if these are the larger part and something else is beside them; else null.
  Kind prevailing() const;
  // "399 numbers, 1 string (a.jsonl:18)": the place is that of the rarest.
  std::string text() const;

 private:
  struct Sort {
    int64_t count = 0;
    std::string first;  // place
  };
  std::array<Sort, 3> sorts_;
};

class FieldNotes {
 public:
  void add(const Document& document, const Value& value, const RecordPlace& place);

  // The notes of a field that became `kind`, each "PATH: ...".
  std::vector<std::string> notes(const std::string& path, Kind kind) const;

 private:
  void add_identifier(std::string_view written);
  bool are_identifiers() const;

  ScalarMixture mixture_;
  int64_t image_names_ = 0;
  bool may_be_identifiers_ = true;
  int64_t identifiers_ = 0;
  std::vector<uint64_t> hashes_;  // of the first values, as long as they differ
};

}  // namespace ramify::signal
