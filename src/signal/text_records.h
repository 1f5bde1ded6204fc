// Texts out of files, for models that take texts alone: a line of plain text each, or a field of a JSON record; with a
// second text and a label where those are asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/lines.h"
#include "signal/document.h"

namespace ramify::signal {

struct TextFields {
  std::string text = "text";
  std::string second;        // of a pair; "": single texts
  std::string label;         // "": none
  bool plain_lines = false;  // every line is a text, also in files that do not end in .txt or .txt.zst
};

struct TextRecord {
  std::string text, second, label;
};

class TextRecords {
 public:
  TextRecords(std::vector<std::string> files, TextFields fields);

  // False at the end. io::Error("FILE:LINE: ...") for a line that has not what was asked for, and for a file without
  // any text. A record may be a string, if only a text is asked for. Blank lines are texts in plain files only.
  bool next(TextRecord& record);
  bool is_ready() const { return !reader_ || reader_->is_ready(); }  // next() would not wait for a pipe
  int64_t count() const { return count_; }
  double share() const;  // of the bytes of all files that has been read; -1: not known

 private:
  bool open_next();
  void read_json(TextRecord& record);
  std::string member(const std::string& field) const;
  [[noreturn]] void fail(const std::string& what) const;

  std::vector<std::string> files_;
  TextFields fields_;
  std::optional<io::LineReader> reader_;
  std::string line_;
  Document document_;
  size_t file_ = 0;
  bool plain_ = false;
  int64_t count_ = 0, count_of_file_ = 0;
};

std::vector<TextRecord> read_text_records(const std::vector<std::string>& files, const TextFields& fields);

}  // namespace ramify::signal
