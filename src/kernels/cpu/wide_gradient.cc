// The gradients of wide families with tied queries for every instruction set: one way over all pairs of tiles.
#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/wide_gradient.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include "kernels/cpu/simd/wide-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {
namespace {

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
    const V weight = exp_of_score(hn::Load(f, scores), shift);
    const V s_bar = hn::MulAdd(numbers.coefficient, hn::Sub(hn::Load(f, products), numbers.dot), numbers.slope);
    hn::Store(hn::Mul(weight, where_seen(weight, s_bar)), f, scores);
    hn::Store(hn::Mul(weight, where_seen(weight, numbers.coefficient)), f, products);
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
    for (int64_t c = 0; c < call.p.position_dim; ++c) to[c] = 2 * self * own[c];
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
    complete_scores(call, s.wide.position_columns + place * call.position_dim, keys, s.scores + i, kKeyBlock);
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

RAMIFY_CPU_STEP(wide_backward_fold, int64_t)
RAMIFY_CPU_STEP(wide_backward_gates, int64_t)
RAMIFY_CPU_STEP(wide_backward_pair, WidePair)
RAMIFY_CPU_STEP(wide_backward_finish, int64_t)

}  // namespace ramify::cpu
#endif
