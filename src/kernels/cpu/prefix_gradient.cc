// The gradients of causal=prefix with tied queries for every instruction set: leaves climb again, then what they got
// goes down the same way.
#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/prefix_gradient.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include <vector>

#include "kernels/cpu/prefix_attention.h"
#include "kernels/cpu/simd/climb-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {
namespace {

// What backward keeps of one step of a tile, a number a lane.
struct StepNumbers {
  HWY_ALIGN float m[kLanes];      // the share of what is below
  HWY_ALIGN float below[kLanes];  // grad_out · y
  HWY_ALIGN float all[kLanes];    // grad_out · y'
  HWY_ALIGN float t_bar[kLanes];  // gradient by t
  HWY_ALIGN float pi[kLanes];     // the share of y' in the output
};

// Weights p_j and products grad_out · v_j of all keys of a step, [key][lane]; t in place of e, grad_out · y' in place
// of grad_out · y.
void climb_step_again(const Call& call, const LeafTile& tile, const Step& step, int64_t h,
                      const float* const* mean_rows, Scratch& s, float* weights, float* products, float* e,
                      float* gathered, StepNumbers& numbers) {
  const F f;
  const float* position_rows[kLanes];
  KeyBlock keys;
  interleave_lanes(step, mean_rows, in_lanes(call.p.dim), s);
  if (call.position_dim > 0) {
    interleave_positions(call, tile, *step.family, step.begin, step.end, h, s, position_rows);
  }
  const QueryTile queries = {s.columns, s.position_columns};
  const V nothing = hn::Set(f, kMinusInfinity), zero = hn::Zero(f), inside = hn::Load(f, e);
  V most = inside;
  for_each_key_block(call, tile, step, h, s, keys, [&](int64_t first) {
    score_block(call, queries, keys, weights + first * kLanes);
    dot_blocks(s.y_columns, keys.v, keys.count, in_lanes(call.p.value_dim), 1.0f, products + first * kLanes, kLanes);
    for (int64_t j = first; j < first + keys.count; ++j) most = hn::Max(most, hn::Load(f, weights + j * kLanes));
  });
  const V shift = hn::IfThenZeroElse(hn::Eq(most, nothing), most);
  const V below = exp_lanes(hn::Sub(inside, shift));
  V sum = below;
  for (int64_t j = 0; j < step.num_keys; ++j) {
    const V weight = exp_of_score(hn::Load(f, weights + j * kLanes), shift);
    hn::Store(weight, f, weights + j * kLanes);
    sum = hn::Add(sum, weight);
  }
  const M is_empty = hn::Eq(sum, zero);
  const V inverse = hn::IfThenZeroElse(is_empty, hn::Div(hn::Set(f, 1.0f), sum));
  const V m = hn::Mul(below, inverse), before = hn::Load(f, gathered);
  V all = hn::Mul(m, before);
  for (int64_t j = 0; j < step.num_keys; ++j) {
    const V share = hn::Load(f, weights + j * kLanes), weight = hn::Mul(share, where_seen(share, inverse));
    hn::Store(weight, f, weights + j * kLanes);
    all = hn::MulAdd(weight, where_seen(weight, hn::Load(f, products + j * kLanes)), all);
  }
  hn::Store(m, f, numbers.m);
  hn::Store(before, f, numbers.below);
  hn::Store(all, f, numbers.all);
  hn::Store(all, f, gathered);
  hn::Store(hn::IfThenElse(is_empty, nothing, hn::Add(shift, log_lanes(sum))), f, e);
}

// Gradients by t of a step's lanes from those by its parent's e: a lane's own mean holds its t, and those of later
// leaves hold the t of the last leaf of a child.
void adjoint_of_means(const Call& call, const LeafTile& tile, const Step& step, int64_t h, const float* e_bar,
                      StepNumbers& numbers) {
  const auto nodes = call.p.walk.nodes;
  const WalkNode& family = *step.family;
  float& carried = call.mean_slopes[family.inner * call.p.heads + h];
  float later = end_of(family) > tile.first + tile.count ? carried : 0.0f;  // Σ ē / n over the leaves to the right
  int64_t child = child_above(call, family, tile.first + step.end - 1);
  for (int64_t l = step.end - 1; l >= step.begin; --l) {
    const int64_t leaf = tile.first + l;
    if (leaf < nodes[child].first_leaf) --child;
    const float own = e_bar[l] / static_cast<float>(leaf + 1 - family.first_leaf);
    const bool is_last = leaf + 1 == end_of(nodes[child]);
    numbers.t_bar[l] = static_cast<float>(leaf + 1 - nodes[child].first_leaf) * (is_last ? own + later : own);
    later += own;
  }
  carried = later;
}

// Gradients of mean queries, in `rows`, go to all leaves that the means are of.
void share_queries(const Call& call, const LeafTile& tile, const Step& step, int64_t h, const float* const* rows,
                   float* const* grad_q) {
  const F f;
  const auto nodes = call.p.walk.nodes;
  const int64_t last_child = child_above(call, *step.family, tile.first + step.end - 1);
  const auto later_row = [&](const WalkNode& node) {
    return call.grad_mean_q + (node.inner * call.p.heads + h) * call.dim;
  };
  const int64_t channels = in_lanes(call.p.dim);
  for_each_vector(channels, [&](RowPart part) {
    int64_t child = last_child;
    const bool goes_on = end_of(nodes[child]) > tile.first + tile.count;
    V sum = goes_on ? part.load(later_row(nodes[child])) : hn::Zero(f);
    for (int64_t l = step.end - 1; l >= step.begin; --l) {
      const int64_t leaf = tile.first + l;
      if (leaf < nodes[child].first_leaf) {
        --child;
        sum = hn::Zero(f);
      }
      const V share = hn::Set(f, 1.0f / static_cast<float>(leaf + 1 - nodes[child].first_leaf));
      sum = hn::MulAdd(part.load(rows[l]), share, sum);
      part.store(hn::Add(part.load(grad_q[l]), sum), grad_q[l]);
    }
    if (nodes[child].first_leaf < tile.first) part.store(sum, later_row(nodes[child]));
  });
}

// Gradients of one step's keys, positions and mean queries.
void step_backward(const Call& call, const LeafTile& tile, const Step& step, int64_t h, const float* const* mean_rows,
                   const float* const* y_rows, const StepNumbers& numbers, float* weights, float* products,
                   const KeyGradients& sums, Scratch& s, float* const* grad_q) {
  const F f;
  const int64_t channels = in_lanes(call.p.dim), lanes = step.end - step.begin;
  const float* position_rows[kLanes];
  float* rows[kLanes];
  KeyBlock keys;
  HWY_ALIGN float scales[kLanes];
  std::fill_n(scales, kLanes, call.p.scale);
  for (int64_t l = 0; l < kLanes; ++l) rows[l] = s.staged[6] + l * call.dim;
  if (call.position_dim > 0) {
    interleave_positions(call, tile, *step.family, step.begin, step.end, h, s, position_rows);
  }
  const V t_bar = hn::Load(f, numbers.t_bar), pi = hn::Load(f, numbers.pi), all = hn::Load(f, numbers.all);
  for_each_key_block(call, tile, step, h, s, keys, [&](int64_t first) {
    float *p = weights + first * kLanes, *s_bar = products + first * kLanes;
    for (int64_t j = 0; j < keys.count; ++j) {
      const V weight = hn::Load(f, p + j * kLanes);
      const V change = hn::MulAdd(pi, hn::Sub(hn::Load(f, s_bar + j * kLanes), all), t_bar);
      hn::Store(hn::Mul(weight, where_seen(weight, change)), f, s_bar + j * kLanes);
      hn::Store(hn::Mul(weight, where_seen(weight, pi)), f, p + j * kLanes);
    }
    Combination combination;
    combination.a = s_bar + step.begin, combination.term_step = kLanes;
    combination.terms = keys.k, combination.num_terms = keys.count;
    combination.row_scale = scales, combination.adds = first > 0, combination.hides = true;
    combine_rows(combination, lanes, channels, rows + step.begin);
    const int64_t node = step.family->first_child + first;
    add_to_keys(call, keys, node, h / call.group, s_bar, p, mean_rows, y_rows, sums.k, sums.v);
    if (call.position_dim > 0) add_to_positions(call, tile, *step.family, keys, node, h, s_bar, position_rows, s);
  });
  share_queries(call, tile, step, h, rows, grad_q);
}

void climb_backward(const Call& call, const Climb& path, const LeafTile& tile, int64_t h, const KeyGradients& sums,
                    std::vector<StepNumbers>& numbers, Scratch& s) {
  const AttentionParams& p = call.p;
  const Source q(p.q, p.storage, p.dim), grad_out(call.grad_out, p.storage, p.value_dim);
  const Target grad_q(call.grad_q, p.storage, p.dim);
  const auto& steps = path.steps();
  const WalkNode& root = *steps.back().family;
  const float *q_rows[kLanes], *y_rows[kLanes];
  float* rows[kLanes];
  HWY_ALIGN float e[kLanes], gathered[kLanes], e_bar[kLanes] = {}, pi[kLanes];
  std::fill_n(e, kLanes, kMinusInfinity);
  std::fill_n(gathered, kLanes, 0.0f);
  std::fill_n(pi, kLanes, 1.0f);
  gather_tile(grad_out, tile, h, call.value_dim, s.staged[3], s, y_rows, s.y_columns);
  for (int64_t l = 0; l < tile.count; ++l) {
    q_rows[l] = q.read(tile.first + l, h, s.staged[0] + l * call.dim);
    rows[l] = grad_q.row(tile.first + l, h, s.staged[4] + l * call.dim);
    std::fill_n(rows[l], in_lanes(p.dim), 0.0f);
  }
  numbers.resize(steps.size());

  int64_t used = 0;  // keys of the steps so far
  MeanQueries queries(call, tile, h, q_rows, s);
  for (size_t i = 0; i < steps.size(); ++i) {
    float *weights = s.path_weights + used * kLanes, *products = s.path_products + used * kLanes;
    climb_step_again(call, tile, steps[i], h, queries.rows(steps[i]), s, weights, products, e, gathered, numbers[i]);
    mean_energies(call, tile, steps[i], h, /*keeps=*/false, e);
    queries.widen(steps[i]);
    used += steps[i].num_keys;
  }
  if (tile.first + tile.count == end_of(root)) {
    const int64_t n = &root - p.walk.nodes.data();
    e_bar[tile.count - 1] = call.grad_root_energy[n * p.heads + h];
  }
  for (size_t i = steps.size(); i-- > 0;) {
    StepNumbers& here = numbers[i];
    std::fill_n(here.t_bar, kLanes, 0.0f);
    std::fill_n(here.pi, kLanes, 0.0f);
    adjoint_of_means(call, tile, steps[i], h, e_bar, here);
    for (int64_t l = steps[i].begin; l < steps[i].end; ++l) {
      here.pi[l] = pi[l];
      e_bar[l] = here.m[l] == 0 ? 0.0f : here.m[l] * (here.t_bar[l] + pi[l] * (here.below[l] - here.all[l]));
      pi[l] *= here.m[l];
    }
  }
  used = 0;
  MeanQueries again(call, tile, h, q_rows, s);
  for (size_t i = 0; i < steps.size(); ++i) {
    float *weights = s.path_weights + used * kLanes, *products = s.path_products + used * kLanes;
    // lanes without keys are below a first child, whose mean queries nobody looks with
    if (steps[i].num_keys > 0) {
      step_backward(call, tile, steps[i], h, again.rows(steps[i]), y_rows, numbers[i], weights, products, sums, s,
                    rows);
    }
    again.widen(steps[i]);
    used += steps[i].num_keys;
  }
  for (int64_t l = 0; l < tile.count; ++l) grad_q.finish(tile.first + l, h, rows[l]);
}

void prefix_backward_impl(const Call& call, int64_t n, HeadRange range, Scratch& s) {
  const WalkNode& root = call.p.walk.nodes[n];
  KeyGradients sums(call, root, range, s);
  Climb path(call);
  std::vector<StepNumbers> numbers;
  for_each_tile_back(root, [&](const LeafTile& tile) {
    path.collect(tile);
    sums.clear_from(path.first_leaf());
    for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
      climb_backward(call, path, tile, h, sums, numbers, s);
    }
    sums.finish(tile);
  });
}

}  // namespace
}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ramify::cpu {

RAMIFY_CPU_STEP(prefix_backward, int64_t)

}  // namespace ramify::cpu
#endif
