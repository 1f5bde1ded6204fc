// `ramify bench cache` with torch: the steps that end at some contexts, one layer, one sequence, allocation included.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "generation_commands.h"
#include "models/layer_cache.h"
#include "progress_line.h"
#include "ramify/cache.h"
#include "report/html.h"
#include "torch_settings.h"

namespace ramify::cli {
namespace {

constexpr int64_t kChunk = 4096;
constexpr int64_t kKeyValueSteps = 32;  // each takes milliseconds

double seconds_of(const auto& work) {
  const auto began = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

struct StepRow {
  int64_t context = 0, steps = 0;
  double step_us = 0, kv_step_us = 0;  // 0: not timed
  int64_t bytes = 0, kv_bytes = 0;
};

class CacheBench {
 public:
  explicit CacheBench(const CacheBenchCommand& command)
      : command_(command),
        cache_({.heads = command.heads,
                .key_heads = command.heads,
                .dim = command.dim,
                .value_dim = command.dim,
                .hierarchy = command.hierarchy,
                .tie = command.tie == "none" ? Tie::none : Tie::block,
                .window = command.window}) {
    for (at::Tensor* rows : {&q_, &k_, &v_}) *rows = at::randn({1, kChunk, command.heads, command.dim});
  }

  StepRow measure(int64_t context) {
    StepRow row = {.context = context};
    const int64_t steps = std::min(command_.steps, context - cache_.tokens());
    grow_to(context - steps);
    const double seconds = seconds_of([&] {
      for (int64_t i = 0; i < steps; ++i) {
        const int64_t at = i % kChunk;
        cache_.append(q_.narrow(1, at, 1), k_.narrow(1, at, 1), v_.narrow(1, at, 1));
      }
    });
    row.steps = steps;
    row.step_us = 1e6 * seconds / static_cast<double>(steps);
    row.bytes = cache_.bytes();
    row.kv_bytes = 2 * context * command_.heads * command_.dim * static_cast<int64_t>(sizeof(float));
    if (context <= command_.kv_context) row.kv_step_us = key_value_step(context);
    return row;
  }

 private:
  void grow_to(int64_t tokens) {
    while (cache_.tokens() < tokens) {
      line_.show(fmt::format("{} tokens", report::with_commas(tokens)),
                 static_cast<double>(cache_.tokens()) / static_cast<double>(tokens), "");
      const int64_t count = std::min(kChunk, tokens - cache_.tokens());
      cache_.append(q_.narrow(1, 0, count), k_.narrow(1, 0, count), v_.narrow(1, 0, count));
    }
    line_.clear();
  }

  // Mean of steps that end at a context, one after the other, as they come in generation.
  double key_value_step(int64_t context) {
    models::KeyValueCache all;
    const int64_t steps = std::min(kKeyValueSteps, context), before = context - steps;
    const auto part = [](const at::Tensor& rows, int64_t at, int64_t count) {
      return rows.squeeze(0).narrow(0, at % kChunk, count);
    };
    for (int64_t i = 0; i < before; i += kChunk) {
      const int64_t count = std::min(kChunk, before - i);
      all.store(part(k_, 0, count), part(v_, 0, count));
    }
    const auto step = [&](int64_t i) { all.append(part(q_, i, 1), part(k_, i, 1), part(v_, i, 1)); };
    step(0);  // makes room
    return 1e6 * seconds_of([&] {
             for (int64_t i = 1; i < steps; ++i) step(i);
           }) /
           static_cast<double>(std::max<int64_t>(1, steps - 1));
  }

  const CacheBenchCommand& command_;
  HierarchicalCache cache_;
  at::Tensor q_, k_, v_;
  ProgressLine line_;
};

nlohmann::json to_json(const StepRow& row) {
  nlohmann::json json = {{"context", row.context},
                         {"steps", row.steps},
                         {"step_us", row.step_us},
                         {"bytes", row.bytes},
                         {"kv_bytes", row.kv_bytes}};
  if (row.kv_step_us > 0) json["kv_step_us"] = row.kv_step_us;
  return json;
}

void print_row(const StepRow& row, double first_us) {
  const std::string kv = row.kv_step_us > 0 ? fmt::format("{:.1f}", row.kv_step_us) : "-";
  const std::string gain = row.kv_step_us > 0 ? fmt::format("{:.0f}x", row.kv_step_us / row.step_us) : "-";
  fmt::print("{:>11} {:>10.2f} {:>9.2f}x {:>12} {:>8} | {:>11} {:>11} {:>8.0f}x\n", report::with_commas(row.context),
             row.step_us, row.step_us / first_us, kv, gain, report::bytes_text(static_cast<double>(row.bytes)),
             report::bytes_text(static_cast<double>(row.kv_bytes)),
             static_cast<double>(row.kv_bytes) / static_cast<double>(row.bytes));
  std::fflush(stdout);
}

int run_cache_bench(const CacheBenchCommand& command) {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> contexts = command.contexts;
  std::ranges::sort(contexts);
  contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
  CacheBench bench(command);
  if (!command.json) {
    fmt::print("A step of one layer, {} heads of {}, {} threads: {}, tie {}, window {}, beside all keys and values\n",
               command.heads, command.dim, at::get_num_threads(), command.hierarchy, command.tie, command.window);
    fmt::print("Microseconds, means of up to {} steps that end at each context (of all keys and values: {})\n\n",
               command.steps, kKeyValueSteps - 1);
    fmt::print("{:>11} {:>10} {:>10} {:>12} {:>8} | {:>11} {:>11} {:>9}\n", "context", "step", "to first", "kv step",
               "gain", "bytes", "kv bytes", "gain");
  }
  nlohmann::json rows = nlohmann::json::array();
  double first_us = 0;
  for (const int64_t context : contexts) {
    const StepRow row = bench.measure(context);
    if (first_us == 0) first_us = row.step_us;
    rows.push_back(to_json(row));
    if (!command.json) print_row(row, first_us);
  }
  if (command.json) {
    fmt::print("{}\n", nlohmann::json({{"heads", command.heads},
                                       {"dim", command.dim},
                                       {"hierarchy", command.hierarchy},
                                       {"tie", command.tie},
                                       {"window", command.window},
                                       {"threads", at::get_num_threads()},
                                       {"steps", command.steps},
                                       {"rows", rows}})
                           .dump(2));
  }
  return 0;
}

}  // namespace
}  // namespace ramify::cli

extern "C" int ramify_run_cache_bench(const ramify::cli::CacheBenchCommand& given) {
  ramify::cli::CacheBenchCommand command = given;
  ramify::cli::apply_compute_options(command.compute);
  try {
    return ramify::cli::run_cache_bench(command);
  } catch (const c10::ValueError& error) {
    throw std::invalid_argument(error.what_without_backtrace());
  }
}
