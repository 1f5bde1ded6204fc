// Registers `ramify::attention` with torch: kernels, shapes, gradient, autocast.
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels/cpu/attention.h"
#include "kernels/cuda/attention.h"
#include "ops/current_stream.h"
#include "ops/dispatch.h"
#include "ops/op.h"

namespace ramify {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Outputs = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Outputs kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::TensorList forest,
               at::TensorList plan, const OptionalTensor& positions, const OptionalTensor& position_index,
               const OptionalTensor& alpha, std::optional<double> scale, std::optional<bool> include_self,
               std::string_view tie, std::string_view causal, std::string_view implementation, bool save,
               int64_t window) {
  const Implementation requested = implementation_from(implementation);
  Problem problem =
      check({q, k, v, forest, plan, positions, position_index, alpha, scale, include_self, tie, causal, window});
  const ForwardResult result = run_forward(std::move(problem), requested, save);
  return {result.output.out, result.output.energy, result.saved};
}

Gradients backward_kernel(const at::Tensor& grad_out, const at::Tensor& grad_energy, const at::Tensor& q,
                          const at::Tensor& k, const at::Tensor& v, at::TensorList forest, at::TensorList plan,
                          const OptionalTensor& positions, const OptionalTensor& position_index,
                          const OptionalTensor& alpha, std::optional<double> scale, std::optional<bool> include_self,
                          std::string_view tie, std::string_view causal, std::string_view implementation,
                          const OptionalTensor& saved, int64_t window) {
  const Implementation requested = implementation_from(implementation);
  Problem problem =
      check({q, k, v, forest, plan, positions, position_index, alpha, scale, include_self, tie, causal, window});
  const std::vector<int64_t> out_shape = {q.size(0), q.size(1), v.size(2)};
  const std::vector<int64_t> energy_shape = {problem.num_trees(), q.size(1)};
  TORCH_CHECK_VALUE(grad_out.sizes() == out_shape && grad_energy.sizes() == energy_shape,
                    "attention_backward: gradients have shapes ", grad_out.sizes(), " and ", grad_energy.sizes(),
                    "; expected those of the outputs");
  TORCH_CHECK_VALUE(grad_out.scalar_type() == q.scalar_type() && grad_out.device() == q.device(),
                    "attention_backward: grad_out is ", grad_out.scalar_type(), " on ", grad_out.device(), "; q is ",
                    q.scalar_type(), " on ", q.device());
  const AttentionGradients gradients =
      run_backward(std::move(problem), requested, saved.value_or(at::Tensor()), grad_out, grad_energy);
  // Contiguous and shaped as the meta kernel says. An op returns tensors only: an absent input has a gradient
  // without elements.
  const auto finished = [&](const at::Tensor& gradient, const OptionalTensor& input) {
    return gradient.defined() ? gradient.contiguous().view(input->sizes()) : at::empty({0}, q.options());
  };
  return {finished(gradients.q, q), finished(gradients.k, k), finished(gradients.v, v),
          finished(gradients.positions, positions), finished(gradients.alpha, alpha)};
}

// Shapes and dtypes without work. The forest's values are not looked at; the size of what is saved is known only to the
// fake kernel in Python (_library.py), which tracing uses.
Outputs meta_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::TensorList forest,
                    at::TensorList, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                    std::optional<double>, std::optional<bool>, std::string_view, std::string_view, std::string_view,
                    bool, int64_t) {
  TORCH_CHECK_VALUE(q.is_meta() && k.is_meta() && v.is_meta(), "attention: q, k and v are on ", q.device(), ", ",
                    k.device(), " and ", v.device(), "; they must be on one device");
  const auto energy_options = q.options().dtype(compute_dtype(q.scalar_type()));
  return {at::empty_symint({q.sym_size(0), q.sym_size(1), v.sym_size(2)}, q.options()),
          at::empty_symint({forest[2].sym_size(0) - 1, q.sym_size(1)}, energy_options),
          at::empty({0}, q.options().dtype(at::kFloat))};
}

Gradients backward_meta_kernel(const at::Tensor&, const at::Tensor&, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, at::TensorList, at::TensorList, const OptionalTensor& positions,
                               const OptionalTensor&, const OptionalTensor& alpha, std::optional<double>,
                               std::optional<bool>, std::string_view, std::string_view, std::string_view,
                               const OptionalTensor&, int64_t) {
  const auto like = [&](const OptionalTensor& input) {
    return input ? at::empty_symint(input->sym_sizes(), input->options()) : at::empty({0}, q.options());
  };
  return {like(q), like(k), like(v), like(positions), like(alpha)};
}

