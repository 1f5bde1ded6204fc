// Wide families with tied queries for every instruction set: scores are computed tile by tile, and again backward.
#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/wide_family.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include <cmath>

#include "kernels/cpu/simd/family-inl.h"
#include "kernels/cpu/simd/tile-inl.h"
#include "kernels/cpu/wide_family.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {
namespace {

// The children of a wide node and where their rows are: in the tensors, or in the crown.
struct WideFamily {
  const Call& call;
  const WalkNode& node;
  bool is_root;

  WideFamily(const Call& c, int64_t n) : call(c), node(c.p.walk.nodes[n]), is_root(c.p.walk.nodes[n].parent < 0) {}

  int64_t count() const { return node.num_children; }
  const WalkNode& child(int64_t j) const { return call.p.walk.nodes[node.first_child + j]; }
  int64_t member(int64_t j, int64_t head) const { return (node.weights + j) * call.p.heads + head; }
  bool sees_itself(int64_t j) const { return call.p.include_self && child(j).is_leaf(); }

  const float* read(const Source& source, int64_t j, int64_t head, int64_t heads, const float* inner, int64_t width,
                    float* copy) const {
    const WalkNode& c = child(j);
    return c.is_leaf() ? source.read(c.first_leaf, head, copy) : inner + (c.slot * heads + head) * width;
  }
  float* target(const Target& tensor, int64_t j, int64_t head, int64_t heads, float* inner, int64_t width,
                float* copy) const {
    const WalkNode& c = child(j);
    return c.is_leaf() ? tensor.row(c.first_leaf, head, copy) : inner + (c.slot * heads + head) * width;
  }
  void finish(const Target& tensor, int64_t j, int64_t head, const float* row) const {
    if (child(j).is_leaf()) tensor.finish(child(j).first_leaf, head, row);
  }
  // A copy among its neighbours: rows of a tensor lie so that many of them would share few sets of the first-level
  // cache.
  const float* copy(const Source& source, int64_t j, int64_t head, int64_t heads, const float* inner, int64_t width,
                    float* to) const {
    const WalkNode& c = child(j);
    if (c.is_leaf()) {
      widen_rows(source.storage, source.at(c.first_leaf, head), 0, 1, source.dim, to, 0);
    } else {
      std::copy_n(inner + (c.slot * heads + head) * width, width, to);
    }
    return to;
  }
  const float* position(int64_t j, int64_t head, float* copy, const Scratch& s) const {
    return position_row(call, call.p.node_position[node.first_child + j], head, copy, s);
  }
  const float* own_position(int64_t j, int64_t head, float* copy, const Scratch& s) const {
    return position_row(call, call.p.self_position[child(j).first_leaf], head, copy, s);
  }
  bool has_own_position(int64_t j) const {
    return call.position_dim > 0 && sees_itself(j) &&
           call.p.self_position[child(j).first_leaf] != call.p.node_position[node.first_child + j];
  }
};

// Children [begin, begin + count) as queries of one head, in tiles of kLanes.
struct Queries {
  int64_t begin = 0, count = 0;
  const float* q[kKeyBlock];
  const float* y[kKeyBlock];  // backward: grad_out
  const float* position[kKeyBlock];

