#include "models/generation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>

namespace ramify::models {
namespace {

constexpr size_t kPromptPart = 512;

double elapsed_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

at::Tensor ids_tensor(std::span<const int32_t> ids, at::Device device) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(ids.size())}, at::kLong);
  std::ranges::copy(ids, tensor.mutable_data_ptr<int64_t>());
  return tensor.to(device);
}

}  // namespace

at::Tensor read_in_parts(const Decoder& decoder, std::span<const int32_t> prompt, DecoderCache& cache,
                         const std::function<void()>& on_part) {
  const at::NoGradGuard no_grad;
  at::Tensor rows;
  for (size_t begin = 0; begin < prompt.size(); begin += kPromptPart) {
    on_part();
    const auto part = prompt.subspan(begin, std::min(kPromptPart, prompt.size() - begin));
    rows = decoder.extend(ids_tensor(part, decoder.device()), cache);
  }
  return rows[-1];
}

Generation generate(const Decoder& decoder, at::Tensor row, DecoderCache& cache, const GenerationOptions& options,
                    const std::function<bool(int32_t)>& on_token) {
  const at::NoGradGuard no_grad;
  const auto began = std::chrono::steady_clock::now();
  Sampler sampler(options.sampler);
  Generation result;
  while (result.tokens < options.max_tokens) {
    const auto id = static_cast<int32_t>(sampler.next(decoder.logits(row)));
    if (std::ranges::find(options.ends, id) != options.ends.end()) {
      result.end = Generation::End::text;
      break;
    }
    ++result.tokens;
    if (!on_token(id)) {
      result.end = Generation::End::stopped;
      break;
    }
    if (result.tokens < options.max_tokens) row = decoder.extend(ids_tensor({&id, 1}, decoder.device()), cache)[0];
  }
  result.seconds = elapsed_since(began);
  return result;
}

}  // namespace ramify::models
