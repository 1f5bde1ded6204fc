// Families of as many leaves as a vector has lanes: all their products are one vector of queries a key, which stays in
// registers from the first channel to the softmax. One loop transposes queries, multiplies, takes means and brings rows
// of leaves to come nearer: loads, additions and shuffles find room beside the multiply-adds, which alone set its pace.
#if defined(RAMIFY_CPU_SIMD_SQUARE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RAMIFY_CPU_SIMD_SQUARE_INL_H_
#undef RAMIFY_CPU_SIMD_SQUARE_INL_H_
#else
#define RAMIFY_CPU_SIMD_SQUARE_INL_H_
#endif

#include "kernels/cpu/simd/family-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX3  // one sum a key, and as many registers for everything else
// Whether a family is one, in a tree that the caches hold: rows that come from memory are better read one after the
// other than sixteen at once (docs/kernels.md, "A sixth round"). The tree decides, not the call, since squares round
// otherwise: what a tree gives must not depend on what else is in its batch.
HWY_INLINE bool is_square(const Call& call, const Family& family) {
  if (family.count != kLanes || !family.all_leaves || family.is_twig || call.position_dim != 0) return false;
  const WalkNode* above = family.node;
  while (above->parent >= 0 && above->size <= call.cached_leaves) above = &call.p.walk.nodes[above->parent];
  return above->size <= call.cached_leaves;
}

// What rows on the left are read as: what they are, or float32 where they have to be copied.
inline Storage square_storage(const Source& source) {
  return source.dim % kLanes == 0 ? source.storage : Storage::float32;
}

// Sixteen rows inside a loop over channels: every row is reached from one of two pointers with a step that is in a
// register. Sixteen pointers would leave none for the rest.
class RowCursor {
 public:
  explicit HWY_INLINE RowCursor(EvenRows rows)
      : low_(rows.first),
        high_(low_ + 8 * rows.step),
        one_(rows.step),
        three_(3 * one_),
        five_(5 * one_),
        seven_(7 * one_) {
    asm("" : "+r"(high_), "+r"(three_), "+r"(five_), "+r"(seven_));  // else they are computed from one_ again
  }
  HWY_INLINE const char* row(int r) const {
    const int64_t offset[] = {0, one_, 2 * one_, three_, 4 * one_, five_, 2 * three_, seven_};
    return (r < 8 ? low_ : high_) + offset[r % 8];
  }
  HWY_INLINE void advance(int64_t bytes) { low_ += bytes, high_ += bytes; }

 private:
  const char *low_, *high_;
  int64_t one_, three_, five_, seven_;
};

// What one head of such a family needs and gives.
struct Square {
  EvenRows left;                          // queries
  EvenRows right;                         // what they are multiplied with, in float32
  EvenRows pooled;                        // more rows, which are only pooled, in the storage of `left`
  int64_t channels = 0;                   // of each, a multiple of kLanes
  float left_scale = 1, right_scale = 1;  // of the sums of rows, which go to:
  float* left_sum = nullptr;
  float* right_sum = nullptr;
  float* pooled_sum = nullptr;  // scaled as those of `right`
  // Memory that is brought nearer meanwhile, and how much of it with every four channels.
  const char* left_ahead = nullptr;
  const char* right_ahead = nullptr;
  const char* pooled_ahead = nullptr;
  int64_t ahead_step = 0;
};

// Four numbers of a storage.
template <class Lanes>
HWY_INLINE __m128 load_four(const char* from) {
  if constexpr (std::is_same_v<Lanes, Float32Lanes>) return _mm_loadu_ps(reinterpret_cast<const float*>(from));
  const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  if constexpr (std::is_same_v<Lanes, Float16Lanes>) return _mm_cvtph_ps(halves);
  return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(halves), 16));
}

// The next four channels of all queries: columns[i] has the i-th.
template <class Lanes>
HWY_INLINE void columns_of(const RowCursor& rows, V (&columns)[4]) {
  const F f;
  const hn::RepartitionToWide<F> pairs;
  V x[4];
  RAMIFY_UNROLL
  for (int g = 0; g < 4; ++g) {
    __m512 blocks = _mm512_castps128_ps512(load_four<Lanes>(rows.row(g)));
    blocks = _mm512_insertf32x4(blocks, load_four<Lanes>(rows.row(g + 4)), 1);
    blocks = _mm512_insertf32x4(blocks, load_four<Lanes>(rows.row(g + 8)), 2);
    x[g] = V{_mm512_insertf32x4(blocks, load_four<Lanes>(rows.row(g + 12)), 3)};
  }
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(f, x[0], x[1]));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(f, x[2], x[3]));
  const auto up01 = hn::BitCast(pairs, hn::InterleaveUpper(f, x[0], x[1]));
  const auto up23 = hn::BitCast(pairs, hn::InterleaveUpper(f, x[2], x[3]));
  columns[0] = hn::BitCast(f, hn::InterleaveLower(pairs, low01, low23));
  columns[1] = hn::BitCast(f, hn::InterleaveUpper(pairs, low01, low23));
  columns[2] = hn::BitCast(f, hn::InterleaveLower(pairs, up01, up23));
  columns[3] = hn::BitCast(f, hn::InterleaveUpper(pairs, up01, up23));
}

