// The numbers of a run as it goes on: metrics.jsonl for programs, metrics.csv for spreadsheets.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ramify::train {

class MetricsLog {
 public:
  // Starts both files in `folder`; `columns` are what the table has of each line. A resumed run keeps what was written
  // up to `keep_steps` and goes on after it.
  MetricsLog(const std::string& folder, std::vector<std::string_view> columns, int64_t keep_steps = -1);

  // One line in each file, at once on the disk's side of the program. Throws io::Error on a full disk.
  void add(const nlohmann::json& line);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;

  void write(const File& file, const std::string& name, const std::string& text);

  std::string table_head() const;
  std::string table_row(const nlohmann::json& line) const;

  std::string folder_;
  std::vector<std::string_view> columns_;
  File json_, table_;
};

}  // namespace ramify::train
