// What every kernel of a call takes: the forest, the tensors and the arrays that passes leave for each other.
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/instructions.h"

namespace ramify::cuda {

// A log-sum of exponentials, in two parts: large scores would leave their sum few digits for the weights of backward.
struct LogSum {
  float largest, rest;

  __device__ float total() const { return largest + rest; }
  __device__ float log_weight(float score) const { return (score - largest) - rest; }
};

// A leaf below a family, with causal=prefix (prefix_attention.cu).
struct Climb {
  LogSum total;      // t
  float kept;        // m: the share of what the leaf has gathered below
  float below, all;  // grad_out · y without and with what it gathers here
  float slope;       // the gradient by t
  float mass;        // the share of all of it in the output
};

// Slots are rows of the crown's nodes and of the groves' roots. All arrays of floats are [rows, heads] or
// [rows, heads, dim].
struct Call {
  const BlockNode* nodes = nullptr;
  const int64_t *families = nullptr, *members = nullptr, *leaf_nodes = nullptr, *bare_leaves = nullptr;
  const BlockRound* rounds = nullptr;
  const BlockUnit* units = nullptr;
  const WideTile* wide_tiles = nullptr;
  const BlockGrove* groves = nullptr;
  const GroveTile* tiles = nullptr;
  const GroveFamily* grove_families = nullptr;
  const GrovePlace* places = nullptr;
  const GroveRound* grove_rounds = nullptr;
  const TileBlock* tile_blocks = nullptr;
  const LeafSight* leaf_sights = nullptr;
  const LeafAbove* leaf_above = nullptr;
  int64_t num_nodes = 0, num_leaves = 0;

  int heads = 1, group = 1;  // heads that share a key head
  int dim = 0, value_dim = 0, position_dim = 0;
  float scale = 1;
  bool include_self = false, is_causal = false, is_tied = true;
  Rows q, k, v, positions;
  const int64_t *node_position = nullptr, *self_position = nullptr;

  // forward: results, and what is saved
  Rows out;
  float* root_energy = nullptr;
  float *mean_q = nullptr, *mean_k = nullptr, *mean_v = nullptr;  // of slots
  float* y = nullptr;                                             // of slots; a(C) on the way up
  float *energy = nullptr, *mass = nullptr;                       // of slots: e, pi
  LogSum *log_sum = nullptr, *leaf_log_sum = nullptr;             // of slots: g; of leaves: t
  // of places inside their grove
  uint32_t* place_mean = nullptr;  // of q, k and v, as pairs of numbers of the half type
  float* place_y = nullptr;        // a(C) on the way up
  float *place_energy = nullptr, *place_local_mass = nullptr;
  // a(C) of leaves of groves: `out` where no backward pass will come; and what rounding left of it in wide families,
  // without data: there are none
  Rows value, value_rest;

  // backward
  Rows grad_out, grad_q, grad_k, grad_v;
  const float* grad_root_energy = nullptr;
  float* grad_y = nullptr;                       // of slots: the sum of grad_out over the leaves below
  float *gain = nullptr, *inner_gain = nullptr;  // of slots: see crown_attention.cu
  float* grad_energy = nullptr;                  // of slots
  float *grad_mean_q = nullptr, *grad_mean_k = nullptr, *grad_mean_v = nullptr;
  float *pull = nullptr, *reach = nullptr;  // of slots: the gradient of a score is p · (pull + reach · grad_y · v)
  float* leaf_pull = nullptr;
  Climb* climbs = nullptr;                            // causal=prefix: of pairs of a leaf and an ancestor
  float* leaf_mass = nullptr;                         // and of leaves, on the way down
  float *query_sum = nullptr, *query_part = nullptr;  // of leaves: gradients of q so far, and of a mean query
  // of places: the mean of grad_out over the leaves below, as pairs; the sum of grad_out · out as it is inside the
  // grove, and the same without y of the place
  uint32_t* place_grad_y = nullptr;
  float *place_dot = nullptr, *place_inner_gain = nullptr;
  float* place_gradient = nullptr;                                                        // of the means of q, k and v
  float *place_mass = nullptr, *place_root_mass = nullptr, *place_grad_energy = nullptr;  // pi; of the grove's root
  float *leaf_grad_k = nullptr, *leaf_grad_v = nullptr;  // of each head, where heads share keys
  float* grad_position = nullptr;                        // of nodes, then of leaves towards themselves
};

// The general kernels, for any forest: one launch a stage.
void crown_fold(const Call& call, const AttentionParams& params, bool means, bool energy, cudaStream_t stream);
void crown_up(const Call& call, const AttentionParams& params, cudaStream_t stream);
void crown_down(const Call& call, const AttentionParams& params, cudaStream_t stream);
void crown_sums(const Call& call, const AttentionParams& params, cudaStream_t stream);
void crown_gradients(const Call& call, const AttentionParams& params, cudaStream_t stream);
// Its wide families, of one stage: before crown_up, before crown_sums and behind crown_gradients do theirs.
void wide_attend(const Call& call, const AttentionParams& params, int64_t stage, cudaStream_t stream);
void wide_gains(const Call& call, const AttentionParams& params, int64_t stage, cudaStream_t stream);
void wide_gradients(const Call& call, const AttentionParams& params, int64_t stage, cudaStream_t stream);
void bare_leaves_forward(const Call& call, const AttentionParams& params, cudaStream_t stream);
void bare_leaves_backward(const Call& call, const AttentionParams& params, cudaStream_t stream);
// Sums the gradients of the heads that share keys.
void sum_groups(const Call& call, const AttentionParams& params, cudaStream_t stream);
void sum_positions(const Call& call, const AttentionParams& params, const BackwardInput& input, float* grad_positions,
                   cudaStream_t stream);

// Tied queries with causal=prefix.
void prefix_forward(const Call& call, const AttentionParams& params, cudaStream_t stream);
void prefix_backward(const Call& call, const AttentionParams& params, cudaStream_t stream);

// Untied queries.
void untied_forward(const Call& call, const AttentionParams& params, cudaStream_t stream);
void untied_backward(const Call& call, const AttentionParams& params, cudaStream_t stream);

// Groves. Small ones in one launch, or leaves, places and what comes down to the leaves for themselves.
void small_groves_forward(const Call& call, const AttentionParams& params, cudaStream_t stream);
void groves_leaves_forward(const Call& call, const AttentionParams& params, cudaStream_t stream);
void groves_places_forward(const Call& call, const AttentionParams& params, cudaStream_t stream);
void groves_finish(const Call& call, const AttentionParams& params, cudaStream_t stream);
void groves_sums(const Call& call, const AttentionParams& params, cudaStream_t stream);
void groves_places(const Call& call, const AttentionParams& params, cudaStream_t stream);
void groves_leaves(const Call& call, const AttentionParams& params, cudaStream_t stream);

// Calls function.template operator()<T, kLane>(): the storage, and how many of up to 32 · kLane channels a lane has.
template <class Function>
void dispatch(const AttentionParams& params, const Function& function) {
  const bool is_narrow = params.dim <= 64 && params.value_dim <= 64;
  const auto with_storage = [&]<class T>() {
    is_narrow ? function.template operator()<T, 2>() : function.template operator()<T, 8>();
  };
  switch (params.storage) {
    case Storage::float32:
      return with_storage.template operator()<float>();
    case Storage::bfloat16:
      return with_storage.template operator()<__nv_bfloat16>();
    default:
      return with_storage.template operator()<__half>();
  }
}

}  // namespace ramify::cuda
