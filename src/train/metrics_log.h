// The numbers of a run as it goes on: metrics.jsonl for programs, metrics.csv for spreadsheets.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace ramify::train {

class MetricsLog {
 public:
  // Starts both files in `folder`. A resumed run keeps what was written up to `keep_steps` and goes on after it.
  explicit MetricsLog(const std::string& folder, int64_t keep_steps = -1);

  // One line in each file, at once on the disk's side of the program. Throws io::Error on a full disk.
  void add(const nlohmann::json& line);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;

  void write(const File& file, const std::string& name, const std::string& text);

  std::string folder_;
  File json_, table_;
};

}  // namespace ramify::train
