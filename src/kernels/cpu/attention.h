// Hierarchical attention on the CPU, fused: what a call is made of. Formulas and their names are those of
// docs/algorithm.md, the layout of the work is told in docs/kernels.md.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "hierarchy/walk.h"
#include "ramify/options.h"

namespace ramify::cpu {

// How numbers lie in memory. Sums are float32 always.
enum class Storage { float32, bfloat16, float16 };

// [rows, heads, dim] with the last stride 1; strides in elements.
struct Rows {
  void* data = nullptr;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
};

// The caller's threads. run(n, task) calls task(begin, end, thread) for parts of [0, n), at most `count` at once, each
// with a thread number below `count` of its own, and returns when all are done.
using Task = std::function<void(int64_t begin, int64_t end, int64_t thread)>;
struct Threads {
  int64_t count = 1;
  std::function<void(int64_t n, const Task& task)> run;
};

struct AttentionParams {
  WalkView walk;
  Storage storage = Storage::float32;
  int64_t heads = 1;
  int64_t key_heads = 1;  // divides heads: grouped queries
  int64_t dim = 0;        // of q and k: 1 to kMaxDim
  int64_t value_dim = 0;  // 0 to kMaxDim
  int64_t position_dim = 0;
  Rows q, k, v;
  Rows positions;                          // [P, heads, position_dim]; without data: none
  std::span<const int64_t> node_position;  // [nodes of the walk] row of positions towards siblings, -1: none
  std::span<const int64_t> self_position;  // [leaves] row of positions towards itself, -1: none
  float scale = 1;
  bool include_self = false;
  Tie tie = Tie::block;
  Causal causal = Causal::none;
  int64_t window = 0;  // tie=none, without positions: leaves at most this far away are seen one by one
};

inline constexpr int64_t kMaxDim = 512;
inline constexpr int64_t kMaxPositionDim = 1024;

// Whether this machine has an instruction set that the kernels were compiled for, and the name of the one in use.
// RAMIFY_CPU_TARGET=avx2 (sse4, neon) in the environment asks for a smaller one.
bool is_supported();
const char* target_name();

// Floats that forward fills for backward. Without a backward pass to come they are only room to work in.
int64_t saved_size(const AttentionParams& params);

// Floats that a call needs while it runs.
int64_t forward_workspace(const AttentionParams& params, int64_t threads);
int64_t backward_workspace(const AttentionParams& params, int64_t threads);

// out [leaves, heads, value_dim]; root_energy [roots, heads]: e(root), -inf where nothing is attended to.
struct ForwardResult {
  Rows out;
  float* root_energy = nullptr;
  float* saved = nullptr;  // saved_size floats, at a cache line
};
void forward(const AttentionParams& params, const ForwardResult& result, float* workspace, const Threads& threads);

// Gradients of sum(out · grad_out) + sum(root_energy · grad_root_energy), in the storage of the inputs; those of
// positions are float32, [P, heads, position_dim]. Same bits whatever the number of threads.
struct BackwardResult {
  Rows grad_q, grad_k, grad_v;
  float* grad_positions = nullptr;
};
struct BackwardInput {
  Rows grad_out;
  const float* grad_root_energy = nullptr;
  float* saved = nullptr;  // of the forward call
  int64_t num_positions = 0;
};
void backward(const AttentionParams& params, const BackwardInput& input, const BackwardResult& result, float* workspace,
              const Threads& threads);

}  // namespace ramify::cpu
