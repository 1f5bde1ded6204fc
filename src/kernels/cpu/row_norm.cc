#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_norm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include <algorithm>
#include <cmath>

#include "kernels/cpu/row_norm.h"
#include "kernels/cpu/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {
namespace {

template <class Lanes>
using NumberOf = typename Lanes::Number;

template <class Lanes>
NumberOf<Lanes>* row_at(const Rows& rows, int64_t row, int64_t head) {
  return static_cast<NumberOf<Lanes>*>(rows.data) + row * rows.row_stride + head * rows.head_stride;
}

// Channels c to c + kLanes of a row; 0 behind its end.
template <class Lanes>
HWY_INLINE V norm_load(const NumberOf<Lanes>* row, int64_t c, int64_t dim) {
  if (c + kLanes <= dim) return Lanes::load(row + c);
  HWY_ALIGN NumberOf<Lanes> rest[kLanes] = {};
  std::memcpy(rest, row + c, (dim - c) * sizeof(NumberOf<Lanes>));
  return Lanes::load(rest);
}
template <class Lanes>
HWY_INLINE void norm_store(V v, NumberOf<Lanes>* row, int64_t c, int64_t dim) {
  if (c + kLanes <= dim) return Lanes::store(v, row + c);
  HWY_ALIGN NumberOf<Lanes> rest[kLanes];
  Lanes::store(v, rest);
  std::memcpy(row + c, rest, (dim - c) * sizeof(NumberOf<Lanes>));
}
// 0 behind the row's end.
HWY_INLINE V within_row(V v, int64_t c, int64_t dim) {
  return c + kLanes <= dim ? v : hn::IfThenElseZero(first_lanes(dim - c), v);
}

// Writes x - mean into `centred` and returns 1 / sqrt(variance + epsilon). Sums run over differences from the first
// channel: exact where all are alike, and as good as any others elsewhere.
template <class Lanes>
HWY_INLINE float norm_centre_row(const NormParams& p, const NumberOf<Lanes>* x, float* centred) {
  const F f;
  const int64_t dim = p.dim;
  const V first = hn::Set(f, hn::GetLane(norm_load<Lanes>(x, 0, dim)));
  V sum = hn::Zero(f);
  for (int64_t c = 0; c < dim; c += kLanes) {
    const V difference = within_row(hn::Sub(norm_load<Lanes>(x, c, dim), first), c, dim);
    hn::Store(difference, f, centred + c);
    sum = hn::Add(sum, difference);
  }
  const V mean = hn::Set(f, sum_of_lanes(sum) / static_cast<float>(dim));
  V squares = hn::Zero(f);
  for (int64_t c = 0; c < dim; c += kLanes) {
    const V value = within_row(hn::Sub(hn::Load(f, centred + c), mean), c, dim);
    hn::Store(value, f, centred + c);
    squares = hn::MulAdd(value, value, squares);
  }
  return 1 / std::sqrt(sum_of_lanes(squares) / static_cast<float>(dim) + p.epsilon);
}

template <class Lanes>
void norm_forward_rows(const NormParams& p, const Rows& y, int64_t begin, int64_t end) {
  const F f;
  HWY_ALIGN float centred[kMaxDim + kLanes], gain[kMaxDim + kLanes], bias[kMaxDim + kLanes];
  for (int64_t c = 0; c < p.dim; c += kLanes) {
    hn::Store(load_first(p.gain + c, p.dim - c), f, gain + c);
    hn::Store(load_first(p.bias + c, p.dim - c), f, bias + c);
  }
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t head = 0; head < p.heads; ++head) {
      const V scale = hn::Set(f, norm_centre_row<Lanes>(p, row_at<Lanes>(p.x, row, head), centred));
      NumberOf<Lanes>* to = row_at<Lanes>(y, row, head);
      for (int64_t c = 0; c < p.dim; c += kLanes) {
        const V normal = hn::Mul(hn::Load(f, centred + c), scale);
        norm_store<Lanes>(hn::MulAdd(normal, hn::Load(f, gain + c), hn::Load(f, bias + c)), to, c, p.dim);
      }
    }
  }
}