  int64_t num_tiles() const { return (count + kLanes - 1) / kLanes; }
  int64_t lanes(int64_t t) const { return std::min(kLanes, count - t * kLanes); }
};

Queries gather_queries(const WideFamily& family, int64_t begin, int64_t count, int64_t h, Pass pass, Scratch& s) {
  const Call& call = family.call;
  const AttentionParams& p = call.p;
  const Source q(p.q, p.storage, p.dim), grad_out(call.grad_out, p.storage, p.value_dim);
  Queries queries;
  queries.begin = begin, queries.count = count;
  for (int64_t i = 0; i < count; ++i) {
    queries.q[i] = family.copy(q, begin + i, h, p.heads, call.crown.q, call.dim, s.staged[0] + i * call.dim);
    if (call.position_dim > 0) {
      queries.position[i] =
          family.position(begin + i, h, s.staged_positions + (kNarrowFamily + i) * call.position_dim, s);
    }
    if (pass == Pass::forward) continue;
    queries.y[i] =
        family.copy(grad_out, begin + i, h, p.heads, call.crown.y, call.value_dim, s.staged[3] + i * call.value_dim);
  }
  for (int64_t t = 0; t < queries.num_tiles(); ++t) {
    const int64_t first = t * kLanes, lanes = queries.lanes(t);
    interleave_tile(queries.q + first, lanes, in_lanes(p.dim), s.zeros, s.columns + first * in_lanes(p.dim));
    if (call.position_dim > 0) {
      interleave_tile(queries.position + first, lanes, in_lanes(p.position_dim), s.zeros,
                      s.position_columns + first * in_lanes(p.position_dim));
    }
    if (pass == Pass::forward) continue;
    interleave_tile(queries.y + first, lanes, in_lanes(p.value_dim), s.zeros,
                    s.y_columns + first * in_lanes(p.value_dim));
  }
  return queries;
}

QueryTile tile_of(const Call& call, int64_t t, Scratch& s) {
  const int64_t first = t * kLanes;
  return {s.columns + first * in_lanes(call.p.dim), s.position_columns + first * in_lanes(call.p.position_dim)};
}

// Children [begin, begin + count) as keys.
void gather_keys(const WideFamily& family, int64_t begin, int64_t count, int64_t h, Scratch& s, KeyBlock& keys) {
  const Call& call = family.call;
  const AttentionParams& p = call.p;
  const Source k(p.k, p.storage, p.dim), v(p.v, p.storage, p.value_dim);
  const int64_t g = h / call.group;
  keys.count = count, keys.has_sizes = false;
  for (int64_t j = 0; j < count; ++j) {
    keys.k[j] = family.copy(k, begin + j, g, p.key_heads, call.crown.k, call.dim, s.staged[1] + j * call.dim);
    keys.v[j] =
        family.copy(v, begin + j, g, p.key_heads, call.crown.v, call.value_dim, s.staged[2] + j * call.value_dim);
    const WalkNode& child = family.child(begin + j);
    keys.has_sizes |= !child.is_leaf();
    keys.log_size[j] = child.is_leaf() ? 0.0f : std::log(static_cast<float>(child.size));
    if (call.position_dim == 0) continue;
    keys.position[j] = family.position(begin + j, h, s.staged_positions + j * call.position_dim, s);
    keys.self_difference[j] = 0;
    if (!family.has_own_position(begin + j)) continue;
    const int64_t channels = in_lanes(p.position_dim);
    HWY_ALIGN float copy[kMaxPositionDim];
    const float* own = family.own_position(begin + j, h, copy, s);
    keys.self_difference[j] = dot_row(own, own, channels) - dot_row(keys.position[j], keys.position[j], channels);
  }
}

// Who sees whom, for the tile whose first query is child `first`.
void mask_keys(const WideFamily& family, int64_t begin, int64_t first, int64_t lanes, KeyBlock& keys) {
  const bool is_causal = family.call.p.causal != Causal::none;
  keys.lane_begin = 0, keys.lane_end = lanes;
  keys.is_plain = !is_causal && lanes == kLanes && (begin >= first + lanes || begin + keys.count <= first);
  if (keys.is_plain && family.call.position_dim == 0) return;
  for (int64_t j = 0; j < keys.count; ++j) {
    const auto place = static_cast<float>(begin + j - first);
    const bool is_self_seen = family.sees_itself(begin + j);
    keys.visible_from[j] = is_causal ? place : -1.0f;
    keys.hidden_begin[j] = place;
    keys.hidden_end[j] = is_self_seen ? place : place + 1;
    const int64_t lane = begin + j - first;
    keys.self_lane[j] = is_self_seen && lane >= 0 && lane < lanes ? lane : -1;
  }
}

// Causal queries up to child `end` see no key from `end` on.
int64_t keys_seen(const WideFamily& family, int64_t end) {
  return family.call.p.causal == Causal::none ? family.count() : end;
}

void wide_attend_impl(const Call& call, WideTile item, HeadRange range, Scratch& s) {
  const F f;
  const AttentionParams& p = call.p;
  const WideFamily family(call, item.node);
  const int64_t begin = item.tile * kKeyBlock, count = std::min(family.count() - begin, kKeyBlock);
  constexpr int64_t kTiles = kKeyBlock / kLanes;
  KeyBlock keys;
  for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
    const Queries queries = gather_queries(family, begin, count, h, Pass::forward, s);
    Seen seen[kTiles];
    for (int64_t i = 0; i < count; ++i) {
      float* row = s.staged[4] + i * call.value_dim;
      std::fill_n(row, call.value_dim, 0.0f);
      seen[i / kLanes].rows[i % kLanes] = row;
    }
    const int64_t num_keys = keys_seen(family, begin + count);
    for (int64_t j = 0; j < num_keys; j += kKeyBlock) {
      gather_keys(family, j, std::min(num_keys - j, kKeyBlock), h, s, keys);
      for (int64_t t = 0; t < queries.num_tiles(); ++t) {
        mask_keys(family, j, begin + t * kLanes, queries.lanes(t), keys);
        see_block(call, tile_of(call, t, s), keys, seen[t], s.scores);
      }
    }
    for (int64_t t = 0; t < queries.num_tiles(); ++t) {
      const Total total = total_of(seen[t]);
      HWY_ALIGN float log_sum[kLanes], inverse[kLanes];
      hn::Store(total.log_sum, f, log_sum);
      hn::Store(total.inverse, f, inverse);
      for (int64_t l = 0; l < queries.lanes(t); ++l) {
        const int64_t member = family.member(begin + t * kLanes + l, h);
        call.log_sums[member] = log_sum[l];
        float* to = call.attended + member * call.value_dim;
        for (int64_t c = 0; c < in_lanes(p.value_dim); c += kLanes) {
          hn::StoreU(hn::Mul(hn::LoadU(f, seen[t].rows[l] + c), hn::Set(f, inverse[l])), f, to + c);
        }
      }
    }
  }
}

