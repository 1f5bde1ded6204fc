#include "train/metrics_log.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "io/atomic_file.h"
#include "io/error.h"

namespace ramify::train {
namespace {

// The lines of an earlier part of the run, up to a step; what a kill cut off is left out.
std::vector<nlohmann::json> earlier_lines(const std::string& path, int64_t keep_steps) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    nlohmann::json line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) continue;
    if (line["step"].get<int64_t>() <= keep_steps) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

std::string MetricsLog::table_head() const {
  std::string row;
  for (const std::string_view column : columns_) row += (row.empty() ? "" : ",") + std::string(column);
  return row + "\n";
}

std::string MetricsLog::table_row(const nlohmann::json& line) const {
  std::string row;
  for (const std::string_view column : columns_) {
    if (column != columns_.front()) row += ",";
    const auto found = line.find(std::string(column));
    if (found == line.end() || found->is_null()) continue;
    row += found->is_string() ? found->get<std::string>() : found->dump();
  }
  return row + "\n";
}

MetricsLog::MetricsLog(const std::string& folder, std::vector<std::string_view> columns, int64_t keep_steps)
    : folder_(folder), columns_(std::move(columns)) {
  std::string json, table = table_head();
  if (keep_steps >= 0) {
    for (const nlohmann::json& line : earlier_lines(folder + "/metrics.jsonl", keep_steps)) {
      json += line.dump() + "\n";
      table += table_row(line);
    }
  }
  io::write_file_atomic(folder + "/metrics.jsonl", json);
  io::write_file_atomic(folder + "/metrics.csv", table);
  json_.reset(std::fopen((folder + "/metrics.jsonl").c_str(), "a"));
  table_.reset(std::fopen((folder + "/metrics.csv").c_str(), "a"));
  if (!json_ || !table_) throw io::Error(folder + ": cannot write metrics: " + std::strerror(errno));
}

void MetricsLog::add(const nlohmann::json& line) {
  write(json_, "metrics.jsonl", line.dump() + "\n");
  write(table_, "metrics.csv", table_row(line));
}

void MetricsLog::write(const File& file, const std::string& name, const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() || std::fflush(file.get()) != 0) {
    throw io::Error(folder_ + "/" + name + ": cannot write: " + std::strerror(errno));
  }
}

}  // namespace ramify::train
