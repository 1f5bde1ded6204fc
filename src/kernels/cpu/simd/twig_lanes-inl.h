// The lanes of a twig: which leaf and head is where, its rows in lanes, and their products.
#if defined(RAMIFY_CPU_SIMD_TWIG_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RAMIFY_CPU_SIMD_TWIG_LANES_INL_H_
#undef RAMIFY_CPU_SIMD_TWIG_LANES_INL_H_
#else
#define RAMIFY_CPU_SIMD_TWIG_LANES_INL_H_
#endif

#include <algorithm>
#include <bit>

#include "kernels/cpu/simd/family-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {

// Some lanes of a vector, bit by bit.
class LaneSet {
 public:
  LaneSet() = default;
  LaneSet(int64_t begin, int64_t end) : bits_((uint64_t{1} << end) - (uint64_t{1} << begin)) {}
  HWY_INLINE M mask() const { return hn::LoadMaskBits(F(), reinterpret_cast<const uint8_t*>(&bits_)); }
  LaneSet operator|(LaneSet other) const { return LaneSet(bits_ | other.bits_); }
  LaneSet without(LaneSet other) const { return LaneSet(bits_ & ~other.bits_); }
  // With the same lanes of the upper half, whose own were none.
  LaneSet in_both_halves() const { return LaneSet(bits_ | bits_ << kLanes / 2); }
  // visit(lane), in their order
  template <class Visit>
  HWY_INLINE void for_each(const Visit& visit) const {
    for (uint64_t rest = bits_; rest != 0; rest &= rest - 1) visit(std::countr_zero(rest));
  }

 private:
  explicit LaneSet(uint64_t bits) : bits_(bits) {}
  uint64_t bits_ = 0;  // as wide as LoadMaskBits reads
};

// Whether the two halves of a vector can be two heads of a twig that fills one: dot_blocks needs halves of whole
// blocks.
inline constexpr bool kPairsHeads = kLanes >= 8;

// Some heads of a twig that share a vector.
struct LaneHeads {
  int64_t begin = 0;
  int64_t count = 0;
};

// The lanes of a twig are its leaves, of two heads at once where they fill half of them at most.
struct TwigLanes {
  int64_t count = 0;      // leaves
  int64_t num_heads = 1;  // that lanes have room for

  explicit TwigLanes(int64_t leaves)
      : count(leaves), num_heads(kPairsHeads && 2 * leaves <= kLanes ? 2 : 1), used_(0, leaves) {
    if (num_heads > 1) used_ = used_.in_both_halves();
  }

  // Row j of [heads][count][count] as lanes, and back.
  HWY_INLINE V load(const float* rows, int64_t j, LaneHeads heads) const {
    const float* row = rows + j * count;
    if (heads.count == 1) return load_first(row, count);
    return join(load_half(row), load_half(row + count * count));
  }
  HWY_INLINE void store(V v, float* rows, int64_t j, LaneHeads heads) const {
    float* row = rows + j * count;
    if (heads.count == 1) return store_first(v, row, count);
    store_half(hn::LowerHalf(HalfF(), v), row);
    store_half(hn::UpperHalf(HalfF(), v), row + count * count);
  }
  // One number for each head.
  static HWY_INLINE V of_heads(float first, float second) {
    const HalfF half;
    return join(hn::Set(half, first), hn::Set(half, second));
  }
  // The sum of each head's lanes.
  HWY_INLINE void sums_of_heads(V v, float (&sums)[2]) const {
    const HalfF half;
    const V used = hn::IfThenElseZero(used_.mask(), v);
    if (num_heads == 1) {
      sums[0] = sum_of_lanes(used);
      return;
    }
    sums[0] = hn::GetLane(hn::SumOfLanes(half, hn::LowerHalf(half, used)));
    sums[1] = hn::GetLane(hn::SumOfLanes(half, hn::UpperHalf(half, used)));
  }

 private:
  using HalfF = hn::Half<F>;
  static HWY_INLINE V join(hn::Vec<HalfF> lower, hn::Vec<HalfF> upper) { return hn::Combine(F(), upper, lower); }
  HWY_INLINE hn::Vec<HalfF> load_half(const float* row) const {
    const HalfF half;
    if (count == kLanes / 2) return hn::LoadU(half, row);
    return hn::MaskedLoad(hn::FirstN(half, static_cast<size_t>(count)), half, row);
  }
  HWY_INLINE void store_half(hn::Vec<HalfF> v, float* row) const {
    const HalfF half;
    if (count == kLanes / 2) return hn::StoreU(v, half, row);
    hn::BlendedStore(v, hn::FirstN(half, static_cast<size_t>(count)), half, row);
  }

  LaneSet used_;
};

// The key heads whose first head is among them.
inline HeadRange keys_of(const Call& call, LaneHeads heads) {
  return {(heads.begin + call.group - 1) / call.group, (heads.begin + heads.count - 1) / call.group + 1};
}

// Rows of all leaves, each head's where its lanes are, and zeros in the rest. A head has the rows of head / group.
// Returns what they are: with `takes_halves` perhaps not float32. Copies take up to 2 · kLanes rows.
inline Storage gather_lanes(const Family& family, const Source& source, LaneHeads heads, int64_t group, int64_t width,
                            float* copies, const Scratch& s, bool takes_halves, const float** rows,
                            int64_t rows_of_head = kLanes / 2) {
  Storage storage = Storage::float32;
  std::fill_n(rows, 2 * rows_of_head, s.zeros);
  for (int64_t i = 0; i < heads.count; ++i) {
    storage = family.gather(source, (heads.begin + i) / group, nullptr, 0, width, copies + i * kLanes * width,
                            rows + i * rows_of_head, takes_halves);
  }
  return storage;
}

// Where sums of these heads' rows go: into [slots][num_heads][width].
inline RowSums sums_of_rows(const Family& family, LaneHeads heads, float* slots, int64_t num_heads, int64_t width,
                            float scale) {
  if (family.is_root()) return {};
  float* to = slots + (family.node->slot * num_heads + heads.begin) * width;
  return {scale, to, heads.count > 1 ? to + width : nullptr};
}

// scratch.scores[j][lane] = scale left · right[j], where `right` has the rows of the lanes' own head.
template <int kLines, class Prefetch>
void score_lanes(const TwigLanes& lanes, const float* const* left, Storage left_storage, KeyRows right,
                 int64_t num_right, int64_t channels, float scale, RowSums sums, Scratch& s, Prefetch& ahead) {
  with_lanes(left_storage, [&](auto numbers) {
    using Lanes = decltype(numbers);
    if constexpr (std::is_same_v<Lanes, Float32Lanes> || kInterleavesHalves) {
      interleave_rows<Lanes>(left, channels, s.columns, sums);
    }
  });
  if (lanes.num_heads == 1) {
    dot_blocks(s.columns, right, num_right, channels, scale, s.scores, kNarrowFamily, ahead);
  } else if constexpr (kPairsHeads) {
    dot_blocks<true, kLines>(s.columns, right, num_right, channels, scale, s.scores, kNarrowFamily, ahead);
  }
}

}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
