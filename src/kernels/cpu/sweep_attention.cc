// Untied queries in one way over the leaves, for every instruction set.
#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sweep_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/simd/sweep-inl.h"
#include "kernels/cpu/sweep_attention.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {
namespace {

// A node that lanes [from, to) of a tile look at, but not lane `hole`.
struct SeenNode {
  const WalkNode* node;
  const char *k, *v;  // of the first head
  int64_t k_head_bytes, v_head_bytes;
  float log_size;
  int64_t from, to;
  int64_t hole;  // -1: none

  bool is_plain(const LeafTile& tile) const { return from == 0 && to == tile.count && hole < 0; }
};

// All that the leaves of a tile see, in one list: the siblings of their ancestors, and the leaves inside their windows.
class SeenNodes {
 public:
  SeenNodes(const Call& call, const WalkNode& root)
      : call_(call), root_(root), k_(keys_of(call)), v_(values_of(call)), window_(std::min(call.p.window, root.size)) {}

  void collect(const LeafTile& tile) {
    const bool is_causal = call_.p.causal != Causal::none;
    nodes_.clear();
    first_leaf_ = tile.first;
    if (window_ == 0 && is_causal) {
      add_left(tile.first, 0, tile.count, /*is_self_seen=*/true);
    } else {
      // beyond the edges of their windows leaves see what there is to see from those places
      const int64_t left = tile.first - window_, right = tile.first + window_;
      const int64_t begin = std::max<int64_t>(0, root_.first_leaf - left);
      if (begin < tile.count) add_left(left, begin, tile.count, /*is_self_seen=*/false);
      const int64_t end = std::min(tile.count, end_of(root_) - right);
      if (!is_causal && end > 0) add_right(right, end);
      add_band(tile, is_causal ? 0 : window_);
    }
    std::fill_n(reach_, kLanes, 0);
    for (int64_t j = 0; j < count(); ++j) reach_[nodes_[j].from] = j + 1;
    for (int64_t l = 1; l < kLanes; ++l) reach_[l] = std::max(reach_[l], reach_[l - 1]);
  }

  int64_t count() const { return static_cast<int64_t>(nodes_.size()); }
  const SeenNode& operator[](int64_t i) const { return nodes_[i]; }
  int64_t first_leaf() const { return first_leaf_; }  // of those that are leaves
  // A lane looks at none of the nodes from here on: what only later lanes see stands at the end where possible.
  int64_t reach(int64_t lane) const { return reach_[lane]; }

 private:
  void add(const WalkNode& node, int64_t from, int64_t to, int64_t hole = -1) {
    SeenNode seen = {&node, nullptr, nullptr, 0, 0, 0, from, to, hole};
    if (node.is_leaf()) {
      first_leaf_ = std::min(first_leaf_, node.first_leaf);
      seen.k = k_.leaves.at(node.first_leaf, 0), seen.v = v_.leaves.at(node.first_leaf, 0);
      seen.k_head_bytes = k_.leaves.head_bytes(), seen.v_head_bytes = v_.leaves.head_bytes();
    } else {
      constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
      seen.k = reinterpret_cast<const char*>(k_.means + node.inner * k_.heads * k_.width);
      seen.v = reinterpret_cast<const char*>(v_.means + node.inner * v_.heads * v_.width);
      seen.k_head_bytes = k_.width * kFloat, seen.v_head_bytes = v_.width * kFloat;
      seen.log_size = std::log(static_cast<float>(node.size));
    }
    nodes_.push_back(seen);
  }

  // The families above places [base + begin, base + end), each once: visit(family, first lane, lane behind the last).
  // Of each place from the root down.
  template <class Visit>
  void for_each_family_above(int64_t base, int64_t begin, int64_t end, const Visit& visit) {
    const auto nodes = call_.p.walk.nodes;
    for (int64_t l = begin; l < end; ++l) {
      above_.clear();
      for (int64_t n = nodes[call_.p.walk.leaf_nodes[base + l]].parent; n >= 0; n = nodes[n].parent) {
        if (l > begin && nodes[n].first_leaf < base + l) break;  // an earlier lane was here, and above
        above_.push_back(&nodes[n]);
      }
      for (size_t i = above_.size(); i-- > 0;) visit(*above_[i], l, std::min(end, end_of(*above_[i]) - base));
    }
  }

