// Measures what `ramify bench attention` prints. Part of the library that is loaded only for it.
#include "attention_bench.h"

#include <ATen/Parallel.h>
#include <torch/version.h>
#include <unistd.h>

#include <string_view>

#include "attention_contenders.h"
#include "floors.h"
#include "machine_rates.h"
#include "notes.h"

namespace ramify::cli {
namespace {

// On a terminal one line, rewritten and in the end erased; elsewhere a line a row.
class Progress {
 public:
  explicit Progress(int64_t tokens) : tokens_(tokens) {
    if (!terminal_) tell("bench: {} tokens\n", tokens_);
  }
  ~Progress() {
    if (terminal_) tell("\r\033[K");
  }
  void show(std::string_view what) const {
    if (terminal_) tell("\r\033[Kbench: {} tokens: {}", tokens_, what);
  }

 private:
  int64_t tokens_;
  bool terminal_ = isatty(STDERR_FILENO) == 1;
};

AttentionRow measure_row(const AttentionBench& bench, int64_t tokens, double multiply_adds_per_second) {
  const Progress progress(tokens);
  const Forest forest = bench_forest(bench, tokens);
  AttentionRow row;
  row.tokens = tokens;
  row.timings =
      time_interleaved(attention_contenders(bench, forest), [&](std::string_view what) { progress.show(what); });
  progress.show("floors");
  row.floors = floors_of(bench, forest, multiply_adds_per_second);
  return row;
}

void measure(AttentionBench bench, const std::function<void(const AttentionReport&)>& on_row) {
  if (bench.threads > 0) at::set_num_threads(static_cast<int>(bench.threads));
  bench.threads = at::get_num_threads();
  AttentionReport report;
  report.cpu = cpu_name();
  report.torch = TORCH_VERSION;
  report.threads = bench.threads;
  report.multiply_adds_per_second = multiply_add_rate(bench.threads);
  report.why_not_fused = why_ours_is_not_fused(bench);
  for (const int64_t tokens : bench.tokens) {
    report.rows.push_back(measure_row(bench, tokens, report.multiply_adds_per_second));
    on_row(report);
  }
}

}  // namespace
}  // namespace ramify::cli

extern "C" void ramify_measure_attention(const ramify::cli::AttentionBench& bench,
                                         const std::function<void(const ramify::cli::AttentionReport&)>& on_row) {
  ramify::cli::measure(bench, on_row);
}
