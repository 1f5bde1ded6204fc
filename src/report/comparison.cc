#include "report/comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "report/curves.h"
#include "report/evaluation_section.h"
#include "report/figures.h"
#include "report/html.h"
#include "report/table.h"

namespace ramify::report {
namespace {

constexpr size_t kMaxNames = 3;

// One column of figures: a value a run.
struct Measure {
  std::string name;
  Better better = Better::neither;
  std::vector<double> values;
  std::vector<std::string> texts;
};

template <class Value, class Text>
Measure measure(ShownRuns runs, std::string name, Better better, const Value& value, const Text& text) {
  Measure made = {std::move(name), better, {}, {}};
  for (const ShownRun& shown : runs) {
    made.values.push_back(value(*shown.run));
    made.texts.push_back(text(made.values.back()));
  }
  return made;
}

double evaluated(const Run& run, const std::string& name) {
  const Evaluation* evaluation = main_evaluation(run);
  return evaluation ? figure(evaluation->figures, name) : kNan;
}

// The names of all figures that some run has.
std::vector<std::string> figure_names(ShownRuns runs) {
  std::vector<std::string> names;
  for (const ShownRun& shown : runs) {
    const Evaluation* evaluation = main_evaluation(*shown.run);
    for (const Figure& each : evaluation ? evaluation->figures : std::vector<Figure>()) {
      if (std::isfinite(each.second)) names.push_back(each.first);
    }
  }
  return in_order(std::move(names));
}

std::vector<Measure> measures_of(ShownRuns runs) {
  std::vector<Measure> measures;
  const bool is_ranked = have_same_records(runs);
  for (const std::string& name : figure_names(runs)) {
    measures.push_back(measure(
        runs, figure_name(name), is_ranked ? better_of(name) : Better::neither,
        [&](const Run& run) { return evaluated(run, name); }, [&](double value) { return figure_text(name, value); }));
  }
  measures.push_back(measure(
      runs, "Parameters", Better::neither,
      [](const Run& run) { return run.config.parameters > 0 ? static_cast<double>(run.config.parameters) : kNan; },
      with_unit));
  // runs of other settings, such as fewer epochs, are not faster for that
  const Better shorter = differences_of(runs).empty() ? Better::less : Better::neither;
  measures.push_back(measure(runs, "Time", shorter, training_seconds, duration));
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

std::string figures_html(ShownRuns runs, const std::vector<Measure>& measures) {
  // runs are often named after their attention
  const bool needs_attention =
      std::ranges::any_of(runs, [](const ShownRun& shown) { return shown.run->name != shown.run->config.attention; });
  Table table = {"", {{"Run"}}, {}};
  if (needs_attention) table.columns.push_back({"Attention"});
  for (const Measure& each : measures) table.columns.push_back({each.name, Align::number});
  for (size_t i = 0; i < runs.size(); ++i) {
    Cell name(runs[i].run->name);
    name.colour = runs[i].colour;
    std::vector<Cell> row = {name};
    if (needs_attention) row.emplace_back(runs[i].run->config.attention);
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
std::string differences_html(ShownRuns runs) {
  const std::vector<std::string> names = figure_names(runs);
  Table table = {"Against " + runs[0].run->name, {{"Run"}}, {}};
  for (const std::string& name : names) table.columns.push_back({figure_name(name), Align::number});
  for (size_t i = 1; i < runs.size(); ++i) {
    Cell run(runs[i].run->name);
    run.colour = runs[i].colour;
    std::vector<Cell> row = {run};
    for (const std::string& name : names) {
      const double difference = evaluated(*runs[i].run, name) - evaluated(*runs[0].run, name);
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

std::string names_of(ShownRuns runs) {
  std::string names;
  for (size_t i = 0; i < runs.size() && i < kMaxNames; ++i) names += (i == 0 ? "" : ", ") + runs[i].run->name;
  return names + (runs.size() > kMaxNames ? fmt::format(" and {} more", runs.size() - kMaxNames) : "");
}

// "87.1% \xC2\xB1 0.4%"; of one run there is no deviation.
Cell spread_cell(ShownRuns runs, const std::string& name) {
  std::vector<double> values;
  for (const ShownRun& shown : runs) {
    if (std::isfinite(evaluated(*shown.run, name))) values.push_back(evaluated(*shown.run, name));
  }
  if (values.empty()) return {"", kNan};
  const Spread spread = spread_of(values);
  const std::string deviation = values.size() > 1 ? " \xC2\xB1 " + figure_text(name, spread.deviation) : "";
  return {figure_text(name, spread.mean) + deviation, spread.mean};
}

// Runs that differ in their seed alone, as a mean and a deviation. Empty where there are no two such.
std::string spreads_html(ShownRuns runs) {
  const std::vector<std::vector<ShownRun>> groups = by_settings(runs);
  if (groups.size() == runs.size()) return "";
  const std::vector<std::string> names = figure_names(runs);
  Table table = {"Mean \xC2\xB1 standard deviation of runs that differ only in their seed",
                 {{"Runs"}, {"Attention"}, {"Number", Align::number}},
                 {}};
  for (const std::string& name : names) table.columns.push_back({figure_name(name), Align::number});
  for (const std::vector<ShownRun>& group : groups) {
    std::vector<Cell> row = {names_of(group), group[0].run->config.attention,
                             Cell(std::to_string(group.size()), static_cast<double>(group.size()))};
    for (const std::string& name : names) row.push_back(spread_cell(group, name));
    table.rows.push_back(std::move(row));
  }
  return table_html(table);
}

// What the figures are of, and how far they can be trusted.
std::string evaluated_hint(ShownRuns runs) {
  const auto first = std::ranges::find_if(runs, [](const ShownRun& shown) { return main_evaluation(*shown.run); });
  if (first == runs.end()) return "";
  const Evaluation& evaluation = *main_evaluation(*first->run);
  std::string hint;
  if (!have_same_records(runs)) {
    hint = "The runs were evaluated on different records; none is ranked above another.";
  } else {
    hint = "On " + evaluated_text(evaluation) + "." + (runs.size() > 1 ? " Best in bold." : "");
    if (evaluation.split == "valid") {
      hint += " The best epochs were chosen by these records, so scores on new ones may be lower.";
    }
  }
  if (first->run->config.task == "multilabel") hint += " Accuracy: the share of records with all labels right.";
  return "<p class=\"hint\">" + escape(hint) + "</p>\n";
}

}  // namespace

std::string comparison_html(ShownRuns runs) {
  const std::string figures = evaluated_hint(runs) + figures_html(runs, measures_of(runs));
  const std::string spreads = spreads_html(runs);
  if (!spreads.empty()) return figures + spreads;
  return figures + (runs.size() > 1 && have_same_records(runs) ? differences_html(runs) : "");
}

}  // namespace ramify::report
