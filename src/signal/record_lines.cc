#include "signal/record_lines.h"

#include <filesystem>
#include <system_error>
#include <utility>

namespace ramify::signal {
namespace {

bool is_blank_line(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

RecordLines::RecordLines(std::vector<std::string> files) : files_(std::move(files)) {
  for (const std::string& file : files_) {
    names_.push_back(file == "-" ? "standard input" : file);
    const std::string folder = file == "-" ? "" : std::filesystem::path(file).parent_path().string();
    folders_.push_back(folder.empty() ? "." : folder);
    std::error_code error;
    const auto size = std::filesystem::file_size(file, error);
    bytes_total_ = error || bytes_total_ < 0 ? -1 : bytes_total_ + static_cast<int64_t>(size);
  }
}

bool RecordLines::next(RecordLine& line) {
  for (; file_ < files_.size(); ++file_) {
    if (!reader_) reader_.emplace(files_[file_]);
    line.error.clear();
    line.file = static_cast<int64_t>(file_);
    bool is_there = true;
    try {
      do {
        is_there = reader_->next(line.json);
      } while (is_there && is_blank_line(line.json));
    } catch (const io::LineTooLong& error) {
      line.error = error.what();
      line.json.clear();
    }
    line.line = reader_->number();
    if (is_there) {
      ++records_;
      ++records_of_file_;
      return true;
    }
    if (records_of_file_ == 0) throw io::Error(names_[file_] + ": no records");
    records_of_file_ = 0;
    bytes_before_ += reader_->bytes_taken();
    reader_.reset();
  }
  return false;
}

ReadProgress RecordLines::progress() const {
  return {records_, bytes_before_ + (reader_ ? reader_->bytes_taken() : 0), bytes_total_};
}

}  // namespace ramify::signal