// With n = (x - mean) / deviation and t = gain · grad_y:  grad_x = (t - mean(t) - n mean(t · n)) / deviation.
template <class Lanes>
void norm_backward_rows(const NormParams& p, const NormBackward& b, int64_t begin, int64_t end, float* grad_gain,
                        float* grad_bias) {
  const F f;
  const int64_t dim = p.dim;
  HWY_ALIGN float normal[kMaxDim + kLanes], scaled[kMaxDim + kLanes], gain[kMaxDim + kLanes];
  HWY_ALIGN float gain_sum[kMaxDim + kLanes], bias_sum[kMaxDim + kLanes];
  for (int64_t c = 0; c < dim; c += kLanes) {
    hn::Store(load_first(p.gain + c, dim - c), f, gain + c);
    hn::Store(hn::Zero(f), f, gain_sum + c);
    hn::Store(hn::Zero(f), f, bias_sum + c);
  }
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t head = 0; head < p.heads; ++head) {
      const float inverse = norm_centre_row<Lanes>(p, row_at<Lanes>(p.x, row, head), normal);
      const V deviations = hn::Set(f, inverse);
      const NumberOf<Lanes>* grad = row_at<Lanes>(b.grad_y, row, head);
      const NumberOf<Lanes>* more = b.more_grad_y.data ? row_at<Lanes>(b.more_grad_y, row, head) : nullptr;
      V sum = hn::Zero(f), products = hn::Zero(f);
      for (int64_t c = 0; c < dim; c += kLanes) {
        V g = norm_load<Lanes>(grad, c, dim);
        if (more) g = hn::Add(g, norm_load<Lanes>(more, c, dim));
        const V n = hn::Mul(hn::Load(f, normal + c), deviations), t = hn::Mul(g, hn::Load(f, gain + c));
        hn::Store(n, f, normal + c);
        hn::Store(t, f, scaled + c);
        hn::Store(hn::MulAdd(g, n, hn::Load(f, gain_sum + c)), f, gain_sum + c);
        hn::Store(hn::Add(g, hn::Load(f, bias_sum + c)), f, bias_sum + c);
        sum = hn::Add(sum, t);
        products = hn::MulAdd(t, n, products);
      }
      const V mean = hn::Set(f, sum_of_lanes(sum) / static_cast<float>(dim));
      const V slope = hn::Set(f, sum_of_lanes(products) / static_cast<float>(dim));
      NumberOf<Lanes>* to = row_at<Lanes>(b.grad_x, row, head);
      for (int64_t c = 0; c < dim; c += kLanes) {
        const V rest = hn::NegMulAdd(hn::Load(f, normal + c), slope, hn::Sub(hn::Load(f, scaled + c), mean));
        norm_store<Lanes>(hn::Mul(rest, deviations), to, c, dim);
      }
    }
  }
  for (int64_t c = 0; c < dim; c += kLanes) {
    store_first(hn::Load(f, gain_sum + c), grad_gain + c, dim - c);
    store_first(hn::Load(f, bias_sum + c), grad_bias + c, dim - c);
  }
}

// The same for rows of a few whole vectors, which stay in registers.
template <int Vectors>
struct NormRow {
  NormRow() {}  // the compiler's own would not be of the instruction set, and could not have NEON's vectors
  V at[Vectors];
};

template <class Lanes, int Vectors>
HWY_INLINE float norm_centre(const NormParams& p, const NumberOf<Lanes>* x, NormRow<Vectors>& centred) {
  const F f;
  const float share = 1.0f / (Vectors * kLanes);
  RAMIFY_UNROLL
  for (int i = 0; i < Vectors; ++i) centred.at[i] = Lanes::load(x + i * kLanes);
  const V first = hn::Set(f, hn::GetLane(centred.at[0]));
  V sum = hn::Zero(f), squares = hn::Zero(f);
  RAMIFY_UNROLL
  for (int i = 0; i < Vectors; ++i) {
    centred.at[i] = hn::Sub(centred.at[i], first);
    sum = hn::Add(sum, centred.at[i]);
  }
  const V mean = hn::Mul(hn::SumOfLanes(f, sum), hn::Set(f, share));
  RAMIFY_UNROLL
  for (int i = 0; i < Vectors; ++i) {
    centred.at[i] = hn::Sub(centred.at[i], mean);
    squares = hn::MulAdd(centred.at[i], centred.at[i], squares);
  }
  return 1 / std::sqrt(sum_of_lanes(squares) * share + p.epsilon);
}

