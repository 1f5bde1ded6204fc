// A tree that one thread takes from its first leaf to its last, some heads at a time, and back in the backward pass.
// When leaves only look to the left, a node's means are complete before anyone looks at it, and on the way back a node
// has all of its gradient when its last leaf is reached. So one way is enough in each direction.
#if defined(RAMIFY_CPU_SIMD_SWEEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RAMIFY_CPU_SIMD_SWEEP_INL_H_
#undef RAMIFY_CPU_SIMD_SWEEP_INL_H_
#else
#define RAMIFY_CPU_SIMD_SWEEP_INL_H_
#endif

#include <vector>

#include "kernels/cpu/simd/leaves-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {

inline int64_t end_of(const WalkNode& node) {
  return node.first_leaf + node.size;
}

// visit(node) for the inner nodes whose last leaf this is, children before parents.
template <class Visit>
HWY_INLINE void for_each_closing(const Call& call, int64_t leaf, const Visit& visit) {
  const auto nodes = call.p.walk.nodes;
  int64_t n = nodes[call.p.walk.leaf_nodes[leaf]].parent;
  for (; n >= 0 && end_of(nodes[n]) == leaf + 1; n = nodes[n].parent) visit(nodes[n]);
}

// Tiles of a tree's leaves; visit(tile).
template <class Visit>
void for_each_tile(const WalkNode& root, const Visit& visit) {
  for (int64_t first = root.first_leaf; first < end_of(root); first += kLanes) {
    visit(LeafTile{first, std::min(kLanes, end_of(root) - first)});
  }
}
template <class Visit>
void for_each_tile_back(const WalkNode& root, const Visit& visit) {
  for (int64_t first = root.first_leaf + (root.size - 1) / kLanes * kLanes; first >= root.first_leaf; first -= kLanes) {
    visit(LeafTile{first, std::min(kLanes, end_of(root) - first)});
  }
}

// Brings the rows of the tile that comes next nearer, some heads of some tensors, in the order of memory. Small, so
// that the loops can keep a copy in registers.
class RowsAhead {
 public:
  // What is still to come; shared by all copies.
  class Plan {
   public:
    Plan(const WalkNode& root, HeadRange range, int64_t group) : root_(root), range_(range), group_(group) {}

    void add_queries(const Source& source) { add(source, group_); }
    void add_keys(const Source& source) { add(source, 1); }

    // From now on these rows, as far as there are any.
    void start(int64_t first_leaf) {
      row_ = std::max(first_leaf, root_.first_leaf);
      end_ = std::max(row_, std::min(first_leaf + kLanes, end_of(root_)));
      first_ = row_;
      part_ = 0;
    }
    // The next row, or null.
    const char* next(const char*& end) {
      for (; part_ < num_parts_; ++part_, row_ = first_) {
        if (row_ == end_) continue;
        const char* begin = parts_[part_].begin + row_++ * parts_[part_].stride;
        end = begin + parts_[part_].bytes;
        return begin;
      }
      return nullptr;
    }

   private:
    struct Part {
      const char* begin;
      int64_t stride, bytes;
    };
    void add(const Source& source, int64_t heads) {
      constexpr int64_t kFarApart = 4096;  // one head of a row is too little to be worth it
      if (source.head_bytes() > kFarApart) return;
      const int64_t first = range_.key_begin * heads, count = (range_.key_end - range_.key_begin) * heads;
      parts_[num_parts_++] = {source.at(0, first), source.row_bytes(), (count - 1) * source.head_bytes() + 64};
    }

    const WalkNode& root_;
    const HeadRange range_;
    const int64_t group_;
    Part parts_[4];
    int num_parts_ = 0, part_ = 0;
    int64_t first_ = 0, row_ = 0, end_ = 0;
  };

  explicit RowsAhead(Plan& plan) : plan_(&plan) { next_row(); }

