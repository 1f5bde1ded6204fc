// Compares builds of the CPU kernels: loads each library, and times its cpu::forward and cpu::backward in turn.
//
//   cp build/release/lib/libramify_kernels.so /tmp/before.so    # then change something, and build again
//   build/release/benchmarks/kernel_turns /tmp/before.so build/release/lib/libramify_kernels.so
//
// A round gives every library a few calls of each pass, on the same memory. Printed are medians over all rounds, and
// the median of each round's ratio to the first library. All libraries must have the AttentionParams that this program
// was compiled with. Inputs lie in small pages, as torch's do, the rest in huge ones, as in warm_memory.h.
#include <dlfcn.h>
#include <fmt/core.h>
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "hierarchy/contraction.h"
#include "hierarchy/walk.h"
#include "kernels/cpu/attention.h"
#include "ramify/builders.h"

namespace ramify {
namespace {

struct Options {
  std::vector<std::string> libraries;
  std::vector<int64_t> tokens = {512, 4096};
  std::string hierarchy = "16*", dtype = "float32";
  int64_t heads = 12, dim = 64, trees = 1, threads = 2, rounds = 60, calls = 5;
  bool include_self = false, untied = false;
  bool in_one_place = false;  // all leaves read the same rows, so that nothing comes from memory
  bool huge_inputs = false;
};

// The functions of one library.
struct Kernels {
  decltype(&cpu::forward) forward;
  decltype(&cpu::backward) backward;
  decltype(&cpu::saved_size) saved_size;
  decltype(&cpu::forward_workspace) forward_workspace;
  decltype(&cpu::backward_workspace) backward_workspace;
  decltype(&cpu::is_supported) is_supported;
};

template <class Function>
void find(void* library, const char* name, Function& function) {
  void* const symbol = dlsym(library, name);
  if (!symbol) throw std::runtime_error(dlerror());
  std::memcpy(&function, &symbol, sizeof(symbol));
}

Kernels load(const std::string& path) {
  void* const library = dlopen(std::filesystem::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  Kernels kernels;
  find(library, "_ZN6ramify3cpu7forwardERKNS0_15AttentionParamsERKNS0_13ForwardResultEPfRKNS0_7ThreadsE",
       kernels.forward);
  find(library,
       "_ZN6ramify3cpu8backwardERKNS0_15AttentionParamsERKNS0_13BackwardInputERKNS0_14BackwardResultEPfRKNS0_7ThreadsE",
       kernels.backward);
  find(library, "_ZN6ramify3cpu12is_supportedEv", kernels.is_supported);
  find(library, "_ZN6ramify3cpu10saved_sizeERKNS0_15AttentionParamsE", kernels.saved_size);
  find(library, "_ZN6ramify3cpu17forward_workspaceERKNS0_15AttentionParamsEl", kernels.forward_workspace);
  find(library, "_ZN6ramify3cpu18backward_workspaceERKNS0_15AttentionParamsEl", kernels.backward_workspace);
  return kernels;
}

enum class Pages { small, huge };

// Written once, never given back.
float* memory(int64_t floats, Pages pages) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t size = (static_cast<size_t>(floats) * sizeof(float) / kHugePage + 1) * kHugePage;
  void* const begin = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) throw std::runtime_error("kernel_turns: no memory");
  const auto address = (reinterpret_cast<uintptr_t>(begin) + kHugePage - 1) / kHugePage * kHugePage;
  auto* const data = reinterpret_cast<float*>(address);
  madvise(data, size, pages == Pages::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  std::memset(data, 0, size);
  return data;
}

cpu::Storage storage_of(const std::string& dtype) {
  if (dtype == "bfloat16") return cpu::Storage::bfloat16;
  return dtype == "float16" ? cpu::Storage::float16 : cpu::Storage::float32;
}

// The inputs, and memory for the results.
struct Problem {
  Walk walk;
  cpu::AttentionParams params;
  cpu::ForwardResult forward;
  cpu::BackwardInput input;
  cpu::BackwardResult backward;
  float* workspace = nullptr;
  cpu::Threads threads;
};

cpu::Rows rows(const Options& o, int64_t leaves, Pages pages) {
  return {memory(leaves * o.heads * o.dim, pages), o.heads * o.dim, o.dim};
}

cpu::Rows random_rows(const Options& o, int64_t leaves, std::mt19937& draw) {
  cpu::Rows made = rows(o, leaves, o.huge_inputs ? Pages::huge : Pages::small);
  std::normal_distribution<float> normal;
  const int64_t count = leaves * o.heads * o.dim;
  for (int64_t i = 0; i < count; ++i) {
    const float value = normal(draw);
    if (o.dtype == "float32") {
      static_cast<float*>(made.data)[i] = value;
    } else {  // bits of bfloat16 in (-2, 2), which are small numbers as float16
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      static_cast<uint16_t*>(made.data)[i] = static_cast<uint16_t>(bits >> 16 & 0xbfff);
    }
  }
  if (o.in_one_place) made.row_stride = 0;
  return made;
}

cpu::Threads openmp_threads(int64_t count) {
  return {count, [count](int64_t parts, const cpu::Task& task) {
#pragma omp parallel for num_threads(static_cast<int>(count)) schedule(static)
            for (int64_t t = 0; t < count; ++t) {  // one step a thread
              const int64_t share = (parts + count - 1) / count, begin = t * share;
              const int64_t end = std::min(parts, begin + share);
              if (begin < end) task(begin, end, t);
            }
          }};
}

void prepare(const Options& o, int64_t tree_tokens, const std::vector<Kernels>& libraries, Problem& p) {
  const std::vector<int64_t> trees(o.trees, tree_tokens);
  const int64_t tokens = o.trees * tree_tokens;
  p.walk = make_walk(contract(windows(trees, Branching::parse(o.hierarchy))).forest);
  std::mt19937 draw(0);
  p.params.walk = p.walk.view();
  p.params.storage = storage_of(o.dtype);
  p.params.heads = p.params.key_heads = o.heads;
  p.params.dim = p.params.value_dim = o.dim;
  p.params.q = random_rows(o, tokens, draw), p.params.k = random_rows(o, tokens, draw);
  p.params.v = random_rows(o, tokens, draw);
  p.params.scale = 0.125f;
  p.params.include_self = o.include_self;
  if (o.untied) p.params.tie = Tie::none;
  int64_t saved = 0, workspace = 0;
  for (const Kernels& kernels : libraries) {
    saved = std::max(saved, kernels.saved_size(p.params));
    workspace = std::max(
        {workspace, kernels.forward_workspace(p.params, o.threads), kernels.backward_workspace(p.params, o.threads)});
  }
  const int64_t roots = p.walk.totals.num_roots * o.heads;
  p.forward = {rows(o, tokens, Pages::huge), memory(roots, Pages::small), memory(saved, Pages::huge)};
  p.input.grad_out = random_rows(o, tokens, draw);
  p.input.grad_root_energy = memory(roots, Pages::small), p.input.saved = p.forward.saved;
  p.backward = {rows(o, tokens, Pages::huge), rows(o, tokens, Pages::huge), rows(o, tokens, Pages::huge), nullptr};
  p.workspace = memory(workspace, Pages::huge);
  p.threads = openmp_threads(o.threads);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

template <class Call>
double milliseconds(const Call& call, int64_t calls) {
  call();  // the caches are another's
  std::vector<double> times;
  for (int64_t i = 0; i < calls; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  return median(times);
}

// Times a round and a library.
using Times = std::vector<std::vector<double>>;

void report(const Options& o, int64_t tokens, const char* pass, const Times& times) {
  for (size_t l = 0; l < times.size(); ++l) {
    std::vector<double> ratios;
    for (size_t r = 0; r < times[l].size(); ++r) ratios.push_back(times[l][r] / times[0][r]);
    fmt::print("{:6} {:20} {:8.3f} ms, best {:8.3f}, ratio {:.3f}  {}\n", tokens, pass, median(times[l]),
               *std::min_element(times[l].begin(), times[l].end()), median(ratios), o.libraries[l]);
  }
}

void compare(const Options& o, int64_t tokens, const std::vector<Kernels>& libraries) {
  Problem p;
  prepare(o, tokens, libraries, p);
  Times forward(libraries.size()), both(libraries.size());
  for (int64_t r = 0; r < o.rounds; ++r) {
    for (size_t i = 0; i < libraries.size(); ++i) {
      const size_t l = r % 2 == 0 ? i : libraries.size() - 1 - i;
      const Kernels& kernels = libraries[l];
      const auto go_forward = [&] { kernels.forward(p.params, p.forward, p.workspace, p.threads); };
      forward[l].push_back(milliseconds(go_forward, o.calls));
      both[l].push_back(milliseconds(
          [&] {
            go_forward();
            kernels.backward(p.params, p.input, p.backward, p.workspace, p.threads);
          },
          o.calls));
    }
  }
  report(o, tokens, "forward", forward);
  report(o, tokens, "forward + backward", both);
}

}  // namespace
}  // namespace ramify

int main(int argc, char** argv) {
  using namespace ramify;
  Options o;
  CLI::App app("Times builds of the CPU kernels in turn.", "kernel_turns");
  app.add_option("libraries", o.libraries, "libramify_kernels.so of each build; ratios are to the first")->required();
  app.add_option("--tokens", o.tokens, "leaves of a tree, one comparison each")->delimiter(',')->capture_default_str();
  app.add_option("--trees", o.trees, "how many of them in a call")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--hierarchy", o.hierarchy, "windows, as for `ramify bench`")->capture_default_str();
  app.add_option("--dtype", o.dtype)->check(CLI::IsMember({"float32", "bfloat16", "float16"}))->capture_default_str();
  app.add_option("--heads", o.heads)->capture_default_str();
  app.add_option("--dim", o.dim, "of a head")->capture_default_str();
  app.add_option("--threads", o.threads)->capture_default_str();
  app.add_option("--rounds", o.rounds)->capture_default_str();
  app.add_option("--calls", o.calls, "of each pass, library and round")->capture_default_str();
  app.add_flag("--include-self", o.include_self, "leaves look at themselves");
  app.add_flag("--untied", o.untied, "tie=none");
  app.add_flag("--in-one-place", o.in_one_place, "all leaves read the same rows: nothing comes from memory");
  app.add_flag("--huge-inputs", o.huge_inputs, "inputs in huge pages");
  CLI11_PARSE(app, argc, argv);
  try {
    std::vector<Kernels> libraries;
    for (const std::string& path : o.libraries) libraries.push_back(load(path));
    libraries.front().is_supported();  // reads RAMIFY_CPU_TARGET, once for all: Highway is shared
    for (const int64_t tokens : o.tokens) compare(o, tokens, libraries);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