template <class Lanes, int Vectors>
void norm_forward_vectors(const NormParams& p, const Rows& y, int64_t begin, int64_t end) {
  const F f;
  NormRow<Vectors> gain, bias, row;
  RAMIFY_UNROLL
  for (int i = 0; i < Vectors; ++i) {
    gain.at[i] = hn::LoadU(f, p.gain + i * kLanes);
    bias.at[i] = hn::LoadU(f, p.bias + i * kLanes);
  }
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t head = 0; head < p.heads; ++head) {
      const V scale = hn::Set(f, norm_centre<Lanes, Vectors>(p, row_at<Lanes>(p.x, r, head), row));
      NumberOf<Lanes>* to = row_at<Lanes>(y, r, head);
      RAMIFY_UNROLL
      for (int i = 0; i < Vectors; ++i) {
        Lanes::store(hn::MulAdd(hn::Mul(row.at[i], scale), gain.at[i], bias.at[i]), to + i * kLanes);
      }
    }
  }
}

template <class Lanes, int Vectors>
void norm_backward_vectors(const NormParams& p, const NormBackward& b, int64_t begin, int64_t end, float* grad_gain,
                           float* grad_bias) {
  const F f;
  const V share = hn::Set(f, 1.0f / (Vectors * kLanes));
  NormRow<Vectors> gain, gain_sum, bias_sum, normal, scaled;
  RAMIFY_UNROLL
  for (int i = 0; i < Vectors; ++i) {
    gain.at[i] = hn::LoadU(f, p.gain + i * kLanes);
    gain_sum.at[i] = bias_sum.at[i] = hn::Zero(f);
  }
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t head = 0; head < p.heads; ++head) {
      const V scale = hn::Set(f, norm_centre<Lanes, Vectors>(p, row_at<Lanes>(p.x, r, head), normal));
      const NumberOf<Lanes>* grad = row_at<Lanes>(b.grad_y, r, head);
      const NumberOf<Lanes>* more = b.more_grad_y.data ? row_at<Lanes>(b.more_grad_y, r, head) : nullptr;
      V sum = hn::Zero(f), products = hn::Zero(f);
      RAMIFY_UNROLL
      for (int i = 0; i < Vectors; ++i) {
        V g = Lanes::load(grad + i * kLanes);
        if (more) g = hn::Add(g, Lanes::load(more + i * kLanes));
        normal.at[i] = hn::Mul(normal.at[i], scale);
        scaled.at[i] = hn::Mul(g, gain.at[i]);
        gain_sum.at[i] = hn::MulAdd(g, normal.at[i], gain_sum.at[i]);
        bias_sum.at[i] = hn::Add(g, bias_sum.at[i]);
        sum = hn::Add(sum, scaled.at[i]);
        products = hn::MulAdd(scaled.at[i], normal.at[i], products);
      }
      const V mean = hn::Mul(hn::SumOfLanes(f, sum), share), slope = hn::Mul(hn::SumOfLanes(f, products), share);
      NumberOf<Lanes>* to = row_at<Lanes>(b.grad_x, r, head);
      RAMIFY_UNROLL
      for (int i = 0; i < Vectors; ++i) {
        const V rest = hn::NegMulAdd(normal.at[i], slope, hn::Sub(scaled.at[i], mean));
        Lanes::store(hn::Mul(rest, scale), to + i * kLanes);
      }
    }
  }
  for (int i = 0; i < Vectors; ++i) {
    hn::StoreU(gain_sum.at[i], f, grad_gain + i * kLanes);
    hn::StoreU(bias_sum.at[i], f, grad_bias + i * kLanes);
  }
}

