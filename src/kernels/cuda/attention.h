// Hierarchical attention on a CUDA device, fused: what a call is made of. Formulas and their names are those of
// docs/algorithm.md, the layout of the work is told in docs/kernels.md. No CUDA header is needed here; without a CUDA
// compiler cuda_stub.cc stands in.
//
// Nothing here waits for the device or allocates, so calls can be captured in a graph; results are the same bits every
// time.
#pragma once

#include <cstdint>

#include "hierarchy/block_walk.h"
#include "ramify/options.h"

namespace ramify::cuda {

// How numbers lie in memory. Sums are float32 always.
enum class Storage { float32, bfloat16, float16 };

// [rows, heads, dim] with the last stride 1; strides in elements.
struct Rows {
  void* data = nullptr;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
};

// All pointers are to the device's memory.
struct AttentionParams {
  BlockWalkView walk;
  Storage storage = Storage::float32;
  int64_t heads = 1;
  int64_t key_heads = 1;  // divides heads: grouped queries
  int64_t dim = 0;        // of q and k: 1 to kMaxDim
  int64_t value_dim = 0;  // 0 to kMaxDim
  int64_t position_dim = 0;
  Rows q, k, v;
  Rows positions;                          // [P, heads, position_dim]; without data: none
  const int64_t* node_position = nullptr;  // [nodes of the walk] row of positions towards siblings, -1: none
  const int64_t* self_position = nullptr;  // [leaves] row of positions towards itself, -1: none
  float scale = 1;
  bool include_self = false;
  Tie tie = Tie::block;
  Causal causal = Causal::none;
};

inline constexpr int64_t kMaxDim = 256;

// Whether there are kernels in this build.
bool is_built();

// What keeps the kernels from a call, nullptr: nothing. Of `params` the walk and pointers are not looked at.
const char* why_not(const AttentionParams& params);

// Whether a call can use a walk with groves, which is faster; without, any call runs: half types, 64 channels, tied
// queries, no positions. Then every row of every tensor must lie at 16 bytes.
bool takes_groves(const AttentionParams& params);
// Whether forward does all of them in one launch: trees of at most 512 leaves or so, without families of leaves wider
// than 16, where a block can have 227 KiB of shared memory.
bool takes_small_groves(const AttentionParams& params);

// Floats that forward fills, for itself alone or also for backward.
enum class Keep { nothing, for_backward };
int64_t saved_size(const AttentionParams& params, Keep keep = Keep::for_backward);
// Floats that backward needs while it runs.
int64_t backward_workspace(const AttentionParams& params);

// out [leaves, heads, value_dim]; root_energy [roots, heads]: e(root), -inf where nothing is attended to.
struct ForwardResult {
  Rows out;
  float* root_energy = nullptr;
  float* saved = nullptr;
  Keep keep = Keep::for_backward;
};
void forward(const AttentionParams& params, const ForwardResult& result, void* stream);

// Gradients of sum(out · grad_out) + sum(root_energy · grad_root_energy), in the storage of the inputs; those of
// positions are float32, [P, heads, position_dim].
struct BackwardResult {
  Rows grad_q, grad_k, grad_v;
  float* grad_positions = nullptr;
};
struct BackwardInput {
  Rows grad_out;
  const float* grad_root_energy = nullptr;
  float* saved = nullptr;  // of the forward call
  // With positions: nodes and, behind them, leaves (nodes + leaf), ordered by the row of positions that they have;
  // where row p begins: [P + 1].
  const int64_t* position_order = nullptr;
  const int64_t* position_begin = nullptr;
  int64_t num_positions = 0;
};
void backward(const AttentionParams& params, const BackwardInput& input, const BackwardResult& result, float* workspace,
              void* stream);

}  // namespace ramify::cuda
