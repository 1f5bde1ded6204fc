// Twigs: subtrees that lie in one tile of leaves, finished in the registers of its warp (docs/kernels.md).
//
// Scores of means are means of scores: on the way up the scores q · kᵀ of the tile are averaged, level by level, over
// the children of that level's families, and |B| equal columns of a child B take the place of log |B|. Two leaves are
// in different children of one level's family only, so the weights of all levels are one 16 × 16 matrix.
#pragma once

#include "kernels/cuda/grove.cuh"

namespace ramify::cuda {

// Who sees whom on a level, from the lowest one up: next() goes to the next level. Pairs of rows are averaged without
// products where kPairs: kernels with wide families have no registers for that.
template <bool kPairs>
struct TwigSight {
  // For the row of this lane, the tile's rows as bits: those below the child that it is in, and, 16 bits each, those
  // below its families on this level and above.
  uint32_t own, inner;
  uint2 outer;
  bool sees_itself, is_causal;
  // For the two rows of this thread, bit 16 · h + 8 · n + j: the columns that they see, and those of their child.
  uint32_t seen = 0, child = 0;
  float inverse[2] = {1, 1};  // 1 / |C|
  bool is_of_pairs = false;   // every child is rows 2i and 2i + 1

  __device__ TwigSight(const GroveView& view, const TileRows& rows)
      : own(rows.family >= 0 ? 1u << lane_of_thread() : 0),
        inner(own),
        outer(rows.family >= 0 ? rows.sight[1] : make_uint2(0, 0)),
        sees_itself(rows.sees_itself),
        is_causal(view.call.is_causal) {
    next();
  }
  __device__ void next() {
    const uint32_t family = outer.x & 0xffff, pair = 3u << (lane_of_thread() & ~1);
    if (kPairs) is_of_pairs = __ballot_sync(0xffffffffu, own != 0 && inner != pair) == 0;
    uint32_t keys = family & ~inner;
    if (is_causal) keys &= (inner & -inner) - 1;
    if (sees_itself && inner == own && family != own) keys |= own;
    const uint32_t both = keys | inner << 16;
    const uint32_t a = from_lane(both, row_of(0)), b = from_lane(both, row_of(1));
    const int shift = 2 * (lane_of_thread() % 4);
    seen = __byte_perm(a, b, 0x5410) >> shift, child = __byte_perm(a, b, 0x7632) >> shift;
    inverse[0] = fast_inverse(static_cast<float>(max(__popc(a >> 16), 1)));
    inverse[1] = fast_inverse(static_cast<float>(max(__popc(b >> 16), 1)));
    inner = family;
    outer = make_uint2(__funnelshift_r(outer.x, outer.y, 16), outer.y >> 16);
  }
  __device__ bool sees(int h, int n, int j, int = 0) const { return (seen >> (16 * h + 8 * n + j) & 1) != 0; }

  // Softmax over what is seen: weights of this level, and log-sums.
  __device__ void weigh(const float (&s)[2][4], float scale, float (&p)[2][4], float (&log_sum)[2]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) p[i / 4][i % 4] = s[i / 4][i % 4];
    TileSoftmax softmax;
    softmax.take(*this, scale, p);
    const float inverse_sum[2] = {softmax.inverse(0), softmax.inverse(1)};
#pragma unroll
    for (int i = 0; i < 8; ++i) p[i / 4][i % 4] *= inverse_sum[i % 4 / 2];
    log_sum[0] = softmax.log_sum(0), log_sum[1] = softmax.log_sum(1);
  }

