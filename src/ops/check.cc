// What a user can get wrong in a call of attention, checked once, before any work.
#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>
#include <c10/util/Exception.h>

#include <cmath>

#include "ops/problem.h"

namespace ramify {
namespace {

// require(condition, "k has ", heads, " heads, ..."): ValueError in Python, c10::ValueError in C++.
template <class... Args>
void require(bool condition, const Args&... message) {
  TORCH_CHECK_VALUE(condition, "attention: ", message...);
}

void check_rank(const at::Tensor& tensor, const char* name, const char* expected) {
  require(tensor.dim() == 3, name, " has shape ", tensor.sizes(), "; expected ", expected);
}

void check_same_kind(const at::Tensor& tensor, const char* name, const at::Tensor& q) {
  require(tensor.scalar_type() == q.scalar_type(), name, " is ", tensor.scalar_type(), ", q is ", q.scalar_type(),
          "; they must have one dtype");
  require(tensor.device() == q.device(), name, " is on ", tensor.device(), ", q is on ", q.device(),
          "; they must be on one device");
}

void check_inputs(const Problem& p) {
  check_rank(p.q, "q", "[leaves, heads, dim]");
  check_rank(p.k, "k", "[leaves, key heads, dim]");
  check_rank(p.v, "v", "[leaves, key heads, value dim]");
  const at::ScalarType dtype = p.q.scalar_type();
  require(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf, "q is ", dtype,
          "; expected float32, float64, bfloat16 or float16");
  check_same_kind(p.k, "k", p.q);
  check_same_kind(p.v, "v", p.q);
  require(p.q.size(1) > 0 && p.q.size(2) > 0, "q has shape ", p.q.sizes(),
          "; it needs at least one head and one dimension");
  require(p.k.size(1) > 0 && p.q.size(1) % p.k.size(1) == 0, "k has ", p.k.size(1), " heads, q has ", p.q.size(1),
          "; heads of k must divide heads of q");
  require(p.v.size(1) == p.k.size(1), "v has ", p.v.size(1), " heads, k has ", p.k.size(1), "; they must be equal");
  require(p.k.size(2) == p.q.size(2), "k has dimension ", p.k.size(2), ", q has ", p.q.size(2), "; they must be equal");
  require(p.k.size(0) == p.q.size(0) && p.v.size(0) == p.q.size(0), "q, k and v have ", p.q.size(0), ", ", p.k.size(0),
          " and ", p.v.size(0), " rows; they must be equal");
}

void check_forest(const Problem& p) {
  require(p.forest.size() == 3, "the forest has ", p.forest.size(),
          " arrays; expected first_child, level_begin and tree_begin");
  const char* names[] = {"first_child", "level_begin", "tree_begin"};
  for (size_t i = 0; i < p.forest.size(); ++i) {
    const at::Tensor& array = p.forest[i];
    require(array.dim() == 1 && array.numel() > 0 && array.scalar_type() == at::kLong && array.is_cpu() &&
                array.is_contiguous(),
            "the forest's ", names[i], " must be a contiguous int64 vector on the CPU");
  }
}

void check_positions(const Problem& p, int64_t num_nodes) {
  if (!p.positions.defined()) return;
  check_rank(p.positions, "positions", "[P, heads, position dim]");
  check_same_kind(p.positions, "positions", p.q);
  require(p.positions.size(1) == p.q.size(1), "positions have ", p.positions.size(1), " heads, q has ", p.q.size(1),
          "; they must be equal");
  const at::Tensor& index = p.position_index;
  require(index.dim() == 1 && index.size(0) == num_nodes, "position_index has shape ", index.sizes(), "; expected [",
          num_nodes, "], one entry a node of the forest");
  require(index.scalar_type() == at::kLong, "position_index is ", index.scalar_type(), "; expected int64");
  require(index.device() == p.q.device(), "position_index is on ", index.device(), ", q is on ", p.q.device(),
          "; they must be on one device");
  if (!index.is_cpu() || num_nodes == 0) return;  // elsewhere a look at the values would wait for the device
  const auto [low, high] = at::aminmax(index);
  require(low.item<int64_t>() >= -1 && high.item<int64_t>() < p.positions.size(0), "position_index runs from ",
          low.item<int64_t>(), " to ", high.item<int64_t>(), "; expected -1 (none) to ", p.positions.size(0) - 1,
          ", the last row of positions");
}

void check_alpha(const Problem& p, int64_t num_levels) {
  if (!p.alpha.defined()) return;
  require(p.alpha.is_floating_point(), "alpha is ", p.alpha.scalar_type(),
          "; expected a floating-point number or tensor");
  require(p.alpha.dim() == 1, "alpha has shape ", p.alpha.sizes(), "; expected one value or one a level");
  const int64_t count = p.alpha.numel();
  require(count > 0, "alpha has 0 values; expected one value or one a level");
  require(count == 1 || p.tie == Tie::block, "alpha has ", count, " values; with tie=none there is one");
  require(count == 1 || count >= num_levels, "alpha has ", count, " values, the forest has ", num_levels,
          " levels of families; expected one value or one a level");
  const auto [low, high] = at::aminmax(p.alpha.detach());
  require(low.item<double>() >= 1 && high.item<double>() <= 2, "alpha runs from ", low.item<double>(), " to ",
          high.item<double>(), "; expected 1 to 2");
}

void check_window(const Problem& p) {
  require(p.window >= 0, "window is ", p.window,
          "; expected 0 (none) or how many leaves on a side are seen one by one");
  if (p.window == 0) return;
  require(p.tie == Tie::none, "window is ", p.window, " with tie=", name_of(p.tie), "; a window needs tie=none");
  require(!p.positions.defined(), "window is ", p.window,
          " and positions are given; leaves of different families have none towards each other");
  require(!p.alpha.defined(), "window is ", p.window, " and alpha is given; a window is for alpha 1");
}

template <class Enum>
Enum enum_from(std::string_view what, std::string_view name, std::initializer_list<Enum> values) {
  std::string known;
  for (const Enum value : values) {
    if (name == name_of(value)) return value;
    known += (known.empty() ? "" : ", ") + std::string(name_of(value));
  }
  require(false, what, " is '", name, "'; expected one of ", known);
  return {};
}

at::Tensor or_undefined(const std::optional<at::Tensor>& tensor) {
  return tensor ? *tensor : at::Tensor();
}

}  // namespace

std::string_view name_of(Tie tie) {
  return tie == Tie::block ? "block" : "none";
}
std::string_view name_of(Causal causal) {
  return causal == Causal::none ? "none" : causal == Causal::block ? "block" : "prefix";
}
std::string_view name_of(Implementation implementation) {
  switch (implementation) {
    case Implementation::reference:
      return "reference";
    case Implementation::composed:
      return "composed";
    case Implementation::fused:
      return "fused";
    default:
      return "auto";
  }
}
Tie tie_from(std::string_view name) {
  return enum_from("tie", name, {Tie::block, Tie::none});
}
Causal causal_from(std::string_view name) {
  return enum_from("causal", name, {Causal::none, Causal::block, Causal::prefix});
}
Implementation implementation_from(std::string_view name) {
  return enum_from(
      "implementation", name,
      {Implementation::automatic, Implementation::reference, Implementation::composed, Implementation::fused});
}

Queries queries_of(Tie tie, Causal causal) {
  return tie == Tie::none || causal == Causal::prefix ? Queries::leaves : Queries::nodes;
}

at::ScalarType compute_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

Problem check(const AttentionCall& call) {
  Problem p;
  p.q = call.q, p.k = call.k, p.v = call.v;
  p.forest = call.forest.vec(), p.plan = call.plan.vec();
  p.positions = or_undefined(call.positions), p.position_index = or_undefined(call.position_index);
  p.alpha = or_undefined(call.alpha);
  if (p.alpha.defined() && p.alpha.dim() == 0) p.alpha = p.alpha.unsqueeze(0);
  p.tie = tie_from(call.tie);
  p.causal = causal_from(call.causal);
  p.include_self = call.include_self.value_or(p.causal != Causal::none);
  require(p.include_self || p.causal == Causal::none, "include_self is off; causal=", call.causal, " needs it");
  p.window = call.window;
  check_inputs(p);
  p.scale = call.scale.value_or(1 / std::sqrt(static_cast<double>(p.q.size(2))));
  require(std::isfinite(p.scale), "scale is ", p.scale, "; expected a finite number");
  check_forest(p);

  const int64_t num_nodes = p.forest[0].numel() - 1;
  require(p.positions.defined() == p.position_index.defined(), p.positions.defined() ? "positions" : "position_index",
          " given without ", p.positions.defined() ? "position_index" : "positions", "; they belong together");
  check_positions(p, num_nodes);
  check_alpha(p, std::max<int64_t>(p.forest[1].numel() - 2, 0));
  check_window(p);
  return p;
}

}  // namespace ramify