class AttentionFunction : public torch::autograd::Function<AttentionFunction> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& q,
                                                const at::Tensor& k, const at::Tensor& v,
                                                const std::vector<at::Tensor>& forest,
                                                const std::vector<at::Tensor>& plan, const OptionalTensor& positions,
                                                const OptionalTensor& position_index, const OptionalTensor& alpha,
                                                std::optional<double> scale, std::optional<bool> include_self,
                                                const std::string& tie, const std::string& causal,
                                                const std::string& implementation, bool save, int64_t window) {
    at::AutoDispatchBelowAutograd below;
    auto [out, energy, saved_state] = call_attention(q, k, v, forest, plan, positions, position_index, alpha, scale,
                                                     include_self, tie, causal, implementation, save, window);
    context->mark_non_differentiable({saved_state});
    context->set_materialize_grads(false);  // torch would make one of zeros for saved_state
    torch::autograd::variable_list saved = {q,
                                            k,
                                            v,
                                            positions.value_or(at::Tensor()),
                                            position_index.value_or(at::Tensor()),
                                            alpha.value_or(at::Tensor()),
                                            saved_state};
    saved.insert(saved.end(), forest.begin(), forest.end());
    saved.insert(saved.end(), plan.begin(), plan.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["scale"] = scale;
    context->saved_data["include_self"] = include_self;
    context->saved_data["tie"] = tie;
    context->saved_data["causal"] = causal;
    context->saved_data["implementation"] = implementation;
    context->saved_data["window"] = window;
    return {out, energy, saved_state};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                                "attention: there are no second derivatives (create_graph=True)");
    constexpr size_t kNamed = 7, kForest = 3;
    const auto saved = context->get_saved_variables();
    const auto optional = [&](size_t i) { return saved[i].defined() ? OptionalTensor(saved[i]) : std::nullopt; };
    const std::vector<at::Tensor> forest(saved.begin() + kNamed, saved.begin() + kNamed + kForest);
    const std::vector<at::Tensor> plan(saved.begin() + kNamed + kForest, saved.end());
    auto& data = context->saved_data;
    const auto or_zeros = [&](const at::Tensor& gradient, const std::vector<c10::SymInt>& shape, at::ScalarType dtype) {
      return gradient.defined() ? gradient : at::zeros_symint(shape, saved[0].options().dtype(dtype));
    };
    const at::ScalarType dtype = saved[0].scalar_type();
    const c10::SymInt heads = saved[0].sym_size(1);
    const at::Tensor grad_out = or_zeros(gradients[0], {saved[0].sym_size(0), heads, saved[2].sym_size(2)}, dtype);
    const at::Tensor grad_energy = or_zeros(gradients[1], {forest[2].sym_size(0) - 1, heads}, compute_dtype(dtype));
    auto [q, k, v, positions, alpha] = call_attention_backward(
        grad_out, grad_energy, saved[0], saved[1], saved[2], forest, plan, optional(3), optional(4), optional(5),
        data["scale"].toOptional<double>(), data["include_self"].toOptional<bool>(), data["tie"].toStringView(),
        data["causal"].toStringView(), data["implementation"].toStringView(), optional(6), data["window"].toInt());
    const at::Tensor none;
    return {q,    k,
            v,    none,
            none, saved[3].defined() ? positions : none,
            none, saved[5].defined() ? alpha : none,
            none, none,
            none, none,
            none, none,
            none};
  }
};

Outputs autograd_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::TensorList forest,
                        at::TensorList plan, const OptionalTensor& positions, const OptionalTensor& position_index,
                        const OptionalTensor& alpha, std::optional<double> scale, std::optional<bool> include_self,
                        std::string_view tie, std::string_view causal, std::string_view implementation, bool save,
                        int64_t window) {
  const auto wants_gradient = [](const OptionalTensor& tensor) { return tensor && tensor->requires_grad(); };
  save = save || (at::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad() ||
                                                 wants_gradient(positions) || wants_gradient(alpha)));
  const auto outputs =
      AttentionFunction::apply(q, k, v, forest.vec(), plan.vec(), positions, position_index, alpha, scale, include_self,
                               std::string(tie), std::string(causal), std::string(implementation), save, window);
  return {outputs[0], outputs[1], outputs[2]};
}