// Adds the rows of all children, each times its size, and divides by the parent's.
void pool_children(const WideFamily& family, const Source& source, int64_t head, int64_t heads, int64_t width,
                   const float* inner, bool by_size, float* copies, float* to) {
  const F f;
  const int64_t channels = in_lanes(source.dim);
  std::fill_n(to, width, 0.0f);
  for (int64_t j = 0; j < family.count(); ++j) {
    const float* row = family.read(source, j, head, heads, inner, width, copies);
    const V weight = hn::Set(f, by_size ? static_cast<float>(family.child(j).size) : 1.0f);
    for (int64_t c = 0; c < channels; c += kLanes) {
      hn::StoreU(hn::MulAdd(hn::LoadU(f, row + c), weight, hn::LoadU(f, to + c)), f, to + c);
    }
  }
  const V scale = hn::Set(f, by_size ? 1.0f / static_cast<float>(family.node.size) : 1.0f);
  for (int64_t c = 0; c < channels; c += kLanes) hn::StoreU(hn::Mul(hn::LoadU(f, to + c), scale), f, to + c);
}

void wide_fold_impl(const Call& call, int64_t n, HeadRange range, Scratch& s) {
  const F f;
  const AttentionParams& p = call.p;
  const WideFamily family(call, n);
  const Source q(p.q, p.storage, p.dim), k(p.k, p.storage, p.dim), v(p.v, p.storage, p.value_dim);
  const int64_t slot = family.node.slot;
  for (int64_t g = range.key_begin; g < range.key_end; ++g) {
    for (int64_t h = g * call.group; h < (g + 1) * call.group; ++h) {
      double energy = 0;  // thousands of terms
      for (int64_t j = 0; j < family.count(); j += kLanes) {
        HWY_ALIGN float e[kLanes], log_sum[kLanes], t[kLanes], m[kLanes], w[kLanes];
        const int64_t lanes = std::min(kLanes, family.count() - j);
        for (int64_t l = 0; l < kLanes; ++l) {
          e[l] = log_sum[l] = kMinusInfinity;
          if (l >= lanes) continue;
          const WalkNode& child = family.child(j + l);
          if (!child.is_leaf()) e[l] = call.crown.e[child.slot * p.heads + h];
          log_sum[l] = call.log_sums[family.member(j + l, h)];
        }
        const Gates gates = gates_of(hn::Load(f, e), hn::Load(f, log_sum));
        hn::Store(gates.t, f, t);
        hn::Store(gates.m, f, m);
        hn::Store(gates.w, f, w);
        for (int64_t l = 0; l < lanes; ++l) {
          const WalkNode& child = family.child(j + l);
          energy += static_cast<double>(child.size) * t[l];
          if (child.is_leaf()) continue;
          call.gates_of(child, h)[0] = m[l], call.gates_of(child, h)[1] = w[l];
        }
      }
      const auto mean_energy = static_cast<float>(energy / static_cast<double>(family.node.size));
      call.crown.e[slot * p.heads + h] = mean_energy;
      if (family.is_root) {
        call.root_energy[n * p.heads + h] = mean_energy;
      } else {
        pool_children(family, q, h, p.heads, call.dim, call.crown.q, true, s.staged[0],
                      call.crown.q + (slot * p.heads + h) * call.dim);
      }
    }
    if (family.is_root) continue;
    pool_children(family, k, g, p.key_heads, call.dim, call.crown.k, true, s.staged[1],
                  call.crown.k + (slot * p.key_heads + g) * call.dim);
    pool_children(family, v, g, p.key_heads, call.value_dim, call.crown.v, true, s.staged[2],
                  call.crown.v + (slot * p.key_heads + g) * call.value_dim);
  }
}

