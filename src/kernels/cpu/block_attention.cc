// Attention with tied queries, family by family, for every instruction set: the two passes forward, and the two passes
// backward (docs/algorithm.md, sections 2 and 4). Families here are narrow: they keep their weights.
#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/block_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include <array>
#include <optional>

#include "kernels/cpu/block_attention.h"
#include "kernels/cpu/simd/family-inl.h"
#include "kernels/cpu/simd/twig-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {
namespace {

// Writes t = logaddexp(e, g) of children [i, i + kLanes) over g, and keeps m and w of those that are inner nodes.
V close_gates(const Call& call, const Family& family, int64_t i, int64_t head, V g, const NodeRows& below) {
  const F f;
  const int64_t end = std::min(family.count, i + kLanes), heads = call.p.heads;
  HWY_ALIGN float e[kLanes], m[kLanes], w[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) {
    e[l] = i + l < end && family.leaf[i + l] < 0 ? below.e[family.slot[i + l] * heads + head] : kMinusInfinity;
  }
  const Gates gates = gates_of(hn::Load(f, e), g);
  hn::Store(gates.m, f, m);
  hn::Store(gates.w, f, w);
  for (int64_t j = i; j < end; ++j) {
    if (family.leaf[j] >= 0) continue;
    float* kept = call.gates_of(call.p.walk.nodes[family.first + j], head);
    kept[0] = m[j - i], kept[1] = w[j - i];
  }
  return gates.t;
}

// One head of a family: p(C, B) of all children, gates of the inner ones, e and q of the parent.
void attend(const Call& call, const Family& family, int64_t head, const float* const* q, Storage q_storage,
            const float* const* k, const NodeRows& above, const NodeRows& below, Scratch& s,
            Ahead& q_ahead, BothAhead& kv_ahead) {
  const F f;
  Pooling of_q = {family.weights(), 1.0f / static_cast<float>(family.node->size), nullptr, q_storage};
  if (!family.is_root()) of_q.to = above.q + (family.node->slot * call.p.heads + head) * call.dim;
  score_family(call, family, head, q, k, of_q, s, kv_ahead);
  float* weights = family.weights_of(call, call.weights, head);
  V energy = hn::Zero(f);
  for (int64_t i = 0; i < family.count; i += kLanes) {
    V t = softmax_tile(family, i, s.scores + i, weights + i, q_ahead);
    if (!family.all_leaves) t = close_gates(call, family, i, head, t, below);
    const V share = hn::Mul(hn::LoadU(f, family.sizes + i), t);
    energy = hn::Add(energy, hn::IfThenElseZero(first_lanes(family.count - i), share));
  }
  above.e[family.node->slot * call.p.heads + head] = sum_of_lanes(energy) / static_cast<float>(family.node->size);
}

// The mean of the children's rows becomes the parent's.
template <class Prefetch = NothingAhead>
void pool(const Family& family, const Source& source, int64_t head, int64_t heads, int64_t width, const float* below,
          float* above, float* copies, Prefetch ahead = {}) {
  for (int64_t j = 0; j < family.count; ++j) ahead.template step<4>();
  float* to = above + (family.node->slot * heads + head) * width;
  const float scale = 1.0f / static_cast<float>(family.node->size);
  if (family.all_leaves && !source.is_direct && source.dim % kLanes == 0) {
    pool_stored(source.storage, source.at(family.leaf[0], head), source.row_bytes(), family.count, scale, source.dim,
                to);
    return;
  }
  const float* rows[kNarrowFamily];
  family.gather(source, head, below, heads, width, copies, rows);
  pool_rows(rows, family.weights(), family.count, scale, in_lanes(source.dim), to);
}

// Rows of heads [head, head + heads) of a twig, each in its lanes, and zeros in the rest. Returns what they are.
Storage gather_lanes(const Call& call, const Family& family, const Source& source, int64_t head,
                     int64_t heads, int64_t width, float* copies, const Scratch& s, const float** rows) {
  Storage storage = Storage::float32;
  std::fill_n(rows, kLanes, s.zeros);
  for (int64_t i = 0; i < heads; ++i) {
    storage = family.gather(source, head + i, nullptr, call.p.heads, width, copies + i * kLanes * width,
                            rows + i * kLanes / 2, kInterleavesHalves);
  }
  return storage;
}

// [j][lane] = scale left · right of heads that share a vector.
template <int kLines, class Prefetch>
void score_lanes(const TwigLanes& lanes, const float* const* left, Storage left_storage, const float* const* right,
                 int64_t channels, float scale, RowSums sums, Scratch& s, Prefetch& ahead) {
  with_lanes(left_storage, [&](auto numbers) {
    using Lanes = decltype(numbers);
    if constexpr (std::is_same_v<Lanes, Float32Lanes> || kInterleavesHalves) {
      interleave_rows<Lanes>(left, channels, s.columns, sums);
    }
  });
  if (lanes.num_heads == 1) {
    dot_blocks(s.columns, right, lanes.count, channels, scale, s.scores, kNarrowFamily, ahead);
  } else if constexpr (kPairsHeads) {
    const KeyRows keys(right, right + kLanes / 2);
    dot_blocks<true, kLines>(s.columns, keys, lanes.count, channels, scale, s.scores, kNarrowFamily, ahead);
  }
}

// Bottom-up, a twig.
HWY_NOINLINE void twig_up(const Call& call, const Family& family, HeadRange range, const NodeRows& above, Scratch& s) {
  const AttentionParams& p = call.p;
  const Source q(p.q, p.storage, p.dim), k(p.k, p.storage, p.dim), v(p.v, p.storage, p.value_dim);
  const Twig twig(call, *family.node);
  const int64_t slot = family.node->slot, end = range.key_end * call.group;
  const float inverse_size = 1.0f / static_cast<float>(family.count);
  const bool is_root = family.is_root();
  const float *q_rows[kLanes], *k_rows[kLanes], *v_rows[kLanes];
  for (int64_t h = range.key_begin * call.group; h < end; h += twig.num_heads) {
    const int64_t heads = std::min(twig.num_heads, end - h);
    const int64_t new_key = (h + call.group - 1) / call.group, keys_end = (h + heads - 1) / call.group + 1;
    AheadOf<3> ahead = {family.look_ahead(q, h, heads), family.look_ahead(k, new_key, keys_end - new_key),
                        family.look_ahead(v, new_key, keys_end - new_key)};
    const Storage q_storage = gather_lanes(call, family, q, h, heads, call.dim, s.staged[0], s, q_rows);
    for (int64_t i = 0; i < heads; ++i) {
      family.gather(k, (h + i) / call.group, nullptr, p.key_heads, call.dim, s.staged[1] + i * kLanes * call.dim,
                    k_rows + i * kLanes / 2);
    }
    if (heads < twig.num_heads) std::copy_n(k_rows, family.count, k_rows + kLanes / 2);
    RowSums sums = {inverse_size};
    if (!is_root) {
      sums.to = above.q + (slot * p.heads + h) * call.dim;
      if (heads > 1) sums.upper = sums.to + call.dim;
    }
    score_lanes<1>(twig, q_rows, q_storage, k_rows, in_lanes(p.dim), p.scale, sums, s, ahead);
    const V t = softmax_twig(twig, heads, s.scores, family.weights_of(call, call.weights, h), ahead);
    float energy[2];
    twig.sums_of_heads(t, energy);
    for (int64_t i = 0; i < heads; ++i) above.e[slot * p.heads + h + i] = energy[i] * inverse_size;
    if (is_root) continue;
    for (int64_t g = new_key; g < keys_end; ++g) {
      pool_rows(k_rows + (g * call.group - h) * kLanes / 2, nullptr, family.count, inverse_size, in_lanes(p.dim),
                above.k + (slot * p.key_heads + g) * call.dim);
      family.gather(v, g, nullptr, p.key_heads, call.value_dim, s.staged[2], v_rows);
      pool_rows(v_rows, nullptr, family.count, inverse_size, in_lanes(p.value_dim),
                above.v + (slot * p.key_heads + g) * call.value_dim);
    }
  }
}

// Bottom-up, one family.
void family_up(const Call& call, const Family& family, HeadRange range, const NodeRows& above, const NodeRows& below,
               Scratch& s) {
  const AttentionParams& p = call.p;
  if (family.is_twig) return twig_up(call, family, range, above, s);
  const Source q(p.q, p.storage, p.dim), k(p.k, p.storage, p.dim), v(p.v, p.storage, p.value_dim);
  const int64_t slot = family.node->slot, b = family.count;
  const float inverse_size = 1.0f / static_cast<float>(family.node->size);
  const float *q_rows[kNarrowFamily], *k_rows[kNarrowFamily];
  for (int64_t g = range.key_begin; g < range.key_end; ++g) {
    BothAhead kv_ahead = {family.look_ahead(k, g), family.look_ahead(v, g)};
    family.gather(k, g, below.k, p.key_heads, call.dim, s.staged[1], k_rows);
    for (int64_t h = g * call.group; h < (g + 1) * call.group; ++h) {
      Ahead q_ahead = family.look_ahead(q, h);
      const Storage q_storage =
          family.gather(q, h, below.q, p.heads, call.dim, s.staged[0], q_rows, family.takes_half_queries());
      attend(call, family, h, q_rows, q_storage, k_rows, above, below, s, q_ahead, kv_ahead);
    }
    if (family.is_root()) continue;
    pool_rows(k_rows, family.weights(), b, inverse_size, in_lanes(p.dim),
              above.k + (slot * p.key_heads + g) * call.dim);
    pool(family, v, g, p.key_heads, call.value_dim, below.v, above.v, s.staged[2]);
  }
}

// Top-down, one family: y and π of the children; of leaves y is the output.
void family_down(const Call& call, const Family& family, HeadRange range, const NodeRows& above, const NodeRows& below,
                 Scratch& s) {
  const AttentionParams& p = call.p;
  const Source v(p.v, p.storage, p.value_dim);
  const Target out(call.out, p.storage, p.value_dim);
  const int64_t slot = family.node->slot, b = family.count;
  const bool terms_in_halves = family.takes_half_terms();
  const float* v_rows[kNarrowFamily];
  float* y_rows[kNarrowFamily];
  HWY_ALIGN float row_scale[kNarrowFamily];
  for (int64_t g = range.key_begin; g < range.key_end; ++g) {
    Ahead ahead = family.look_ahead(v, g);
    const Storage v_storage =
        family.gather(v, g, below.v, p.key_heads, call.value_dim, s.staged[2], v_rows, terms_in_halves);
    for (int64_t h = g * call.group; h < (g + 1) * call.group; ++h) {
      const float pi = family.is_root() ? 1.0f : above.pi[slot * p.heads + h];
      Ahead weights_ahead = family.look_ahead(call, call.weights, h);
      for (int64_t j = 0; j < b; ++j) {
        row_scale[j] = pi;
        weights_ahead.step<1>();
        if (family.leaf[j] >= 0) continue;
        const float* gates = call.gates_of(p.walk.nodes[family.first + j], h);
        row_scale[j] = pi * gates[1];
        below.pi[family.slot[j] * p.heads + h] = pi * gates[0];
      }
      family.gather_targets(out, h, below.y, p.heads, call.value_dim, s.staged[4], y_rows);
      Combination combination;
      combination.a = family.weights_of(call, call.weights, h);
      combination.term_step = b;
      combination.terms = v_rows, combination.num_terms = b;
      combination.term_storage = v_storage;
      combination.row_scale = row_scale;
      combination.base = family.is_root() ? nullptr : above.y + (slot * p.heads + h) * call.value_dim;
      combination.halves = family.half_targets(out, h);
      combination.streams = call.streams && family.all_leaves && (out.is_direct || combination.halves.data);
      combine_rows(combination, b, in_lanes(p.value_dim), y_rows, ahead);
      if (!combination.halves.data) family.finish_targets(out, h, y_rows, call.streams);
    }
  }
}

// family_backward_up of a twig.
HWY_NOINLINE void twig_backward_up(const Call& call, const Family& family, HeadRange range, const NodeRows& above, Scratch& s) {
  const F f;
  const AttentionParams& p = call.p;
  const Source v(p.v, p.storage, p.value_dim), grad_out(call.grad_out, p.storage, p.value_dim);
  const TwigLanes lanes(family.count);
  const int64_t slot = family.node->slot, end = range.key_end * call.group, channels = in_lanes(p.value_dim);
  const bool is_root = family.is_root(), keeps_v = !is_root && above.v != call.crown.v;  // the crown's are saved
  const float *y_rows[kLanes], *v_rows[kLanes];
  for (int64_t h = range.key_begin * call.group; h < end; h += lanes.num_heads) {
    const int64_t heads = std::min(lanes.num_heads, end - h);
    const int64_t new_key = (h + call.group - 1) / call.group, keys_end = (h + heads - 1) / call.group + 1;
    AheadOf<2> ahead = {family.look_ahead(grad_out, h, heads), family.look_ahead(v, new_key, keys_end - new_key)};
    Ahead weights_ahead = family.look_ahead(call, call.weights, h, heads);
    const Storage y_storage =
        gather_lanes(call, family, grad_out, h, heads, call.value_dim, s.staged[3], s, y_rows);
    for (int64_t i = 0; i < heads; ++i) {
      family.gather(v, (h + i) / call.group, nullptr, p.key_heads, call.value_dim,
                    s.staged[2] + i * kLanes * call.value_dim, v_rows + i * kLanes / 2);
    }
    if (heads < lanes.num_heads) std::copy_n(v_rows, family.count, v_rows + kLanes / 2);
    RowSums sums;
    if (!is_root) {
      sums.to = above.y + (slot * p.heads + h) * call.value_dim;
      if (heads > 1) sums.upper = sums.to + call.value_dim;
    }
    score_lanes<2>(lanes, y_rows, y_storage, v_rows, channels, 1.0f, sums, s, ahead);
    const float* weights = family.weights_of(call, call.weights, h);
    float* products = family.weights_of(call, call.products, h);
    V attended = hn::Zero(f);
    for (int64_t j = 0; j < family.count; ++j) {
      const V product = hn::Load(f, s.scores + j * kNarrowFamily);
      attended = hn::MulAdd(lanes.load(weights, j, heads), product, attended);
      lanes.store(product, products, j, heads);
      weights_ahead.step<1>();
    }
    if (is_root) continue;
    float pi_bar[2];
    lanes.sums_of_heads(attended, pi_bar);
    for (int64_t i = 0; i < heads; ++i) call.pi_bar_of(*family.node, h + i) = pi_bar[i];
    if (!keeps_v) continue;
    for (int64_t g = new_key; g < keys_end; ++g) {
      pool_rows(v_rows + (g * call.group - h) * kLanes / 2, nullptr, family.count,
                1.0f / static_cast<float>(family.count), channels,
                above.v + (slot * p.key_heads + g) * call.value_dim);
    }
  }
}

// grad_out(C) · v(B), the adjoint of π of the parent, and the sum of grad_out below it.
void family_backward_up(const Call& call, const Family& family, HeadRange range, const NodeRows& above,
                        const NodeRows& below, Scratch& s) {
  const F f;
  const AttentionParams& p = call.p;
  if (family.is_twig) return twig_backward_up(call, family, range, above, s);
  const Source v(p.v, p.storage, p.value_dim), grad_out(call.grad_out, p.storage, p.value_dim);
  const int64_t slot = family.node->slot, b = family.count, channels = in_lanes(p.value_dim);
  const float *v_rows[kNarrowFamily], *y_rows[kNarrowFamily];
  for (int64_t g = range.key_begin; g < range.key_end; ++g) {
    BothAhead ahead = {family.look_ahead(v, g), {}};
    family.gather(v, g, below.v, p.key_heads, call.value_dim, s.staged[2], v_rows);
    if (!family.is_root() && above.v != call.crown.v) {  // the crown's are saved
      pool_rows(v_rows, family.weights(), b, 1.0f / static_cast<float>(family.node->size), channels,
                above.v + (slot * p.key_heads + g) * call.value_dim);
    }
    for (int64_t h = g * call.group; h < (g + 1) * call.group; ++h) {
      ahead.of[1] = family.look_ahead(grad_out, h);
      Ahead weights_ahead = family.look_ahead(call, call.weights, h);
      Pooling of_y;
      of_y.storage = family.gather(grad_out, h, below.y, p.heads, call.value_dim, s.staged[3], y_rows,
                                   family.takes_half_queries());
      if (!family.is_root()) of_y.to = above.y + (slot * p.heads + h) * call.value_dim;
      score_rows(y_rows, v_rows, b, channels, 1.0f, /*add=*/false, s, s.scores, ahead, of_y);
      const float* weights = family.weights_of(call, call.weights, h);
      float* products = family.weights_of(call, call.products, h);
      V pi_bar = hn::Zero(f);
      for (int64_t i = 0; i < b; i += kLanes) {
        V attended = hn::Zero(f);  // grad_out(C) · a(C)
        for (int64_t j = 0; j < b; ++j) {
          const V product = hn::Load(f, s.scores + j * kNarrowFamily + i);
          attended = hn::MulAdd(load_first(weights + j * b + i, b - i), product, attended);
          if (family.streams && b % kLanes == 0) {
            hn::Stream(product, f, products + j * b + i);
          } else {
            store_first(product, products + j * b + i, b - i);
          }
          weights_ahead.step<1>();
        }
        if (!family.all_leaves) {
          HWY_ALIGN float w[kLanes], inside[kLanes];
          for (int64_t l = 0; l < kLanes; ++l) {
            w[l] = 1, inside[l] = 0;
            if (i + l >= b || family.leaf[i + l] >= 0) continue;
            const WalkNode& child = p.walk.nodes[family.first + i + l];
            const float* gates = call.gates_of(child, h);
            w[l] = gates[1], inside[l] = gates[0] * call.pi_bar_of(child, h);
          }
          attended = hn::MulAdd(attended, hn::Load(f, w), hn::Load(f, inside));
        }
        pi_bar = hn::Add(pi_bar, hn::IfThenElseZero(first_lanes(b - i), attended));
      }
      if (family.is_root()) continue;
      call.pi_bar_of(*family.node, h) = sum_of_lanes(pi_bar);
    }
  }
}

// From p, the products and what comes from above: s̄(C, B) into scratch.scores, p(C, B) π w(C) into scratch.products,
// both with B first; ē and π of inner children.
void adjoint_of_scores(const Call& call, const Family& family, int64_t h, float pi, float e_bar, const NodeRows& below,
                       Scratch& s) {
  const F f;
  const int64_t b = family.count, heads = call.p.heads;
  const float* weights = family.weights_of(call, call.weights, h);
  const float* products = family.weights_of(call, call.products, h);
  const float t_bar_a_leaf = e_bar / static_cast<float>(family.node->size);
  BothAhead ahead = {family.look_ahead(call, call.weights, h), family.look_ahead(call, call.products, h)};
  for (int64_t i = 0; i < b; i += kLanes) {
    V attended = hn::Zero(f);
    for (int64_t j = 0; j < b; ++j) {
      ahead.step<1>();
      attended = hn::MulAdd(load_first(weights + j * b + i, b - i), load_first(products + j * b + i, b - i), attended);
    }
    V coefficient = hn::Set(f, pi), g_bar = hn::Set(f, t_bar_a_leaf);  // of leaves: m = 0, w = 1
    if (!family.all_leaves) {
      HWY_ALIGN float dots[kLanes], coefficients[kLanes], g_bars[kLanes];
      hn::Store(attended, f, dots);
      for (int64_t l = 0; l < kLanes; ++l) {
        coefficients[l] = pi, g_bars[l] = t_bar_a_leaf;
        if (i + l >= b || family.leaf[i + l] >= 0) continue;
        const int64_t row = family.slot[i + l] * heads + h;
        const WalkNode& child = call.p.walk.nodes[family.first + i + l];
        const float* gates = call.gates_of(child, h);
        const float m = gates[0], w = gates[1], t_bar = family.sizes[i + l] * t_bar_a_leaf;
        const float delta = pi * m * w * (call.pi_bar_of(child, h) - dots[l]);
        coefficients[l] = pi * w, g_bars[l] = w * t_bar - delta;
        below.e[row] = delta + m * t_bar;
        below.pi[row] = pi * m;
      }
      coefficient = hn::Load(f, coefficients), g_bar = hn::Load(f, g_bars);
    }
    for (int64_t j = 0; j < b; ++j) {
      const V weight = load_first(weights + j * b + i, b - i), product = load_first(products + j * b + i, b - i);
      const V slope = hn::MulAdd(coefficient, hn::Sub(product, attended), g_bar);
      hn::Store(hn::Mul(weight, slope), f, s.scores + j * kNarrowFamily + i);
      hn::Store(hn::Mul(weight, coefficient), f, s.products + j * kNarrowFamily + i);
    }
  }
}

// The same of a twig, for all heads whose lanes begin with those of h.
HWY_NOINLINE void adjoint_of_twig(const Call& call, const Family& family, const Twig& twig, int64_t h, int64_t heads,
                     const NodeRows& above, Scratch& s) {
  const int64_t row = family.node->slot * call.p.heads + h;
  float pi[2] = {1, 1}, e_bar[2] = {0, 0};
  for (int64_t i = 0; i < heads; ++i) {
    if (!family.is_root()) pi[i] = above.pi[row + i];
    const int64_t root = family.node - call.p.walk.nodes.data();
    e_bar[i] = family.is_root() ? call.grad_root_energy[root * call.p.heads + h + i] : above.e[row + i];
    e_bar[i] /= static_cast<float>(family.count);
  }
  if (twig.num_heads == 1) pi[1] = pi[0], e_bar[1] = e_bar[0];
  Ahead weights_ahead = family.look_ahead(call, call.weights, h, heads);
  Ahead products_ahead = family.look_ahead(call, call.products, h, heads);
  for (int64_t j = 0; j < family.count; ++j) weights_ahead.step<1>(), products_ahead.step<1>();
  softmax_twig_adjoint(twig, heads, family.weights_of(call, call.weights, h),
                       family.weights_of(call, call.products, h), twig.of_heads(pi[0], pi[1]),
                       twig.of_heads(e_bar[0], e_bar[1]), s.scores, s.products);
}

// Gradients of positions of one head, from s̄ in scratch.scores. A leaf's own position, where it differs, gets its part
// apart.
void adjoint_of_positions(const Call& call, const Family& family, int64_t h, Scratch& s) {
  const int64_t b = family.count, width = call.position_dim;
  const float* positions[kNarrowFamily];
  gather_positions(call, family, h, s, positions);
  for (int64_t j = 0; j < b; ++j) {
    if (!has_own_position(call, family, j)) continue;
    float& self = s.scores[j * kNarrowFamily + j];
    const float* own = position_row(call, call.p.self_position[family.leaf[j]], h, s.columns, s);
    float* to = call.grad_self_positions + (family.leaf[j] * call.p.heads + h) * width;
    for (int64_t c = 0; c < width; ++c) to[c] = 2 * self * own[c];
    self = 0;
  }
  for (int64_t j = 0; j < b; ++j) {
    for (int64_t i = 0; i <= j; ++i) {
      const float both = s.scores[j * kNarrowFamily + i] + s.scores[i * kNarrowFamily + j];
      s.scores[j * kNarrowFamily + i] = s.scores[i * kNarrowFamily + j] = both;
    }
  }
  float* rows[kNarrowFamily];
  HWY_ALIGN float ones[kNarrowFamily];
  for (int64_t j = 0; j < b; ++j) {
    ones[j] = 1;
    rows[j] = call.grad_node_positions + ((family.first + j) * call.p.heads + h) * width;
  }
  Combination combination;
  combination.a = s.scores, combination.row_step = kNarrowFamily;
  combination.terms = positions, combination.num_terms = b;
  combination.row_scale = ones;
  combine_rows(combination, b, in_lanes(call.p.position_dim), rows);
}

// Top-down: gradients of the children's means, each leaf's part. Of leaves they are the results.
void family_backward_down(const Call& call, const Family& family, HeadRange range, const NodeRows& above,
                          const NodeRows& below, Scratch& s) {
  std::optional<Twig> twig;
  if (family.is_twig) twig.emplace(call, *family.node);
  const AttentionParams& p = call.p;
  const Source q(p.q, p.storage, p.dim), k(p.k, p.storage, p.dim), grad_out(call.grad_out, p.storage, p.value_dim);
  const Target grad_q(call.grad_q, p.storage, p.dim), grad_k(call.grad_k, p.storage, p.dim);
  const Target grad_v(call.grad_v, p.storage, p.value_dim);
  const int64_t slot = family.node->slot, b = family.count, root = family.node - p.walk.nodes.data();
  const float *q_rows[kNarrowFamily], *k_rows[kNarrowFamily], *y_rows[kNarrowFamily];
  float *gq_rows[kNarrowFamily], *gk_rows[kNarrowFamily], *gv_rows[kNarrowFamily];
  HWY_ALIGN float shares[kNarrowFamily], scaled_shares[kNarrowFamily];
  for (int64_t j = 0; j < b; ++j) shares[j] = 1 / family.sizes[j], scaled_shares[j] = p.scale / family.sizes[j];
  const bool streams = call.streams && family.all_leaves, terms_in_halves = family.takes_half_terms();
  const auto base = [&](const float* rows, int64_t heads, int64_t head, int64_t width) {
    return family.is_root() ? nullptr : rows + (slot * heads + head) * width;
  };
  for (int64_t g = range.key_begin; g < range.key_end; ++g) {
    const Storage k_storage = family.gather(k, g, below.k, p.key_heads, call.dim, s.staged[1], k_rows, terms_in_halves);
    family.gather_targets(grad_k, g, below.gk, p.key_heads, call.dim, s.staged[5], gk_rows);
    family.gather_targets(grad_v, g, below.gv, p.key_heads, call.value_dim, s.staged[6], gv_rows);
    HalfRows gk_halves, gv_halves;
    if (call.group == 1) gk_halves = family.half_targets(grad_k, g), gv_halves = family.half_targets(grad_v, g);
    for (int64_t h = g * call.group; h < (g + 1) * call.group; ++h) {
      Ahead k_ahead = family.look_ahead(k, g);
      Ahead q_ahead = family.look_ahead(q, h), y_ahead = family.look_ahead(grad_out, h);
      const float pi = family.is_root() ? 1.0f : above.pi[slot * p.heads + h];
      const float e_bar = family.is_root() ? call.grad_root_energy[root * p.heads + h] : above.e[slot * p.heads + h];
      int64_t first_lane = 0;
      if (twig) {
        const int64_t head = h - range.key_begin * call.group, after = head % twig->num_heads;
        if (after == 0) {
          const int64_t heads = std::min(twig->num_heads, range.key_end * call.group - h);
          adjoint_of_twig(call, family, *twig, h, heads, above, s);
        }
        first_lane = after * kLanes / 2;
      } else {
        adjoint_of_scores(call, family, h, pi, e_bar, below, s);
      }
      const Storage q_storage = family.gather(q, h, below.q, p.heads, call.dim, s.staged[0], q_rows, terms_in_halves);
      const Storage y_storage =
          family.gather(grad_out, h, below.y, p.heads, call.value_dim, s.staged[3], y_rows, terms_in_halves);
      family.gather_targets(grad_q, h, below.gq, p.heads, call.dim, s.staged[4], gq_rows);
      const bool is_first = h == g * call.group;

      Combination combination;
      combination.num_terms = b;
      combination.a = s.scores + first_lane, combination.row_step = 1, combination.term_step = kNarrowFamily;
      combination.terms = k_rows, combination.term_storage = k_storage;
      combination.row_scale = scaled_shares;
      combination.base = base(above.gq, p.heads, h, call.dim);
      combination.halves = family.half_targets(grad_q, h);
      combination.streams = streams && (grad_q.is_direct || combination.halves.data);
      combine_rows(combination, b, in_lanes(p.dim), gq_rows, q_ahead);
      if (!combination.halves.data) family.finish_targets(grad_q, h, gq_rows, call.streams);

      combination.row_step = kNarrowFamily, combination.term_step = 1;
      combination.terms = q_rows, combination.term_storage = q_storage;
      combination.base = base(above.gk, p.key_heads, g, call.dim);
      combination.adds = !is_first;
      combination.halves = gk_halves;
      combination.streams = streams && (grad_k.is_direct || gk_halves.data) && call.group == 1;
      combine_rows(combination, b, in_lanes(p.dim), gk_rows, k_ahead);

      combination.a = s.products + first_lane;
      combination.terms = y_rows, combination.term_storage = y_storage;
      combination.row_scale = shares;
      combination.base = base(above.gv, p.key_heads, g, call.value_dim);
      combination.halves = gv_halves;
      combination.streams = streams && (grad_v.is_direct || gv_halves.data) && call.group == 1;
      combine_rows(combination, b, in_lanes(p.value_dim), gv_rows, y_ahead);
      if (call.position_dim > 0) adjoint_of_positions(call, family, h, s);
    }
    if (!gk_halves.data) family.finish_targets(grad_k, g, gk_rows, call.streams);
    if (!gv_halves.data) family.finish_targets(grad_v, g, gv_rows, call.streams);
  }
}

// Levels of a grove, from its roots down: ranges of nodes that may have children.
struct GroveLevels {
  struct Range {
    int64_t begin, end;
  };
  std::array<Range, kGroveLeaves> ranges;
  int64_t count = 0;

