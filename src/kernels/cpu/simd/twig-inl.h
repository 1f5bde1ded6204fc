// Twigs: subtrees of several levels whose leaves all fit into the lanes of a vector. To its leaves' rows, and to all
// that is above it, a twig is one family of leaves: two leaves meet on one level only, so the weights of all levels are
// one matrix, which its results are made of and its gradients come through. What is a twig's own is here: the softmax,
// level by level, and its adjoint. Of inner nodes they need the means of keys, no others: scores of mean queries are
// means of scores.
#if defined(RAMIFY_CPU_SIMD_TWIG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RAMIFY_CPU_SIMD_TWIG_INL_H_
#undef RAMIFY_CPU_SIMD_TWIG_INL_H_
#else
#define RAMIFY_CPU_SIMD_TWIG_INL_H_
#endif

#include "kernels/cpu/simd/twig_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {

// Sums over neighbouring lanes.
class LaneSums {
 public:
  // Lanes [begin, end) become one of the groups; they come in order. Other lanes are groups of their own.
  void clear() { steps_ = 0, spreads_ = false; }
  void add_group(int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    if (count == 1) return;
    // With partners by xor every lane gets the sum; else the last one does, and then gives it to the others.
    const bool is_even = (count & (count - 1)) == 0 && begin % count == 0;
    for (int s = 0; (int64_t{1} << s) < count; ++s) {
      if (s == steps_) new_step();
      for (int64_t l = begin; l < end; ++l) {
        const int64_t from = is_even ? l ^ (int64_t{1} << s) : l - (int64_t{1} << s);
        if (from < begin) continue;
        from_[s][l] = static_cast<int32_t>(from);
        takes_[s] = takes_[s] | LaneSet(l, l + 1);
      }
    }
    if (is_even) return;
    if (!spreads_) fill_own(last_);
    spreads_ = true;
    for (int64_t l = begin; l < end; ++l) last_[l] = static_cast<int32_t>(end - 1);
  }

  void repeat_in_upper_half() {
    constexpr int kHalf = kLanes / 2;
    const auto repeat = [&](int32_t* from) {
      for (int32_t l = 0; l < kHalf; ++l) from[l + kHalf] = from[l] + kHalf;
    };
    for (int s = 0; s < steps_; ++s) repeat(from_[s]), takes_[s] = takes_[s].in_both_halves();
    if (spreads_) repeat(last_);
  }

  // Every lane gets the sum of its group.
  HWY_INLINE V sum(V x) const {
    const F f;
    for (int s = 0; s < steps_; ++s) {
      const V other = hn::TableLookupLanes(x, hn::SetTableIndices(f, from_[s]));
      x = hn::Add(x, hn::IfThenElseZero(takes_[s].mask(), other));
    }
    return spreads_ ? hn::TableLookupLanes(x, hn::SetTableIndices(f, last_)) : x;
  }

 private:
  static void fill_own(int32_t* from) {
    for (int32_t l = 0; l < kLanes; ++l) from[l] = l;
  }
  void new_step() {
    fill_own(from_[steps_]);
    takes_[steps_++] = LaneSet();
  }

  int steps_ = 0;
  bool spreads_ = false;
  LaneSet takes_[4];
  HWY_ALIGN int32_t from_[4][kLanes];
  HWY_ALIGN int32_t last_[kLanes];
};

// What all heads of a twig share. Level d has the children of the twig's root, then their children, and so on. Of a
// lane's ancestors on level d - 1 the children are counted from 0: its siblings on level d, itself included.
struct Twig : TwigLanes {
  static constexpr int64_t kMaxRows = 2 * kLanes;  // no more children than that on all levels together

  struct Level {
    int64_t siblings = 0;  // most of a lane
    int64_t first_row = 0;
    LaneSet inner;                         // lanes that are below an inner node of this level
    LaneSums sums;                         // over the lanes below a node of this level
    LaneSet seen_by[kLanes];               // lanes whose node here looks at the one of leaf j
    LaneSet leaves[kLanes];                // leaves below siblings number k
    LaneSet first_leaves[kLanes];          // the first of each of these siblings
    int64_t number[kLanes];                // of leaf j's node among its siblings; -1: the leaf is above this level
    int64_t key[kLanes];                   // the row of keys that is of leaf j's node: a leaf's own or a mean
    HWY_ALIGN float inverse_size[kLanes];  // of a lane's node
  };
  // By lane, one row for each sibling of a level.
  struct Siblings {
    LaneSet open;                          // lanes that look at theirs of this number
    HWY_ALIGN float inverse_size[kLanes];  // of theirs
    HWY_ALIGN float log_size[kLanes];
  };