void wide_down_impl(const Call& call, WideTile item, HeadRange range, Scratch& s) {
  const F f;
  const AttentionParams& p = call.p;
  const WideFamily family(call, item.node);
  const Target out(call.out, p.storage, p.value_dim);
  const int64_t begin = item.tile * kKeyBlock, end = std::min(family.count(), begin + kKeyBlock);
  for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
    const int64_t row = family.node.slot * p.heads + h;
    const float pi = family.is_root ? 1.0f : call.crown.pi[row];
    const float* base = family.is_root ? s.zeros : call.crown.y + row * call.value_dim;
    for (int64_t j = begin; j < end; ++j) {
      const WalkNode& child = family.child(j);
      float scale = pi;
      if (!child.is_leaf()) {
        const float* gates = call.gates_of(child, h);
        scale = pi * gates[1];
        call.crown.pi[child.slot * p.heads + h] = pi * gates[0];
      }
      const float* attended = call.attended + family.member(j, h) * call.value_dim;
      float* y = family.target(out, j, h, p.heads, call.crown.y, call.value_dim, s.staged[4]);
      for (int64_t c = 0; c < in_lanes(p.value_dim); c += kLanes) {
        hn::StoreU(hn::MulAdd(hn::LoadU(f, attended + c), hn::Set(f, scale), hn::LoadU(f, base + c)), f, y + c);
      }
      family.finish(out, j, h, y);
    }
  }
}