// Autocast turns q, k, v and positions into its lower precision, as it does for scaled_dot_product_attention.
template <c10::DeviceType device>
Outputs autocast_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::TensorList forest,
                        at::TensorList plan, const OptionalTensor& positions, const OptionalTensor& position_index,
                        const OptionalTensor& alpha, std::optional<double> scale, std::optional<bool> include_self,
                        std::string_view tie, std::string_view causal, std::string_view implementation, bool save,
                        int64_t window) {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::DispatchKeySet(at::autocast::get_autocast_dispatch_key_from_device_type(device)));
  const at::ScalarType dtype = at::autocast::get_autocast_dtype(device);
  const auto cast = [&](const at::Tensor& tensor) { return at::autocast::cached_cast(dtype, tensor, device); };
  return call_attention(cast(q), cast(k), cast(v), forest, plan,
                        positions ? OptionalTensor(cast(*positions)) : std::nullopt, position_index, alpha, scale,
                        include_self, tie, causal, implementation, save, window);
}

#define RAMIFY_ATTENTION_ARGUMENTS                                                            \
  "Tensor q, Tensor k, Tensor v, Tensor[] forest, Tensor[] plan, Tensor? positions, Tensor? " \
  "position_index, "                                                                          \
  "Tensor? alpha, float? scale, bool? include_self, str tie, str causal, str implementation"

}  // namespace

TORCH_LIBRARY_FRAGMENT(ramify, m) {
  m.def("attention(" RAMIFY_ATTENTION_ARGUMENTS
        ", bool save=False, int window=0) -> (Tensor out, Tensor energy, Tensor saved)",
        {at::Tag::pt2_compliant_tag});
  m.def("attention_backward(Tensor grad_out, Tensor grad_energy, " RAMIFY_ATTENTION_ARGUMENTS
        ", Tensor? saved=None, int window=0) -> (Tensor q, Tensor k, Tensor v, Tensor positions, Tensor alpha)",
        {at::Tag::pt2_compliant_tag});
  m.def("cpu_target() -> str", [] { return std::string(cpu::target_name()); });
  m.def("has_cuda_kernels() -> bool", [] { return has_torch_cuda() && cuda::is_built(); });
}

#undef RAMIFY_ATTENTION_ARGUMENTS

TORCH_LIBRARY_IMPL(ramify, CompositeExplicitAutograd, m) {
  m.impl("attention", kernel);
  m.impl("attention_backward", backward_kernel);
}
TORCH_LIBRARY_IMPL(ramify, Meta, m) {
  m.impl("attention", meta_kernel);
  m.impl("attention_backward", backward_meta_kernel);
}
TORCH_LIBRARY_IMPL(ramify, Autograd, m) {
  m.impl("attention", autograd_kernel);
}
TORCH_LIBRARY_IMPL(ramify, AutocastCPU, m) {
  m.impl("attention", autocast_kernel<c10::DeviceType::CPU>);
}
TORCH_LIBRARY_IMPL(ramify, AutocastCUDA, m) {
  m.impl("attention", autocast_kernel<c10::DeviceType::CUDA>);
}

Outputs call_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::TensorList forest,
                       at::TensorList plan, const OptionalTensor& positions, const OptionalTensor& position_index,
                       const OptionalTensor& alpha, std::optional<double> scale, std::optional<bool> include_self,
                       std::string_view tie, std::string_view causal, std::string_view implementation, bool save,
                       int64_t window) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("ramify::attention", "").typed<AttentionOp>();
  return op.call(q, k, v, forest, plan, positions, position_index, alpha, scale, include_self, tie, causal,
                 implementation, save, window);
}

Gradients call_attention_backward(const at::Tensor& grad_out, const at::Tensor& grad_energy, const at::Tensor& q,
                                  const at::Tensor& k, const at::Tensor& v, at::TensorList forest, at::TensorList plan,
                                  const OptionalTensor& positions, const OptionalTensor& position_index,
                                  const OptionalTensor& alpha, std::optional<double> scale,
                                  std::optional<bool> include_self, std::string_view tie, std::string_view causal,
                                  std::string_view implementation, const OptionalTensor& saved, int64_t window) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("ramify::attention_backward", "").typed<AttentionBackwardOp>();
  return op.call(grad_out, grad_energy, q, k, v, forest, plan, positions, position_index, alpha, scale, include_self,
                 tie, causal, implementation, saved, window);
}

}  // namespace ramify