  // Rows of keys are those of the leaves, then one for every inner node below the root.
  struct InnerNode {
    int64_t first_leaf, size;
  };

  int64_t num_levels = 0;
  int64_t num_keys = 0;
  Level levels[kLanes];
  Siblings siblings[kMaxRows];
  InnerNode inner_nodes[kLanes];

  Twig(const Call& call, const WalkNode& root);
  // Means of leaves' rows into `means`, `width` apart, and where they are behind the leaves' own in `rows`.
  void add_means(int64_t channels, int64_t width, float* means, const float** rows) const;

 private:
  void repeat_in_upper_half(Level& level);
};

inline void Twig::repeat_in_upper_half(Level& level) {
  constexpr int64_t kHalf = kLanes / 2;
  const auto repeat = [&](float* lanes) { std::copy_n(lanes, kHalf, lanes + kHalf); };
  level.inner = level.inner.in_both_halves();
  level.sums.repeat_in_upper_half();
  repeat(level.inverse_size);
  for (int64_t j = 0; j < count; ++j) level.seen_by[j] = level.seen_by[j].in_both_halves();
  for (int64_t k = 0; k < level.siblings; ++k) {
    Siblings& row = siblings[level.first_row + k];
    row.open = row.open.in_both_halves();
    repeat(row.inverse_size);
    repeat(row.log_size);
  }
}

inline void Twig::add_means(int64_t channels, int64_t width, float* means, const float** rows) const {
  for (int64_t n = 0; n < num_keys - count; ++n, means += width) {
    const InnerNode& node = inner_nodes[n];
    pool_rows(rows + node.first_leaf, nullptr, node.size, 1.0f / static_cast<float>(node.size), channels, means);
    rows[count + n] = means;
  }
}

inline Twig::Twig(const Call& call, const WalkNode& root) : TwigLanes(root.size), num_keys(root.size) {
  const auto nodes = call.p.walk.nodes;
  int64_t begin = root.first_child, end = begin + root.num_children, num_rows = 0;
  while (begin < end) {
    Level& level = levels[num_levels++];
    level.siblings = 0, level.first_row = num_rows;
    level.inner = {};
    level.sums.clear();
    std::fill_n(level.number, count, -1);
    std::fill_n(level.seen_by, count, LaneSet());
    std::fill_n(level.inverse_size, kLanes, 1.0f);
    for (int64_t n = begin; n < end; ++n) {
      const WalkNode &node = nodes[n], &parent = nodes[node.parent];
      const int64_t first = node.first_leaf - root.first_leaf, last = first + node.size;
      const int64_t family = parent.first_leaf - root.first_leaf, number = n - parent.first_child;
      const LaneSet below(first, last), beside(family, family + parent.size);
      while (number >= level.siblings) {
        Siblings& row = siblings[num_rows++];
        row.open = {};
        std::fill_n(row.inverse_size, kLanes, 0.0f);
        std::fill_n(row.log_size, kLanes, 0.0f);
        level.leaves[level.siblings] = level.first_leaves[level.siblings] = {};
        ++level.siblings;
      }
      Siblings& row = siblings[level.first_row + number];
      const auto size = static_cast<float>(node.size);
      const float inverse = 1.0f / size, log_size = node.size > 1 ? std::log(size) : 0.0f;
      std::fill_n(row.inverse_size + family, parent.size, inverse);
      std::fill_n(row.log_size + family, parent.size, log_size);
      LaneSet seen_by = call.p.causal == Causal::none ? beside : LaneSet(first, family + parent.size);
      if (!node.is_leaf() || !call.p.include_self) seen_by = seen_by.without(below);
      row.open = row.open | seen_by;
      level.leaves[number] = level.leaves[number] | below;
      level.first_leaves[number] = level.first_leaves[number] | LaneSet(first, first + 1);
      level.key[first] = node.is_leaf() ? first : num_keys;
      level.sums.add_group(first, last);
      if (!node.is_leaf()) {
        level.inner = level.inner | below;
        inner_nodes[num_keys++ - count] = {first, node.size};
      }
      for (int64_t l = first; l < last; ++l) {
        level.number[l] = number, level.seen_by[l] = seen_by, level.inverse_size[l] = inverse;
      }
    }
    if (num_heads > 1) repeat_in_upper_half(level);
    const WalkNode &first = nodes[begin], &last = nodes[end - 1];
    begin = first.first_child, end = last.first_child + last.num_children;
  }
}