void wide_backward_fold_impl(const Call& call, int64_t n, HeadRange range, Scratch& s) {
  const AttentionParams& p = call.p;
  const WideFamily family(call, n);
  const Source grad_out(call.grad_out, p.storage, p.value_dim);
  for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
    double pi_bar = 0;
    for (int64_t j = 0; j < family.count(); ++j) {
      const WalkNode& child = family.child(j);
      const float* y = family.read(grad_out, j, h, p.heads, call.crown.y, call.value_dim, s.staged[3]);
      const int64_t member = family.member(j, h);
      const float dot = dot_row(y, call.attended + member * call.value_dim, in_lanes(p.value_dim));
      call.wide_dots[member] = dot;
      if (child.is_leaf()) {
        pi_bar += dot;
      } else {
        const float* gates = call.gates_of(child, h);
        pi_bar += gates[1] * dot + gates[0] * call.pi_bar_of(child, h);
      }
    }
    if (family.is_root) continue;
    call.pi_bar_of(family.node, h) = static_cast<float>(pi_bar);
    pool_children(family, grad_out, h, p.heads, call.value_dim, call.crown.y, false, s.staged[3],
                  call.crown.y + (family.node.slot * p.heads + h) * call.value_dim);
  }
}

void wide_backward_gates_impl(const Call& call, int64_t n, HeadRange range, Scratch&) {
  const AttentionParams& p = call.p;
  const WideFamily family(call, n);
  for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
    const int64_t row = family.node.slot * p.heads + h;
    const float pi = family.is_root ? 1.0f : call.crown.pi[row];
    const float e_bar = family.is_root ? call.grad_root_energy[n * p.heads + h] : call.crown.e[row];
    const float t_bar_a_leaf = e_bar / static_cast<float>(family.node.size);
    for (int64_t j = 0; j < family.count(); ++j) {
      const WalkNode& child = family.child(j);
      const int64_t member = family.member(j, h);
      call.wide_coefficients[member] = pi;
      call.wide_slopes[member] = t_bar_a_leaf;
      if (child.is_leaf()) continue;
      const float* gates = call.gates_of(child, h);
      const float m = gates[0], w = gates[1], t_bar = static_cast<float>(child.size) * t_bar_a_leaf;
      const float delta = pi * m * w * (call.pi_bar_of(child, h) - call.wide_dots[member]);
      call.wide_coefficients[member] = pi * w;
      call.wide_slopes[member] = w * t_bar - delta;
      call.crown.e[child.slot * p.heads + h] = delta + m * t_bar;
      call.crown.pi[child.slot * p.heads + h] = pi * m;
    }
  }
}

// s̄ of a block over its weights: s̄ = p (ḡ + π w (product - dot)); and p π w over its products.
void adjoint_of_block(const WideFamily& family, const Queries& queries, int64_t t, int64_t h, int64_t num_keys,
                      float* weights, float* products) {
  const F f;
  const Call& call = family.call;
  HWY_ALIGN float dots[kLanes] = {}, coefficients[kLanes] = {}, slopes[kLanes] = {};
  for (int64_t l = 0; l < queries.lanes(t); ++l) {
    const int64_t member = family.member(queries.begin + t * kLanes + l, h);
    dots[l] = call.wide_dots[member];
    coefficients[l] = call.wide_coefficients[member];
    slopes[l] = call.wide_slopes[member];
  }
  const V dot = hn::Load(f, dots), coefficient = hn::Load(f, coefficients), slope = hn::Load(f, slopes);
  for (int64_t j = 0; j < num_keys; ++j) {
    const V weight = hn::Load(f, weights + j * kLanes);
    const V s_bar = hn::MulAdd(coefficient, hn::Sub(hn::Load(f, products + j * kLanes), dot), slope);
    hn::Store(hn::Mul(weight, s_bar), f, weights + j * kLanes);
    hn::Store(hn::Mul(weight, coefficient), f, products + j * kLanes);
  }
}

V log_sums_of(const WideFamily& family, const Queries& queries, int64_t t, int64_t h) {
  HWY_ALIGN float log_sum[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) {
    log_sum[l] = l < queries.lanes(t) ? family.call.log_sums[family.member(queries.begin + t * kLanes + l, h)] : 0.0f;
  }
  return hn::Load(F(), log_sum);
}