  GroveLevels(const Call& call, const Grove& grove) {
    const auto nodes = call.p.walk.nodes;
    Range range = {grove.root_begin, grove.root_end};
    while (range.begin < range.end && count < kGroveLeaves) {
      ranges[count++] = range;
      range = {nodes[range.begin].first_child, nodes[range.end - 1].first_child + nodes[range.end - 1].num_children};
    }
  }
};

// step(family, above, below) for every family whose parent is on a level.
template <class Step>
void for_each_family(const Call& call, const Grove& grove, const GroveLevels::Range& level, bool is_top,
                     HeadRange heads, Scratch& s, const Step& step) {
  const auto nodes = call.p.walk.nodes;
  const NodeRows& above = is_top && !grove.is_whole ? call.crown : s.local;
  for (int64_t n = level.begin; n < level.end; ++n) {
    if (!nodes[n].is_leaf() && !is_inside_twig(call, nodes[n])) step(Family(call, n, heads), above, s.local);
  }
}

// e of a root of a tree is a result.
void report_energy(const Call& call, int64_t n, HeadRange range, const NodeRows& rows) {
  const WalkNode& node = call.p.walk.nodes[n];
  if (node.parent >= 0 || node.is_leaf()) return;
  for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
    call.root_energy[n * call.p.heads + h] = rows.e[node.slot * call.p.heads + h];
  }
}

