#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "kernels/reference/distribution.h"

namespace ramify::reference {
namespace {

template <class Real>
using Vector = std::vector<Real>;

template <class Real>
Real dot(const Vector<Real>& a, const Vector<Real>& b) {
  Real sum = 0;
  for (size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}

template <class Real>
void add_scaled(Vector<Real>& target, const Real& factor, const Vector<Real>& vector) {
  for (size_t c = 0; c < target.size(); ++c) target[c] += factor * vector[c];
}

// The inputs of all heads as scalars of one kind.
template <class Real>
struct Inputs {
  std::vector<Real> q, k, v, positions, alpha;
};

// One head, in the notation of docs/algorithm.md, sections 1 to 7. Nodes are numbered parents first, so a
// loop that runs down the numbers is bottom-up and one that runs up is top-down; nothing recurses.
template <class Real>
class Head {
 public:
  Head(const AttentionParams& params, const Inputs<Real>& inputs, int64_t head)
      : params_(params), forest_(params.forest), inputs_(inputs), size_(forest_.leaf_counts()) {
    const int64_t key_head = head / (params.heads / params.key_heads);
    const int64_t num_nodes = forest_.num_nodes();
    const auto row = [](const std::vector<Real>& array, int64_t index, int64_t width) {
      return Vector<Real>(array.begin() + index * width, array.begin() + (index + 1) * width);
    };
    q_.resize(num_nodes), k_.resize(num_nodes), v_.resize(num_nodes), eps_.resize(num_nodes);
    for (int64_t i = 0; i < forest_.num_leaves(); ++i) {
      const int64_t node = forest_.leaf_nodes()[i];
      q_[node] = row(inputs.q, i * params.heads + head, params.dim);
      k_[node] = row(inputs.k, i * params.key_heads + key_head, params.dim);
      v_[node] = row(inputs.v, i * params.key_heads + key_head, params.value_dim);
    }
    for (int64_t n = 0; n < num_nodes; ++n) {
      const int64_t index = params.position_index.empty() ? -1 : params.position_index[n];
      eps_[n] = index < 0 ? Vector<Real>(params.position_dim, Real(0))
                          : row(inputs.positions, index * params.heads + head, params.position_dim);
    }
    for (int64_t n = num_nodes - 1; n >= 0; --n) take_means(n);
    depth_.assign(num_nodes, 0);
    parent_ = forest_.parents();
    for (int64_t n = 0; n < num_nodes; ++n) depth_[n] = parent_[n] < 0 ? 0 : depth_[parent_[n]] + 1;
    energy_.assign(forest_.num_trees(), std::nullopt);
    out_.assign(forest_.num_leaves(), Vector<Real>(params.value_dim, Real(0)));
  }

  void run() {
    if (params_.tie == Tie::none) {
      untied();
    } else if (params_.causal == Causal::prefix) {
      prefix();
    } else {
      upward();
      downward();
    }
  }

  const std::vector<Vector<Real>>& out() const { return out_; }
  const std::vector<std::optional<Real>>& energy() const { return energy_; }

 private:
  int64_t children_begin(int64_t node) const { return forest_.first_child()[node]; }
  int64_t children_end(int64_t node) const { return forest_.first_child()[node + 1]; }
  Real size(int64_t node) const { return Real(static_cast<double>(size_[node])); }
  Real alpha(int64_t child) const {
    return inputs_.alpha.size() == 1 ? inputs_.alpha[0] : inputs_.alpha[depth_[child] - 1];
  }

  // Siblings that a node may look at, as a range of the family's nodes; the node itself is left out by the
  // caller.
  int64_t visible_end(int64_t node) const {
    return params_.causal == Causal::none ? children_end(parent_[node]) : node;
  }

  Real score(const Vector<Real>& query, int64_t from, int64_t to) const {
    return Real(params_.scale) * dot(query, k_[to]) + dot(eps_[from], eps_[to]) +
           Real(std::log(static_cast<double>(size_[to])));
  }
  Real self_score(int64_t leaf_node) const {
    return Real(params_.scale) * dot(q_[leaf_node], k_[leaf_node]) + dot(eps_[leaf_node], eps_[leaf_node]);
  }

  // rho_q, rho_k, rho_v of an inner node: plain means over its leaves.
  void take_means(int64_t node) {
    if (forest_.is_leaf(node)) return;
    q_[node].assign(params_.dim, Real(0)), k_[node].assign(params_.dim, Real(0));
    v_[node].assign(params_.value_dim, Real(0));
    for (int64_t c = children_begin(node); c < children_end(node); ++c) {
      const Real share = size(c) / size(node);
      add_scaled(q_[node], share, q_[c]);
      add_scaled(k_[node], share, k_[c]);
      add_scaled(v_[node], share, v_[c]);
    }
  }

  // What a node does with its attention: `stay` is the mass m kept for what is below it, `spread` the sum w·a
  // over its siblings, `energy` t. No energy: there is nothing to attend to, and both are zero.
  struct Step {
    Real stay = 0;
    Vector<Real> spread;
    std::optional<Real> energy;
  };

  Step step(const Vector<Real>& query, int64_t node, const std::optional<Real>& e) const {
    Step step;
    step.spread.assign(params_.value_dim, Real(0));
    std::vector<Real> entries;
    std::vector<int64_t> siblings;
    if (e) entries.push_back(*e);
    if (parent_[node] >= 0) {
      for (int64_t b = children_begin(parent_[node]); b < visible_end(node); ++b) {
        if (b == node) continue;
        siblings.push_back(b);
        entries.push_back(score(query, node, b));
      }
    }
    if (entries.empty()) return step;
    // A node without visible siblings passes on what it has, whatever alpha is.
    const auto weights = siblings.empty() ? softmax(entries) : distribution(entries, alpha(node));
    step.energy = weights.energy;
    if (e) step.stay = weights.weights[0];
    for (size_t b = 0; b < siblings.size(); ++b) {
      add_scaled(step.spread, weights.weights[b + (e ? 1 : 0)], v_[siblings[b]]);
    }
    return step;
  }

  // Section 2, bottom-up: e of every node and the step of every child.
  void upward() {
    e_.assign(forest_.num_nodes(), std::nullopt);
    steps_.resize(forest_.num_nodes());
    for (int64_t n = forest_.num_nodes() - 1; n >= 0; --n) {
      if (forest_.is_leaf(n)) {
        if (params_.include_self) e_[n] = self_score(n);
        continue;
      }
      e_[n] = Real(0);
      for (int64_t c = children_begin(n); c < children_end(n); ++c) {
        steps_[c] = step(q_[c], c, e_[c]);
        if (!steps_[c].energy) e_[n] = std::nullopt;  // an only child with nothing to attend to
        if (e_[n]) e_[n] = *e_[n] + size(c) / size(n) * *steps_[c].energy;
      }
    }
    for (int64_t t = 0; t < forest_.num_trees(); ++t) {
      if (tree_size(t) > 0) energy_[t] = e_[forest_.tree_begin()[t]];
    }
  }

  // Section 2, top-down: what each node gathered (y) and the mass left for what is below it (pi).
  void downward() {
    const Vector<Real> nothing(params_.value_dim, Real(0));
    std::vector<Vector<Real>> y(forest_.num_nodes(), nothing);
    std::vector<Real> pi(forest_.num_nodes(), Real(1));
    for (int64_t n = 0; n < forest_.num_nodes(); ++n) {
      for (int64_t c = children_begin(n); c < children_end(n); ++c) {
        y[c] = y[n];
        add_scaled(y[c], pi[n], steps_[c].spread);
        pi[c] = pi[n] * steps_[c].stay;
      }
      if (!forest_.is_leaf(n)) continue;
      if (params_.include_self) add_scaled(y[n], pi[n], v_[n]);
      out_[forest_.first_leaf()[n]] = y[n];
    }
  }

  // Section 6: one distribution over the siblings of all ancestors. The energy is the mean over leaves.
  void untied() {
    for (int64_t t = 0; t < forest_.num_trees(); ++t) {
      for (int64_t i = 0; i < tree_size(t); ++i) {
        const std::optional<Real> energy = untied_row(tree_first_leaf(t) + i);
        if (!energy) continue;  // the only leaf of a tree
        const Real share = *energy / Real(static_cast<double>(tree_size(t)));
        energy_[t] = energy_[t] ? *energy_[t] + share : share;
      }
    }
  }

  std::optional<Real> untied_row(int64_t leaf) {
    const int64_t leaf_node = forest_.leaf_nodes()[leaf];
    std::vector<Real> entries;
    std::vector<int64_t> nodes;
    if (params_.include_self) {
      entries.push_back(self_score(leaf_node));
      nodes.push_back(leaf_node);
    }
    for (const int64_t b : params_.window > 0 ? seen_through_window(leaf) : std::vector<int64_t>()) {
      entries.push_back(score(q_[leaf_node], leaf_node, b));  // there are no positions
      nodes.push_back(b);
    }
    for (int64_t a = leaf_node; parent_[a] >= 0 && params_.window == 0; a = parent_[a]) {
      for (int64_t b = children_begin(parent_[a]); b < visible_end(a); ++b) {
        if (b == a) continue;
        entries.push_back(score(q_[leaf_node], a, b));
        nodes.push_back(b);
      }
    }
    if (entries.empty()) return std::nullopt;
    const auto weights = distribution(entries, inputs_.alpha[0]);
    for (size_t b = 0; b < nodes.size(); ++b) add_scaled(out_[leaf], weights.weights[b], v_[nodes[b]]);
    return weights.energy;
  }

  // Section 6, window: all that a leaf sees but itself. A node that has some leaves inside the window is opened.
  std::vector<int64_t> seen_through_window(int64_t leaf) const {
    const bool is_causal = params_.causal != Causal::none;
    const int64_t first = leaf - params_.window, last = is_causal ? leaf : leaf + params_.window;
    int64_t root = forest_.leaf_nodes()[leaf];
    while (parent_[root] >= 0) root = parent_[root];
    std::vector<int64_t> seen, open = {root};
    while (!open.empty()) {
      const int64_t node = open.back();
      open.pop_back();
      const int64_t node_first = forest_.first_leaf()[node], node_last = node_first + size_[node] - 1;
      if ((is_causal && node_first > leaf) || (forest_.is_leaf(node) && node_first == leaf)) continue;
      if (forest_.is_leaf(node) || node_last < first || node_first > last) {
        seen.push_back(node);
        continue;
      }
      for (int64_t c = children_end(node) - 1; c >= children_begin(node); --c) open.push_back(c);
    }
    return seen;
  }

  // Section 5, leaf by leaf. Per node: how many of its leaves have come, the sum of their queries, and the
  // sum of |C| t(C) over its complete children.
  void prefix() {
    const int64_t num_nodes = forest_.num_nodes();
    std::vector<double> count(num_nodes, 0);
    std::vector<Vector<Real>> query_sum(num_nodes, Vector<Real>(params_.dim, Real(0)));
    std::vector<Real> closed(num_nodes, Real(0));
    for (int64_t i = 0; i < forest_.num_leaves(); ++i) {
      const int64_t leaf_node = forest_.leaf_nodes()[i];
      Real e = self_score(leaf_node);
      Vector<Real> gathered = v_[leaf_node];  // what the part below the present node sees, were all mass its own
      int64_t a = leaf_node;
      for (;; a = parent_[a]) {
        count[a] += 1;
        add_scaled(query_sum[a], Real(1), q_[leaf_node]);
        if (parent_[a] < 0) break;
        Vector<Real> query(params_.dim, Real(0));
        add_scaled(query, Real(1 / count[a]), query_sum[a]);
        const Step here = step(query, a, e);
        Vector<Real> wider = here.spread;
        add_scaled(wider, here.stay, gathered);
        gathered = wider;
        const Real weighted = Real(count[a]) * *here.energy;
        e = (closed[parent_[a]] + weighted) / Real(count[parent_[a]] + 1);
        if (count[a] == static_cast<double>(size_[a])) closed[parent_[a]] += weighted;
      }
      out_[i] = gathered;
      if (count[a] == static_cast<double>(size_[a])) energy_[tree_of_root(a)] = e;
    }
  }

  int64_t tree_size(int64_t tree) const {
    const int64_t root = forest_.tree_begin()[tree];
    return forest_.tree_begin()[tree + 1] > root ? size_[root] : 0;
  }
  int64_t tree_first_leaf(int64_t tree) const { return forest_.first_leaf()[forest_.tree_begin()[tree]]; }
  int64_t tree_of_root(int64_t root) const {
    const auto begin = forest_.tree_begin();
    return std::upper_bound(begin.begin(), begin.end(), root) - begin.begin() - 1;
  }

  const AttentionParams& params_;
  const Forest& forest_;
  const Inputs<Real>& inputs_;
  std::vector<int64_t> size_, depth_, parent_;
  std::vector<Vector<Real>> q_, k_, v_, eps_;  // by node: rho_q, rho_k, rho_v, epsilon
  std::vector<std::optional<Real>> e_;
  std::vector<Step> steps_;
  std::vector<Vector<Real>> out_;            // by leaf
  std::vector<std::optional<Real>> energy_;  // by tree
};

std::vector<double> copy(std::span<const double> values) {
  return {values.begin(), values.end()};
}

}  // namespace

AttentionResult attention(const AttentionParams& params) {
  const Inputs<double> inputs = {copy(params.q), copy(params.k), copy(params.v), copy(params.positions),
                                 copy(params.alpha)};
  AttentionResult result;
  result.out.resize(params.forest.num_leaves() * params.heads * params.value_dim);
  result.energy.resize(params.forest.num_trees() * params.heads);
  for (int64_t h = 0; h < params.heads; ++h) {
    Head<double> head(params, inputs, h);
    head.run();
    for (int64_t i = 0; i < params.forest.num_leaves(); ++i) {
      for (int64_t c = 0; c < params.value_dim; ++c) {
        result.out[(i * params.heads + h) * params.value_dim + c] = head.out()[i][c];
      }
    }
    for (int64_t t = 0; t < params.forest.num_trees(); ++t) {
      result.energy[t * params.heads + h] = head.energy()[t].value_or(-INFINITY);
    }
  }
  return result;
}

AttentionGradients attention_backward(const AttentionParams& params, std::span<const double> grad_out,
                                      std::span<const double> grad_energy) {
  AttentionGradients gradients;
  const std::vector<std::pair<std::span<const double>, std::vector<double>*>> arrays = {
      {params.q, &gradients.q},
      {params.k, &gradients.k},
      {params.v, &gradients.v},
      {params.positions, &gradients.positions},
      {params.alpha, &gradients.alpha}};
  for (const auto& [values, gradient] : arrays) gradient->assign(values.size(), 0.0);

  for (int64_t h = 0; h < params.heads; ++h) {
    Tape tape;
    const auto record = [&](std::span<const double> values) {
      std::vector<Variable> variables;
      for (const double value : values) variables.emplace_back(tape, value);
      return variables;
    };
    const Inputs<Variable> inputs = {record(params.q), record(params.k), record(params.v), record(params.positions),
                                     record(params.alpha)};
    Head<Variable> head(params, inputs, h);
    head.run();

    std::vector<double> seed;
    const auto add_seed = [&](const Variable& result, double gradient) {
      if (result.id() < 0) return;
      if (result.id() >= static_cast<int64_t>(seed.size())) seed.resize(result.id() + 1, 0.0);
      seed[result.id()] += gradient;
    };
    for (int64_t i = 0; i < params.forest.num_leaves(); ++i) {
      for (int64_t c = 0; c < params.value_dim; ++c) {
        add_seed(head.out()[i][c], grad_out[(i * params.heads + h) * params.value_dim + c]);
      }
    }
    for (int64_t t = 0; t < params.forest.num_trees(); ++t) {
      if (head.energy()[t]) add_seed(*head.energy()[t], grad_energy[t * params.heads + h]);
    }
    const std::vector<double> by_entry = tape.backward(std::move(seed));
    int64_t entry = 0;  // inputs were recorded first, in the order of `arrays`
    for (const auto& [values, gradient] : arrays) {
      for (double& g : *gradient) g += by_entry[entry++];
    }
  }
  return gradients;
}

}  // namespace ramify::reference
