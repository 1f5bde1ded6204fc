// How the leaves of a tile climb with causal=prefix (prefix_attention.cc), forward and again backward: the families
// above them, and the mean queries that they look with.
#if defined(RAMIFY_CPU_SIMD_CLIMB_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RAMIFY_CPU_SIMD_CLIMB_INL_H_
#undef RAMIFY_CPU_SIMD_CLIMB_INL_H_
#else
#define RAMIFY_CPU_SIMD_CLIMB_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/simd/sweep-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {

// A family that lanes [begin, end) of a tile climb through.
struct Step {
  const WalkNode* family;
  int64_t begin, end;
  int64_t num_keys;     // its first children, of which some lane sees each
  int64_t first_child;  // above lane `begin`
};

// The families above a tile's leaves, children before parents.
class Climb {
 public:
  explicit Climb(const Call& call) : call_(call) {}

  void collect(const LeafTile& tile) {
    const auto nodes = call_.p.walk.nodes;
    steps_.clear();
    first_leaf_ = tile.first;
    for (int64_t l = tile.count - 1; l >= 0; --l) {
      int64_t child = call_.p.walk.leaf_nodes[tile.first + l];
      for (int64_t n = nodes[child].parent; n >= 0; child = n, n = nodes[n].parent) {
        if (l > 0 && nodes[n].first_leaf < tile.first + l) break;  // an earlier lane is below it, too
        Step step = {&nodes[n], l, std::min(tile.count, end_of(nodes[n]) - tile.first), 0, child};
        while (step.num_keys < nodes[n].num_children) {
          const WalkNode& key = nodes[nodes[n].first_child + step.num_keys];
          const int64_t seen_from = (key.is_leaf() ? key.first_leaf : end_of(key)) - tile.first;
          if (seen_from >= step.end) break;
          if (key.is_leaf()) first_leaf_ = std::min(first_leaf_, key.first_leaf);
          ++step.num_keys;
        }
        steps_.push_back(step);
      }
    }
  }
  const std::vector<Step>& steps() const { return steps_; }
  int64_t first_leaf() const { return first_leaf_; }  // of the tile and of the keys that are leaves

 private:
  const Call& call_;
  std::vector<Step> steps_;
  int64_t first_leaf_ = 0;
};

inline NodeSource queries_of(const Call& call) {
  return {Source(call.p.q, call.p.storage, call.p.dim), call.mean_q, call.p.heads, call.dim};
}

inline float& t_of(const Call& call, const WalkNode& node, int64_t h) {
  return node.is_leaf() ? call.log_sums[node.first_leaf * call.p.heads + h]
                        : call.energies[node.inner * call.p.heads + h];
}

inline void add_row(float weight, const float* row, int64_t channels, float* to) {
  const F f;
  for_each_vector(channels,
                  [&](RowPart part) { part.store(hn::MulAdd(hn::Set(f, weight), part.load(row), part.load(to)), to); });
}

// The mean queries that a tile's lanes look with, level by level.
class MeanQueries {
 public:
  // `q_rows` are the leaves' own.
  MeanQueries(const Call& call, const LeafTile& tile, int64_t h, const float* const* q_rows, Scratch& s)
      : call_(call), tile_(tile), h_(h), q_rows_(q_rows), channels_(in_lanes(call.p.dim)), copy_(s.staged[6]) {
    for (int64_t l = 0; l < kLanes; ++l) rows_[l] = s.staged[5] + l * call.dim;
    before_ = s.staged[5] + kLanes * call.dim;
    std::fill_n(before_, channels_, 0.0f);
  }

  // Of the lanes of a step; the others are not touched.
  const float* const* rows(const Step& step) {
    const F f;
    const auto nodes = call_.p.walk.nodes;
    for_each_vector(channels_, [&](RowPart part) {
      int64_t child = step.first_child;
      V sum = nodes[child].first_leaf < tile_.first ? part.load(before_) : hn::Zero(f);
      for (int64_t l = step.begin; l < step.end; ++l) {
        const int64_t leaf = tile_.first + l;
        sum = hn::Add(sum, part.load(q_rows_[l]));
        const V share = hn::Set(f, 1.0f / static_cast<float>(leaf + 1 - nodes[child].first_leaf));
        part.store(hn::Mul(sum, share), rows_[l]);
        if (leaf + 1 < end_of(nodes[child])) continue;
        ++child;
        sum = hn::Zero(f);
      }
    });
    return rows_;
  }

  // From the ancestor of the first lane to the ancestor's parent: leaves before the tile join the sum.
  void widen(const Step& step) {
    if (step.begin > 0 || step.family->parent < 0) return;
    const auto nodes = call_.p.walk.nodes;
    const NodeSource q = queries_of(call_);
    for (int64_t n = step.family->first_child; n < step.first_child; ++n) {
      add_row(static_cast<float>(nodes[n].size), q.read(nodes[n], h_, copy_), channels_, before_);
    }
  }

 private:
  const Call& call_;
  const LeafTile& tile_;
  const int64_t h_;
  const float* const* q_rows_;
  const int64_t channels_;
  float *copy_, *before_;
  float* rows_[kLanes];
};

// e of the step's parent, seen from each lane, in place of t; t of nodes that end in the tile is kept where `keeps`.
inline void mean_energies(const Call& call, const LeafTile& tile, const Step& step, int64_t h, bool keeps, float* t) {
  const auto nodes = call.p.walk.nodes;
  int64_t child = step.first_child;
  double complete = 0;  // larger than any t
  for (int64_t n = step.family->first_child; n < child; ++n) {
    complete += static_cast<double>(nodes[n].size) * t_of(call, nodes[n], h);
  }
  for (int64_t l = step.begin; l < step.end; ++l) {
    const int64_t leaf = tile.first + l;
    const double here = static_cast<double>(leaf + 1 - nodes[child].first_leaf) * t[l];
    const bool is_last = leaf + 1 == end_of(nodes[child]);
    if (is_last && keeps) t_of(call, nodes[child], h) = t[l];
    t[l] = static_cast<float>((complete + here) / static_cast<double>(leaf + 1 - step.family->first_leaf));
    if (!is_last) continue;
    complete += here;
    ++child;
  }
}

inline void interleave_lanes(const Step& step, const float* const* rows, int64_t channels, const Scratch& s) {
  const float* all[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) all[l] = l >= step.begin && l < step.end ? rows[l] : s.zeros;
  interleave_rows(all, channels, s.columns);
}

// visit(first key) for the blocks of a step's keys, gathered in `keys`.
template <class Visit>
void for_each_key_block(const Call& call, const LeafTile& tile, const Step& step, int64_t h, Scratch& s, KeyBlock& keys,
                        const Visit& visit) {
  keys.lane_begin = step.begin, keys.lane_end = step.end;
  for (int64_t j = 0; j < step.num_keys; j += kKeyBlock) {
    gather_keys(call, tile, step.family->first_child + j, std::min(kKeyBlock, step.num_keys - j), h, s, keys);
    visit(j);
  }
}

}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