void grove_down_impl(const Call& call, const Grove& grove, HeadRange heads, Scratch& s);
void grove_backward_down_impl(const Call& call, const Grove& grove, HeadRange heads, Scratch& s);

// Means of v for the inner nodes of a grove below its roots.
void pool_values(const Call& call, const Grove& grove, const GroveLevels& levels, HeadRange heads, Scratch& s) {
  const AttentionParams& p = call.p;
  const Source v(p.v, p.storage, p.value_dim);
  for (int64_t l = levels.count - 1; l > 0; --l) {
    for_each_family(call, grove, levels.ranges[l], false, heads, s,
                    [&](const Family& family, const NodeRows& above, const NodeRows& below) {
                      for (int64_t g = heads.key_begin; g < heads.key_end; ++g) {
                        pool(family, v, g, p.key_heads, call.value_dim, below.v, above.v, s.staged[2]);
                      }
                    });
  }
}

void grove_up_impl(const Call& call, const Grove& grove, HeadRange heads, Scratch& s) {
  const GroveLevels levels(call, grove);
  for (int64_t l = levels.count - 1; l >= 0; --l) {
    for_each_family(call, grove, levels.ranges[l], l == 0, heads, s,
                    [&](const Family& family, const NodeRows& above, const NodeRows& below) {
                      family_up(call, family, heads, above, below, s);
                    });
  }
  if (grove.is_whole) {
    for (int64_t n = grove.root_begin; n < grove.root_end; ++n) report_energy(call, n, heads, s.local);
    grove_down_impl(call, grove, heads, s);
  }
}

