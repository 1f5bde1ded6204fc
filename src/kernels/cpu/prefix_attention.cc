// causal=prefix with tied queries for every instruction set.
//
// Leaves of a tile climb together. On every level a leaf looks at the left siblings of its ancestor with the mean query
// of the ancestor's leaves so far; what it has gathered below is one more entry of the same softmax, of weight e:
//
//     t = log(exp e + Σ_j exp s_j),  m = exp(e - t),  p_j = exp(s_j - t),  y' = m y + Σ_j p_j v_j
//
// A leaf begins with e = -inf and sees itself among its siblings. Of the way up only t of every node is kept, at its
// last leaf; backward climbs again.
#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/prefix_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include "kernels/cpu/prefix_attention.h"
#include "kernels/cpu/simd/climb-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {
namespace {

void scale_row(float factor, int64_t channels, float* row) {
  const F f;
  for_each_vector(channels, [&](RowPart part) { part.store(hn::Mul(part.load(row), hn::Set(f, factor)), row); });
}

// One step of one head: t in place of e, y' in place of y.
void climb_step(const Call& call, const LeafTile& tile, const Step& step, int64_t h, const float* const* mean_rows,
                Scratch& s, float* e, float* const* y) {
  const F f;
  const int64_t channels = in_lanes(call.p.value_dim), lanes = step.end - step.begin;
  const float* position_rows[kLanes];
  KeyBlock keys;
  interleave_lanes(step, mean_rows, in_lanes(call.p.dim), s);
  if (call.position_dim > 0) {
    interleave_positions(call, tile, *step.family, step.begin, step.end, h, s, position_rows);
  }
  const QueryTile queries = {s.columns, s.position_columns};
  const V nothing = hn::Set(f, kMinusInfinity), one = hn::Set(f, 1.0f);
  V most = hn::Load(f, e);
  V sum = hn::IfThenZeroElse(hn::Eq(most, nothing), one);
  HWY_ALIGN float factors[kLanes], inverses[kLanes];
  for_each_key_block(call, tile, step, h, s, keys, [&](int64_t first) {
    score_block(call, queries, keys, s.scores);
    V more = most;
    for (int64_t j = 0; j < keys.count; ++j) more = hn::Max(more, hn::Load(f, s.scores + j * kLanes));
    const V shift = hn::IfThenZeroElse(hn::Eq(more, nothing), more);
    V added = hn::Zero(f);
    for (int64_t j = 0; j < keys.count; ++j) {
      const V weight = exp_of_score(hn::Load(f, s.scores + j * kLanes), shift);
      added = hn::Add(added, weight);
      hn::Store(weight, f, s.scores + j * kLanes);
    }
    V shrink = exp_lanes(hn::Sub(most, shift));
    sum = hn::MulAdd(sum, shrink, added);
    most = more;
    V inverse = one;
    if (first + keys.count == step.num_keys) {  // the last block brings the sum to 1
      inverse = hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(f)), hn::Div(one, sum));
      shrink = hn::Mul(shrink, inverse);
    }
    hn::Store(shrink, f, factors);
    hn::Store(inverse, f, inverses);
    for (int64_t l = step.begin; l < step.end; ++l) scale_row(factors[l], channels, y[l]);
    Combination combination;
    combination.a = s.scores + step.begin, combination.term_step = kLanes;
    combination.terms = keys.v, combination.num_terms = keys.count;
    combination.row_scale = inverses + step.begin;
    combination.adds = combination.hides = true;
    combine_rows(combination, lanes, channels, y + step.begin);
  });
  hn::Store(hn::IfThenElse(hn::Eq(sum, hn::Zero(f)), nothing, hn::Add(most, log_lanes(sum))), f, e);
}

// What a tile's leaves have gathered when they have reached the root, and the root's e at each of them.
void climb(const Call& call, const Climb& path, const LeafTile& tile, int64_t h, Scratch& s) {
  const AttentionParams& p = call.p;
  const Source q(p.q, p.storage, p.dim);
  const Target out(call.out, p.storage, p.value_dim);
  const int64_t channels = in_lanes(p.value_dim);
  const float* q_rows[kLanes];
  float* y[kLanes];
  HWY_ALIGN float e[kLanes];
  std::fill_n(e, kLanes, kMinusInfinity);
  for (int64_t l = 0; l < tile.count; ++l) {
    q_rows[l] = q.read(tile.first + l, h, s.staged[0] + l * call.dim);
    y[l] = s.staged[4] + l * call.value_dim;
    std::fill_n(y[l], channels, 0.0f);
  }
  MeanQueries queries(call, tile, h, q_rows, s);
  for (const Step& step : path.steps()) {
    if (step.num_keys > 0) climb_step(call, tile, step, h, queries.rows(step), s, e, y);
    mean_energies(call, tile, step, h, /*keeps=*/true, e);
    queries.widen(step);
  }
  const WalkNode& root = *path.steps().back().family;
  if (tile.first + tile.count == end_of(root)) {
    const int64_t n = &root - p.walk.nodes.data();
    call.root_energy[n * p.heads + h] = t_of(call, root, h) = e[tile.count - 1];
  }
  for (int64_t l = 0; l < tile.count; ++l) {
    float* row = out.row(tile.first + l, h, y[l]);
    if (row != y[l]) std::copy_n(y[l], channels, row);
    out.finish(tile.first + l, h, y[l]);
  }
}

// Means of a node that ends in a tile.
void pool_all(const Call& call, const WalkNode& node, HeadRange range, Scratch& s) {
  const NodeSource q = queries_of(call);
  pool_keys(call, node, range, s);
  for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
    pool_node(call, q, node, h, s.staged[0], call.mean_q + (node.inner * call.p.heads + h) * call.dim);
  }
}

void prefix_forward_impl(const Call& call, int64_t n, HeadRange range, Scratch& s) {
  Climb path(call);
  for_each_tile(call.p.walk.nodes[n], [&](const LeafTile& tile) {
    for (int64_t l = tile.first; l < tile.first + tile.count; ++l) {
      for_each_closing(call, l, [&](const WalkNode& node) { pool_all(call, node, range, s); });
    }
    path.collect(tile);
    for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) climb(call, path, tile, h, s);
  });
}

}  // namespace
}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ramify::cpu {

RAMIFY_CPU_STEP(prefix_forward, int64_t)

}  // namespace ramify::cpu
#endif