  void add_left(int64_t base, int64_t begin, int64_t end, bool is_self_seen) {
    const auto nodes = call_.p.walk.nodes;
    for_each_family_above(base, begin, end, [&](const WalkNode& family, int64_t lane_begin, int64_t lane_end) {
      for (int64_t c = family.first_child; c < family.first_child + family.num_children; ++c) {
        const WalkNode& child = nodes[c];
        const int64_t from = (child.is_leaf() && is_self_seen ? child.first_leaf : end_of(child)) - base;
        if (from >= lane_end) break;
        add(child, std::max(from, lane_begin), lane_end);
      }
    });
  }

  void add_right(int64_t base, int64_t end) {
    const auto nodes = call_.p.walk.nodes;
    for_each_family_above(base, 0, end, [&](const WalkNode& family, int64_t lane_begin, int64_t lane_end) {
      for (int64_t c = family.first_child + family.num_children - 1; c >= family.first_child; --c) {
        const int64_t to = std::min(lane_end, nodes[c].first_leaf - base);
        if (to <= lane_begin) break;
        add(nodes[c], lane_begin, to);
      }
    });
  }

  void add_band(const LeafTile& tile, int64_t right) {
    const int64_t end = std::min(end_of(root_), tile.first + tile.count + right);
    for (int64_t j = std::max(root_.first_leaf, tile.first - window_); j < end; ++j) {
      const int64_t lane = j - tile.first;
      add(call_.p.walk.nodes[call_.p.walk.leaf_nodes[j]], std::max<int64_t>(0, lane - right),
          std::min(tile.count, lane + window_ + 1), call_.p.include_self ? -1 : lane);
    }
  }