// A leaf's own position, where it has one, gets the gradient of its self score apart; the rest of the block forgets it.
void take_own_positions(const WideFamily& family, const KeyBlock& keys, int64_t begin, int64_t h, float* s_bar,
                        Scratch& s) {
  const Call& call = family.call;
  for (int64_t j = 0; j < keys.count; ++j) {
    if (keys.self_lane[j] < 0 || !family.has_own_position(begin + j)) continue;
    float& self = s_bar[j * kLanes + keys.self_lane[j]];
    HWY_ALIGN float copy[kMaxPositionDim];
    const float* own = family.own_position(begin + j, h, copy, s);
    float* to = call.grad_self_positions + (family.child(begin + j).first_leaf * call.p.heads + h) * call.position_dim;
    for (int64_t c = 0; c < call.position_dim; ++c) to[c] = 2 * self * own[c];
    self = 0;
  }
}

void wide_backward_queries_impl(const Call& call, WideTile item, HeadRange range, Scratch& s) {
  const AttentionParams& p = call.p;
  const WideFamily family(call, item.node);
  const Target grad_q(call.grad_q, p.storage, p.dim);
  const int64_t begin = item.tile * kKeyBlock, count = std::min(family.count() - begin, kKeyBlock);
  const int64_t slot = family.node.slot, channels = in_lanes(p.dim);
  KeyBlock keys;
  HWY_ALIGN float shares[kKeyBlock], ones[kKeyBlock];
  float *rows[kKeyBlock], *position_rows[kKeyBlock];
  for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
    const Queries queries = gather_queries(family, begin, count, h, Pass::backward, s);
    const float* base = family.is_root ? s.zeros : call.crown.gq + (slot * p.heads + h) * call.dim;
    for (int64_t i = 0; i < count; ++i) {
      rows[i] = family.target(grad_q, begin + i, h, p.heads, call.crown.gq, call.dim, s.staged[4] + i * call.dim);
      std::copy_n(base, channels, rows[i]);
      shares[i] = p.scale / static_cast<float>(family.child(begin + i).size);
      ones[i] = 1;
      if (call.position_dim == 0) continue;
      const int64_t child = family.node.first_child + begin + i;
      position_rows[i] = call.grad_node_positions + (child * p.heads + h) * call.position_dim;
      std::fill_n(position_rows[i], call.position_dim, 0.0f);
    }
    const int64_t num_keys = keys_seen(family, begin + count);
    for (int64_t j = 0; j < num_keys; j += kKeyBlock) {
      gather_keys(family, j, std::min(num_keys - j, kKeyBlock), h, s, keys);
      for (int64_t t = 0; t < queries.num_tiles(); ++t) {
        const int64_t first = t * kLanes;
        mask_keys(family, j, begin + first, queries.lanes(t), keys);
        weigh_block(call, tile_of(call, t, s), s.y_columns + first * in_lanes(p.value_dim), keys,
                    log_sums_of(family, queries, t, h), s.scores, s.products);
        adjoint_of_block(family, queries, t, h, keys.count, s.scores, s.products);
        Combination combination;
        combination.a = s.scores, combination.term_step = kLanes;
        combination.terms = keys.k, combination.num_terms = keys.count;
        combination.row_scale = shares + first;
        combination.adds = true;
        combine_rows(combination, queries.lanes(t), channels, rows + first);
        if (call.position_dim == 0) continue;
        take_own_positions(family, keys, j, h, s.scores, s);
        combination.terms = keys.position, combination.row_scale = ones;
        combine_rows(combination, queries.lanes(t), in_lanes(p.position_dim), position_rows + first);
      }
    }
    for (int64_t i = 0; i < count; ++i) family.finish(grad_q, begin + i, h, rows[i]);
  }
}

