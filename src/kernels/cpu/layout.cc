#include "kernels/cpu/layout.h"

#include <algorithm>

namespace ramify::cpu {

bool sums_in_place(const AttentionParams& params, int64_t dim) {
  return params.storage == Storage::float32 && dim % kInPlace == 0;
}

namespace {

// A tile's leaves share all ancestors but those that end inside it: its first and last paths, and few more.
// With a window there are two such paths at most, and the leaves inside.
int64_t path_capacity(const AttentionParams& p) {
  const int64_t path = 2 * p.walk.totals.path_keys + 4 * kRowPad;
  if (p.window == 0) return path;
  const auto leaves = static_cast<int64_t>(p.walk.leaf_nodes.size());
  return 2 * path + 2 * std::min(p.window, leaves) + kRowPad;
}

NodeRows carve_local(Carver& carver, const Call& call, int64_t slots, Pass pass) {
  const AttentionParams& p = call.p;
  NodeRows rows;
  rows.q = carver.take(slots * p.heads * call.dim);
  rows.k = carver.take(slots * p.key_heads * call.dim);
  rows.v = carver.take(slots * p.key_heads * call.value_dim);
  rows.y = carver.take(slots * p.heads * call.value_dim);
  rows.e = carver.take(slots * p.heads);
  rows.pi = carver.take(slots * p.heads);
  if (pass == Pass::backward) {
    rows.gq = carver.take(slots * p.heads * call.dim);
    rows.gk = carver.take(slots * p.key_heads * call.dim);
    rows.gv = carver.take(slots * p.key_heads * call.value_dim);
  }
  return rows;
}

WideScratch carve_wide(Carver& carver, const Call& call, Pass pass) {
  WideScratch wide;
  wide.q = carver.take(kWideTile * call.dim);
  wide.y = carver.take(kWideTile * call.value_dim);
  wide.positions = carver.take(kWideTile * call.position_dim);
  wide.q_columns = carver.take(kWideTile * call.dim);
  wide.y_columns = carver.take(pass == Pass::forward ? 0 : kWideTile * call.value_dim);
  wide.position_columns = carver.take(kWideTile * call.position_dim);
  return wide;
}

void carve_scratch(Carver& carver, const Call& call, Pass pass, Scratch& scratch) {
  const int64_t width = std::max(call.dim, call.value_dim);
  scratch.columns = carver.take(kKeyBlock * std::max(width, call.position_dim));
  scratch.y_columns = carver.take(kKeyBlock * call.value_dim);
  scratch.position_columns = carver.take(kKeyBlock * call.position_dim);
  scratch.scores = carver.take(kNarrowFamily * kNarrowFamily);
  scratch.products = carver.take(kNarrowFamily * kNarrowFamily);
  for (float*& rows : scratch.staged) rows = carver.take(kNarrowFamily * width);
  scratch.staged_positions = carver.take(2 * kNarrowFamily * call.position_dim);
  scratch.zeros = carver.take(std::max(width, call.position_dim));
  const bool has_leaf_queries = call.p.tie == Tie::none || is_prefix(call.p);
  const int64_t path = has_leaf_queries && pass == Pass::backward ? path_capacity(call.p) * kRowPad : 0;
  scratch.path_weights = carver.take(path);
  scratch.path_products = carver.take(path);
  if (has_leaf_queries) return;
  scratch.local = carve_local(carver, call, call.p.walk.totals.grove_slots, pass);
  if (call.p.walk.totals.wide_members > 0) scratch.wide = carve_wide(carver, call, pass);
}

void carve_tied(Carver& carver, Call& call, Pass pass) {
  const AttentionParams& p = call.p;
  const WalkTotals& totals = p.walk.totals;
  call.crown.y = carver.take(totals.crown_slots * p.heads * call.value_dim);
  call.crown.e = carver.take(totals.crown_slots * p.heads);
  call.crown.pi = carver.take(totals.crown_slots * p.heads);
  if (pass == Pass::backward) {
    call.crown.gq = carver.take(totals.crown_slots * p.heads * call.dim);
    call.crown.gk = carver.take(totals.crown_slots * p.key_heads * call.dim);
    call.crown.gv = carver.take(totals.crown_slots * p.key_heads * call.value_dim);
    call.products = carver.take(totals.weights * p.heads);
    call.pi_bar = carver.take(totals.inner * p.heads);
    call.wide_dots = carver.take(totals.wide_members * p.heads);
    call.wide_coefficients = carver.take(totals.wide_members * p.heads);
    call.wide_slopes = carver.take(totals.wide_members * p.heads);
    const int64_t in_rows = sums_in_place(p, p.dim) ? 0 : totals.wide_members * call.dim;
    const int64_t in_value_rows = sums_in_place(p, p.value_dim) ? 0 : totals.wide_members * call.value_dim;
    call.wide_grad_q = carver.take(in_rows * p.heads);
    call.wide_grad_k = carver.take(in_rows * p.key_heads);
    call.wide_grad_v = carver.take(in_value_rows * p.key_heads);
    call.wide_key_positions = carver.take(totals.wide_members * p.heads * call.position_dim);
  }
}

// Leaves as queries: untied, and causal=prefix.
void carve_leaf_queries(Carver& carver, Call& call, Pass pass) {
  if (pass == Pass::forward) return;
  const AttentionParams& p = call.p;
  if (is_prefix(p)) {
    call.grad_mean_q = carver.take(p.walk.totals.inner * p.heads * call.dim);
    call.mean_slopes = carver.take(p.walk.totals.inner * p.heads);
  }
  const auto leaves = static_cast<int64_t>(p.walk.leaf_nodes.size());
  call.grad_mean_k = carver.take(p.walk.totals.inner * p.key_heads * call.dim);
  call.grad_mean_v = carver.take(p.walk.totals.inner * p.key_heads * call.value_dim);
  call.leaf_dots = carver.take(leaves * p.heads);
  call.leaf_grad_k = carver.take(sums_in_place(p, p.dim) ? 0 : leaves * p.key_heads * call.dim);
  call.leaf_grad_v = carver.take(sums_in_place(p, p.value_dim) ? 0 : leaves * p.key_heads * call.value_dim);
}

}  // namespace

int64_t carve_saved(Call& call, float* memory) {
  const AttentionParams& p = call.p;
  const WalkTotals& totals = p.walk.totals;
  Carver carver(memory);
  if (p.tie == Tie::none || is_prefix(p)) {
    if (is_prefix(p)) {
      call.mean_q = carver.take(totals.inner * p.heads * call.dim);
      call.energies = carver.take(totals.inner * p.heads);
    }
    call.mean_k = carver.take(totals.inner * p.key_heads * call.dim);
    call.mean_v = carver.take(totals.inner * p.key_heads * call.value_dim);
    call.log_sums = carver.take(static_cast<int64_t>(p.walk.leaf_nodes.size()) * p.heads);
    return carver.used();
  }
  call.weights = carver.take(totals.weights * p.heads);
  call.gates = carver.take(totals.inner * p.heads * 2);
  call.crown.q = carver.take(totals.crown_slots * p.heads * call.dim);
  call.crown.k = carver.take(totals.crown_slots * p.key_heads * call.dim);
  call.crown.v = carver.take(totals.crown_slots * p.key_heads * call.value_dim);
  call.attended = carver.take(totals.wide_members * p.heads * call.value_dim);
  call.log_sums = carver.take(totals.wide_members * p.heads);
  return carver.used();
}

int64_t carve_workspace(Call& call, Pass pass, float* memory, std::vector<Scratch>& scratch) {
  const AttentionParams& p = call.p;
  Carver carver(memory);
  if (p.tie == Tie::none || is_prefix(p)) {
    carve_leaf_queries(carver, call, pass);
  } else {
    carve_tied(carver, call, pass);
  }
  if (pass == Pass::backward && call.position_dim > 0) {
    call.grad_node_positions = carver.take(static_cast<int64_t>(p.walk.nodes.size()) * p.heads * call.position_dim);
    call.grad_self_positions = carver.take(static_cast<int64_t>(p.self_position.size()) * p.heads * call.position_dim);
  }
  for (Scratch& one : scratch) {
    carve_scratch(carver, call, pass, one);
    if (memory) std::fill_n(one.zeros, std::max({call.dim, call.value_dim, call.position_dim}), 0.0f);
  }
  return carver.used();
}

void clear_unwritten(const Call& call) {
  const AttentionParams& p = call.p;
  const WalkTotals& totals = p.walk.totals;
  const bool is_tied = p.tie == Tie::block && !is_prefix(p);
  const auto clear = [](float* from, int64_t count) { std::fill_n(from, from ? count : 0, 0.0f); };
  if (p.dim != call.dim || p.value_dim != call.value_dim) {
    const int64_t rows = is_tied ? totals.crown_slots : totals.inner;
    clear(call.crown.q, is_tied ? rows * p.heads * call.dim : 0);
    clear(is_tied ? call.crown.k : call.mean_k, rows * p.key_heads * call.dim);
    clear(is_tied ? call.crown.v : call.mean_v, rows * p.key_heads * call.value_dim);
    clear(call.mean_q, totals.inner * p.heads * call.dim);
    clear(call.attended, totals.wide_members * p.heads * call.value_dim);
  }
  for (int64_t n = 0; n < totals.num_roots; ++n) {
    const WalkNode& root = p.walk.nodes[n];
    if (root.is_leaf()) {
      if (!is_tied) clear(call.log_sums + root.first_leaf * p.heads, p.heads);
    } else if (is_tied) {
      clear(call.gates_of(root, 0), p.heads * 2);
      if (!root.is_crown()) continue;
      clear(call.crown.q + root.slot * p.heads * call.dim, p.heads * call.dim);
      clear(call.crown.k + root.slot * p.key_heads * call.dim, p.key_heads * call.dim);
      clear(call.crown.v + root.slot * p.key_heads * call.value_dim, p.key_heads * call.value_dim);
    }
  }
}

Call make_call(const AttentionParams& params) {
  Call call;
  call.p = params;
  call.dim = padded(params.dim), call.value_dim = padded(params.value_dim);
  call.position_dim = padded(params.position_dim);
  call.group = params.heads / params.key_heads;
  return call;
}

}  // namespace ramify::cpu
