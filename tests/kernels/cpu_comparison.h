// What the tests of the fused CPU kernels share: the instruction set of the run, how far results may be from the
// definition, and trees of all kinds.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kernels/cpu/attention.h"
#include "kernels/cpu_case.h"

namespace ramify::testing {

using cpu::Storage;
using Array = std::vector<int64_t>;
using Numbers = std::vector<double>;
using Layout = StoredRows::Layout;

// Whether the machine has an instruction set that RAMIFY_CPU_TARGET names.
inline bool machine_has(const std::string& target) {
#if defined(__x86_64__)
  if (target == "avx512") return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
  if (target == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return target == "sse4" && __builtin_cpu_supports("sse4.2");
#else
  return target == "neon";
#endif
}

class CpuAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::is_supported()) GTEST_SKIP() << "no instruction set of this machine is among those compiled";
    const char* wish = std::getenv("RAMIFY_CPU_TARGET");
    if (!wish || !*wish) return;
    if (!machine_has(wish)) GTEST_SKIP() << "this machine has no " << wish;
    ASSERT_STREQ(cpu::target_name(), wish);
  }
};

inline double largest(const Numbers& values) {
  double result = 0;
  for (const double value : values) result = std::isfinite(value) ? std::max(result, std::abs(value)) : result;
  return result;
}

// Where an array is further from the expected one than its storage rounds and float32 sums are off; empty: nowhere.
// `sums` is the latter, as a part of the largest entry.
inline std::string difference(const char* name, const Numbers& actual, const Numbers& expected, Storage storage,
                              double sums = 1e-5) {
  if (actual.size() != expected.size()) return std::string(name) + " has another size";
  const double unit = storage == Storage::float32 ? 0 : storage == Storage::bfloat16 ? 0x1p-8 : 0x1p-11;
  const double floor = sums * (largest(expected) + 1e-3) + (storage == Storage::float16 ? 0x1p-24 : 0);
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;  // infinities too
    if (std::abs(actual[i] - expected[i]) <= unit * std::abs(expected[i]) + floor) continue;
    return std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(actual[i]) + ", expected " +
           std::to_string(expected[i]) + "; largest " + std::to_string(largest(expected));
  }
  return "";
}

inline std::string difference(const CpuOutcome& outcome, const AttentionCase& c, const AttentionArrays& arrays,
                              Storage storage, double sums = 1e-5) {
  const reference::AttentionParams params = params_of(c, arrays);
  const reference::AttentionResult result = attention(params);
  const auto gradients = attention_backward(params, arrays.grad_out, arrays.grad_energy);
  for (const std::string& found :
       {difference("out", outcome.out, result.out, storage, sums),
        difference("energy", outcome.energy, result.energy, Storage::float32, sums),
        difference("gradient of q", outcome.q, gradients.q, storage, 3 * sums),
        difference("gradient of k", outcome.k, gradients.k, storage, 3 * sums),
        difference("gradient of v", outcome.v, gradients.v, storage, 3 * sums),
        difference("gradient of positions", outcome.positions, gradients.positions, Storage::float32, 3 * sums)}) {
    if (!found.empty()) return found;
  }
  return outcome.is_clean ? "" : "something was written outside its array";
}

// The same as the definition with one thread, and the same bits with more; empty: so it is.
inline std::string flaw_of(const AttentionCase& c, Storage storage, uint64_t seed, Layout layout = Layout::dense,
                           [[maybe_unused]] double sums = 1e-5) {
  AttentionArrays arrays = random_arrays(c, seed);
  CpuCase cpu_case(c, arrays, storage, layout);
  const CpuOutcome outcome = cpu_case.run(make_threads(1));
  for (const int64_t count : {2, 7}) {
    const CpuOutcome other = cpu_case.run(make_threads(count));
    if (other.bits != outcome.bits) return "other bits with " + std::to_string(count) + " threads";
    if (!other.is_clean) return "something was written outside its array with " + std::to_string(count) + " threads";
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return "";  // sanitizers look at paths, not at numbers: the definition would take minutes
#else
  return difference(outcome, c, arrays, storage, sums);
#endif
}

inline AttentionCase case_of(const Forest& forest, const AttentionMode& mode) {
  AttentionCase c;
  c.forest = forest, c.mode = mode;
  return c;
}

inline Array comb(int64_t depth) {
  Array preorder;
  for (int64_t d = 0; d < depth; ++d) preorder.insert(preorder.end(), {2, kItem});
  preorder.push_back(kItem);
  return preorder;
}

// A family of `members` trees in turn, in preorder.
inline Array family_of(int64_t count, const std::vector<Array>& members) {
  Array preorder = {count};
  for (int64_t i = 0; i < count; ++i) {
    const Array& member = members[i % members.size()];
    preorder.insert(preorder.end(), member.begin(), member.end());
  }
  return preorder;
}

inline const Array kLeaf = {kItem}, kPair = {2, kItem, kItem}, kTriple = {3, kItem, kItem, kItem},
                   kChain = {1, 1, kItem};

// One forest with all kinds of families: narrow and wide ones, in groves and in the crown, chains, a bare leaf.
inline Forest all_kinds() {
  Array preorder = family_of(3, {family_of(66, {kLeaf}), family_of(3, {kPair, kChain, kTriple}), kLeaf});
  for (const Array& tree : {kLeaf, Array{0}, family_of(2, {kTriple, kPair})}) {
    preorder.insert(preorder.end(), tree.begin(), tree.end());
  }
  return from_nested(preorder);
}

}  // namespace ramify::testing
