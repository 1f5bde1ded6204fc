#include "report/comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "report/curves.h"
#include "report/evaluation_section.h"
#include "report/html.h"
#include "report/table.h"

namespace ramify::report {
namespace {

enum class Better { less, more, neither };

// One column of figures: a value a run.
struct Measure {
  std::string name;
  Better better = Better::neither;
  std::vector<double> values;
  std::vector<std::string> texts;
};

template <class Value, class Text>
Measure measure(std::span<const Run> runs, std::string name, Better better, const Value& value, const Text& text) {
  Measure made = {std::move(name), better, {}, {}};
  for (const Run& run : runs) {
    made.values.push_back(value(run));
    made.texts.push_back(text(made.values.back()));
  }
  return made;
}

double evaluated(const Run& run, const std::string& name) {
  const Evaluation* evaluation = main_evaluation(run);
  return evaluation ? figure(evaluation->figures, name) : kNan;
}

// The names of all figures that some run has, the usual ones first.
std::vector<std::string> figure_names(std::span<const Run> runs) {
  std::vector<std::string> names = {"accuracy", "macro_f1", "r2", "rmse", "mae", "loss"};
  for (const Run& run : runs) {
    const Evaluation* evaluation = main_evaluation(run);
    for (const Figure& each : evaluation ? evaluation->figures : std::vector<Figure>()) {
      if (std::find(names.begin(), names.end(), each.first) == names.end()) names.push_back(each.first);
    }
  }
  const auto is_absent = [&](const std::string& name) {
    return std::none_of(runs.begin(), runs.end(), [&](const Run& run) { return std::isfinite(evaluated(run, name)); });
  };
  std::erase_if(names, is_absent);
  return names;
}

std::vector<Measure> measures_of(std::span<const Run> runs) {
  std::vector<Measure> measures;
  for (const std::string& name : figure_names(runs)) {
    const bool is_known = is_share(name) || name == "r2";
    const Better better = is_less_better(name) ? Better::less : is_known ? Better::more : Better::neither;
    measures.push_back(measure(
        runs, figure_name(name), better, [&](const Run& run) { return evaluated(run, name); },
        [&](double value) { return figure_text(name, value); }));
  }
  measures.push_back(measure(
      runs, "Parameters", Better::neither,
      [](const Run& run) { return run.config.parameters > 0 ? static_cast<double>(run.config.parameters) : kNan; },
      with_unit));
  measures.push_back(measure(runs, "Time", Better::less, training_seconds, duration));
  measures.push_back(measure(runs, "Leaves/s", Better::more, leaves_per_second, with_unit));
  measures.push_back(measure(
      runs, "Memory", Better::less,
      [](const Run& run) { return run.peak_memory_bytes > 0 ? run.peak_memory_bytes : kNan; }, bytes_text));
  std::erase_if(measures, [](const Measure& each) {
    return std::none_of(each.values.begin(), each.values.end(), [](double value) { return std::isfinite(value); });
  });
  return measures;
}

// The best value, where at least two runs can be told apart.
double best_of(const Measure& measure) {
  std::set<double> finite;
  for (const double value : measure.values) {
    if (std::isfinite(value)) finite.insert(value);
  }
  if (finite.size() < 2 || measure.better == Better::neither) return kNan;
  return measure.better == Better::less ? *finite.begin() : *finite.rbegin();
}

std::string figures_html(std::span<const Run> runs, const std::vector<Measure>& measures) {
  // runs are often named after their attention
  const bool needs_attention =
      std::any_of(runs.begin(), runs.end(), [](const Run& run) { return run.name != run.config.attention; });
  Table table = {"", {{"Run"}}, {}};
  if (needs_attention) table.columns.push_back({"Attention"});
  for (const Measure& each : measures) table.columns.push_back({each.name, Align::number});
  for (size_t i = 0; i < runs.size(); ++i) {
    Cell name(runs[i].name);
    name.colour = static_cast<int>(i);
    std::vector<Cell> row = {name};
    if (needs_attention) row.emplace_back(runs[i].config.attention);
    for (const Measure& each : measures) {
      Cell cell(each.texts[i], each.values[i]);
      cell.is_best = each.values[i] == best_of(each);
      row.push_back(cell);
    }
    table.rows.push_back(std::move(row));
  }
  return table_html(table);
}

std::string difference_text(const std::string& name, double difference) {
  if (!std::isfinite(difference)) return "";
  const std::string sign = difference < 0 ? "\xE2\x88\x92" : "+";
  if (is_share(name)) return sign + fmt::format("{:.1f} points", 100 * std::abs(difference));
  return sign + decimal(std::abs(difference));
}

// "+1.2 points": how the runs differ from the first.
std::string differences_html(std::span<const Run> runs) {
  const std::vector<std::string> names = figure_names(runs);
  Table table = {"Against " + runs[0].name, {{"Run"}}, {}};
  for (const std::string& name : names) table.columns.push_back({figure_name(name), Align::number});
  for (size_t i = 1; i < runs.size(); ++i) {
    Cell run(runs[i].name);
    run.colour = static_cast<int>(i);
    std::vector<Cell> row = {run};
    for (const std::string& name : names) {
      const double difference = evaluated(runs[i], name) - evaluated(runs[0], name);
      row.emplace_back(difference_text(name, difference), difference);
    }
    table.rows.push_back(std::move(row));
  }
  return names.empty() ? "" : table_html(table);
}

struct Spread {
  int64_t count = 0;
  double mean = 0, deviation = 0;
};

Spread spread_of(const std::vector<double>& values) {
  Spread spread = {std::ssize(values), 0, 0};
  for (const double value : values) spread.mean += value / static_cast<double>(values.size());
  for (const double value : values) spread.deviation += (value - spread.mean) * (value - spread.mean);
  spread.deviation = values.size() > 1 ? std::sqrt(spread.deviation / static_cast<double>(values.size() - 1)) : 0;
  return spread;
}

// Runs that differ by their seed alone, as a mean and a deviation for each attention.
std::string spreads_html(std::span<const Run> runs) {
  std::map<std::string, int> uses;
  for (const Run& run : runs) ++uses[run.config.attention];
  if (std::none_of(uses.begin(), uses.end(), [](const auto& use) { return use.second > 1; })) return "";
  const std::vector<std::string> names = figure_names(runs);
  Table table = {"Mean \xC2\xB1 standard deviation", {{"Attention"}, {"Runs", Align::number}}, {}};
  for (const std::string& name : names) table.columns.push_back({figure_name(name), Align::number});
  for (const auto& [attention, count] : uses) {
    std::vector<Cell> row = {attention, Cell(std::to_string(count), count)};
    for (const std::string& name : names) {
      std::vector<double> values;
      for (const Run& run : runs) {
        if (run.config.attention == attention && std::isfinite(evaluated(run, name))) {
          values.push_back(evaluated(run, name));
        }
      }
      const Spread spread = spread_of(values);
      const std::string text =
          values.empty() ? "" : figure_text(name, spread.mean) + " \xC2\xB1 " + figure_text(name, spread.deviation);
      row.emplace_back(text, values.empty() ? kNan : spread.mean);
    }
    table.rows.push_back(std::move(row));
  }
  return table_html(table);
}

}  // namespace

const Evaluation* main_evaluation(const Run& run) {
  return run.evaluations.empty() ? nullptr : &run.evaluations.front();
}

std::string differences_of_data(std::span<const Run> runs) {
  const auto differs = [&](const auto& field) {
    return std::any_of(runs.begin(), runs.end(), [&](const Run& run) { return field(run) != field(runs[0]); });
  };
  std::string list;
  const auto note = [&](const char* what, bool is_different) {
    if (is_different) list += (list.empty() ? "" : ", ") + std::string(what);
  };
  note("task", differs([](const Run& run) { return run.config.task; }));
  note("target", differs([](const Run& run) { return run.config.target; }));
  note("training file", differs([](const Run& run) { return run.config.train; }));
  note("number of records", differs([](const Run& run) { return run.config.records; }));
  note("number of classes", differs([](const Run& run) { return run.config.classes; }));
  note("split evaluated", differs([](const Run& run) {
         const Evaluation* evaluation = main_evaluation(run);
         return evaluation ? evaluation->split : std::string();
       }));
  return list;
}

std::string comparison_html(std::span<const Run> runs) {
  const auto splits = main_evaluation(runs[0]);
  std::string html;
  if (splits) {
    html += fmt::format("<p class=\"hint\">On {} records of the {} split. Best in bold.</p>\n",
                        with_commas(splits->records), escape(splits->split, 40));
  }
  html += figures_html(runs, measures_of(runs));
  const std::string spreads = spreads_html(runs);
  return html + (spreads.empty() ? differences_html(runs) : spreads);
}

}  // namespace ramify::report