void wide_backward_keys_impl(const Call& call, WideTile item, HeadRange range, Scratch& s) {
  const AttentionParams& p = call.p;
  const WideFamily family(call, item.node);
  const Target grad_k(call.grad_k, p.storage, p.dim), grad_v(call.grad_v, p.storage, p.value_dim);
  const int64_t begin = item.tile * kKeyBlock, count = std::min(family.count() - begin, kKeyBlock);
  const int64_t slot = family.node.slot, channels = in_lanes(p.dim), value_channels = in_lanes(p.value_dim);
  KeyBlock keys;
  HWY_ALIGN float shares[kKeyBlock], scaled_shares[kKeyBlock], ones[kKeyBlock];
  float *k_rows[kKeyBlock], *v_rows[kKeyBlock], *position_rows[kKeyBlock];
  for (int64_t g = range.key_begin; g < range.key_end; ++g) {
    const float* k_base = family.is_root ? s.zeros : call.crown.gk + (slot * p.key_heads + g) * call.dim;
    const float* v_base = family.is_root ? s.zeros : call.crown.gv + (slot * p.key_heads + g) * call.value_dim;
    for (int64_t j = 0; j < count; ++j) {
      k_rows[j] = family.target(grad_k, begin + j, g, p.key_heads, call.crown.gk, call.dim, s.staged[5] + j * call.dim);
      v_rows[j] = family.target(grad_v, begin + j, g, p.key_heads, call.crown.gv, call.value_dim,
                                s.staged[6] + j * call.value_dim);
      std::copy_n(k_base, channels, k_rows[j]);
      std::copy_n(v_base, value_channels, v_rows[j]);
      shares[j] = 1.0f / static_cast<float>(family.child(begin + j).size);
      scaled_shares[j] = p.scale * shares[j];
      ones[j] = 1;
    }
    for (int64_t h = g * call.group; h < (g + 1) * call.group; ++h) {
      gather_keys(family, begin, count, h, s, keys);
      for (int64_t j = 0; call.position_dim > 0 && j < count; ++j) {
        const int64_t child = family.node.first_child + begin + j;
        position_rows[j] = call.grad_node_positions + (child * p.heads + h) * call.position_dim;
      }
      // causal: only later children look at these
      const int64_t first_query = p.causal == Causal::none ? 0 : begin / kLanes * kLanes;
      for (int64_t i = first_query; i < family.count(); i += kLanes) {
        const Queries queries = gather_queries(family, i, std::min(kLanes, family.count() - i), h, Pass::backward, s);
        mask_keys(family, begin, i, queries.count, keys);
        weigh_block(call, tile_of(call, 0, s), s.y_columns, keys, log_sums_of(family, queries, 0, h), s.scores,
                    s.products);
        adjoint_of_block(family, queries, 0, h, count, s.scores, s.products);
        Combination combination;
        combination.a = s.scores, combination.row_step = kLanes;
        combination.terms = queries.q, combination.num_terms = queries.count;
        combination.row_scale = scaled_shares;
        combination.adds = true;
        combine_rows(combination, count, channels, k_rows);
        combination.a = s.products, combination.terms = queries.y, combination.row_scale = shares;
        combine_rows(combination, count, value_channels, v_rows);
        if (call.position_dim == 0) continue;
        for (int64_t j = 0; j < count; ++j) {  // the queries' step has taken these
          if (keys.self_lane[j] >= 0 && family.has_own_position(begin + j))
            s.scores[j * kLanes + keys.self_lane[j]] = 0;
        }
        combination.a = s.scores, combination.terms = queries.position, combination.row_scale = ones;
        combine_rows(combination, count, in_lanes(p.position_dim), position_rows);
      }
    }
    for (int64_t j = 0; j < count; ++j) {
      family.finish(grad_k, begin + j, g, k_rows[j]);
      family.finish(grad_v, begin + j, g, v_rows[j]);
    }
  }
}

}  // namespace
}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ramify::cpu {

RAMIFY_CPU_STEP(wide_attend, WideTile)
RAMIFY_CPU_STEP(wide_fold, int64_t)
RAMIFY_CPU_STEP(wide_down, WideTile)
RAMIFY_CPU_STEP(wide_backward_fold, int64_t)
RAMIFY_CPU_STEP(wide_backward_gates, int64_t)
RAMIFY_CPU_STEP(wide_backward_queries, WideTile)
RAMIFY_CPU_STEP(wide_backward_keys, WideTile)

}  // namespace ramify::cpu
#endif
