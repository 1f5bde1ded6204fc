// `ramify bench attention`: the options, their checks, and the results as a table or JSON. Measuring needs torch and is
// in attention_bench.cc.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention_bench.h"
#include "bench_memory.h"
#include "commands.h"
#include "ramify/builders.h"
#include "ramify/version.h"
#include "torch_library.h"

namespace ramify::cli {
namespace {

// As the user writes them; `bench` has the rest.
struct BenchOptions {
  AttentionBench bench;
  std::optional<int64_t> key_heads;
  std::string tie = "block";
  std::string causal = "none";
  bool backward = false;
  bool json = false;
};

const char* name_of(Tie tie) {
  return tie == Tie::block ? "block" : "none";
}

const char* name_of(Causal causal) {
  return causal == Causal::none ? "none" : causal == Causal::block ? "block" : "prefix";
}

const char* name_of(Pass pass) {
  return pass == Pass::forward ? "forward" : "forward + backward";
}

void require_between(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value < least) {
    throw std::invalid_argument(fmt::format("bench: {} is {}; expected at least {}", name, value, least));
  }
  if (value > most) {
    throw std::invalid_argument(fmt::format("bench: {} is {}; expected at most {}", name, value, most));
  }
}

void check(const AttentionBench& bench) {
  constexpr int64_t kMaxHeads = 4096, kMaxDim = 4096, kMaxThreads = 1024;
  require_between("heads", bench.heads, 1, kMaxHeads);
  require_between("key-heads", bench.key_heads, 1, kMaxHeads);
  require_between("dim", bench.dim, 1, kMaxDim);
  require_between("threads", bench.threads, 0, kMaxThreads);
  if (bench.heads % bench.key_heads != 0) {
    throw std::invalid_argument(
        fmt::format("bench: key-heads is {}, heads is {}; key-heads must divide heads", bench.key_heads, bench.heads));
  }
  require_between("window", bench.window, 0, kMaxLeaves);
  if (bench.window > 0 && bench.tie == Tie::block) {
    throw std::invalid_argument(
        fmt::format("bench: window is {} with tie block; a window needs --tie none", bench.window));
  }
  if (bench.tokens.empty()) throw std::invalid_argument("bench: tokens is empty; expected numbers, such as 512,4096");
  for (const int64_t tokens : bench.tokens) require_between("tokens", tokens, 1, kMaxLeaves);
  windows(std::vector<int64_t>{}, Branching::parse(bench.hierarchy));  // for its checks
  require_memory(bench);
}

double ours_ms(const AttentionRow& row) {
  return row.timings.front().median_ms;
}

double larger_floor_ms(const AttentionRow& row) {
  return std::max(row.floors.copy_ms, row.floors.flop_ms);
}

// Three digits, with those after the point that make them.
std::string digits(double value) {
  return fmt::format("{:.{}f}", value, value < 1 ? 3 : value < 10 ? 2 : value < 100 ? 1 : 0);
}

void print_line(const std::vector<std::string>& cells) {
  std::string line = fmt::format("{:>10}", cells.front());
  for (size_t i = 1; i < cells.size(); ++i) line += fmt::format("{:>15}", cells[i]);
  fmt::print("{}\n", line);
}

void print_head(const AttentionBench& bench, const AttentionReport& report) {
  const std::string heads = bench.key_heads == bench.heads
                                ? std::to_string(bench.heads)
                                : fmt::format("{} ({} of keys)", bench.heads, bench.key_heads);
  const std::string window = bench.window > 0 ? fmt::format(", window={}", bench.window) : "";
  fmt::print("Attention over windows {}, {} heads of {}, {}, tie={}, causal={}{}, {}\n", bench.hierarchy, heads,
             bench.dim, bench.dtype, name_of(bench.tie), name_of(bench.causal), window, name_of(bench.pass));
  fmt::print("{}, {} threads, torch {}, {} G multiply-adds a second\n", report.cpu, report.threads, report.torch,
             digits(report.multiply_adds_per_second / 1e9));
  fmt::print("Milliseconds, medians; a floor is the least that copying or multiplying alone would take\n\n");
  std::vector<std::string> cells = {"tokens"};
  for (const Timing& timing : report.rows.front().timings) cells.push_back(timing.name);
  for (const std::string& peer : bench.peers) cells.push_back(peer + "/ours");
  cells.insert(cells.end(), {"copy floor", "FLOP floor", "ours/floor"});
  print_line(cells);
}

void print_row(const AttentionRow& row) {
  std::vector<std::string> cells = {std::to_string(row.tokens)};
  for (const Timing& timing : row.timings) cells.push_back(digits(timing.median_ms));
  for (size_t i = 1; i < row.timings.size(); ++i) cells.push_back(digits(row.timings[i].median_ms / ours_ms(row)));
  cells.insert(cells.end(), {digits(row.floors.copy_ms), digits(row.floors.flop_ms)});
  cells.push_back(larger_floor_ms(row) > 0 ? digits(ours_ms(row) / larger_floor_ms(row)) : "-");
  print_line(cells);
  std::fflush(stdout);  // the next row may take minutes
}

// A column of ours that is not the fused kernels says so.
void print_foot(const AttentionReport& report) {
  if (!report.why_not_fused.empty()) fmt::print("\nours is the composed implementation: {}\n", report.why_not_fused);
}

nlohmann::json implementation_json(const AttentionReport& report) {
  if (report.why_not_fused.empty()) return {{"implementation", "fused"}};
  return {{"implementation", "composed"}, {"reason", report.why_not_fused}};
}

nlohmann::json to_json(const AttentionRow& row) {
  nlohmann::json times = nlohmann::json::object(), ratios = nlohmann::json::object();
  for (const Timing& timing : row.timings) {
    times[timing.name] = {{"median_ms", timing.median_ms}, {"calls", timing.calls}};
    if (timing.name != "ours") ratios[timing.name] = timing.median_ms / ours_ms(row);
  }
  return {{"tokens", row.tokens},
          {"times", times},
          {"over_ours", ratios},
          {"copy_floor_ms", row.floors.copy_ms},
          {"flop_floor_ms", row.floors.flop_ms},
          {"bytes", row.floors.bytes},
          {"multiply_adds", row.floors.multiply_adds}};
}

nlohmann::json to_json(const AttentionBench& bench) {
  return {{"tokens", bench.tokens},    {"hierarchy", bench.hierarchy},
          {"heads", bench.heads},      {"key_heads", bench.key_heads},
          {"dim", bench.dim},          {"dtype", bench.dtype},
          {"tie", name_of(bench.tie)}, {"causal", name_of(bench.causal)},
          {"window", bench.window},    {"backward", bench.pass == Pass::forward_backward},
          {"peers", bench.peers}};
}

nlohmann::json to_json(const AttentionBench& bench, const AttentionReport& report) {
  nlohmann::json rows = nlohmann::json::array();
  for (const AttentionRow& row : report.rows) rows.push_back(to_json(row));
  return {{"machine",
           {{"cpu", report.cpu},
            {"ramify", RAMIFY_VERSION},
            {"threads", report.threads},
            {"torch", report.torch},
            {"multiply_adds_per_second", report.multiply_adds_per_second}}},
          {"options", to_json(bench)},
          {"ours", implementation_json(report)},
          {"rows", rows}};
}

// `none` stands alone; a peer that is named twice is timed once.
std::vector<std::string> chosen_peers(const std::vector<std::string>& names) {
  std::vector<std::string> peers;
  for (const std::string& name : names) {
    if (name == "none" && names.size() > 1) {
      throw std::invalid_argument("bench: peers holds none and others; expected none alone");
    }
    if (name != "none" && std::find(peers.begin(), peers.end(), name) == peers.end()) peers.push_back(name);
  }
  return peers;
}

AttentionBench bench_of(const BenchOptions& options) {
  AttentionBench bench = options.bench;
  bench.key_heads = options.key_heads.value_or(bench.heads);
  bench.tie = options.tie == "block" ? Tie::block : Tie::none;
  bench.causal = options.causal == "block" ? Causal::block : options.causal == "prefix" ? Causal::prefix : Causal::none;
  bench.pass = options.backward ? Pass::forward_backward : Pass::forward;
  bench.peers = chosen_peers(bench.peers);
  return bench;
}

void run(const BenchOptions& options) {
  const AttentionBench bench = bench_of(options);
  check(bench);
  const auto measure = torch_function<MeasureAttention>(kMeasureAttention);
  measure(bench, [&](const AttentionReport& report) {
    const bool is_last = report.rows.size() == bench.tokens.size();
    if (options.json) {
      if (is_last) fmt::print("{}\n", to_json(bench, report).dump(2));
      return;
    }
    if (report.rows.size() == 1) print_head(bench, report);
    print_row(report.rows.back());
    if (is_last) print_foot(report);
  });
}

void add_attention(CLI::App& bench_command) {
  auto options = std::make_shared<BenchOptions>();
  AttentionBench& bench = options->bench;
  CLI::App* command =
      bench_command.add_subcommand("attention", "Time attention over windows beside its peers and limits");
  command->add_option("--tokens", bench.tokens, "Tokens (leaves); a list gives a row each")
      ->delimiter(',')
      ->default_str("512,4096,16384");
  command->add_option("--hierarchy", bench.hierarchy, "Window sizes from the bottom up, such as 2,4,8,16 or 16*")
      ->capture_default_str();
  command->add_option("--heads", bench.heads, "Attention heads")->capture_default_str();
  command->add_option("--key-heads", options->key_heads, "Heads of keys and values, a divisor of heads [as heads]");
  command->add_option("--dim", bench.dim, "Width of one head")->capture_default_str();
  command->add_option("--dtype", bench.dtype, "float32, bfloat16 or float16")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}))
      ->capture_default_str();
  command->add_option("--tie", options->tie, "block or none: do the leaves below a node look alike?")
      ->check(CLI::IsMember({"block", "none"}))
      ->capture_default_str();
  command
      ->add_option("--causal", options->causal,
                   "none; block: siblings to the left only; prefix: as a decoder sees them")
      ->check(CLI::IsMember({"none", "block", "prefix"}))
      ->capture_default_str();
  command->add_option("--window", bench.window, "With --tie none: tokens this near are seen one by one")
      ->capture_default_str();
  command->add_option("--threads", bench.threads, "Threads; 0: all cores")->capture_default_str();
  command->add_flag("--backward", options->backward, "Also the gradients by q, k and v");
  command
      ->add_option("--peers", bench.peers, "What to compare with: composed, sdpa (torch's softmax attention), or none")
      ->delimiter(',')
      ->check(CLI::IsMember({"composed", "sdpa", "none"}))
      ->default_str("composed,sdpa");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Examples:\n"
      "  ramify bench attention\n"
      "  ramify bench attention --backward --threads 2 --json > backward.json\n"
      "  ramify bench attention --tie none --causal prefix --window 64\n"
      "  ramify bench attention --tokens 1048576 --hierarchy 2,4,8,16 --dtype bfloat16 --peers none\n"
      "Torch's attention takes seconds a call at 16384 tokens; progress is shown on stderr. With a causal form it is\n"
      "causal, too.");
  command->callback([options] { run(*options); });
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Measure the speed of what ramify computes");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  ramify bench attention --tokens 512,4096\n"
      "  ramify bench model models/gte-small --tokens 512,8192");
  add_attention(*command);
  add_bench_model(*command);
  add_bench_cache(*command);
}

}  // namespace ramify::cli
