// The modes of hierarchical attention that every implementation understands (docs/algorithm.md).
#pragma once

namespace ramify {

// Which rows share their weights.
enum class Tie {
  block,  // all leaves below a node look at the node's siblings alike: the paper's attention
  none,   // every leaf uses its own query; only what it looks at is pooled
};

// What a node may look at.
enum class Causal {
  none,    // all siblings
  block,   // siblings to the left; later queries still change earlier outputs, so for encoders only
  prefix,  // row i is the last row of the tree cut after leaf i: the form for language models
};

// What the gradient of a table of vectors is. A table that is not in float32 on the CPU has dense ones only.
enum class TableGradient {
  dense,  // as torch's optimizers want it
  rows,   // sparse: the rows that were taken, ascending and each once, and their sums
};

// Below this alpha attention is exactly softmax and has no gradient by alpha: entmax would divide by almost nothing.
inline constexpr double kSoftmaxAlpha = 1 + 1e-3;

}  // namespace ramify
