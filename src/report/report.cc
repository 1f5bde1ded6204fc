#include "report/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "report/class_comparison.h"
#include "report/comparison.h"
#include "report/curves.h"
#include "report/evaluation_section.h"
#include "report/explanation.h"
#include "report/figures.h"
#include "report/html.h"
#include "report/likeness.h"
#include "report/page.h"
#include "report/table.h"

namespace ramify::report {
namespace {

std::string task_words(const std::string& task) {
  if (task == "classification") return "Classification of";
  if (task == "regression") return "Regression of";
  if (task == "multilabel") return "Multi-label classification of";
  if (task == "nodes") return "Classification of items:";
  return task;
}

std::string file_name(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

// What the runs were trained on: "Classification of section, 20 classes, 11,314 records of train.jsonl".
std::string task_html(const RunConfig& config) {
  std::string html = escape(task_words(config.task), 60) + " <b>" + isolated(config.target, 80) + "</b>";
  if (config.classes > 0) html += fmt::format(", {} classes", with_commas(config.classes));
  if (config.records > 0) html += fmt::format(", {} records", with_commas(config.records));
  if (!config.train.empty()) html += " of " + isolated(file_name(config.train), 80);
  return html;
}

std::string model_html(const RunConfig& config) {
  std::string html = escape(config.attention, 60) + " attention";
  if (config.parameters > 0) {
    html += fmt::format(", {} parameters", with_commas(config.parameters));
    if (config.encoder_parameters > 0) {
      html += fmt::format(" ({} encoder, {} tables)", with_unit(static_cast<double>(config.encoder_parameters)),
                          with_unit(static_cast<double>(config.table_parameters)));
    }
  }
  if (config.seed) html += fmt::format(", seed {}", *config.seed);
  if (!config.version.empty()) html += ", ramify " + escape(config.version, 40);
  return html;
}

std::string tile(const std::string& name, const std::string& value, const std::string& note) {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b><small>{}</small></div>", escape(name, 60),
                     escape(value, 60), escape(note, 120));
}

// What the simplest model would reach: always the largest class.
double largest_class(const Evaluation& evaluation) {
  int64_t largest = 0, total = 0;
  for (const ClassScore& score : evaluation.per_class) {
    largest = std::max(largest, score.support);
    total += score.support;
  }
  return total > 0 ? static_cast<double>(largest) / static_cast<double>(total) : 0;
}

// The same figure of the other splits: "valid 88.1%".
std::string other_splits(const Run& run, const std::string& name) {
  std::string note;
  for (size_t i = 1; i < run.evaluations.size(); ++i) {
    const double value = figure(run.evaluations[i].figures, name);
    if (std::isfinite(value)) {
      note += (note.empty() ? "" : ", ") + run.evaluations[i].split + " " + figure_text(name, value);
    }
  }
  return note;
}

// What stands under a score: its split, the same of other splits, and what it is to be measured against.
std::string score_note(const Run& run, const Evaluation& evaluation, const std::string& name) {
  std::string note = evaluation.split;
  const std::string others = other_splits(run, name);
  if (!others.empty()) note += "; " + others;
  if (name != "accuracy") return note;
  if (run.config.task == "multilabel") return note + "; all labels of a record right";
  return evaluation.per_class.empty() ? note : note + "; largest class " + percent(largest_class(evaluation));
}

std::string score_tiles_html(const Run& run, const Evaluation& evaluation) {
  std::vector<std::string> names;
  for (const Figure& each : evaluation.figures) names.push_back(each.first);
  std::string html;
  for (const std::string& name : in_order(std::move(names))) {
    const double value = figure(evaluation.figures, name);
    html += tile(figure_name(name), figure_text(name, value), score_note(run, evaluation, name));
  }
  if (!evaluation.items)
    return html + tile("Records", with_commas(evaluation.records), "evaluated, " + evaluation.split);
  return html + tile("Items", with_commas(*evaluation.items),
                     fmt::format("of {} records, {}", with_commas(evaluation.records), evaluation.split));
}

std::string tiles_html(const Run& run) {
  std::string html = "<div class=\"tiles\">";
  if (const Evaluation* evaluation = main_evaluation(run)) html += score_tiles_html(run, *evaluation);
  const double seconds = training_seconds(run);
  if (std::isfinite(seconds)) {
    const MetricLine& last = run.metrics.back();
    html += tile("Training time", duration(seconds),
                 std::isfinite(last.epoch) ? fmt::format("{:.4g} {}, {:.0f} steps", last.epoch,
                                                         last.epoch == 1 ? "epoch" : "epochs", last.step)
                                           : fmt::format("{:.0f} steps", last.step));
  }
  const double speed = leaves_per_second(run);
  if (std::isfinite(speed)) html += tile("Leaves/s", with_unit(speed), "while training, median");
  if (run.peak_memory_bytes > 0) html += tile("Peak memory", bytes_text(run.peak_memory_bytes), "");
  return html + "</div>\n";
}

std::string section(const std::string& title, const std::string& content) {
  if (content.empty()) return "";
  return "<section>\n<h2>" + title + "</h2>\n" + content + "</section>\n";
}

std::string folded(const std::string& title, const std::string& content) {
  if (content.empty()) return "";
  return "<details class=\"fold\"><summary>" + title + "</summary>\n" + content + "</details>\n";
}

std::string notes_html(const Run& run) {
  std::string html;
  for (const std::string& note : run.notes) html += "<p class=\"note\">" + escape(note) + "</p>\n";
  return html;
}

std::string settings_html(const RunConfig& config) {
  Table table = {"", {{"Setting"}, {"Value"}}, {}};
  for (const auto& [name, value] : config.settings) table.rows.push_back({name, value});
  std::string html;
  if (!config.command.empty()) html += "<pre>" + escape(config.command) + "</pre>\n";
  if (!table.rows.empty()) html += table_html(table);
  return folded("Command and settings", html);
}

// Scores and records, the same for one run and for each of several.
std::string evaluations_html(const Run& run) {
  std::string html;
  for (size_t i = 0; i < run.evaluations.size(); ++i) {
    const Evaluation& evaluation = run.evaluations[i];
    const std::string title = "On " + escape(evaluated_text(evaluation), 80);
    const std::string content = evaluation_html(evaluation);
    html +=
        i == 0 ? (content.empty() ? "" : "<p class=\"hint\">" + title + "</p>\n" + content) : folded(title, content);
  }
  return html;
}

constexpr const char* kChosenHint =
    "<p class=\"hint\">There is no test split: these scores are of the validation records, by which the best epoch was "
    "chosen, and may be lower on new records.</p>\n";

// Scores on the records that the model was chosen by say less than others.
std::string chosen_hint(const Run& run) {
  const Evaluation* evaluation = main_evaluation(run);
  return evaluation && evaluation->split == "valid" ? kChosenHint : "";
}

constexpr const char* kRecordsHint =
    "<p class=\"hint\">Each bar is the share of the attention that a part of the record received; the mark on it is "
    "the share it would have if all leaves received the same. Words and patches are darker the more they received. "
    "Attention shows where the model looked, not why it decided: changing a dark part need not change the "
    "prediction.</p>\n";

bool has_mass(const Run& run) {
  return std::any_of(run.explanations.begin(), run.explanations.end(),
                     [](const Explanation& each) { return each.tree.mass >= 0; });
}

const char* records_title(const Run& run) {
  return has_mass(run) ? "What the model looked at" : "Records";
}

std::string records_html(const Run& run) {
  return (has_mass(run) ? kRecordsHint : "") + explanations_html(run);
}

std::string single_body(const Run& run) {
  std::string html = "<header><h1>" + isolated(run.name, 200) + "</h1><p>" + task_html(run.config) +
                     "</p><p class=\"soft\">" + model_html(run.config) + "</p></header>\n" + notes_html(run) +
                     tiles_html(run) + chosen_hint(run);
  const std::vector<ShownRun> runs = shown_runs(std::span(&run, 1));
  html += section("Learning curves", curves_html(runs) + folded("Rate and speed", diagnostics_html(runs)));
  html += section("Scores", evaluations_html(run));
  html += section(records_title(run), records_html(run));
  return html + settings_html(run.config);
}

std::string run_html(const Run& run, int colour, bool is_open) {
  return fmt::format(
      "<details class=\"run\"{}><summary><i class=\"swatch {}\"></i>{} <span "
      "class=\"soft\">{}</span></summary>\n{}{}{}{}"
      "</details>\n",
      is_open ? " open" : "", colour_class(colour), isolated(run.name, 200), model_html(run.config), notes_html(run),
      evaluations_html(run),
      run.explanations.empty() ? "" : fmt::format("<h3>{}</h3>\n{}", records_title(run), records_html(run)),
      settings_html(run.config));
}

std::string differences_note(ShownRuns runs) {
  const std::string differences = differences_of(runs);
  if (differences.empty()) return "";
  return "<p class=\"note\">These runs differ in: " + escape(differences) + ". Compare them with care.</p>\n";
}

// Runs of one task and target.
std::string problem_html(ShownRuns runs) {
  const std::string speed = folded("Rate and speed", diagnostics_html(runs));
  return section("Comparison", comparison_html(runs)) + section("Learning curves", curves_html(runs) + speed) +
         section("Classes", class_comparison_html(runs));
}

// One of several such groups, each on its own.
std::string one_problem_html(ShownRuns runs) {
  const auto part = [](const char* title, const std::string& content) {
    return content.empty() ? "" : fmt::format("<h3>{}</h3>\n{}", title, content);
  };
  return fmt::format("<section class=\"problem\">\n<h2>{}</h2>\n", task_html(runs[0].run->config)) +
         differences_note(runs) + part(runs.size() > 1 ? "Comparison" : "Scores", comparison_html(runs)) +
         part("Learning curves", curves_html(runs)) + part("Classes", class_comparison_html(runs)) + "</section>\n";
}

std::string several_body(std::span<const Run> runs) {
  const std::vector<ShownRun> shown = shown_runs(runs);
  const std::vector<std::vector<ShownRun>> problems = by_problem(shown);
  std::string html = fmt::format("<header><h1>{} runs compared</h1>", runs.size());
  if (problems.size() == 1) {
    html += "<p>" + task_html(runs[0].config) + "</p></header>\n" + differences_note(shown) + problem_html(shown);
  } else {
    html += fmt::format(
        "<p>{} tasks. Scores of different tasks cannot be compared: each has tables of its own.</p></header>\n",
        problems.size());
    for (const std::vector<ShownRun>& problem : problems) html += one_problem_html(problem);
  }
  std::string details;
  for (size_t i = 0; i < runs.size(); ++i) details += run_html(runs[i], static_cast<int>(i), i == 0);
  return html + section("Runs", details);
}

}  // namespace

std::string report_page(std::span<const Run> runs) {
  const std::string title = runs.size() == 1 ? runs[0].name : fmt::format("{} runs", runs.size());
  return page_html(title + " \xC2\xB7 ramify", runs.size() == 1 ? single_body(runs[0]) : several_body(runs));
}

}  // namespace ramify::report
