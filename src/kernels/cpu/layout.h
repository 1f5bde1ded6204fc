// Where a call keeps what it computes between its steps. One description is run twice: to count floats, and to hand out
// the memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/attention.h"

namespace ramify::cpu {

// Rows are padded with zeros to a multiple of this, whatever the instruction set.
inline constexpr int64_t kRowPad = 16;
// Rows of a multiple of this are read and written where they lie, whatever the instruction set.
inline constexpr int64_t kInPlace = 8;
// Keys that a tile of queries sees at once, and children that one step of a wide family takes: the rows of a thread's
// scratch memory serve these and narrow families.
inline constexpr int64_t kKeyBlock = kNarrowFamily;
// Most children of a wide family whose rows one step copies as queries: few enough for the second-level cache, and so
// many that copying the keys they look at takes little beside the products.
inline constexpr int64_t kWideTile = 8 * kKeyBlock;
constexpr int64_t padded(int64_t dim) {
  return (dim + kRowPad - 1) / kRowPad * kRowPad;
}

// Cuts one array into parts that begin at cache lines, with zeros between them. Without an array it only counts.
class Carver {
 public:
  explicit Carver(float* memory) : memory_(memory) {}
  float* take(int64_t count) {
    float* part = memory_ ? memory_ + used_ : nullptr;
    if (part) std::fill(part + count, part + padded(count), 0.0f);
    used_ += padded(count);
    return part;
  }
  int64_t used() const { return used_; }

 private:
  float* memory_;
  int64_t used_ = 0;
};

// One row a slot for inner nodes: the crown's for a whole call, a grove's for as long as it is worked on.
struct NodeRows {
  float* q = nullptr;   // [slots][heads][padded dim]          means over the leaves below
  float* k = nullptr;   // [slots][key heads][padded dim]
  float* v = nullptr;   // [slots][key heads][padded value dim]
  float* y = nullptr;   // [slots][heads][padded value dim]    y(C); backward: Σ grad_out of the leaves below
  float* e = nullptr;   // [slots][heads]                      e(C); backward: ē(C)
  float* pi = nullptr;  // [slots][heads]                      π(C)
  float* gq = nullptr;  // as q, k, v                          backward: what each leaf below gets from above
  float* gk = nullptr;
  float* gv = nullptr;
};

// Key heads [key_begin, key_end) and the heads that share them.
struct HeadRange {
  int64_t key_begin = 0;
  int64_t key_end = 0;
};

// A tile of queries, children of a wide family, in float32.
struct WideScratch {
  float* q;
  float* y;  // backward: grad_out; forward: Σ exp(s - most) v
  float* positions;
  float* q_columns;  // interleaved
  float* y_columns;
  float* position_columns;
};

// What one thread works with on one family.
struct Scratch {
  float* columns;           // up to kKeyBlock queries, interleaved
  float* y_columns;         // the same of grad_out
  float* position_columns;  // the same of positions
  float* scores;            // [kNarrowFamily][kNarrowFamily]
  float* products;          // the same
  float* staged[7];         // rows of a family in float32: q, k, v, grad_out; gradients of q, k, v
  float* staged_positions;  // of keys, then of queries
  float* zeros;             // a row of them
  float* path_weights;      // untied: [keys that a leaf sees][kRowPad], and the products grad_out · v
  float* path_products;
  NodeRows local;    // of a grove
  WideScratch wide;  // where there are wide families
};

struct Call {
  AttentionParams p;
  int64_t dim = 0, value_dim = 0, position_dim = 0;  // padded
  int64_t group = 1;                                 // heads a key head

  // saved by forward for backward
  float* weights = nullptr;   // [narrow families][heads][b, b]: p(C, B), B first
  float* gates = nullptr;     // [inner nodes][heads][2]: m and w
  float* attended = nullptr;  // [children of wide families][heads][padded value dim]: a(C)
  float* log_sums = nullptr;  // [children of wide families][heads]: g(C); untied: [leaves][heads], of all a leaf sees
  NodeRows crown;             // q, k, v of it
  float* mean_k = nullptr;    // leaves as queries: [inner nodes][key heads][padded dim]
  float* mean_v = nullptr;
  float* mean_q = nullptr;    // causal=prefix: [inner nodes][heads][padded dim]
  float* energies = nullptr;  // causal=prefix: [inner nodes][heads]: t(C), e of a root; those of leaves are log_sums

  // forward
  Rows out;
  float* root_energy = nullptr;  // [roots][heads]

  // backward
  Rows grad_out, grad_q, grad_k, grad_v;
  const float* grad_root_energy = nullptr;  // [roots][heads]
  float* products = nullptr;                // as weights: grad_out(C) · v(B)
  float* pi_bar = nullptr;                  // [inner nodes][heads]
  float* wide_dots = nullptr;               // [children of wide families][heads]: grad_out(C) · a(C)
  float* wide_coefficients = nullptr;       // the same: π w(C)
  float* wide_slopes = nullptr;             // the same: ḡ(C)
  float* wide_grad_q = nullptr;             // the same, with padded dim: sums, where storage is not float32
  float* wide_grad_k = nullptr;             // [children of wide families][key heads][padded dim]
  float* wide_grad_v = nullptr;
  float* wide_key_positions = nullptr;  // [children of wide families][heads][padded position dim]: gradients as keys
  float* grad_mean_k = nullptr;         // untied: as mean_k
  float* grad_mean_v = nullptr;
  float* grad_mean_q = nullptr;  // causal=prefix: as mean_q, of leaves so far
  float* mean_slopes = nullptr;  // causal=prefix: [inner nodes][heads]: Σ ē / n of leaves so far
  float* leaf_dots = nullptr;    // untied: [leaves][heads]: grad_out · out
  float* leaf_grad_k = nullptr;  // untied: [leaves][key heads][padded dim], where storage is not float32
  float* leaf_grad_v = nullptr;
  float* grad_node_positions = nullptr;  // [nodes][heads][padded position dim]
  float* grad_self_positions = nullptr;  // [leaves][heads][padded position dim]

  Scratch* scratch = nullptr;  // one a thread
  bool streams = false;        // results are large: write them past the caches

  float& pi_bar_of(const WalkNode& node, int64_t head) const { return pi_bar[node.inner * p.heads + head]; }
  float* gates_of(const WalkNode& node, int64_t head) const { return gates + (node.inner * p.heads + head) * 2; }
};

enum class Pass { forward, backward };

// Whether the queries of a tied call are means over leaves so far.
inline bool is_prefix(const AttentionParams& params) {
  return params.tie == Tie::block && params.causal == Causal::prefix;
}

// Whether gradients of leaves can be summed where they will lie, whatever the instruction set.
bool sums_in_place(const AttentionParams& params, int64_t dim);

// Clears what forward saves and no step writes, so that a result has no accidental numbers: rows and gates of roots,
// channels between a dimension and its padded one.
void clear_unwritten(const Call& call);

// A call without memory.
Call make_call(const AttentionParams& params);
// Both hand out `memory` and return how many floats they need; with null they only count.
int64_t carve_saved(Call& call, float* memory);
int64_t carve_workspace(Call& call, Pass pass, float* memory, std::vector<Scratch>& scratch);

}  // namespace ramify::cpu