// softmax_tile of a twig: from scores[key * kNarrowFamily + lane] of its leaves the weights of all its levels together.
// Returns t of the root's children. What a lane's node has gathered below it is one more entry of its softmax.
inline V softmax_twig(const Twig& twig, LaneHeads heads, const float* scores, float* weights,
                      AheadOf<3>& shared_ahead) {
  const F f;
  AheadOf<3> ahead = shared_ahead;
  const V nothing = hn::Set(f, kMinusInfinity), zero = hn::Zero(f);
  HWY_ALIGN float shares[Twig::kMaxRows][kLanes];  // of siblings, then of all that they are made of
  HWY_ALIGN float kept[kLanes][kLanes];            // m of a level
  HWY_ALIGN float given[kLanes][kLanes];           // 1 / Σ of a level's exponentials
  V e = nothing, t = nothing;
  for (int64_t d = twig.num_levels; d-- > 0;) {
    const Twig::Level& level = twig.levels[d];
    V most = e;
    const V inverse_size = hn::Load(f, level.inverse_size);
    for (int64_t k = 0; k < level.siblings; ++k) {
      const Twig::Siblings& row = twig.siblings[level.first_row + k];
      V mean = zero;
      level.first_leaves[k].for_each([&](int64_t j) {  // a lane sees one of them at most
        const V score = hn::Load(f, scores + level.key[j] * kNarrowFamily);
        mean = hn::IfThenElse(level.seen_by[j].mask(), score, mean);
      });
      // every score's part of it, so that no sum is larger than the scores
      const V score = hn::Add(level.sums.sum(hn::Mul(mean, inverse_size)), hn::Load(f, row.log_size));
      const V seen = hn::IfThenElse(row.open.mask(), score, nothing);
      most = hn::Max(most, seen);
      hn::Store(seen, f, shares[level.first_row + k]);
      ahead.step<2>();
    }
    const V shift = hn::IfThenElse(hn::Eq(most, nothing), zero, most);
    const V own = exp_lanes(hn::Sub(e, shift));
    V sum = own;
    for (int64_t k = 0; k < level.siblings; ++k) {
      float* row = shares[level.first_row + k];
      const V share = exp_lanes(hn::Sub(hn::Load(f, row), shift));
      sum = hn::Add(sum, share);
      hn::Store(share, f, row);
    }
    const M is_empty = hn::Eq(sum, zero);
    const V inverse = hn::IfThenZeroElse(is_empty, hn::Div(hn::Set(f, 1.0f), sum));
    t = hn::IfThenElse(is_empty, nothing, hn::Add(shift, log_lanes(sum)));
    hn::Store(inverse, f, given[d]);
    hn::Store(hn::Mul(own, inverse), f, kept[d]);
    if (d == 0) break;
    const Twig::Level& above = twig.levels[d - 1];
    const M inner = above.inner.mask();
    const V part = hn::Mul(hn::IfThenElseZero(inner, t), hn::Load(f, above.inverse_size));
    e = hn::IfThenElse(inner, above.sums.sum(part), nothing);
  }
  V pi = hn::Set(f, 1.0f);
  for (int64_t d = 0; d < twig.num_levels; ++d) {
    const Twig::Level& level = twig.levels[d];
    const V reach = hn::Mul(pi, hn::Load(f, given[d]));
    for (int64_t k = 0; k < level.siblings; ++k) {
      float* row = shares[level.first_row + k];
      const V inverse_size = hn::Load(f, twig.siblings[level.first_row + k].inverse_size);
      hn::Store(hn::Mul(hn::Mul(reach, inverse_size), hn::Load(f, row)), f, row);
    }
    pi = hn::Mul(pi, hn::Load(f, kept[d]));
  }
  for (int64_t j = 0; j < twig.count; ++j) {
    V weight = zero;
    for (int64_t d = 0; d < twig.num_levels; ++d) {
      const Twig::Level& level = twig.levels[d];
      if (level.number[j] < 0) break;
      const V share = hn::Load(f, shares[level.first_row + level.number[j]]);
      weight = hn::IfThenElse(level.seen_by[j].mask(), share, weight);
    }
    twig.store(weight, weights, j, heads);
    ahead.step<2>();
  }
  shared_ahead = ahead;
  return t;
}

