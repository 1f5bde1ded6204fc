// `ramify flops`: what attention costs over a given number of tokens, flat and over a hierarchy of windows.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "commands.h"
#include "ramify/cost.h"

namespace ramify::cli {
namespace {

struct FlopsOptions {
  AttentionShape shape;
  std::string hierarchy = "2,4,8,16";
  bool json = false;
};

// Five digits and a unit: 214.94 M, 835.76 k.
std::string five_digits(double count) {
  const char* units[] = {"", " k", " M", " G", " T", " P"};
  size_t unit = 0;
  while (count >= 1000 && unit + 1 < std::size(units)) {
    count /= 1000;
    ++unit;
  }
  return fmt::format("{:.5g}{}", count, units[unit]);
}

void print_table(const FlopsOptions& options, const AttentionCost& flat, const AttentionCost& hierarchy) {
  fmt::print("Attention over {} tokens, width {}, {} heads, one layer\n\n", options.shape.tokens, options.shape.width,
             options.shape.heads);
  const auto row = [](const std::string& name, double a, double b) {
    const std::string ratio = b > 0 ? fmt::format("{:.4g}", a / b) : "-";
    fmt::print("{:<28}{:>12}{:>16}{:>12}\n", name, five_digits(a), five_digits(b), ratio);
  };
  fmt::print("{:<28}{:>12}{:>16}{:>12}\n", "", "flat", options.hierarchy, "ratio");
  row("FLOPs, paper's convention", flat.paper_flops, hierarchy.paper_flops);
  row("multiply-adds, counted", flat.multiply_adds, hierarchy.multiply_adds);
  row("scored pairs a head", static_cast<double>(flat.score_pairs), static_cast<double>(hierarchy.score_pairs));
}

nlohmann::json to_json(const AttentionCost& cost) {
  return {{"paper_flops", cost.paper_flops}, {"multiply_adds", cost.multiply_adds}, {"score_pairs", cost.score_pairs}};
}

void run(const FlopsOptions& options) {
  const AttentionCost flat = flat_cost(options.shape);
  const AttentionCost hierarchy = hierarchical_cost(options.shape, Branching::parse(options.hierarchy));
  if (!options.json) return print_table(options, flat, hierarchy);
  const nlohmann::json result = {{"tokens", options.shape.tokens}, {"width", options.shape.width},
                                 {"heads", options.shape.heads},   {"hierarchy", options.hierarchy},
                                 {"flat", to_json(flat)},          {"hierarchical", to_json(hierarchy)}};
  fmt::print("{}\n", result.dump(2));
}

}  // namespace

void add_flops(CLI::App& app) {
  auto options = std::make_shared<FlopsOptions>();
  CLI::App* command = app.add_subcommand("flops", "Count the operations of flat and hierarchical attention");
  command->add_option("--tokens", options->shape.tokens, "Tokens (leaves) attended to")->required();
  command->add_option("--hierarchy", options->hierarchy, "Window sizes from the bottom up, such as 2,4,8,16 or 16*")
      ->capture_default_str();
  command->add_option("--width", options->shape.width, "Width of all heads together")->capture_default_str();
  command->add_option("--heads", options->shape.heads, "Attention heads")->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON");
  command->footer("Example:\n  ramify flops --tokens 264 --hierarchy 2,4,8,16 --width 768 --heads 12");
  command->callback([options] { run(*options); });
}

}  // namespace ramify::cli
