// The order of the steps, and where the arrays of a call lie.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/call.h"

namespace ramify::cuda {
namespace {

constexpr int64_t kFastDim = 64;

// Hands out consecutive parts of an array of floats, each at 64 bytes; without an array it only counts.
class Parts {
 public:
  explicit Parts(float* data) : data_(data) {}

  template <class Record = float>
  Record* take(int64_t count) {
    float* part = data_ ? data_ + size_ : nullptr;
    const int64_t floats = count * static_cast<int64_t>(sizeof(Record) / sizeof(float));
    size_ += (floats + 15) / 16 * 16;
    return reinterpret_cast<Record*>(part);
  }
  int64_t size() const { return size_; }

 private:
  float* data_;
  int64_t size_ = 0;
};

bool is_prefix(const AttentionParams& params) {
  return params.tie == Tie::block && params.causal == Causal::prefix;
}

int64_t take_saved(const AttentionParams& params, Keep keep, float* saved, Call& call) {
  Parts parts(saved);
  const bool is_tied = params.tie == Tie::block;
  const int64_t rows = params.walk.totals.num_slots * params.heads;
  call.mean_k = parts.take(rows * params.dim);
  call.mean_v = parts.take(rows * params.value_dim);
  call.energy = parts.take(rows);
  call.leaf_log_sum = parts.take<LogSum>(params.walk.totals.num_leaves * params.heads);
  if (is_tied) {
    call.mean_q = parts.take(rows * params.dim);
    call.y = parts.take(rows * params.value_dim);
    call.log_sum = parts.take<LogSum>(rows);
    call.mass = parts.take(rows);
  }
  call.value = call.out;
  if (takes_groves(params)) {
    const auto place_rows = static_cast<int64_t>(params.walk.places.size()) * params.heads;
    call.place_mean = parts.take<uint32_t>(place_rows * 3 * kFastDim);
    call.place_y = parts.take(place_rows * kFastDim);
    call.place_energy = parts.take(place_rows);
    call.place_local_mass = parts.take(place_rows);
    if (keep == Keep::for_backward) {
      const int64_t row = params.heads * kFastDim, values = params.walk.totals.num_leaves * row / 2;  // of a half type
      call.value = {parts.take(values), row, kFastDim};
      if (params.walk.totals.has_wide) call.value_rest = {parts.take(values), row, kFastDim};
    }
  }
  return parts.size();
}

int64_t take_workspace(const AttentionParams& params, float* workspace, Call& call) {
  Parts parts(workspace);
  const BlockTotals& totals = params.walk.totals;
  const int64_t rows = totals.num_slots * params.heads, leaf_rows = totals.num_leaves * params.heads;
  call.grad_mean_k = parts.take(rows * params.dim);
  call.grad_mean_v = parts.take(rows * params.value_dim);
  call.leaf_pull = parts.take(leaf_rows);
  if (is_prefix(params)) {
    call.climbs = parts.take<Climb>(totals.num_climbs * params.heads);
    call.leaf_mass = parts.take(leaf_rows);
    call.query_sum = parts.take(leaf_rows * params.dim), call.query_part = parts.take(leaf_rows * params.dim);
  } else if (params.tie == Tie::block) {
    call.grad_mean_q = parts.take(rows * params.dim);
    call.grad_y = parts.take(rows * params.value_dim);
    call.gain = parts.take(rows);
    call.inner_gain = parts.take(rows);
    call.grad_energy = parts.take(rows);
    call.pull = parts.take(rows);
    call.reach = parts.take(rows);
    const auto place_rows = static_cast<int64_t>(params.walk.places.size()) * params.heads;
    call.place_grad_y = parts.take<uint32_t>(place_rows * kFastDim);
    call.place_dot = parts.take(place_rows), call.place_inner_gain = parts.take(place_rows);
    call.place_gradient = parts.take(place_rows * 3 * kFastDim);
    call.place_mass = parts.take(place_rows), call.place_root_mass = parts.take(place_rows);
    call.place_grad_energy = parts.take(place_rows);
  }
  if (params.heads != params.key_heads) {
    call.leaf_grad_k = parts.take(leaf_rows * params.dim);
    call.leaf_grad_v = parts.take(leaf_rows * params.value_dim);
  }
  call.grad_position = parts.take((totals.num_nodes + totals.num_leaves) * params.heads * params.position_dim);
  return parts.size();
}

Call call_of(const AttentionParams& params) {
  const BlockWalkView& walk = params.walk;
  Call call;
  call.nodes = walk.nodes.data();
  call.families = walk.families.data(), call.members = walk.members.data();
  call.leaf_nodes = walk.leaf_nodes.data(), call.bare_leaves = walk.bare_leaves.data();
  call.rounds = walk.rounds.data(), call.units = walk.units.data(), call.wide_tiles = walk.wide_tiles.data();
  call.groves = walk.groves.data(), call.tiles = walk.tiles.data();
  call.grove_families = walk.grove_families.data(), call.places = walk.places.data();
  call.grove_rounds = walk.grove_rounds.data(), call.tile_blocks = walk.tile_blocks.data();
  call.leaf_sights = walk.leaf_sights.data(), call.leaf_above = walk.leaf_above.data();
  call.num_nodes = walk.totals.num_nodes, call.num_leaves = walk.totals.num_leaves;
  call.heads = static_cast<int>(params.heads), call.group = static_cast<int>(params.heads / params.key_heads);
  call.dim = static_cast<int>(params.dim), call.value_dim = static_cast<int>(params.value_dim);
  call.position_dim = static_cast<int>(params.position_dim);
  call.scale = params.scale, call.include_self = params.include_self;
  call.is_causal = params.causal != Causal::none, call.is_tied = params.tie == Tie::block;
  call.q = params.q, call.k = params.k, call.v = params.v, call.positions = params.positions;
  call.node_position = params.node_position, call.self_position = params.self_position;
  return call;
}

}  // namespace

bool is_built() {
  return true;
}

const char* why_not(const AttentionParams& params) {
  if (params.dim > kMaxDim || params.value_dim > kMaxDim) return "the CUDA kernels take dimensions up to 256";
  return nullptr;
}

bool takes_groves(const AttentionParams& params) {
  return params.storage != Storage::float32 && params.tie == Tie::block && !is_prefix(params) &&
         params.heads == params.key_heads && params.dim == kFastDim && params.value_dim == kFastDim &&
         params.position_dim == 0;
}

int64_t saved_size(const AttentionParams& params, Keep keep) {
  Call call;
  return take_saved(params, keep, nullptr, call);
}

int64_t backward_workspace(const AttentionParams& params) {
  Call call;
  return take_workspace(params, nullptr, call);
}

void forward(const AttentionParams& params, const ForwardResult& result, void* stream_handle) {
  const auto stream = static_cast<cudaStream_t>(stream_handle);
  Call call = call_of(params);
  call.out = result.out, call.root_energy = result.root_energy;
  take_saved(params, result.keep, result.saved, call);
  bare_leaves_forward(call, params, stream);
  if (params.tie == Tie::none) return untied_forward(call, params, stream);
  if (is_prefix(params)) return prefix_forward(call, params, stream);
  if (takes_small_groves(params)) return small_groves_forward(call, params, stream);
  groves_leaves_forward(call, params, stream);
  groves_places_forward(call, params, stream);
  crown_up(call, params, stream);
  crown_down(call, params, stream);
  groves_finish(call, params, stream);
}

void backward(const AttentionParams& params, const BackwardInput& input, const BackwardResult& result, float* workspace,
              void* stream_handle) {
  const auto stream = static_cast<cudaStream_t>(stream_handle);
  Call call = call_of(params);
  call.grad_out = input.grad_out, call.grad_root_energy = input.grad_root_energy;
  call.grad_q = result.grad_q, call.grad_k = result.grad_k, call.grad_v = result.grad_v;
  take_saved(params, Keep::for_backward, input.saved, call);
  take_workspace(params, workspace, call);
  if (params.position_dim > 0) {  // nodes without siblings have none
    const int64_t rows = (call.num_nodes + call.num_leaves) * call.heads * call.position_dim;
    require(cudaMemsetAsync(call.grad_position, 0, rows * sizeof(float), stream), "memset");
  }
  bare_leaves_backward(call, params, stream);
  if (params.tie == Tie::none) {
    untied_backward(call, params, stream);
  } else if (is_prefix(params)) {
    prefix_backward(call, params, stream);
  } else {
    groves_sums(call, params, stream);
    crown_sums(call, params, stream);
    crown_gradients(call, params, stream);
    groves_places(call, params, stream);
    groves_leaves(call, params, stream);
  }
  sum_groups(call, params, stream);
  sum_positions(call, params, input, result.grad_positions, stream);
}

}  // namespace ramify::cuda
