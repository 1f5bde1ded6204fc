#include "signal/text_records.h"

#include <algorithm>

#include "signal/compiler.h"

namespace ramify::signal {
namespace {

bool is_plain_name(const std::string& file) {
  return file.ends_with(".txt") || file.ends_with(".txt.zst");
}

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

}  // namespace

TextRecords::TextRecords(std::vector<std::string> files, TextFields fields)
    : files_(std::move(files)), fields_(std::move(fields)) {}

void TextRecords::fail(const std::string& what) const {
  throw io::Error(reader_->name() + ":" + std::to_string(reader_->number()) + ": " + what);
}

bool TextRecords::open_next() {
  if (reader_ && count_of_file_ == 0) throw io::Error(reader_->name() + ": has no texts");
  if (file_ == files_.size()) return false;
  plain_ = fields_.plain_lines || is_plain_name(files_[file_]);
  if (plain_ && !(fields_.second.empty() && fields_.label.empty())) {
    throw io::Error(files_[file_] + ": plain text has no fields; expected .jsonl or .jsonl.zst");
  }
  reader_.emplace(files_[file_++]);
  count_of_file_ = 0;
  return true;
}

bool TextRecords::next(TextRecord& record) {
  if (!reader_ && !open_next()) return false;
  do {
    while (!reader_->next(line_)) {
      if (!open_next()) return false;
    }
  } while (!plain_ && is_blank(line_));
  if (plain_) {
    record = {.text = line_};
  } else {
    read_json(record);
  }
  ++count_;
  ++count_of_file_;
  return true;
}

void TextRecords::read_json(TextRecord& record) {
  try {
    document_.parse(line_, {});
  } catch (const BadRecord& error) {
    fail(error.what() + std::string(fields_.label.empty() ? "; for a text a line use --plain" : ""));
  }
  const Value& root = document_[0];
  if (root.type == Value::Type::string && fields_.second.empty() && fields_.label.empty()) {
    record = {.text = std::string(document_.text(root))};
    return;
  }
  if (root.type != Value::Type::object) fail("is no object with a field " + io::printable(fields_.text));
  record.text = member(fields_.text);
  record.second = fields_.second.empty() ? "" : member(fields_.second);
  record.label = fields_.label.empty() ? "" : member(fields_.label);
}

// Labels may be numbers and booleans, too.
std::string TextRecords::member(const std::string& field) const {
  const size_t place = document_.member(0, field);
  if (place == 0) fail("has no field " + io::printable(field));
  const Value& value = document_[place];
  const bool is_label = field == fields_.label;
  if (value.type == Value::Type::string) return std::string(document_.text(value));
  if (!is_label || !(value.is_number() || value.type == Value::Type::boolean)) {
    fail("the field " + io::printable(field) +
         (is_label ? " is no label; expected a string, a number or a boolean" : " is no text"));
  }
  std::string buffer;
  return std::string(document_.written(value, buffer));
}

double TextRecords::share() const {
  if (!reader_ || files_.size() != 1 || reader_->bytes_in_file() <= 0) return -1;
  return std::min(1.0, static_cast<double>(reader_->bytes_taken()) / static_cast<double>(reader_->bytes_in_file()));
}

std::vector<TextRecord> read_text_records(const std::vector<std::string>& files, const TextFields& fields) {
  TextRecords source(files, fields);
  std::vector<TextRecord> records;
  for (TextRecord record; source.next(record);) records.push_back(record);
  return records;
}

}  // namespace ramify::signal
