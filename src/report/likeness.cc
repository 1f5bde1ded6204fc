#include "report/likeness.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "report/html.h"

namespace ramify::report {
namespace {

constexpr size_t kMaxDifferences = 12;
constexpr size_t kMaxValues = 4;
constexpr size_t kMaxValueCharacters = 40;

template <class Key>
std::vector<std::vector<ShownRun>> grouped(ShownRuns runs, const Key& key) {
  std::vector<std::vector<ShownRun>> groups;
  for (const ShownRun& shown : runs) {
    const auto same = std::ranges::find_if(
        groups, [&](const std::vector<ShownRun>& group) { return key(*group[0].run) == key(*shown.run); });
    (same == groups.end() ? groups.emplace_back() : *same).push_back(shown);
  }
  return groups;
}

// The name of a setting for a reader: "epochs", "model.layers[0].heads".
std::string setting_name(const std::string& path) {
  if (path == "data.train") return "training data";
  constexpr std::string_view prefix = "training.";
  return path.starts_with(prefix) ? path.substr(prefix.size()) : path;
}

// The seed makes the groups, the attention is what is compared; that of a layer follows from that of the run.
bool is_compared(const std::string& path) {
  return path == "training.seed" || (path.starts_with("model.layers[") && path.ends_with("].attention"));
}

std::string setting_value(const RunConfig& config, const std::string& path) {
  const auto found = std::ranges::find(config.settings, path, &std::pair<std::string, std::string>::first);
  return found == config.settings.end() ? "" : found->second;
}

// "epochs (6, 30)"; empty where there is just one value.
std::string difference_in(const std::string& what, const std::vector<std::string>& values) {
  std::vector<std::string> distinct;
  for (const std::string& value : values) {
    if (std::ranges::find(distinct, value) == distinct.end()) distinct.push_back(value);
  }
  if (distinct.size() < 2) return "";
  std::string list;
  for (size_t i = 0; i < distinct.size() && i < kMaxValues; ++i) {
    const std::string_view begin = first_characters(distinct[i], kMaxValueCharacters);
    const char* cut = begin.size() < distinct[i].size() ? "\xE2\x80\xA6" : "";
    list += fmt::format("{}{}{}", i == 0 ? "" : ", ", distinct[i].empty() ? "none" : begin, cut);
  }
  return fmt::format("{} ({}{})", what, list, distinct.size() > kMaxValues ? ", \xE2\x80\xA6" : "");
}

class Differences {
 public:
  explicit Differences(ShownRuns runs) : runs_(runs) {}

  template <class Field>
  void compare(const std::string& what, const Field& field) {
    std::vector<std::string> values;
    for (const ShownRun& shown : runs_) values.push_back(field(*shown.run));
    if (std::string difference = difference_in(what, values); !difference.empty()) {
      found_.push_back(std::move(difference));
    }
  }

  bool empty() const { return found_.empty(); }

  void add(std::string what) { found_.push_back(std::move(what)); }

  std::string list() const {
    std::string text;
    for (size_t i = 0; i < found_.size() && i < kMaxDifferences; ++i) text += (i == 0 ? "" : ", ") + found_[i];
    if (found_.size() > kMaxDifferences) text += fmt::format(" and {} more", found_.size() - kMaxDifferences);
    return text;
  }

 private:
  ShownRuns runs_;
  std::vector<std::string> found_;
};

std::string count_text(int64_t count) {
  return count > 0 ? with_commas(count) : "";
}

}  // namespace

std::vector<ShownRun> shown_runs(std::span<const Run> runs) {
  std::vector<ShownRun> shown;
  for (const Run& run : runs) shown.push_back({&run, static_cast<int>(shown.size())});
  return shown;
}

std::vector<std::vector<ShownRun>> by_problem(ShownRuns runs) {
  return grouped(runs, [](const Run& run) { return std::pair(run.config.task, run.config.target); });
}

std::vector<std::vector<ShownRun>> by_settings(ShownRuns runs) {
  return grouped(runs, [](const Run& run) { return std::pair(run.config.attention, run.config.all_but_seed); });
}

bool have_same_records(ShownRuns runs) {
  std::set<std::pair<std::string, int64_t>> kinds;
  for (const ShownRun& shown : runs) {
    if (const Evaluation* evaluation = main_evaluation(*shown.run)) {
      kinds.emplace(evaluation->split, evaluation->records);
    }
  }
  return kinds.size() <= 1;
}

std::string differences_of(ShownRuns runs) {
  Differences differences(runs);
  differences.compare("task", [](const Run& run) { return run.config.task; });
  differences.compare("target", [](const Run& run) { return run.config.target; });
  differences.compare("number of classes", [](const Run& run) { return count_text(run.config.classes); });
  differences.compare("number of records", [](const Run& run) { return count_text(run.config.records); });
  std::vector<std::string> paths;
  for (const ShownRun& shown : runs) {
    for (const auto& [path, value] : shown.run->config.settings) {
      if (!is_compared(path) && std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
    }
  }
  for (const std::string& path : paths) {
    differences.compare(setting_name(path), [&](const Run& run) { return setting_value(run.config, path); });
  }
  differences.compare("version of ramify", [](const Run& run) { return run.config.version; });
  differences.compare("split evaluated", [](const Run& run) {
    const Evaluation* evaluation = main_evaluation(run);
    return evaluation ? evaluation->split : "";
  });
  // what the list of settings does not hold, such as the names of classes
  std::set<std::string> attentions;
  for (const ShownRun& shown : runs) attentions.insert(shown.run->config.attention);
  if (differences.empty() && by_settings(runs).size() > attentions.size()) differences.add("other settings");
  return differences.list();
}

}  // namespace ramify::report