  const Call& call_;
  const WalkNode& root_;
  const NodeSource k_, v_;
  const int64_t window_;
  std::vector<SeenNode> nodes_;
  std::vector<const WalkNode*> above_;
  int64_t reach_[kLanes];
  int64_t first_leaf_ = 0;
};

// Up to kKeyBlock of them, for one head.
struct SeenBlock {
  int64_t first = 0, count = 0;
  const float* k[kKeyBlock];
  const float* v[kKeyBlock];
};

void read_block(const Call& call, const SeenNodes& seen, int64_t first, int64_t g, Scratch& s, SeenBlock& block) {
  const AttentionParams& p = call.p;
  const Source k(p.k, p.storage, p.dim), v(p.v, p.storage, p.value_dim);
  block.first = first, block.count = std::min(kKeyBlock, seen.count() - first);
  for (int64_t j = 0; j < block.count; ++j) {
    const SeenNode& node = seen[first + j];
    const char *k_row = node.k + g * node.k_head_bytes, *v_row = node.v + g * node.v_head_bytes;
    block.k[j] = reinterpret_cast<const float*>(k_row), block.v[j] = reinterpret_cast<const float*>(v_row);
    if (!node.node->is_leaf()) continue;
    if (!k.is_direct) {
      float* copy = s.staged[1] + j * call.dim;
      widen_rows(k.storage, k_row, 0, 1, k.dim, copy, 0);
      block.k[j] = copy;
    }
    if (!v.is_direct) {
      float* copy = s.staged[2] + j * call.value_dim;
      widen_rows(v.storage, v_row, 0, 1, v.dim, copy, 0);
      block.v[j] = copy;
    }
  }
}

// How many nodes of a block each lane has to look through.
void count_terms(const SeenNodes& seen, const SeenBlock& block, int64_t* terms_of_row) {
  for (int64_t l = 0; l < kLanes; ++l) {
    terms_of_row[l] = std::clamp<int64_t>(seen.reach(l) - block.first, 0, block.count);
  }
}

// Scores to[j][lane] of a block, -inf where a lane does not look; and the largest a lane has.
V score_seen(const Call& call, const SeenNodes& seen, const LeafTile& tile, const SeenBlock& block, V most, Scratch& s,
             float* to, RowsAhead& ahead) {
  const F f;
  dot_blocks(s.columns, block.k, block.count, in_lanes(call.p.dim), call.p.scale, to, kLanes, ahead);
  const V lane = hn::Iota(f, 0), hidden = hn::Set(f, kMinusInfinity);
  const auto number = [&](int64_t n) { return hn::Set(f, static_cast<float>(n)); };
  for (int64_t j = 0; j < block.count; ++j) {
    const SeenNode& node = seen[block.first + j];
    V score = hn::Add(hn::Load(f, to + j * kLanes), hn::Set(f, node.log_size));
    if (!node.is_plain(tile)) {
      M sees = hn::And(hn::Ge(lane, number(node.from)), hn::Lt(lane, number(node.to)));
      if (node.hole >= 0) sees = hn::AndNot(hn::Eq(lane, number(node.hole)), sees);
      score = hn::IfThenElse(sees, score, hidden);
    }
    most = hn::Max(most, score);
    hn::Store(score, f, to + j * kLanes);
  }
  return most;
}

// exp(s - shift) in place of the scores; their sum.
V exp_of_scores(int64_t count, V shift, float* scores) {
  const F f;
  V sum = hn::Zero(f);
  for (int64_t j = 0; j < count; ++j) {
    const V weight = exp_of_score(hn::Load(f, scores + j * kLanes), shift);
    sum = hn::Add(sum, weight);
    hn::Store(weight, f, scores + j * kLanes);
  }
  return sum;
}

V finite_shift(V most) {
  return hn::IfThenZeroElse(hn::Eq(most, hn::Set(F(), kMinusInfinity)), most);
}

void scale_rows(const float* factors, int64_t count, int64_t channels, float* const* rows) {
  const F f;
  for (int64_t r = 0; r < count; ++r) {
    if (factors[r] == 1.0f) continue;
    const V factor = hn::Set(f, factors[r]);
    for_each_vector(channels, [&](RowPart part) { part.store(hn::Mul(part.load(rows[r]), factor), rows[r]); });
  }
}

// Output and log-sum of one tile and head.
void attend(const Call& call, const SeenNodes& seen, const LeafTile& tile, int64_t h, Scratch& s, RowsAhead& ahead) {
  const F f;
  const AttentionParams& p = call.p;
  const Source q(p.q, p.storage, p.dim);
  const Target out(call.out, p.storage, p.value_dim);
  const int64_t channels = in_lanes(p.value_dim);
  const float* q_rows[kLanes];
  float* rows[kLanes];
  gather_tile(q, tile, h, call.dim, s.staged[0], s, q_rows, s.columns);
  for (int64_t l = 0; l < tile.count; ++l) rows[l] = out.row(tile.first + l, h, s.staged[4] + l * call.value_dim);

  SeenBlock block;
  V most = hn::Set(f, kMinusInfinity), sum = hn::Zero(f);
  HWY_ALIGN float factors[kLanes];
  int64_t terms_of_row[kLanes];
  Combination combination;
  combination.a = s.scores, combination.term_step = kLanes;
  combination.row_scale = factors, combination.terms = block.v;
  combination.terms_of_row = terms_of_row;
  const bool is_one_block = seen.count() <= kKeyBlock;
  for (int64_t first = 0; first < seen.count(); first += kKeyBlock) {
    read_block(call, seen, first, h / call.group, s, block);
    const V more = score_seen(call, seen, tile, block, most, s, s.scores, ahead);
    const V shift = finite_shift(more);
    const V shrink = exp_lanes(hn::Sub(most, shift));
    sum = hn::MulAdd(sum, shrink, exp_of_scores(block.count, shift, s.scores));
    most = more;
    if (first > 0) {
      hn::Store(shrink, f, factors);
      scale_rows(factors, tile.count, channels, rows);
    }
    const V inverse = hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(f)), hn::Div(hn::Set(f, 1.0f), sum));
    hn::Store(is_one_block ? inverse : hn::Set(f, 1.0f), f, factors);
    count_terms(seen, block, terms_of_row);
    combination.adds = first > 0, combination.hides = true;
    combination.streams = is_one_block && call.streams && out.is_direct;
    combine_rows(combination, tile.count, channels, rows, ahead);
  }
  const M is_empty = hn::Eq(sum, hn::Zero(f));
  HWY_ALIGN float log_sums[kLanes];
  hn::Store(hn::IfThenElse(is_empty, hn::Set(f, kMinusInfinity), hn::Add(most, log_lanes(sum))), f, log_sums);
  hn::Store(hn::IfThenZeroElse(is_empty, hn::Div(hn::Set(f, 1.0f), sum)), f, factors);
  if (seen.count() == 0) {
    for (int64_t l = 0; l < tile.count; ++l) std::fill_n(rows[l], channels, 0.0f);
  } else if (!is_one_block) {
    scale_rows(factors, tile.count, channels, rows);
  }
  for (int64_t l = 0; l < tile.count; ++l) {
    call.log_sums[(tile.first + l) * p.heads + h] = log_sums[l];
    out.finish(tile.first + l, h, rows[l]);
  }
}

