// The cases of `ramify bench attention` for Google Benchmark, which repeats, filters and compares runs:
//
//   build/release/benchmarks/attention_bench --benchmark_filter='windows16/forward/4096'
//
// Names are contender/case/pass/tokens. One contender after the other, not interleaved: for ratios use the command.
#include "cli/attention_bench.h"

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "cli/attention_contenders.h"

namespace ramify {
namespace {

using cli::AttentionBench;
using cli::Pass;

struct Case {
  std::string name;
  AttentionBench bench;
};

std::vector<Case> cases() {
  AttentionBench paper, half, untied, causal, grouped, flat;
  paper.hierarchy = "2,4,8,16";
  half.dtype = "bfloat16";
  untied.tie = Tie::none;
  causal.causal = Causal::block;
  grouped.key_heads = 4;
  flat.hierarchy = "4096";
  flat.tokens = {4096};
  std::vector<Case> all = {{"windows16", {}},  {"windows2_4_8_16", paper}, {"bfloat16", half}, {"untied", untied},
                           {"causal", causal}, {"grouped", grouped},       {"flat", flat}};
  for (Case& variant : all) {
    if (variant.name != "windows16" && variant.name != "flat") variant.bench.tokens = {4096, 16384};
  }
  return all;
}

void time_contender(benchmark::State& state, const AttentionBench& bench, int64_t tokens) {
  const cli::Contender contender = cli::attention_contenders(bench, cli::bench_forest(bench, tokens)).back();
  contender.call();  // warm up
  for (auto _ : state) contender.call();
  state.SetItemsProcessed(state.iterations() * tokens);
}

void add(const Case& variant, const std::string& contender, Pass pass, int64_t tokens) {
  AttentionBench bench = variant.bench;
  bench.pass = pass;
  bench.peers.clear();
  if (contender != "ours") bench.peers = {contender};
  const std::string name =
      contender + "/" + variant.name + (pass == Pass::forward ? "/forward/" : "/backward/") + std::to_string(tokens);
  benchmark::RegisterBenchmark(name.c_str(),
                               [bench, tokens](benchmark::State& state) { time_contender(state, bench, tokens); })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

void add_all() {
  for (const Case& variant : cases()) {
    for (const std::string contender : {"ours", "composed", "sdpa"}) {
      for (const Pass pass : {Pass::forward, Pass::forward_backward}) {
        for (const int64_t tokens : variant.bench.tokens) add(variant, contender, pass, tokens);
      }
    }
  }
}

}  // namespace
}  // namespace ramify

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("torch_threads", std::to_string(at::get_num_threads()));
  ramify::add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