void grove_down_impl(const Call& call, const Grove& grove, HeadRange heads, Scratch& s) {
  const GroveLevels levels(call, grove);
  // means below the roots are pooled again: cheaper than keeping them
  if (!grove.is_whole) pool_values(call, grove, levels, heads, s);
  for (int64_t l = 0; l < levels.count; ++l) {
    for_each_family(call, grove, levels.ranges[l], l == 0, heads, s,
                    [&](Family family, const NodeRows& above, const NodeRows& below) {
                      if (levels.count > 1 && !grove.is_whole) family.leaves_ahead = kGroveLeaves;
                      family_down(call, family, heads, above, below, s);
                    });
  }
}

void grove_backward_up_impl(const Call& call, const Grove& grove, HeadRange heads, Scratch& s) {
  const GroveLevels levels(call, grove);
  for (int64_t l = levels.count - 1; l >= 0; --l) {
    for_each_family(call, grove, levels.ranges[l], l == 0, heads, s,
                    [&](const Family& family, const NodeRows& above, const NodeRows& below) {
                      family_backward_up(call, family, heads, above, below, s);
                    });
  }
  if (grove.is_whole) grove_backward_down_impl(call, grove, heads, s);
}

void grove_backward_down_impl(const Call& call, const Grove& grove, HeadRange heads, Scratch& s) {
  const GroveLevels levels(call, grove);
  const AttentionParams& p = call.p;
  const Source q(p.q, p.storage, p.dim), k(p.k, p.storage, p.dim), grad_out(call.grad_out, p.storage, p.value_dim);
  for (int64_t l = levels.count - 1; l > 0; --l) {
    for_each_family(call, grove, levels.ranges[l], false, heads, s,
                    [&](const Family& family, const NodeRows& above, const NodeRows& below) {
                      const float* rows[kNarrowFamily];
                      for (int64_t g = heads.key_begin; g < heads.key_end; ++g) {
                        pool(family, k, g, p.key_heads, call.dim, below.k, above.k, s.staged[1],
                             family.look_ahead(k, g));
                        for (int64_t h = g * call.group; h < (g + 1) * call.group; ++h) {
                          pool(family, q, h, p.heads, call.dim, below.q, above.q, s.staged[0], family.look_ahead(q, h));
                          Ahead ahead = family.look_ahead(grad_out, h);
                          for (int64_t j = 0; j < family.count; ++j) ahead.step<4>();
                          family.gather(grad_out, h, below.y, p.heads, call.value_dim, s.staged[3], rows);
                          pool_rows(rows, nullptr, family.count, 1.0f, in_lanes(p.value_dim),
                                    above.y + (family.node->slot * p.heads + h) * call.value_dim);
                        }
                      }
                    });
  }
  for (int64_t l = 0; l < levels.count; ++l) {
    for_each_family(call, grove, levels.ranges[l], l == 0, heads, s,
                    [&](const Family& family, const NodeRows& above, const NodeRows& below) {
                      family_backward_down(call, family, heads, above, below, s);
                    });
  }
}

