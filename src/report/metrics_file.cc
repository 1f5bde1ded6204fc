// metrics.jsonl: the numbers of training, a line each time.
#include <fmt/core.h>

#include <limits>

#include "report/figures.h"
#include "report/json_file.h"
#include "report/run_files.h"

namespace ramify::report {
namespace {

using nlohmann::json;

// What we draw must be a number; what others may add is taken if it is one.
MetricLine metric_line(const JsonField& root) {
  MetricLine line;
  line.split = root.at("split").text();
  line.step = root.at("step").number();
  const auto epoch = root.find("epoch");
  line.epoch = epoch ? epoch->number() : std::numeric_limits<double>::quiet_NaN();
  for (const auto& [key, field] : root.members()) {
    if (key == "split" || key == "step" || key == "epoch") continue;
    if (find_figure(key) || field.value().is_number()) line.figures.emplace_back(key, field.number());
  }
  return line;
}

}  // namespace

std::vector<MetricLine> read_metrics(std::string_view text, const std::string& name, std::vector<std::string>& notes) {
  std::vector<MetricLine> lines;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.find_first_not_of(" \r\t") == std::string_view::npos) continue;
    const std::string place = fmt::format("{}:{}", name, number);
    json document;
    try {
      document = parse_json(line, place);
    } catch (const Error&) {
      if (end != std::string_view::npos) throw;
      notes.push_back(fmt::format("The last line of metrics.jsonl ({}) was cut off and is left out.", number));
      break;
    }
    lines.push_back(metric_line(JsonField(document, place + ": ")));
  }
  return lines;
}

}  // namespace ramify::report