// product[j][i] = left[i] · right[j], lanes are i; sums of rows on the way. `left` and `pooled` are numbers of Lanes.
enum class SquarePools { left_and_right, three };
template <class Lanes, SquarePools kPools>
HWY_INLINE void multiply_square(const Square& square, V (&product)[16]) {
  static_assert(kLanes == 16);
  constexpr bool kThree = kPools == SquarePools::three;
  constexpr auto kNumber = static_cast<int64_t>(sizeof(typename Lanes::Number));
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  const F f;
  RAMIFY_UNROLL
  for (int j = 0; j < 16; ++j) product[j] = hn::Zero(f);
  RowCursor left(square.left), right(square.right);
  const char *left_ahead = square.left_ahead, *right_ahead = square.right_ahead, *pooled_ahead = square.pooled_ahead;
  // Rows a multiple of 1 KiB apart share few sets of the first-level cache, and those of all tensors the same ones
  // where tensors begin alike. So the pooled rows are not read at the channels where the others are.
  int64_t pooled_at = square.channels / kLanes / 2 * kLanes;
  for (int64_t c = 0; c < square.channels; c += kLanes) {
    V left_sum = hn::Zero(f), right_sum = hn::Zero(f), pooled_sum = hn::Zero(f);
    const char *left_row = left.row(0), *right_row = right.row(0);
    const char* pooled_row = square.pooled.first + pooled_at * kNumber;
    const auto add_row = [&](auto lanes, V& sum, const char*& row, int64_t step) {
      using Number = typename decltype(lanes)::Number;
      sum = hn::Add(sum, lanes.load(reinterpret_cast<const Number*>(row)));
      __builtin_prefetch(row + 64, 0, 3);  // what comes next of this row, or of the next head's
      row += step;
    };
    RAMIFY_UNROLL
    for (int part = 0; part < 4; ++part) {
      V columns[4];
      columns_of<Lanes>(left, columns);
      RAMIFY_UNROLL
      for (int i = 0; i < 4; ++i) {
        __builtin_prefetch(left_ahead + 64 * i, 0, 2);
        __builtin_prefetch(right_ahead + 64 * i, 0, 2);
        if constexpr (kThree) __builtin_prefetch(pooled_ahead + 64 * i, 0, 2);
        RAMIFY_UNROLL
        for (int j = 0; j < 16; ++j) {
          const V key = hn::Set(f, reinterpret_cast<const float*>(right.row(j))[i]);
          product[j] = hn::MulAdd(columns[i], key, product[j]);
        }
        add_row(Lanes(), left_sum, left_row, square.left.step);
        add_row(Float32Lanes(), right_sum, right_row, square.right.step);
        if constexpr (kThree) add_row(Lanes(), pooled_sum, pooled_row, square.pooled.step);
      }
      left.advance(4 * kNumber), right.advance(4 * kFloat);
      left_ahead += square.ahead_step, right_ahead += square.ahead_step, pooled_ahead += square.ahead_step;
    }
    hn::StoreU(hn::Mul(left_sum, hn::Set(f, square.left_scale)), f, square.left_sum + c);
    hn::StoreU(hn::Mul(right_sum, hn::Set(f, square.right_scale)), f, square.right_sum + c);
    if constexpr (!kThree) continue;
    hn::StoreU(hn::Mul(pooled_sum, hn::Set(f, square.right_scale)), f, square.pooled_sum + pooled_at);
    pooled_at = pooled_at + kLanes < square.channels ? pooled_at + kLanes : 0;
  }
}

// Which lanes look at child j: bit i of seen[j].
struct SquareMasks {
  uint16_t seen[16];
  explicit SquareMasks(const Family& family) {
    for (int j = 0; j < 16; ++j) {
      const uint32_t own = 1u << j, before = own - 1;
      seen[j] = static_cast<uint16_t>(~((family.closed[j] != 0 ? own : 0) | (family.is_causal ? before : 0)));
    }
  }
};

// Past the caches: `to` is aligned.
HWY_INLINE void store_square(const V (&rows)[16], float* to, bool streams) {
  const F f;
  RAMIFY_UNROLL
  for (int j = 0; j < 16; ++j) {
    if (streams) {
      hn::Stream(rows[j], f, to + j * kLanes);
    } else {
      hn::StoreU(rows[j], f, to + j * kLanes);
    }
  }
}

// softmax_tile of scores that are still to be scaled, in registers.
HWY_INLINE V softmax_square(const SquareMasks& masks, float scale, V (&score)[16], float* weights, bool streams) {
  const F f;
  const V closed = hn::Set(f, kMinusInfinity), factor = hn::Set(f, scale);
  V most[4];
  RAMIFY_UNROLL
  for (int j = 0; j < 16; ++j) {
    score[j] = V{_mm512_mask_mul_ps(closed.raw, masks.seen[j], score[j].raw, factor.raw)};
    most[j % 4] = j < 4 ? score[j] : hn::Max(most[j % 4], score[j]);
  }
  const V largest = hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]));
  const V shift = hn::IfThenElse(hn::Eq(largest, closed), hn::Zero(f), largest);
  V sums[4];
  RAMIFY_UNROLL
  for (int j = 0; j < 16; ++j) {
    score[j] = exp_lanes(hn::Sub(score[j], shift));
    sums[j % 4] = j < 4 ? score[j] : hn::Add(sums[j % 4], score[j]);
  }
  const V sum = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  const M is_empty = hn::Eq(sum, hn::Zero(f));
  const V inverse = hn::IfThenZeroElse(is_empty, hn::Div(hn::Set(f, 1.0f), sum));
  RAMIFY_UNROLL
  for (int j = 0; j < 16; ++j) score[j] = hn::Mul(score[j], inverse);
  store_square(score, weights, streams);
  return hn::IfThenElse(is_empty, closed, hn::Add(shift, log_lanes(sum)));
}
#endif

}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
