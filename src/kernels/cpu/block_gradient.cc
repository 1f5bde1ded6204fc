// The gradients of attention with tied queries, family by family, for every instruction set: the adjoint of the way
// down goes up, the adjoint of the way up goes down (docs/algorithm.md, section 4).
#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/block_gradient.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include <optional>

#include "kernels/cpu/block_attention.h"
#include "kernels/cpu/simd/grove-inl.h"
#include "kernels/cpu/simd/twig-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {
namespace {

// family_backward_up of a twig.
HWY_NOINLINE void twig_backward_up(const Call& call, const Family& family, HeadRange range, const NodeRows& above,
                                   Scratch& s) {
  const F f;
  const AttentionParams& p = call.p;
  const Source v(p.v, p.storage, p.value_dim), grad_out(call.grad_out, p.storage, p.value_dim);
  const TwigLanes lanes(family.count);
  const int64_t slot = family.node->slot, end = range.key_end * call.group, channels = in_lanes(p.value_dim);
  const bool keeps_v = above.v != call.crown.v;  // the crown's are saved
  const float *y_rows[kLanes], *v_rows[kLanes];
  for (int64_t h = range.key_begin * call.group; h < end; h += lanes.num_heads) {
    const LaneHeads heads = {h, std::min(lanes.num_heads, end - h)};
    const HeadRange keys = keys_of(call, heads);
    BothAhead ahead = {family.look_ahead(grad_out, h, heads.count),
                       family.look_ahead(v, keys.key_begin, keys.key_end - keys.key_begin)};
    Ahead weights_ahead = family.look_ahead(call, call.weights, h, heads.count);
    const Storage y_storage =
        gather_lanes(family, grad_out, heads, 1, call.value_dim, s.staged[3], s, kInterleavesHalves, y_rows);
    gather_lanes(family, v, heads, call.group, call.value_dim, s.staged[2], s, false, v_rows);
    const RowSums sums = sums_of_rows(family, heads, above.y, p.heads, call.value_dim, 1.0f);
    const KeyRows right(v_rows, v_rows + kLanes / 2);
    score_lanes<2>(lanes, y_rows, y_storage, right, family.count, channels, 1.0f, sums, s, ahead);
    const float* weights = family.weights_of(call, call.weights, h);
    float* products = family.weights_of(call, call.products, h);
    V attended = hn::Zero(f);
    for (int64_t j = 0; j < family.count; ++j) {
      const V product = hn::Load(f, s.scores + j * kNarrowFamily);
      const V weight = lanes.load(weights, j, heads);
      attended = hn::MulAdd(weight, where_seen(weight, product), attended);
      lanes.store(product, products, j, heads);
      weights_ahead.step<1>();
    }
    if (family.is_root()) continue;
    float pi_bar[2];
    lanes.sums_of_heads(attended, pi_bar);
    for (int64_t i = 0; i < heads.count; ++i) call.pi_bar_of(*family.node, h + i) = pi_bar[i];
    for (int64_t g = keys.key_begin; keeps_v && g < keys.key_end; ++g) {
      pool_rows(v_rows + (g * call.group - h) * kLanes / 2, nullptr, family.count,
                1.0f / static_cast<float>(family.count), channels, above.v + (slot * p.key_heads + g) * call.value_dim);
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
          const V weight = load_first(weights + j * b + i, b - i);
          attended = hn::MulAdd(weight, where_seen(weight, product), attended);
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
      const V weight = load_first(weights + j * b + i, b - i), product = load_first(products + j * b + i, b - i);
      attended = hn::MulAdd(weight, where_seen(weight, product), attended);
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
      hn::Store(hn::Mul(weight, where_seen(weight, slope)), f, s.scores + j * kNarrowFamily + i);
      hn::Store(hn::Mul(weight, where_seen(weight, coefficient)), f, s.products + j * kNarrowFamily + i);
    }
  }
}

// The same of a twig, for all heads that share lanes.
HWY_NOINLINE void adjoint_of_twig(const Call& call, const Family& family, const Twig& twig, LaneHeads heads,
                                  const NodeRows& above, Scratch& s) {
  const int64_t row = family.node->slot * call.p.heads + heads.begin;
  const float* energies = above.e + row;
  if (family.is_root()) {
    energies = call.grad_root_energy + (family.node - call.p.walk.nodes.data()) * call.p.heads + heads.begin;
  }
  float pi[2], e_bar[2];
  for (int64_t i = 0; i < 2; ++i) {
    const int64_t head = std::min(i, heads.count - 1);
    pi[i] = family.is_root() ? 1.0f : above.pi[row + head];
    e_bar[i] = energies[head] / static_cast<float>(family.count);
  }
  BothAhead ahead = {family.look_ahead(call, call.weights, heads.begin, heads.count),
                     family.look_ahead(call, call.products, heads.begin, heads.count)};
  for (int64_t j = 0; j < family.count; ++j) ahead.step<1>();
  softmax_twig_adjoint(twig, heads, family.weights_of(call, call.weights, heads.begin),
                       family.weights_of(call, call.products, heads.begin), twig.of_heads(pi[0], pi[1]),
                       twig.of_heads(e_bar[0], e_bar[1]), s.scores, s.products);
}

// Gradients of positions of one head, from s̄ in scratch.scores. A leaf's own position, where it differs, gets its part
// apart.
void adjoint_of_positions(const Call& call, const Family& family, int64_t h, Scratch& s) {
  const AttentionParams& p = call.p;
  const int64_t b = family.count, width = call.position_dim;
  const float* positions[kNarrowFamily];
  gather_positions(call, family, h, s, positions);
  for (int64_t j = 0; j < b; ++j) {
    if (!has_own_position(call, family, j)) continue;
    float& self = s.scores[j * kNarrowFamily + j];
    const float* own = position_row(call, call.p.self_position[family.leaf[j]], h, s.columns, s);
    float* to = call.grad_self_positions + (family.leaf[j] * call.p.heads + h) * width;
    for (int64_t c = 0; c < p.position_dim; ++c) to[c] = 2 * self * own[c];
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
      if (twig) {  // two heads may have their lanes in one vector
        const int64_t place = (h - range.key_begin * call.group) % twig->num_heads;
        const LaneHeads heads = {h, std::min(twig->num_heads, range.key_end * call.group - h)};
        if (place == 0) adjoint_of_twig(call, family, *twig, heads, above, s);
        first_lane = place * kLanes / 2;
      } else {
        adjoint_of_scores(call, family, h, pi, e_bar, below, s);
      }
      const Storage q_storage = family.gather(q, h, below.q, p.heads, call.dim, s.staged[0], q_rows, terms_in_halves);
      const Storage y_storage =
          family.gather(grad_out, h, below.y, p.heads, call.value_dim, s.staged[3], y_rows, terms_in_halves);
      family.gather_targets(grad_q, h, below.gq, p.heads, call.dim, s.staged[4], gq_rows);
      const bool is_first = h == g * call.group;

      Combination combination;
      combination.num_terms = b, combination.hides = family.hides();
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

void grove_backward_down_impl(const Call& call, const Grove& grove, HeadRange heads, Scratch& s);

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
void crown_backward_up_impl(const Call& call, int64_t node, HeadRange heads, Scratch& s) {
  family_backward_up(call, Family(call, node, heads), heads, call.crown, call.crown, s);
}
void crown_backward_down_impl(const Call& call, int64_t node, HeadRange heads, Scratch& s) {
  family_backward_down(call, Family(call, node, heads), heads, call.crown, call.crown, s);
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
      for (int64_t c = 0; c < p.position_dim; ++c) to[c] = 2 * e_bar * own[c];
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

RAMIFY_CPU_STEP(grove_backward_up, const Grove&)
RAMIFY_CPU_STEP(grove_backward_down, const Grove&)
RAMIFY_CPU_STEP(crown_backward_up, int64_t)
RAMIFY_CPU_STEP(crown_backward_down, int64_t)
RAMIFY_CPU_STEP(bare_leaf_backward, int64_t)

}  // namespace ramify::cpu
#endif