// A family of the crown stands between rows of the crown.
void crown_up_impl(const Call& call, int64_t node, HeadRange heads, Scratch& s) {
  const Family family(call, node, heads);
  family_up(call, family, heads, call.crown, call.crown, s);
  report_energy(call, node, heads, call.crown);
}
void crown_down_impl(const Call& call, int64_t node, HeadRange heads, Scratch& s) {
  family_down(call, Family(call, node, heads), heads, call.crown, call.crown, s);
}
void crown_backward_up_impl(const Call& call, int64_t node, HeadRange heads, Scratch& s) {
  family_backward_up(call, Family(call, node, heads), heads, call.crown, call.crown, s);
}
void crown_backward_down_impl(const Call& call, int64_t node, HeadRange heads, Scratch& s) {
  family_backward_down(call, Family(call, node, heads), heads, call.crown, call.crown, s);
}

void bare_leaf_impl(const Call& call, int64_t n, HeadRange range, Scratch& s) {
  const AttentionParams& p = call.p;
  const int64_t leaf = p.walk.nodes[n].first_leaf;
  const Source q(p.q, p.storage, p.dim), k(p.k, p.storage, p.dim), v(p.v, p.storage, p.value_dim);
  const Target out(call.out, p.storage, p.value_dim);
  for (int64_t g = range.key_begin; g < range.key_end; ++g) {
    for (int64_t h = g * call.group; h < (g + 1) * call.group; ++h) {
      const float* value = p.include_self ? v.read(leaf, g, s.staged[2]) : s.zeros;
      float* y = out.row(leaf, h, s.staged[4]);
      std::copy_n(value, in_lanes(p.value_dim), y);
      out.finish(leaf, h, y);
      float& energy = call.root_energy[n * p.heads + h];
      energy = kMinusInfinity;
      if (!p.include_self) continue;
      energy = p.scale * dot_row(q.read(leaf, h, s.staged[0]), k.read(leaf, g, s.staged[1]), in_lanes(p.dim));
      if (call.position_dim == 0) continue;
      const float* own = position_row(call, p.self_position[leaf], h, s.columns, s);
      energy += dot_row(own, own, in_lanes(p.position_dim));
    }
  }
}

