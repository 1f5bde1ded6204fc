// Wide families with tied queries for every instruction set: scores are computed block by block, and again in
// wide_gradient.cc.
#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/wide_family.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include "kernels/cpu/simd/wide-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {
namespace {

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
    complete_scores(call, s.wide.position_columns + (first + i) * call.position_dim, keys, s.scores + i, kKeyBlock);
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

}  // namespace
}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ramify::cpu {

RAMIFY_CPU_STEP(wide_attend, WideTile)
RAMIFY_CPU_STEP(wide_fold, int64_t)
RAMIFY_CPU_STEP(wide_down, WideTile)

}  // namespace ramify::cpu
#endif
