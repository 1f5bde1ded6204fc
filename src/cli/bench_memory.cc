#include "bench_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>

#include "ramify/cost.h"

namespace ramify::cli {
namespace {

// What the kernel thinks can be had without swapping.
std::optional<double> available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  double kilobytes = 0;
  while (file >> key >> kilobytes && std::getline(file, unit)) {
    if (key == "MemAvailable:") return kilobytes * 1024;
  }
  return std::nullopt;
}

// What a contender holds at its peak, roughly: enough to tell gigabytes from terabytes.
double needed_bytes(const AttentionBench& bench, int64_t tokens, const std::string& contender) {
  const double element = bench.dtype == "float32" ? 4 : 2;
  const double queries = static_cast<double>(tokens) * bench.heads * bench.dim * element;
  const double keys_and_values = 2.0 * static_cast<double>(tokens) * bench.key_heads * bench.dim * element;
  const double tensors = (queries + keys_and_values) + queries;  // inputs, output
  const double passes = bench.pass == Pass::forward_backward ? 2 : 1;
  const double forest = 400.0 * static_cast<double>(tokens);  // arrays and plans, families of two at worst
  const double ours = passes * tensors + forest;
  if (contender == "sdpa") return ours + passes * tensors;  // its inputs are head by head
  if (contender != "composed") return ours;
  // measured in tensors of float32 like q: what the levels keep, and three of scores a level at its widest
  const AttentionShape shape = {tokens, bench.heads * bench.dim, bench.heads};
  const auto pairs = static_cast<double>(hierarchical_cost(shape, Branching::parse(bench.hierarchy)).score_pairs);
  const double kept = passes == 1 ? 9 : bench.tie == Tie::block ? 16 : 27;
  return ours + kept * queries * 4 / element + 3 * 4.0 * pairs * static_cast<double>(bench.heads);
}

std::string bytes_text(double bytes) {
  const bool terabytes = bytes >= 1e12;
  return fmt::format("{:.1f} {}", bytes / (terabytes ? 1e12 : 1e9), terabytes ? "TB" : "GB");
}

}  // namespace

void require_memory(const AttentionBench& bench) {
  const std::optional<double> available = available_bytes();
  if (!available) return;
  std::vector<std::string> contenders = {"ours"};
  contenders.insert(contenders.end(), bench.peers.begin(), bench.peers.end());
  for (const std::string& contender : contenders) {
    for (const int64_t tokens : bench.tokens) {
      const double needed = needed_bytes(bench, tokens, contender);
      if (needed <= *available) continue;
      throw std::runtime_error(fmt::format(
          "bench: {} tokens need about {} of memory for {}, {} are available; expected fewer tokens{}", tokens,
          bytes_text(needed), contender, bytes_text(*available), contender == "ours" ? "" : ", or other --peers"));
    }
  }
}

}  // namespace ramify::cli