void sweep_forward_impl(const Call& call, int64_t n, HeadRange range, Scratch& s) {
  const WalkNode& root = call.p.walk.nodes[n];
  const auto pool = [&](int64_t begin, int64_t end, HeadRange heads) {
    for (int64_t l = begin; l < end; ++l) {
      for_each_closing(call, l, [&](const WalkNode& node) { pool_keys(call, node, heads, s); });
    }
  };
  const bool looks_right = call.p.causal == Causal::none;
  if (looks_right) pool(root.first_leaf, end_of(root), range);
  SeenNodes seen(call, root);
  RowsAhead::Plan plan(root, range, call.group);
  plan.add_keys(Source(call.p.k, call.p.storage, call.p.dim));
  plan.add_keys(Source(call.p.v, call.p.storage, call.p.value_dim));
  plan.add_queries(Source(call.p.q, call.p.storage, call.p.dim));
  for_each_tile(root, [&](const LeafTile& tile) {
    const int64_t last = tile.first + tile.count - 1;
    if (!looks_right) pool(tile.first, last, range);
    seen.collect(tile);
    plan.start(tile.first + kLanes);
    RowsAhead ahead(plan);
    for (int64_t g = range.key_begin; g < range.key_end; ++g) {
      for (int64_t h = g * call.group; h < (g + 1) * call.group; ++h) attend(call, seen, tile, h, s, ahead);
      // only later tiles see the nodes that end here; their rows are still near
      if (!looks_right) pool(last, last + 1, {g, g + 1});
    }
  });
}

// k̄ += scale s̄ q and v̄ += p ȳ of a block.
void add_to_seen(const Call& call, const SeenNodes& seen, const SeenBlock& block, const LeafTile& tile, int64_t g,
                 const float* s_bar, const float* weights, const float* const* q_rows, const float* const* y_rows,
                 const KeyGradients& sums, RowsAhead& ahead) {
  const AttentionParams& p = call.p;
  float *k_rows[kKeyBlock], *v_rows[kKeyBlock];
  HWY_ALIGN float scales[kKeyBlock], ones[kKeyBlock];
  for (int64_t j = 0; j < block.count; ++j) {
    const WalkNode& node = *seen[block.first + j].node;
    k_rows[j] = sums.k.at(node, g), v_rows[j] = sums.v.at(node, g);
    scales[j] = p.scale, ones[j] = 1;
  }
  Combination combination;
  combination.adds = combination.hides = true;
  combination.row_step = kLanes;
  combination.num_terms = tile.count;
  combination.a = s_bar, combination.terms = q_rows, combination.row_scale = scales;
  combine_rows(combination, block.count, in_lanes(p.dim), k_rows, ahead);
  combination.a = weights, combination.terms = y_rows, combination.row_scale = ones;
  combine_rows(combination, block.count, in_lanes(p.value_dim), v_rows, ahead);
}