  // The mean over each row's child of a number of the rows.
  __device__ void average(float (&x)[2]) const {
    if (kPairs && is_of_pairs) {
#pragma unroll
      for (float& its : x) its = 0.5f * (its + row_beside(its));
      return;
    }
    float column[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) column[i] = from_lane(x[i / 2], 8 * (lane_of_thread() % 4) + 4 * (i % 2));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((child >> (16 * h + 8 * (i / 2) + i % 2) & 1) != 0) sum += column[i];
      }
      x[h] = inverse[h] * row_sum(sum);
    }
  }
  // The mean over each pair of children of a matrix.
  __device__ void average(float (&x)[2][4]) const {
    if (kPairs && is_of_pairs) return average_pairs(x);
    average_columns(x), average_columns(x);
  }

 private:
  // Of row 2i the number of row 2i + 1, and the other way round.
  __device__ static float row_beside(float x) {
    return __shfl_xor_sync(0xffffffffu, x, 4);
  }
  __device__ static void average_pairs(float (&x)[2][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float &a = x[i / 2][i % 2 * 2], &b = x[i / 2][i % 2 * 2 + 1];
      const float sum = a + b;
      a = b = 0.25f * (sum + row_beside(sum));
    }
  }
  // The same over columns; the result is transposed. Three numbers of bfloat16 are one of float32.
  __device__ void average_columns(float (&x)[2][4]) const {
    uint32_t ones[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair = child >> (16 * (i % 2) + 8 * (i / 2));
      ones[i] = ((pair & 1) | (pair & 2) << 15) * 0x3f80;
    }
    float sum[2][4] = {};
#pragma unroll
    for (int part = 0; part < 3; ++part) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint32_t pair[2];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          pair[n] = pack2<__nv_bfloat16>(x[n][2 * h], x[n][2 * h + 1]);
          const float2 rounded = unpack2<__nv_bfloat16>(pair[n]);
          x[n][2 * h] -= rounded.x, x[n][2 * h + 1] -= rounded.y;
        }
        multiply_add<__nv_bfloat16>(sum[h], ones, pair[0], pair[1]);
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i / 4][i % 4] = inverse[i % 4 / 2] * sum[i / 4][i % 4];
  }
};

// Scores become weights, of which the rows of a twig's root have pi = 1; `total` is t of its children.
template <bool kPairs>
__device__ __forceinline__ void weigh_twigs(TwigSight<kPairs> sight, int num_levels, float scale, float (&s)[2][4],
                                            float (&total)[2]) {
  float weights[2][4];
  sight.weigh(s, scale, weights, total);
#pragma unroll 1
  for (int level = 1; level < num_levels; ++level) {
    float p[2][4], log_sum[2];
    sight.next();
    sight.average(s), sight.average(total);
    sight.weigh(s, scale, p, log_sum);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Gates gates(total[h], log_sum[h]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& weight = weights[i / 2][2 * h + i % 2];
        weight = gates.kept * weight + gates.given * p[i / 2][2 * h + i % 2];
      }
      total[h] = gates.total;
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) s[i / 4][i % 4] = weights[i / 4][i % 4];
}

// Scores become their gradients times scale, grad_p = grad_out · vᵀ becomes weights of grad_out for the gradient of v,
// from pi of the rows' twigs and the gradient of their energies, for a leaf of them. With u the mean of grad_pi over a
// child's leaves and r = w · gain + m · u, a level has
//     pi(C) = m · pi      grad_e(C) = m · (grad_e + pi · w · (u - gain))      grad_s = w · p · (grad_e + pi · (grad_p -
//     r))
// so that on the way up every weight has the form weight · (grad_e + pi · change), with pi and grad_e of the level.
template <bool kPairs>
__device__ __forceinline__ void differentiate_twigs(TwigSight<kPairs> sight, int num_levels, float scale,
                                                    const float (&mass)[2], const float (&grad_energy)[2],
                                                    float (&s)[2][4], float (&grad_p)[2][4]) {
  float weights[2][4], change[2][4], total[2], inner[2];
  sight.weigh(s, scale, weights, total);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    inner[h] = gain_of(weights, grad_p, h, 1);
#pragma unroll
    for (int i = 0; i < 4; ++i) change[i / 2][2 * h + i % 2] = grad_p[i / 2][2 * h + i % 2] - inner[h];
  }
#pragma unroll 1
  for (int level = 1; level < num_levels; ++level) {
    float p[2][4], log_sum[2];
    sight.next();
    sight.average(s), sight.average(grad_p), sight.average(total), sight.average(inner);
    sight.weigh(s, scale, p, log_sum);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Gates gates(total[h], log_sum[h]);
      const float gain = gain_of(p, grad_p, h, 1), to_child = gates.given * (inner[h] - gain);
      inner[h] = gates.given * gain + gates.kept * inner[h];
      total[h] = gates.total;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int n = i / 2, e = 2 * h + i % 2;
        weights[n][e] = gates.kept * weights[n][e] + gates.given * p[n][e];
        change[n][e] = sight.sees(h, n, i % 2) ? grad_p[n][e] - inner[h] : change[n][e] + to_child;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int n = i / 4, e = i % 4, h = e / 2;
    const float weight = weights[n][e];
    s[n][e] = weight == 0 ? 0.0f : scale * weight * (grad_energy[h] + mass[h] * change[n][e]);
    grad_p[n][e] = mass[h] * weight;
  }
}

}  // namespace ramify::cuda
