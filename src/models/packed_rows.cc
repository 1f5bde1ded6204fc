#include "models/packed_rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <numeric>

namespace ramify::models {

bool PackedRows::have_one_length() const {
  for (size_t i = 2; i < begin_.size(); ++i) {
    if (begin_[i] - begin_[i - 1] != begin_[1] - begin_[0]) return false;
  }
  return true;
}

const PaddedRows& PackedRows::padded(at::Device device) const {
  if (padded_ && padded_->place.device() == device) return *padded_;
  const c10::InferenceMode ordinary(false);  // texts met first in inference mode can be trained on later
  int64_t longest = 0;
  for (int64_t i = 0; i < num_texts(); ++i) longest = std::max(longest, begin_[i + 1] - begin_[i]);
  at::Tensor place = at::empty({begin_.back()}, at::dtype(at::kLong));
  at::Tensor is_token = at::zeros({num_texts() * longest}, at::kBool);
  auto* next = place.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < num_texts(); ++i) {
    const int64_t length = begin_[i + 1] - begin_[i];
    std::iota(next, next + length, i * longest);
    next += length;
  }
  is_token.index_fill_(0, place, true);
  padded_ = {place.to(device), is_token.view({num_texts(), 1, 1, longest}).to(device)};
  return *padded_;
}

}  // namespace ramify::models