// Its adjoint, from the weights W and grad_out · v of leaves: the gradients of scores, W (energy + pi c) with one
// number c for each pair of siblings, and pi W, both [j][lane] with rows of kNarrowFamily.
//
// Level by level from the leaves up, with D the means of grad_out · v over the leaves below two siblings,
//   gain = Σ p D,   u = the mean of r over the leaves below C,   r = w gain + m u,   c = D - r,
// and all that is below C gets w (u - gain) more. p, m and w come from W: what lanes give on a level, and below it.
inline void softmax_twig_adjoint(const Twig& twig, LaneHeads heads, const float* weights, const float* products, V pi,
                                 V energy, float* scores, float* scaled_weights) {
  const F f;
  const V zero = hn::Zero(f), one = hn::Set(f, 1.0f);
  HWY_ALIGN float slopes[Twig::kMaxRows][kLanes];  // c of siblings
  HWY_ALIGN float inside[kLanes][kLanes];          // what a level adds to all that is below its nodes
  const auto inverse_of = [&](V x) { return hn::IfThenZeroElse(hn::Eq(x, zero), hn::Div(one, x)); };
  V given_below = zero, r = zero;
  for (int64_t d = twig.num_levels; d-- > 0;) {
    const Twig::Level& level = twig.levels[d];
    const V inverse_size = hn::Load(f, level.inverse_size);
    V given = zero, gain = zero;
    for (int64_t k = 0; k < level.siblings; ++k) {
      const V share = hn::Mul(inverse_size, hn::Load(f, twig.siblings[level.first_row + k].inverse_size));
      V given_here = zero, mean = zero;
      level.leaves[k].for_each([&](int64_t j) {
        const M seen_by = level.seen_by[j].mask();
        const V weight = twig.load(weights, j, heads);
        given_here = hn::Add(given_here, hn::IfThenElseZero(seen_by, weight));
        mean = hn::MulAdd(hn::IfThenElseZero(seen_by, twig.load(products, j, heads)), share, mean);
      });
      mean = level.sums.sum(mean);
      hn::Store(mean, f, slopes[level.first_row + k]);
      given = hn::Add(given, given_here);
      gain = hn::MulAdd(given_here, mean, gain);
    }
    gain = hn::Mul(gain, inverse_of(given));
    const V u = hn::Mul(level.sums.sum(hn::IfThenElseZero(level.inner.mask(), r)), inverse_size);
    const V total = hn::Add(given_below, given), scale = inverse_of(total);
    const V m = hn::Mul(given_below, scale), w = hn::Mul(given, scale);
    r = hn::MulAdd(w, gain, hn::Mul(m, u));
    hn::Store(hn::Mul(w, hn::Sub(u, gain)), f, inside[d]);
    for (int64_t k = 0; k < level.siblings; ++k) {
      float* row = slopes[level.first_row + k];
      hn::Store(hn::Sub(hn::Load(f, row), r), f, row);
    }
    given_below = total;
  }
  V pull = energy;
  for (int64_t d = 0; d < twig.num_levels; ++d) {
    const Twig::Level& level = twig.levels[d];
    for (int64_t k = 0; k < level.siblings; ++k) {
      float* row = slopes[level.first_row + k];
      hn::Store(hn::MulAdd(pi, hn::Load(f, row), pull), f, row);
    }
    pull = hn::MulAdd(pi, hn::Load(f, inside[d]), pull);
  }
  for (int64_t j = 0; j < twig.count; ++j) {
    V slope = zero;
    for (int64_t d = 0; d < twig.num_levels; ++d) {
      const Twig::Level& level = twig.levels[d];
      if (level.number[j] < 0) break;
      const V here = hn::Load(f, slopes[level.first_row + level.number[j]]);
      slope = hn::IfThenElse(level.seen_by[j].mask(), here, slope);
    }
    const V weight = twig.load(weights, j, heads);
    hn::Store(hn::Mul(weight, slope), f, scores + j * kNarrowFamily);
    hn::Store(hn::Mul(weight, pi), f, scaled_weights + j * kNarrowFamily);
  }
}

}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
