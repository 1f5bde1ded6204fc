// Stands in for cuda/ where there is no CUDA compiler.
#include <cassert>

#include "kernels/cuda/attention.h"

namespace ramify::cuda {

bool is_built() {
  return false;
}
const char* why_not(const AttentionParams&) {
  return "ramify was built without a CUDA compiler";
}
bool takes_groves(const AttentionParams&) {
  return false;
}
bool takes_small_groves(const AttentionParams&) {
  return false;
}
int64_t saved_size(const AttentionParams&, Keep) {
  return 0;
}
int64_t backward_workspace(const AttentionParams&) {
  return 0;
}
void forward(const AttentionParams&, const ForwardResult&, void*) {
  assert(false);
}
void backward(const AttentionParams&, const BackwardInput&, const BackwardResult&, float*, void*) {
  assert(false);
}

}  // namespace ramify::cuda