// run.operator()<Vectors>() where a row is so many whole vectors; false: it is not.
template <class Run>
HWY_INLINE bool with_vectors(int64_t dim, const Run& run) {
  if (dim == kLanes) return run.template operator()<1>(), true;
  if (dim == 2 * kLanes) return run.template operator()<2>(), true;
  if (dim == 4 * kLanes) return run.template operator()<4>(), true;
  if (dim == 8 * kLanes) return run.template operator()<8>(), true;
  return false;
}

void norm_forward_impl(const NormParams& p, const Rows& y, int64_t begin, int64_t end) {
  with_lanes(p.storage, [&]<class Lanes>(Lanes) {
    const auto few = [&]<int Vectors>() { norm_forward_vectors<Lanes, Vectors>(p, y, begin, end); };
    if (!with_vectors(p.dim, few)) norm_forward_rows<Lanes>(p, y, begin, end);
  });
}
void norm_backward_impl(const NormParams& p, const NormBackward& b, int64_t begin, int64_t end, float* grad_gain,
                        float* grad_bias) {
  with_lanes(p.storage, [&]<class Lanes>(Lanes) {
    const auto few = [&]<int Vectors>() {
      norm_backward_vectors<Lanes, Vectors>(p, b, begin, end, grad_gain, grad_bias);
    };
    if (!with_vectors(p.dim, few)) norm_backward_rows<Lanes>(p, b, begin, end, grad_gain, grad_bias);
  });
}

}  // namespace
}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ramify::cpu {
namespace {

HWY_EXPORT(norm_forward_impl);
HWY_EXPORT(norm_backward_impl);

// Gradients of gain and bias are summed block by block, so that threads do not change the order.
constexpr int64_t kBlockRows = 64;

int64_t num_blocks(const NormParams& p) {
  return (p.rows + kBlockRows - 1) / kBlockRows;
}

// task(block) for all blocks; few of them are not worth a second thread.
void for_blocks(const NormParams& p, const Threads& threads, const std::function<void(int64_t block)>& task) {
  constexpr int64_t kSerialNumbers = 1 << 14;
  const Task blocks = [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t block = begin; block < end; ++block) task(block);
  };
  if (p.rows * p.heads * p.dim <= kSerialNumbers) return blocks(0, num_blocks(p), 0);
  threads.run(num_blocks(p), blocks);
}

int64_t block_end(const NormParams& p, int64_t block) {
  return std::min(p.rows, (block + 1) * kBlockRows);
}

}  // namespace

void norm_forward(const NormParams& params, const Rows& y, const Threads& threads) {
  is_supported();  // RAMIFY_CPU_TARGET counts here, too
  for_blocks(params, threads, [&](int64_t block) {
    HWY_DYNAMIC_DISPATCH(norm_forward_impl)(params, y, block * kBlockRows, block_end(params, block));
  });
}

int64_t norm_workspace(const NormParams& params) {
  return num_blocks(params) * 2 * params.dim;
}

void norm_backward(const NormParams& params, const NormBackward& backward, float* workspace, const Threads& threads) {
  is_supported();
  const int64_t dim = params.dim;
  for_blocks(params, threads, [&](int64_t block) {
    float* sums = workspace + block * 2 * dim;
    HWY_DYNAMIC_DISPATCH(norm_backward_impl)
    (params, backward, block * kBlockRows, block_end(params, block), sums, sums + dim);
  });
  std::fill_n(backward.grad_gain, dim, 0.0f);
  std::fill_n(backward.grad_bias, dim, 0.0f);
  for (int64_t block = 0; block < num_blocks(params); ++block) {
    const float* sums = workspace + block * 2 * dim;
    for (int64_t c = 0; c < dim; ++c) {
      backward.grad_gain[c] += sums[c];
      backward.grad_bias[c] += sums[dim + c];
    }
  }
}

}  // namespace ramify::cpu
#endif