// Gradients of one tile's queries, and of all it sees.
void attend_backward(const Call& call, const SeenNodes& seen, const LeafTile& tile, float root_slope, int64_t h,
                     const KeyGradients& sums, Scratch& s, RowsAhead& ahead) {
  const F f;
  const AttentionParams& p = call.p;
  const Source q(p.q, p.storage, p.dim), grad_out(call.grad_out, p.storage, p.value_dim);
  const Target grad_q(call.grad_q, p.storage, p.dim);
  const int64_t g = h / call.group, channels = in_lanes(p.dim);
  const float *q_rows[kLanes], *y_rows[kLanes];
  float* rows[kLanes];
  gather_tile(q, tile, h, call.dim, s.staged[0], s, q_rows, s.columns);
  gather_tile(grad_out, tile, h, call.value_dim, s.staged[3], s, y_rows, s.y_columns);
  const V shift = finite_shift(load_leaves(call.log_sums, call, tile, h)), slope = hn::Set(f, root_slope);
  SeenBlock block;
  V dot = hn::Zero(f), sum = hn::Zero(f);
  for (int64_t first = 0; first < seen.count(); first += kKeyBlock) {
    float *weights = s.path_weights + first * kLanes, *products = s.path_products + first * kLanes;
    read_block(call, seen, first, g, s, block);
    score_seen(call, seen, tile, block, shift, s, weights, ahead);
    sum = hn::Add(sum, exp_of_scores(block.count, shift, weights));
    dot_blocks(s.y_columns, block.v, block.count, in_lanes(p.value_dim), 1.0f, products, kLanes);
    for (int64_t j = 0; j < block.count; ++j) {
      const V weight = hn::Load(f, weights + j * kLanes);
      dot = hn::MulAdd(weight, where_seen(weight, hn::Load(f, products + j * kLanes)), dot);
    }
  }
  // the weights sum to 1 only up to the rounding of log_sum, which would not cancel against the products
  dot = hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(f)), hn::Div(dot, sum));

  HWY_ALIGN float scales[kLanes];
  int64_t terms_of_row[kLanes];
  std::fill_n(scales, kLanes, p.scale);
  for (int64_t l = 0; l < tile.count; ++l) {
    rows[l] = grad_q.row(tile.first + l, h, s.staged[4] + l * call.dim);
    if (seen.count() == 0) std::fill_n(rows[l], channels, 0.0f);
  }
  for (int64_t first = 0; first < seen.count(); first += kKeyBlock) {
    float *weights = s.path_weights + first * kLanes, *s_bar = s.path_products + first * kLanes;
    if (seen.count() > kKeyBlock) read_block(call, seen, first, g, s, block);
    for (int64_t j = 0; j < block.count; ++j) {
      const V weight = hn::Load(f, weights + j * kLanes);
      const V change = hn::Add(slope, hn::Sub(hn::Load(f, s_bar + j * kLanes), dot));
      hn::Store(hn::Mul(weight, where_seen(weight, change)), f, s_bar + j * kLanes);
    }
    count_terms(seen, block, terms_of_row);
    Combination combination;
    combination.a = s_bar, combination.term_step = kLanes;
    combination.terms = block.k, combination.terms_of_row = terms_of_row;
    combination.row_scale = scales, combination.adds = first > 0, combination.hides = true;
    combine_rows(combination, tile.count, channels, rows);
    add_to_seen(call, seen, block, tile, g, s_bar, weights, q_rows, y_rows, sums, ahead);
  }
  for (int64_t l = 0; l < tile.count; ++l) grad_q.finish(tile.first + l, h, rows[l]);
}

void sweep_backward_impl(const Call& call, int64_t n, HeadRange range, Scratch& s) {
  const AttentionParams& p = call.p;
  const WalkNode& root = p.walk.nodes[n];
  KeyGradients sums(call, root, range, s);
  const bool looks_right = p.causal == Causal::none;
  if (looks_right) sums.clear_from(root.first_leaf);
  SeenNodes seen(call, root);
  RowsAhead::Plan plan(root, range, call.group);
  plan.add_queries(Source(p.q, p.storage, p.dim));
  plan.add_keys(Source(p.k, p.storage, p.dim));
  plan.add_queries(Source(call.grad_out, p.storage, p.value_dim));
  plan.add_keys(Source(p.v, p.storage, p.value_dim));
  for_each_tile_back(root, [&](const LeafTile& tile) {
    seen.collect(tile);
    sums.clear_from(seen.first_leaf());
    plan.start(tile.first - kLanes);
    RowsAhead ahead(plan);
    for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
      const float slope = call.grad_root_energy[n * p.heads + h] / static_cast<float>(root.size);
      attend_backward(call, seen, tile, slope, h, sums, s, ahead);
    }
    if (!looks_right) sums.finish(tile);
  });
  if (looks_right) for_each_tile_back(root, [&](const LeafTile& tile) { sums.finish(tile); });
}

}  // namespace
}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ramify::cpu {

bool is_swept(const AttentionParams& p) {
  return p.tie == Tie::none && p.position_dim == 0 && (p.causal != Causal::none || p.window > 0);
}

RAMIFY_CPU_STEP(sweep_forward, int64_t)
RAMIFY_CPU_STEP(sweep_backward, int64_t)

}  // namespace ramify::cpu
#endif
