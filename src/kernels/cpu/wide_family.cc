// Wide families with tied queries for every instruction set: scores are computed block by block, and again backward.
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
  int64_t tile_begin(int64_t tile) const { return tile * wide_tile_size(node); }
  int64_t tile_size(int64_t tile) const { return std::min(count() - tile_begin(tile), wide_tile_size(node)); }
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

// A tile's children as queries of one head; their rows also as columns, a block of kKeyBlock after the other.
struct Queries {
  int64_t begin = 0, count = 0;
  const float* q[kWideTile];
  const float* y[kWideTile];  // backward: grad_out
  const float* position[kWideTile];

  int64_t block_size(int64_t first) const { return std::min(count - first, kKeyBlock); }
};

// `count` of its rows, and zeros for the rest of the lanes.
void turn_rows(const float* const* rows, int64_t first, int64_t count, int64_t channels, const float* zeros,
               float* columns) {
  const float* lanes[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) lanes[l] = l < count ? rows[first + l] : zeros;
  const int64_t block = first / kKeyBlock, place = first % kKeyBlock;
  transpose_rows(lanes, channels, columns + block * kKeyBlock * channels + place, kKeyBlock);
}

void gather_queries(const WideFamily& family, int64_t tile, int64_t h, Pass pass, Scratch& s, Queries& queries) {
  const Call& call = family.call;
  const AttentionParams& p = call.p;
  const WideScratch& wide = s.wide;
  const Source q(p.q, p.storage, p.dim), grad_out(call.grad_out, p.storage, p.value_dim);
  const int64_t begin = family.tile_begin(tile), count = family.tile_size(tile);
  queries.begin = begin, queries.count = count;
  for (int64_t i = 0; i < count; ++i) {
    queries.q[i] = family.copy(q, begin + i, h, p.heads, call.crown.q, call.dim, wide.q + i * call.dim);
    if (call.position_dim > 0) {
      queries.position[i] = family.position(begin + i, h, wide.positions + i * call.position_dim, s);
    }
    if (pass == Pass::forward) continue;
    queries.y[i] =
        family.copy(grad_out, begin + i, h, p.heads, call.crown.y, call.value_dim, wide.y + i * call.value_dim);
  }
  for (int64_t first = 0; first < count; first += kLanes) {
    const int64_t lanes = std::min(kLanes, count - first);
    turn_rows(queries.q, first, lanes, in_lanes(p.dim), s.zeros, wide.q_columns);
    if (call.position_dim > 0) {
      interleave_tile(queries.position + first, lanes, in_lanes(p.position_dim), s.zeros,
                      wide.position_columns + first * in_lanes(p.position_dim));
    }
    if (pass == Pass::forward) continue;
    turn_rows(queries.y, first, lanes, in_lanes(p.value_dim), s.zeros, wide.y_columns);
  }
}