  template <int Lines>
  HWY_INLINE void step() {
    for (int l = 0; l < Lines; ++l) {
      __builtin_prefetch(at_, 0, 2);
      at_ += 64;
      if (HWY_UNLIKELY(at_ >= end_)) next_row();
    }
  }

 private:
  void next_row() {
    at_ = plan_->next(end_);
    if (!at_) at_ = kNothing, end_ = kNothing + 64;
  }

  static inline const char kNothing[64] = {};
  Plan* plan_;
  const char *at_, *end_;
};

// The gradients of keys and values of one tree, for some heads. Rows of leaves are cleared when they are first needed,
// and are finished when nothing more will come.
class KeyGradients {
 public:
  KeyGradients(const Call& call, const WalkNode& root, HeadRange range, const Scratch& s)
      : k(key_sums(call)), v(value_sums(call)), call_(call), range_(range), zeros_(s.zeros), cleared_(end_of(root)) {}

  const NodeSums k, v;

  // From this leaf on rows can be added to. Calls go from right to left.
  void clear_from(int64_t leaf) {
    const auto nodes = call_.p.walk.nodes;
    for (; cleared_ > leaf; --cleared_) {
      const WalkNode& node = nodes[call_.p.walk.leaf_nodes[cleared_ - 1]];
      for (int64_t g = range_.key_begin; g < range_.key_end; ++g) {
        std::fill_n(k.at(node, g), in_lanes(call_.p.dim), 0.0f);
        std::fill_n(v.at(node, g), in_lanes(call_.p.value_dim), 0.0f);
      }
    }
  }

  // A tile's leaves, and the nodes that end with one of them, have all of their own gradients, and so has what is right
  // of them: every leaf gets its share of those of its ancestors.
  void finish(const LeafTile& tile) {
    const auto nodes = call_.p.walk.nodes;
    for (int64_t l = tile.first + tile.count - 1; l >= tile.first; --l) {
      closing_.clear();
      for_each_closing(call_, l, [&](const WalkNode& node) { closing_.push_back(&node); });
      for (size_t i = closing_.size(); i-- > 0;) {
        if (closing_[i]->parent >= 0) add_share(*closing_[i]);
      }
      add_share(nodes[call_.p.walk.leaf_nodes[l]]);
    }
  }

 private:
  // grad(C) / |C| + what comes from above: what every leaf below C gets.
  void add_share(const WalkNode& node) {
    const WalkNode& parent = call_.p.walk.nodes[node.parent];
    const F f;
    const V share = hn::Set(f, 1.0f / static_cast<float>(node.size));
    for (const NodeSums* sums : {&k, &v}) {
      const int64_t channels = in_lanes(sums->leaves.dim);
      for (int64_t g = range_.key_begin; g < range_.key_end; ++g) {
        const float* above = parent.parent < 0 ? zeros_ : sums->at(parent, g);
        float* row = sums->at(node, g);
        for_each_vector(channels,
                        [&](RowPart part) { part.store(hn::MulAdd(part.load(row), share, part.load(above)), row); });
        if (!node.is_leaf() || sums->in_place) continue;
        const Target& to = sums->leaves;
        narrow_rows(to.storage, row, 0, 1, to.dim, const_cast<char*>(to.at(node.first_leaf, g)), 0);
      }
    }
  }

  const Call& call_;
  const HeadRange range_;
  const float* zeros_;
  int64_t cleared_;
  std::vector<const WalkNode*> closing_;
};

// Means of k and v of an inner node whose children have theirs.
inline void pool_keys(const Call& call, const WalkNode& node, HeadRange range, Scratch& s) {
  const NodeSource k = keys_of(call), v = values_of(call);
  for (int64_t g = range.key_begin; g < range.key_end; ++g) {
    const int64_t row = node.inner * call.p.key_heads + g;
    pool_node(call, k, node, g, s.staged[1], call.mean_k + row * call.dim);
    pool_node(call, v, node, g, s.staged[2], call.mean_v + row * call.value_dim);
  }
}

}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
