// The families of a grove, level by level, and the means that are passed up its levels.
#if defined(RAMIFY_CPU_SIMD_GROVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RAMIFY_CPU_SIMD_GROVE_INL_H_
#undef RAMIFY_CPU_SIMD_GROVE_INL_H_
#else
#define RAMIFY_CPU_SIMD_GROVE_INL_H_
#endif

#include <array>

#include "kernels/cpu/simd/family-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {

// From the roots down: ranges of nodes some of which have children.
struct GroveLevels {
  struct Range {
    int64_t begin, end;
  };
  std::array<Range, kGroveLeaves> ranges;
  int64_t count = 0;

  GroveLevels(const Call& call, const Grove& grove) {
    const auto nodes = call.p.walk.nodes;
    Range range = {grove.root_begin, grove.root_end};
    while (true) {
      const WalkNode &first = nodes[range.begin], &last = nodes[range.end - 1];
      const Range below = {first.first_child, last.first_child + last.num_children};
      if (below.begin == below.end) break;
      ranges[count++] = range;
      range = below;
    }
  }
};

// step(family, above, below) for every family whose parent is on a level; a twig is one.
template <class Step>
void for_each_family(const Call& call, const Grove& grove, const GroveLevels::Range& level, bool is_top,
                     HeadRange heads, Scratch& s, const Step& step) {
  const auto nodes = call.p.walk.nodes;
  const NodeRows& above = is_top && !grove.is_whole ? call.crown : s.local;
  for (int64_t n = level.begin; n < level.end; ++n) {
    if (!nodes[n].is_leaf() && !is_inside_twig(call, nodes[n])) step(Family(call, n, heads), above, s.local);
  }
}

// The mean of the children's rows becomes the parent's.
template <class Prefetch = NothingAhead>
HWY_INLINE void pool(const Family& family, const Source& source, int64_t head, int64_t heads, int64_t width,
                     const float* below, float* above, float* copies, Prefetch ahead = {}) {
  for (int64_t j = 0; j < family.count; ++j) ahead.template step<4>();
  float* to = above + (family.node->slot * heads + head) * width;
  const float scale = 1.0f / static_cast<float>(family.node->size);
  if (family.all_leaves && can_convert(source)) {
    pool_stored(source.storage, source.at(family.leaf[0], head), source.row_bytes(), family.count, scale, source.dim,
                to);
    return;
  }
  const float* rows[kNarrowFamily];
  family.gather(source, head, below, heads, width, copies, rows);
  pool_rows(rows, family.weights(), family.count, scale, in_lanes(source.dim), to);
}

}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