// Products of a block of keys, neighbouring rows, and a block of queries in columns: to[key][query], rows of kKeyBlock.
// A key's channels are weights of the columns, which is faster than dot_blocks where there are this many queries.
void multiply_block(const float* keys, int64_t width, int64_t num_keys, const float* columns, int64_t num_queries,
                    int64_t channels, float scale, float* to) {
  const float* terms[kMaxDim];
  float* rows[kKeyBlock];
  HWY_ALIGN float scales[kKeyBlock];
  for (int64_t c = 0; c < channels; ++c) terms[c] = columns + c * kKeyBlock;
  for (int64_t j = 0; j < num_keys; ++j) rows[j] = to + j * kKeyBlock, scales[j] = scale;
  Combination product;
  product.a = keys, product.row_step = width;
  product.terms = terms, product.num_terms = channels;
  product.row_scale = scales;
  combine_rows(product, num_keys, in_lanes(num_queries), rows);
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

// Whether some of the queries up to child `end` see a key from child `begin` on.
bool may_see(const WideFamily& family, int64_t end, int64_t begin) {
  return family.call.p.causal == Causal::none || begin < end;
}

// What a tile's queries have seen, in groups of kLanes.
struct SeenTile {
  Seen groups[kWideTile / kLanes];
  float* rows[kWideTile];
};

void see_keys(const WideFamily& family, const Queries& queries, int64_t first, int64_t key_begin, KeyBlock& keys,
              SeenTile& seen, Scratch& s) {
  const Call& call = family.call;
  const AttentionParams& p = call.p;
  const int64_t count = queries.block_size(first);
  multiply_block(s.staged[1], call.dim, keys.count, s.wide.q_columns + first * in_lanes(p.dim), count, p.dim, p.scale,
                 s.scores);
  for (int64_t i = 0; i < count; i += kLanes) {
    mask_keys(family, key_begin, queries.begin + first + i, std::min(kLanes, count - i), keys);
    complete_scores(call, s.wide.position_columns + (first + i) * in_lanes(p.position_dim), keys, s.scores + i,
                    kKeyBlock);
    weigh_scores(call, keys, seen.groups[(first + i) / kLanes], s.scores + i, kKeyBlock);
  }
  HWY_ALIGN float ones[kKeyBlock];
  std::fill_n(ones, kKeyBlock, 1.0f);
  Combination combination;
  combination.a = s.scores, combination.term_step = kKeyBlock;
  combination.terms = keys.v, combination.num_terms = keys.count;
  combination.row_scale = ones;
  combination.adds = combination.hides = true;
  combine_rows(combination, count, in_lanes(p.value_dim), seen.rows + first);
}

void wide_attend_impl(const Call& call, WideTile item, HeadRange range, Scratch& s) {
  const F f;
  const AttentionParams& p = call.p;
  const WideFamily family(call, item.node);
  const int64_t value_channels = in_lanes(p.value_dim);
  Queries queries;
  KeyBlock keys;
  for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
    gather_queries(family, item.tile, h, Pass::forward, s, queries);
    const int64_t begin = queries.begin, end = begin + queries.count;
    SeenTile seen;
    for (int64_t i = 0; i < queries.count; ++i) {
      seen.rows[i] = seen.groups[i / kLanes].rows[i % kLanes] = s.wide.y + i * call.value_dim;
      std::fill_n(seen.rows[i], call.value_dim, 0.0f);
    }
    for (int64_t j = 0; j < family.count() && may_see(family, end, j); j += kKeyBlock) {
      gather_keys(family, j, std::min(family.count() - j, kKeyBlock), h, s, keys);
      for (int64_t i = 0; i < queries.count; i += kKeyBlock) {
        if (may_see(family, begin + i + queries.block_size(i), j)) see_keys(family, queries, i, j, keys, seen, s);
      }
    }
    for (int64_t i = 0; i < queries.count; i += kLanes) {
      const Total total = total_of(seen.groups[i / kLanes]);
      HWY_ALIGN float log_sum[kLanes], inverse[kLanes];
      hn::Store(total.log_sum, f, log_sum);
      hn::Store(total.inverse, f, inverse);
      for (int64_t l = 0; l < std::min(kLanes, queries.count - i); ++l) {
        const int64_t member = family.member(begin + i + l, h);
        call.log_sums[member] = log_sum[l];
        float* to = call.attended + member * call.value_dim;
        for_each_vector(value_channels, [&](RowPart part) {
          part.store(hn::Mul(part.load(seen.rows[i + l]), hn::Set(f, inverse[l])), to);
        });
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
    for_each_vector(channels, [&](RowPart part) { part.store(hn::MulAdd(part.load(row), weight, part.load(to)), to); });
  }
  const V scale = hn::Set(f, by_size ? 1.0f / static_cast<float>(family.node.size) : 1.0f);
  for_each_vector(channels, [&](RowPart part) { part.store(hn::Mul(part.load(to), scale), to); });
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
  const int64_t begin = family.tile_begin(item.tile), end = begin + family.tile_size(item.tile);
  const int64_t value_channels = in_lanes(p.value_dim);
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
      for_each_vector(value_channels, [&](RowPart part) {
        part.store(hn::MulAdd(part.load(attended), hn::Set(f, scale), part.load(base)), y);
      });
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

// Numbers of kLanes queries that their gradients need.
struct QueryNumbers {
  V log_sum, dot, coefficient, slope;
};

QueryNumbers numbers_of(const WideFamily& family, int64_t first, int64_t lanes, int64_t h) {
  const F f;
  const Call& call = family.call;
  HWY_ALIGN float log_sums[kLanes] = {}, dots[kLanes] = {}, coefficients[kLanes] = {}, slopes[kLanes] = {};
  for (int64_t l = 0; l < lanes; ++l) {
    const int64_t member = family.member(first + l, h);
    log_sums[l] = call.log_sums[member];
    dots[l] = call.wide_dots[member];
    coefficients[l] = call.wide_coefficients[member];
    slopes[l] = call.wide_slopes[member];
  }
  return {hn::Load(f, log_sums), hn::Load(f, dots), hn::Load(f, coefficients), hn::Load(f, slopes)};
}

// Scores and products grad_out · v of a block, rows of kKeyBlock, into s̄ = p (ḡ + π w (product - dot)) and p π w, with
// p = exp(s - log_sum).
void adjoint_of_block(const QueryNumbers& numbers, int64_t num_keys, float* scores, float* products) {
  const F f;
  const V shift = hn::IfThenZeroElse(hn::Eq(numbers.log_sum, hn::Set(f, kMinusInfinity)), numbers.log_sum);
  for (int64_t j = 0; j < num_keys; ++j, scores += kKeyBlock, products += kKeyBlock) {
    const V weight = exp_lanes(hn::Sub(hn::Load(f, scores), shift));
    const V s_bar = hn::MulAdd(numbers.coefficient, hn::Sub(hn::Load(f, products), numbers.dot), numbers.slope);
    hn::Store(hn::Mul(weight, where_seen(weight, s_bar)), f, scores);
    hn::Store(hn::Mul(weight, numbers.coefficient), f, products);
  }
}

// A leaf's own position, where it has one, gets the gradient of its self score apart; the rest of the block forgets it.
void take_own_positions(const WideFamily& family, const KeyBlock& keys, int64_t begin, int64_t h, float* s_bar,
                        Scratch& s) {
  const Call& call = family.call;
  for (int64_t j = 0; j < keys.count; ++j) {
    if (keys.self_lane[j] < 0 || !family.has_own_position(begin + j)) continue;
    float& self = s_bar[j * kKeyBlock + keys.self_lane[j]];
    HWY_ALIGN float copy[kMaxPositionDim];
    const float* own = family.own_position(begin + j, h, copy, s);
    float* to = call.grad_self_positions + (family.child(begin + j).first_leaf * call.p.heads + h) * call.position_dim;
    for (int64_t c = 0; c < call.position_dim; ++c) to[c] = 2 * self * own[c];
    self = 0;
  }
}

// Rows of a tile that gradients are added to, and by what factor.
struct Sums {
  float* rows[kWideTile];
  float* position_rows[kWideTile];
  HWY_ALIGN float shares[kWideTile];
};

// Gradients of keys and queries, 64 of each, from each other.
struct PairBlock {
  const WideFamily& family;
  const Queries& queries;
  int64_t first_query, num_queries;  // in the tile
  int64_t key_begin, first_key;      // among the children, and in the tile
  int64_t head;
};

void backward_block(const PairBlock& b, KeyBlock& keys, const Sums& q_sums, const Sums& k_sums, const Sums& v_sums,
                    Scratch& s) {
  const Call& call = b.family.call;
  const AttentionParams& p = call.p;
  multiply_block(s.staged[1], call.dim, keys.count, s.wide.q_columns + b.first_query * in_lanes(p.dim), b.num_queries,
                 p.dim, p.scale, s.scores);
  multiply_block(s.staged[2], call.value_dim, keys.count, s.wide.y_columns + b.first_query * in_lanes(p.value_dim),
                 b.num_queries, p.value_dim, 1.0f, s.products);
  for (int64_t i = 0; i < b.num_queries; i += kLanes) {
    const int64_t place = b.first_query + i, first = b.queries.begin + place;
    const int64_t lanes = std::min(kLanes, b.num_queries - i);
    mask_keys(b.family, b.key_begin, first, lanes, keys);
    complete_scores(call, s.wide.position_columns + place * in_lanes(p.position_dim), keys, s.scores + i, kKeyBlock);
    adjoint_of_block(numbers_of(b.family, first, lanes, b.head), keys.count, s.scores + i, s.products + i);
  }
  HWY_ALIGN float ones[kKeyBlock];
  std::fill_n(ones, kKeyBlock, 1.0f);
  Combination by_query, by_key;
  by_query.adds = by_key.adds = by_query.hides = by_key.hides = true;
  by_query.a = by_key.a = s.scores;
  by_query.term_step = by_key.row_step = kKeyBlock;
  by_query.num_terms = keys.count, by_key.num_terms = b.num_queries;
  by_query.terms = keys.k, by_query.row_scale = q_sums.shares + b.first_query;
  combine_rows(by_query, b.num_queries, in_lanes(p.dim), q_sums.rows + b.first_query);
  by_key.terms = b.queries.q + b.first_query, by_key.row_scale = k_sums.shares + b.first_key;
  combine_rows(by_key, keys.count, in_lanes(p.dim), k_sums.rows + b.first_key);
  by_key.a = s.products, by_key.terms = b.queries.y + b.first_query, by_key.row_scale = v_sums.shares + b.first_key;
  combine_rows(by_key, keys.count, in_lanes(p.value_dim), v_sums.rows + b.first_key);
  if (call.position_dim == 0) return;
  for (int64_t i = 0; i < b.num_queries; i += kLanes) {
    const int64_t lanes = std::min(kLanes, b.num_queries - i);
    mask_keys(b.family, b.key_begin, b.queries.begin + b.first_query + i, lanes, keys);
    take_own_positions(b.family, keys, b.key_begin, b.head, s.scores + i, s);
  }
  by_query.terms = keys.position, by_query.row_scale = ones;
  combine_rows(by_query, b.num_queries, in_lanes(p.position_dim), q_sums.position_rows + b.first_query);
  by_key.a = s.scores, by_key.terms = b.queries.position + b.first_query, by_key.row_scale = ones;
  combine_rows(by_key, keys.count, in_lanes(p.position_dim), k_sums.position_rows + b.first_key);
}

// Where gradients by q, k or v are summed: of inner children in the crown, of leaves in the tensor, or in `sums`
// [children of wide families][heads][width] where it cannot hold them.
struct SumPlaces {
  Target tensor;
  int64_t heads, width;
  float* inner;
  float* sums;
  float scale;

  float* sum(const WideFamily& family, int64_t j, int64_t head) const {
    return sums + ((family.node.weights + j) * heads + head) * width;
  }
};
struct AllSumPlaces {
  SumPlaces q, k, v;

  explicit AllSumPlaces(const Call& c)
      : q{Target(c.grad_q, c.p.storage, c.p.dim), c.p.heads, c.dim, c.crown.gq, c.wide_grad_q, c.p.scale},
        k{Target(c.grad_k, c.p.storage, c.p.dim), c.p.key_heads, c.dim, c.crown.gk, c.wide_grad_k, c.p.scale},
        v{Target(c.grad_v, c.p.storage, c.p.value_dim), c.p.key_heads, c.value_dim, c.crown.gv, c.wide_grad_v, 1.0f} {}
};

// The rows for the children of a tile. `base`, where it is not null, is what they begin with.
void point_at_sums(const WideFamily& family, int64_t tile, int64_t head, const SumPlaces& places, const float* base,
                   Sums& to) {
  for (int64_t i = 0; i < family.tile_size(tile); ++i) {
    const int64_t j = family.tile_begin(tile) + i;
    to.rows[i] =
        family.target(places.tensor, j, head, places.heads, places.inner, places.width, places.sum(family, j, head));
    to.shares[i] = places.scale / static_cast<float>(family.child(j).size);
    if (base) std::copy_n(base, in_lanes(places.tensor.dim), to.rows[i]);
  }
}

void point_at_positions(const WideFamily& family, WidePair pair, int64_t h, Sums& q_sums, Sums& k_sums) {
  const Call& call = family.call;
  const auto point = [&](int64_t tile, float* rows, int64_t first, Sums& to) {
    for (int64_t i = 0; i < family.tile_size(tile); ++i) {
      const int64_t j = family.tile_begin(tile) + i;
      to.position_rows[i] = rows + ((first + j) * call.p.heads + h) * call.position_dim;
      if (pair.keys == pair.queries) std::fill_n(to.position_rows[i], call.position_dim, 0.0f);
    }
  };
  point(pair.queries, call.grad_node_positions, family.node.first_child, q_sums);
  point(pair.keys, call.wide_key_positions, family.node.weights, k_sums);
}

void wide_backward_pair_impl(const Call& call, WidePair pair, HeadRange range, Scratch& s) {
  const WideFamily family(call, pair.node);
  const int64_t key_begin = family.tile_begin(pair.keys), num_keys = family.tile_size(pair.keys);
  const int64_t query_begin = family.tile_begin(pair.queries), num_queries = family.tile_size(pair.queries);
  if (!may_see(family, query_begin + num_queries, key_begin)) return;
  const AllSumPlaces places(call);
  // a tile's first pair begins its sums with what comes from above
  const auto base_of = [&](const SumPlaces& of, int64_t head) -> const float* {
    if (pair.keys != pair.queries) return nullptr;
    return family.is_root ? s.zeros : of.inner + (family.node.slot * of.heads + head) * of.width;
  };
  Queries queries;
  KeyBlock keys;
  Sums q_sums, k_sums, v_sums;
  for (int64_t g = range.key_begin; g < range.key_end; ++g) {
    point_at_sums(family, pair.keys, g, places.k, base_of(places.k, g), k_sums);
    point_at_sums(family, pair.keys, g, places.v, base_of(places.v, g), v_sums);
    for (int64_t h = g * call.group; h < (g + 1) * call.group; ++h) {
      point_at_sums(family, pair.queries, h, places.q, base_of(places.q, h), q_sums);
      if (call.position_dim > 0) point_at_positions(family, pair, h, q_sums, k_sums);
      gather_queries(family, pair.queries, h, Pass::backward, s, queries);
      for (int64_t j = 0; j < num_keys; j += kKeyBlock) {
        gather_keys(family, key_begin + j, std::min(num_keys - j, kKeyBlock), h, s, keys);
        for (int64_t i = 0; i < num_queries; i += kKeyBlock) {
          const int64_t count = queries.block_size(i);
          if (!may_see(family, query_begin + i + count, key_begin + j)) continue;
          backward_block({family, queries, i, count, key_begin + j, j, h}, keys, q_sums, k_sums, v_sums, s);
        }
      }
    }
  }
}

// Sums that were not made where they belong.
void wide_backward_finish_impl(const Call& call, int64_t n, HeadRange range, Scratch&) {
  const AttentionParams& p = call.p;
  const WideFamily family(call, n);
  const AllSumPlaces places(call);
  const auto finish = [&](const SumPlaces& of, int64_t j, int64_t head) {
    family.finish(of.tensor, j, head, of.sum(family, j, head));
  };
  for (int64_t j = 0; j < family.count(); ++j) {
    for (int64_t g = range.key_begin; g < range.key_end; ++g) finish(places.k, j, g), finish(places.v, j, g);
    for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
      finish(places.q, j, h);
      const float* from = call.wide_key_positions + family.member(j, h) * call.position_dim;
      float* to = call.grad_node_positions + ((family.node.first_child + j) * p.heads + h) * call.position_dim;
      for (int64_t c = 0; c < call.position_dim; ++c) to[c] += from[c];
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
RAMIFY_CPU_STEP(wide_backward_pair, WidePair)
RAMIFY_CPU_STEP(wide_backward_finish, int64_t)

}  // namespace ramify::cpu
#endif