void bare_leaf_backward_impl(const Call& call, int64_t n, HeadRange range, Scratch& s) {
  const AttentionParams& p = call.p;
  const int64_t leaf = p.walk.nodes[n].first_leaf;
  const Source q(p.q, p.storage, p.dim), k(p.k, p.storage, p.dim), grad_out(call.grad_out, p.storage, p.value_dim);
  const Target grad_q(call.grad_q, p.storage, p.dim), grad_k(call.grad_k, p.storage, p.dim);
  const Target grad_v(call.grad_v, p.storage, p.value_dim);
  const int64_t channels = in_lanes(p.dim), value_channels = in_lanes(p.value_dim);
  for (int64_t g = range.key_begin; g < range.key_end; ++g) {
    float *gk = grad_k.row(leaf, g, s.staged[5]), *gv = grad_v.row(leaf, g, s.staged[6]);
    std::fill_n(gk, channels, 0.0f);
    std::fill_n(gv, value_channels, 0.0f);
    for (int64_t h = g * call.group; h < (g + 1) * call.group; ++h) {
      float* gq = grad_q.row(leaf, h, s.staged[4]);
      const float e_bar = p.include_self ? call.grad_root_energy[n * p.heads + h] : 0.0f;
      const float* key = p.include_self ? k.read(leaf, g, s.staged[1]) : s.zeros;
      const float* query = p.include_self ? q.read(leaf, h, s.staged[0]) : s.zeros;
      const float* y = p.include_self ? grad_out.read(leaf, h, s.staged[3]) : s.zeros;
      for (int64_t c = 0; c < channels; ++c) {
        gq[c] = p.scale * e_bar * key[c];
        gk[c] += p.scale * e_bar * query[c];
      }
      for (int64_t c = 0; c < value_channels; ++c) gv[c] += y[c];
      grad_q.finish(leaf, h, gq);
      if (call.position_dim == 0 || !p.include_self) continue;
      const float* own = position_row(call, p.self_position[leaf], h, s.columns, s);
      float* to = call.grad_self_positions + (leaf * p.heads + h) * call.position_dim;
      for (int64_t c = 0; c < call.position_dim; ++c) to[c] = 2 * e_bar * own[c];
    }
    grad_k.finish(leaf, g, gk);
    grad_v.finish(leaf, g, gv);
  }
}

}  // namespace
}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ramify::cpu {

RAMIFY_CPU_STEP(grove_up, const Grove&)
RAMIFY_CPU_STEP(grove_down, const Grove&)
RAMIFY_CPU_STEP(crown_up, int64_t)
RAMIFY_CPU_STEP(crown_down, int64_t)
RAMIFY_CPU_STEP(bare_leaf, int64_t)
RAMIFY_CPU_STEP(bare_leaf_backward, int64_t)
RAMIFY_CPU_STEP(grove_backward_up, const Grove&)
RAMIFY_CPU_STEP(grove_backward_down, const Grove&)
RAMIFY_CPU_STEP(crown_backward_up, int64_t)
RAMIFY_CPU_STEP(crown_backward_down, int64_t)

}  // namespace ramify::cpu
#endif
