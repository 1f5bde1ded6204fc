// The steps of attention with untied queries (docs/algorithm.md, section 6): every leaf looks with its own query at the
// siblings of all its ancestors, in one softmax.
#pragma once

#include "kernels/cpu/block_attention.h"

namespace ramify::cpu {

// Means of k and v of the inner nodes of a grove, of a crown node.
void untied_pool_grove(const Call& call, const Grove& grove, HeadRange heads, Scratch& scratch);
void untied_pool(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);
// Output and log-sum of some leaves.
void untied_attend(const Call& call, const LeafRun& run, HeadRange heads, Scratch& scratch);
// e of a root: the mean of its leaves' log-sums.
void untied_energy(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);

// Backward. Clears the gradients of leaves that are children of a crown node.
void untied_clear_leaves(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);
// Gradients of some leaves as queries, and of all that they look at: by a thread that has these heads for itself.
void untied_backward_run(const Call& call, const LeafRun& run, HeadRange heads, Scratch& scratch);
// The same, but of what they look at only outside the crown, which is theirs alone.
void untied_backward_queries(const Call& call, const LeafRun& run, HeadRange heads, Scratch& scratch);
// Gradients of the children of a crown node as keys of all leaves below it.
void untied_backward_keys(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);
// Top-down: every node's gradient is shared by the leaves below it.
void untied_share(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);
void untied_share_grove(const Call& call, const Grove& grove, HeadRange heads, Scratch& scratch);

}  // namespace ramify::cpu
