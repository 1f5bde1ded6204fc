#include "train/replicas.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

namespace ramify::train {
namespace {

at::Tensor padded_bytes(const std::string& text, int64_t size) {
  at::Tensor bytes = at::zeros({size}, at::kByte);
  std::ranges::copy(text, bytes.mutable_data_ptr<uint8_t>());
  return bytes;
}

std::string text_of_bytes(const at::Tensor& bytes, int64_t size) {
  return {reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()), static_cast<size_t>(size)};
}

at::Tensor one_number(int64_t number) {
  at::Tensor tensor = at::empty({1}, at::kLong);
  *tensor.mutable_data_ptr<int64_t>() = number;
  return tensor;
}

int64_t number_in(const at::Tensor& tensor) {
  return *tensor.const_data_ptr<int64_t>();
}

// FNV over words of eight bytes: not against forgery, but quicker than reading them from anywhere.
uint64_t add_to_fingerprint(uint64_t sum, const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kCPU).contiguous();
  const auto* bytes = static_cast<const char*>(values.const_data_ptr());
  for (size_t left = values.nbytes(); left > 0;) {
    uint64_t word = 0;
    const size_t taken = std::min(left, sizeof word);
    std::memcpy(&word, bytes, taken);
    sum = (sum ^ word) * 0x100000001b3ULL;
    sum ^= sum >> 29;
    bytes += taken;
    left -= taken;
  }
  return sum;
}

}  // namespace

bool Replicas::any(bool own) const {
  double count = own;
  add_up({&count, 1});
  return count > 0;
}

void Replicas::add_up(std::span<double> values) const {
  if (!group_ || values.empty()) return;
  at::Tensor sums = at::empty({static_cast<int64_t>(values.size())}, at::kDouble);
  std::ranges::copy(values, sums.mutable_data_ptr<double>());
  group_->sum(sums)();
  std::copy_n(sums.const_data_ptr<double>(), values.size(), values.begin());
}

std::vector<std::string> Replicas::gather(std::string own) const {
  if (!group_) return {std::move(own)};
  const std::vector<at::Tensor> sizes = group_->gather(one_number(static_cast<int64_t>(own.size())));
  int64_t most = 0;
  for (const at::Tensor& size : sizes) most = std::max(most, number_in(size));
  if (most == 0) return std::vector<std::string>(sizes.size());
  const std::vector<at::Tensor> all = group_->gather(padded_bytes(own, most));
  std::vector<std::string> texts;
  for (size_t r = 0; r < all.size(); ++r) texts.push_back(text_of_bytes(all[r], number_in(sizes[r])));
  return texts;
}

std::string Replicas::tell(std::string of_first) const {
  if (!group_) return of_first;
  const at::Tensor size = one_number(static_cast<int64_t>(of_first.size()));
  group_->copy_from_first(size);
  if (number_in(size) == 0) return {};
  const at::Tensor bytes = is_first() ? padded_bytes(of_first, number_in(size)) : padded_bytes({}, number_in(size));
  group_->copy_from_first(bytes);
  return text_of_bytes(bytes, number_in(size));
}

void Replicas::copy_from_first(const std::vector<at::Tensor>& tensors) const {
  if (!group_) return;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    const at::Tensor values = tensor.detach().contiguous();
    group_->copy_from_first(values);
    if (!values.is_alias_of(tensor)) tensor.detach().copy_(values);
  }
}

signal::Member Replicas::member() const {
  if (!group_) return {};
  return {.rank = rank(), .size = size(), .gather = [this](std::string own) { return gather(std::move(own)); }};
}

bool Replicas::are_alike(const std::vector<at::Tensor>& tensors) const {
  if (!group_) return true;
  uint64_t sum = 0xcbf29ce484222325ULL;
  for (const at::Tensor& tensor : tensors) sum = add_to_fingerprint(sum, tensor);
  const std::vector<at::Tensor> all = group_->gather(one_number(static_cast<int64_t>(sum)));
  return std::ranges::all_of(all, [&](const at::Tensor& one) { return number_in(one) == number_in(all.front()); });
}

}  // namespace ramify::train
