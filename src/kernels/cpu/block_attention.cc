// Attention with tied queries, family by family, for every instruction set: the two passes forward (docs/algorithm.md,
// section 2). Families here are narrow: they keep their weights. The passes back are in block_gradient.cc.
#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/block_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include "kernels/cpu/block_attention.h"
#include "kernels/cpu/simd/grove-inl.h"
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
HWY_INLINE void attend(const Call& call, const Family& family, int64_t head, const float* const* q, Storage q_storage,
                       const float* const* k, const NodeRows& above, const NodeRows& below, Scratch& s, Ahead& q_ahead,
                       BothAhead& kv_ahead) {
  const F f;
  Pooling of_q = {family.weights(), 1.0f / static_cast<float>(family.node->size), nullptr, q_storage};
  if (!family.is_root()) of_q.to = above.q + (family.node->slot * call.p.heads + head) * call.dim;
  score_family(call, family, head, q, k, of_q, s, kv_ahead);
  float* weights = family.weights_of(call, call.weights, head);
  const V inverse_size = hn::Set(f, 1.0f / static_cast<float>(family.node->size));
  V energy = hn::Zero(f);
  for (int64_t i = 0; i < family.count; i += kLanes) {
    V t = softmax_tile(family, i, s.scores + i, weights + i, q_ahead);
    if (!family.all_leaves) t = close_gates(call, family, i, head, t, below);
    const V share = hn::Mul(hn::Mul(hn::LoadU(f, family.sizes + i), inverse_size), t);
    energy = hn::Add(energy, hn::IfThenElseZero(first_lanes(family.count - i), share));
  }
  above.e[family.node->slot * call.p.heads + head] = sum_of_lanes(energy);
}

// Bottom-up, a twig.
HWY_NOINLINE void twig_up(const Call& call, const Family& family, HeadRange range, const NodeRows& above, Scratch& s) {
  const AttentionParams& p = call.p;
  const Source q(p.q, p.storage, p.dim), k(p.k, p.storage, p.dim), v(p.v, p.storage, p.value_dim);
  const Twig twig(call, *family.node);
  const int64_t slot = family.node->slot, end = range.key_end * call.group;
  const float inverse_size = 1.0f / static_cast<float>(family.count);
  constexpr int64_t kMostKeys = 2 * kLanes;  // leaves and inner nodes
  const float *q_rows[kLanes], *k_rows[2 * kMostKeys];
  for (int64_t h = range.key_begin * call.group; h < end; h += twig.num_heads) {
    const LaneHeads heads = {h, std::min(twig.num_heads, end - h)};
    const HeadRange keys = keys_of(call, heads);
    const int64_t num_keys = keys.key_end - keys.key_begin;
    AheadOf<3> ahead = {family.look_ahead(q, h, heads.count), family.look_ahead(k, keys.key_begin, num_keys),
                        family.look_ahead(v, keys.key_begin, num_keys)};
    const Storage q_storage = gather_lanes(family, q, heads, 1, call.dim, s.staged[0], s, kInterleavesHalves, q_rows);
    gather_lanes(family, k, heads, call.group, call.dim, s.staged[1], s, false, k_rows, kMostKeys);
    for (int64_t i = 0; i < heads.count; ++i) {
      float* means = s.staged[1] + (2 + i) * kLanes * call.dim;  // behind the copies of leaves' rows
      twig.add_means(in_lanes(p.dim), call.dim, means, k_rows + i * kMostKeys);
    }
    const RowSums of_q = sums_of_rows(family, heads, above.q, p.heads, call.dim, inverse_size);
    const KeyRows right(k_rows, k_rows + kMostKeys);
    score_lanes<1>(twig, q_rows, q_storage, right, twig.num_keys, in_lanes(p.dim), p.scale, of_q, s, ahead);
    const V t = softmax_twig(twig, heads, s.scores, family.weights_of(call, call.weights, h), ahead);
    float energy[2];
    twig.sums_of_heads(hn::Mul(t, hn::Set(F(), inverse_size)), energy);
    for (int64_t i = 0; i < heads.count; ++i) above.e[slot * p.heads + h + i] = energy[i];
    if (family.is_root()) continue;
    for (int64_t g = keys.key_begin; g < keys.key_end; ++g) {
      pool_rows(k_rows + (g * call.group - h) * kMostKeys, nullptr, family.count, inverse_size, in_lanes(p.dim),
                above.k + (slot * p.key_heads + g) * call.dim);
      pool(family, v, g, p.key_heads, call.value_dim, nullptr, above.v, s.staged[2]);
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
      combination.hides = family.hides();
      combination.row_scale = row_scale;
      combination.base = family.is_root() ? nullptr : above.y + (slot * p.heads + h) * call.value_dim;
      combination.halves = family.half_targets(out, h);
      combination.streams = call.streams && family.all_leaves && (out.is_direct || combination.halves.data);
      combine_rows(combination, b, in_lanes(p.value_dim), y_rows, ahead);
      if (!combination.halves.data) family.finish_targets(out, h, y_rows, call.streams);
    }
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

// Zeros where twigs leave unwritten what their families would save, and families what a twig would.
void clear_unwritten(const Call& call, const GroveLevels& levels) {
  const auto nodes = call.p.walk.nodes;
  const auto clear = [&](float* from, int64_t count) { std::fill_n(from, count * call.p.heads, 0.0f); };
  for (int64_t l = 0; l < levels.count; ++l) {
    for (int64_t n = levels.ranges[l].begin; n < levels.ranges[l].end; ++n) {
      const WalkNode& node = nodes[n];
      if (node.is_leaf()) continue;
      if (is_inside_twig(call, node)) {
        clear(call.gates_of(node, 0), 2);
      } else if (node.size <= kTwigLeaves && node.has_families_below() && !is_twig(call, node)) {
        clear(call.weights + node.weights * call.p.heads, node.size * node.size);
      }
    }
  }
}

void grove_down_impl(const Call& call, const Grove& grove, HeadRange heads, Scratch& s);

void grove_up_impl(const Call& call, const Grove& grove, HeadRange heads, Scratch& s) {
  const GroveLevels levels(call, grove);
  clear_unwritten(call, levels);
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

// A family of the crown stands between rows of the crown.
void crown_up_impl(const Call& call, int64_t node, HeadRange heads, Scratch& s) {
  const Family family(call, node, heads);
  family_up(call, family, heads, call.crown, call.crown, s);
  report_energy(call, node, heads, call.crown);
}
void crown_down_impl(const Call& call, int64_t node, HeadRange heads, Scratch& s) {
  family_down(call, Family(call, node, heads), heads, call.crown, call.crown, s);
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

}  // namespace ramify::cpu
#endif
