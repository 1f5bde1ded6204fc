// What the passes back through groves share: what rows' weights pull at, what comes from above.
#pragma once

#include "kernels/cuda/grove.cuh"

namespace ramify::cuda {

// What a row's weights pull at: the gradient of a score is p · (pull + reach · grad_out · v).
struct Looking {
  float pull[2] = {0, 0}, reach[2] = {0, 0};
};

// Weights p become gradients of scores times scale, grad_p becomes p · reach, for the gradient of v.
__device__ __forceinline__ void differentiate(const Looking& looking, const float (&inverse)[2], float scale,
                                              float (&p)[2][4], float (&grad_p)[2][4]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float &x = p[n][2 * h + j], &y = grad_p[n][2 * h + j];
        const float weight = inverse[h] * x;
        x = weight == 0 ? 0.0f : scale * weight * (looking.pull[h] + looking.reach[h] * y);
        y = weight * looking.reach[h];
      }
    }
  }
}

// What a family gets from above, and where the gradients of its mean lie (nullptr: above a tree there is none).
struct FamilyAbove {
  float mass = 1, grad_energy = 0;
};
__device__ __forceinline__ FamilyAbove root_above(const GroveView& view, const GroveFamily& family) {
  const Call& call = view.call;
  if (GroveView::is_tree(family)) return {1, call.grad_root_energy[family.tree_root * call.heads + view.head]};
  return {call.mass[view.slot_row(family)], call.grad_energy[view.slot_row(family)]};
}
__device__ __forceinline__ const float* root_gradient(const GroveView& view, const GroveFamily& family,
                                                      PlaceArray array) {
  const Call& call = view.call;
  if (GroveView::is_tree(family)) return nullptr;
  const float* rows = array == kQ ? call.grad_mean_q : array == kK ? call.grad_mean_k : call.grad_mean_v;
  return rows + view.slot_row(family) * kChannels;
}

}  // namespace ramify::cuda
