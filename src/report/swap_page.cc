#include "report/swap_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/chart.h"
#include "report/html.h"
#include "report/json_file.h"
#include "report/page.h"
#include "report/table.h"

namespace ramify::report {
namespace {

struct Layer {
  double output_error = kNan, divergence = kNan;
};

struct Swap {
  std::string name, hierarchy, layers, tie;
  double start_layer = -1;
  double accuracy = 0, precision = 0, recall = 0, f1 = 0, agreement = 0, cosine = 0;
  double paper_flops = 0, multiply_adds = 0, attention_seconds = 0, seconds = 0;
  std::vector<Layer> drift;

  std::string kind() const { return hierarchy.empty() ? name : hierarchy + ", tie " + tie; }
};

Swap read_swap(const JsonField& field) {
  Swap swap;
  swap.name = field.at("name").text();
  if (const auto hierarchy = field.find("hierarchy")) {
    swap.hierarchy = hierarchy->text();
    swap.layers = field.at("layers").text();
    swap.tie = field.at("tie").text();
    for (const JsonField& layer : field.at("drift").items()) {
      const auto divergence = layer.find("divergence");
      swap.drift.push_back({layer.at("output_error").number(), divergence ? divergence->number() : kNan});
    }
  }
  if (const auto start = field.find("start_layer")) swap.start_layer = start->number();
  const auto number = [&](const char* key) { return field.at(key).number(); };
  swap.accuracy = number("accuracy"), swap.precision = number("precision"), swap.recall = number("recall");
  swap.f1 = number("f1"), swap.agreement = number("agreement"), swap.cosine = number("cosine");
  swap.paper_flops = number("paper_flops"), swap.multiply_adds = number("multiply_adds");
  swap.attention_seconds = number("attention_seconds"), swap.seconds = number("seconds");
  return swap;
}

double mean_divergence(const Swap& swap) {
  double sum = 0, count = 0;
  for (const Layer& layer : swap.drift) {
    if (!std::isfinite(layer.divergence)) continue;
    sum += layer.divergence;
    ++count;
  }
  return count > 0 ? sum / count : kNan;
}

Cell share_cell(double part, double whole) {
  const double share = whole > 0 ? part / whole : kNan;
  return {percent(share), share};
}

std::string swap_table(const std::vector<Swap>& swaps) {
  Table table{.title = "",
              .columns = {{"Hierarchy"},
                          {"Layers"},
                          {"Tie"},
                          {"Accuracy", Align::number},
                          {"Precision", Align::number},
                          {"Recall", Align::number},
                          {"F1", Align::number},
                          {"Agree", Align::number},
                          {"Cosine", Align::number},
                          {"KL", Align::number},
                          {"Paper FLOPs", Align::number},
                          {"True FLOPs", Align::number},
                          {"Attention", Align::number},
                          {"Whole", Align::number}},
              .rows = {}};
  const Swap& exact = swaps.front();
  for (const Swap& swap : swaps) {
    const auto score = [](double value) { return Cell(percent(value), value); };
    table.rows.push_back(
        {swap.hierarchy.empty() ? Cell(swap.name) : Cell(swap.hierarchy), Cell(swap.layers), Cell(swap.tie),
         score(swap.accuracy), score(swap.precision), score(swap.recall), score(swap.f1), score(swap.agreement),
         Cell(decimal(swap.cosine), swap.cosine), Cell(decimal(mean_divergence(swap)), mean_divergence(swap)),
         share_cell(swap.paper_flops, exact.paper_flops), share_cell(swap.multiply_adds, exact.multiply_adds),
         share_cell(swap.attention_seconds, exact.attention_seconds), share_cell(swap.seconds, exact.seconds)});
  }
  return table_html(table) +
         "<p class=\"hint\">FLOPs, multiply-adds and times in percent of exact attention, the last two of all layers. "
         "KL: "
         "mean over the rows of the swapped layers, on the exact model's queries and keys.</p>\n";
}

std::string charts_section(const char* title, const std::string& legend, const std::string& charts) {
  return fmt::format("<section>\n<h2>{}</h2>\n{}<div class=\"charts\">{}</div>\n</section>\n", title, legend, charts);
}

// One line a kind of attention; `x` and `y` of each member. Points without a place are left out.
template <class X, class Y>
std::vector<Series> by_kind(const std::vector<Swap>& swaps, const X& x, const Y& y) {
  std::vector<Series> all;
  for (const Swap& swap : swaps) {
    if (!std::isfinite(x(swap)) || !std::isfinite(y(swap))) continue;
    auto series = std::ranges::find(all, swap.kind(), &Series::name);
    if (series == all.end()) {
      all.push_back({swap.kind(), static_cast<int>(all.size()), Stroke::strong, {}});
      series = all.end() - 1;
    }
    series->points.push_back({x(swap), y(swap)});
  }
  for (Series& series : all) {
    std::ranges::stable_sort(series.points, {}, &Point::x);
  }
  return all;
}

// Metric against the layer from which every other one is swapped; exact is a level line.
std::string ablation_html(const std::vector<Swap>& swaps) {
  std::vector<Swap> members;
  std::ranges::copy_if(swaps, std::back_inserter(members), [](const Swap& swap) { return swap.start_layer >= 0; });
  if (members.empty()) return "";
  std::string html, legend;
  const auto start = [](const Swap& swap) { return swap.start_layer; };
  const auto add = [&](const char* title, Scale scale, auto value) {
    Chart chart{.title = title,
                .note = "",
                .x_name = "start layer",
                .y_scale = scale,
                .series = by_kind(members, start, value)};
    const auto [first, last] = std::ranges::minmax(members, {}, &Swap::start_layer);
    chart.series.push_back({"exact",
                            static_cast<int>(chart.series.size()),
                            Stroke::faint,
                            {{first.start_layer, value(swaps.front())}, {last.start_layer, value(swaps.front())}}});
    legend = legend_html(chart.series);
    html += line_chart_html(chart);
  };
  add("Accuracy", Scale::percent, [](const Swap& swap) { return swap.accuracy; });
  add("Macro F1", Scale::percent, [](const Swap& swap) { return swap.f1; });
  add("Cosine to the exact vectors", Scale::plain, [](const Swap& swap) { return swap.cosine; });
  return charts_section("Every other layer from a start layer on", legend, html);
}

std::string cost_html(const std::vector<Swap>& swaps) {
  const Swap& exact = swaps.front();
  const auto flops = [&](const Swap& swap) { return 100 * swap.multiply_adds / exact.multiply_adds; };
  const auto time = [&](const Swap& swap) { return 100 * swap.seconds / exact.seconds; };
  std::string html, legend;
  const auto add = [&](const Chart& chart) {
    legend = legend_html(chart.series);
    html += line_chart_html(chart);
  };
  const auto accuracy = [](const Swap& swap) { return swap.accuracy; };
  const auto cosine = [](const Swap& swap) { return swap.cosine; };
  const char* kFlops = "multiply-adds of attention, % of exact";
  add({.title = "Accuracy", .x_name = kFlops, .y_scale = Scale::percent, .series = by_kind(swaps, flops, accuracy)});
  add({.title = "Cosine to the exact vectors", .x_name = kFlops, .series = by_kind(swaps, flops, cosine)});
  add({.title = "Accuracy",
       .x_name = "time of the whole model, % of exact",
       .y_scale = Scale::percent,
       .series = by_kind(swaps, time, accuracy)});
  return charts_section("Quality against cost", legend, html);
}

std::string drift_html(const std::vector<Swap>& swaps) {
  constexpr size_t kMostLines = 8;
  std::vector<Series> errors, divergences;
  for (const Swap& swap : swaps) {
    if (swap.drift.empty() || errors.size() == kMostLines) continue;
    const int colour = static_cast<int>(errors.size());
    errors.push_back({swap.name, colour, Stroke::strong, {}});
    divergences.push_back({swap.name, colour, Stroke::strong, {}});
    for (size_t l = 0; l < swap.drift.size(); ++l) {
      errors.back().points.push_back({static_cast<double>(l), swap.drift[l].output_error});
      if (!std::isfinite(swap.drift[l].divergence)) continue;
      divergences.back().points.push_back({static_cast<double>(l), swap.drift[l].divergence});
    }
  }
  if (errors.empty()) return "";
  return charts_section(
      "Drift from the exact model, layer by layer", legend_html(errors),
      line_chart_html({.title = "Relative error of what the layer gives", .x_name = "layer", .series = errors}) +
          line_chart_html(
              {.title = "KL of the rows of attention from softmax", .x_name = "layer", .series = divergences}));
}

}  // namespace

std::string swap_page(const nlohmann::json& comparison) {
  const JsonField all(comparison, "comparison");
  std::vector<Swap> swaps;
  for (const JsonField& result : all.at("results").items()) swaps.push_back(read_swap(result));
  if (swaps.empty()) throw Error("comparison: has no results");
  const auto model = all.find("model");
  const std::string title = "Swapped attention" + (model ? " of " + model->text() : std::string());
  const auto folds = all.find("folds");
  std::string html = fmt::format("<h1>{}</h1>\n<p class=\"hint\">", escape(title));
  html += fmt::format("A logistic head on the exact model's vectors of {} texts, {} classes; ",
                      with_commas(all.at("train_texts").count()), all.at("classes").count());
  html += folds ? fmt::format("cross-validated in {} parts", folds->count())
                : fmt::format("scored on {} other texts", with_commas(all.at("test_texts").count()));
  html += fmt::format(", {} tokens.</p>\n", with_commas(all.at("tokens").count()));
  html += "<section>\n<h2>Variants</h2>\n" + swap_table(swaps) + "</section>\n";
  html += ablation_html(swaps) + cost_html(swaps) + drift_html(swaps);
  return page_html(title, html);
}

}  // namespace ramify::report
