// The CPU kernels of rows beside attention (LayerNorm, bias and GELU, gradients of tables, AdamW) against their
// formulas in float64: shapes that are no multiple of the lanes, strides, degenerate rows, and the same bits whatever
// the number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numbers>
#include <random>

#include "kernels/cpu/adamw.h"
#include "kernels/cpu/bias_gelu.h"
#include "kernels/cpu/row_norm.h"
#include "kernels/cpu/table_gradient.h"
#include "kernels/cpu_case.h"

namespace ramify {
namespace {

using cpu::Storage;
using testing::GuardedFloats;
using testing::make_threads;
using testing::StoredRows;
using Layout = StoredRows::Layout;
using Numbers = std::vector<double>;

class CpuRows : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::is_supported()) GTEST_SKIP() << "no instruction set of this machine is among those compiled";
    const char* wish = std::getenv("RAMIFY_CPU_TARGET");
    if (wish && *wish && std::string(cpu::target_name()) != wish) GTEST_SKIP() << "this machine has no " << wish;
  }
};

Numbers normal_numbers(int64_t count, unsigned seed, double mean = 0, double deviation = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> draw;
  Numbers numbers(count);
  for (double& number : numbers) number = mean + deviation * draw(generator);
  return numbers;
}

std::vector<float> floats_of(Numbers& numbers) {
  std::vector<float> floats(numbers.begin(), numbers.end());
  numbers.assign(floats.begin(), floats.end());
  return floats;
}

// The largest difference, as a part of the largest entry (at least 1).
double distance(const Numbers& found, const Numbers& wanted) {
  double most = 0, size = 1;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::isnan(found[i]) != std::isnan(wanted[i])) return INFINITY;
    most = std::max(most, std::abs(found[i] - wanted[i]));
    size = std::max(size, std::abs(wanted[i]));
  }
  return most / size;
}
Numbers numbers_of(std::span<const float> floats) {
  return {floats.begin(), floats.end()};
}

double rounding(Storage storage) {
  return storage == Storage::float32 ? 3e-6 : storage == Storage::bfloat16 ? 1.0 / 256 : 1.0 / 2048;
}

struct NormCase {
  int64_t rows, heads, dim;
  Storage storage = Storage::float32;
  Layout layout = Layout::dense;
  double mean = 0, deviation = 1;
};

struct NormOutcome {
  std::vector<uint32_t> y, x, gain, bias;  // bits
};

// Runs a case, and compares with the formulas.
NormOutcome run_norm(const NormCase& c, int64_t threads, bool more = false) {
  const int64_t count = c.rows * c.heads * c.dim;
  Numbers x = normal_numbers(count, 1, c.mean, c.deviation), gain = normal_numbers(c.dim, 2, 1),
          bias = normal_numbers(c.dim, 3);
  Numbers grad = normal_numbers(count, 4), second = normal_numbers(count, 5);
  const std::vector<float> gains = floats_of(gain), biases = floats_of(bias);
  StoredRows xs(c.rows, c.heads, c.dim, c.storage, c.layout), ys(c.rows, c.heads, c.dim, c.storage, c.layout);
  StoredRows grads(c.rows, c.heads, c.dim, c.storage, c.layout), seconds(c.rows, c.heads, c.dim, c.storage);
  StoredRows grad_xs(c.rows, c.heads, c.dim, c.storage, c.layout);
  xs.store(x), grads.store(grad), seconds.store(second);
  cpu::NormParams params{.storage = c.storage, .rows = c.rows, .heads = c.heads, .dim = c.dim, .x = xs.view()};
  params.gain = gains.data(), params.bias = biases.data();
  cpu::norm_forward(params, ys.view(), make_threads(threads));
  GuardedFloats grad_gain(c.dim), grad_bias(c.dim), workspace(cpu::norm_workspace(params));
  cpu::NormBackward backward{.grad_y = grads.view(), .grad_x = grad_xs.view()};
  backward.grad_gain = grad_gain.data(), backward.grad_bias = grad_bias.data();
  if (more) backward.more_grad_y = seconds.view();
  cpu::norm_backward(params, backward, workspace.data(), make_threads(threads));

  Numbers wanted_y(count), wanted_x(count), wanted_gain(c.dim, 0), wanted_bias(c.dim, 0);
  for (int64_t at = 0; at < count; at += c.dim) {
    double mean = 0, variance = 0, mean_t = 0, mean_tn = 0;
    for (int64_t i = 0; i < c.dim; ++i) mean += x[at + i] / c.dim;
    for (int64_t i = 0; i < c.dim; ++i) variance += (x[at + i] - mean) * (x[at + i] - mean) / c.dim;
    const double inverse = 1 / std::sqrt(variance + 1e-5);
    const auto n = [&](int64_t i) { return (x[at + i] - mean) * inverse; };
    const auto g = [&](int64_t i) { return grad[at + i] + (more ? second[at + i] : 0); };
    for (int64_t i = 0; i < c.dim; ++i) {
      wanted_y[at + i] = n(i) * gain[i] + bias[i];
      wanted_gain[i] += g(i) * n(i), wanted_bias[i] += g(i);
      mean_t += g(i) * gain[i] / c.dim, mean_tn += g(i) * gain[i] * n(i) / c.dim;
    }
    for (int64_t i = 0; i < c.dim; ++i) wanted_x[at + i] = inverse * (g(i) * gain[i] - mean_t - n(i) * mean_tn);
  }
  const double allowed = rounding(c.storage);
  EXPECT_LE(distance(ys.load(), wanted_y), allowed);
  EXPECT_LE(distance(grad_xs.load(), wanted_x), allowed);
  EXPECT_LE(distance(numbers_of(grad_gain.values()), wanted_gain), 3e-6);
  EXPECT_LE(distance(numbers_of(grad_bias.values()), wanted_bias), 3e-6);
  EXPECT_TRUE(ys.is_clean_outside() && grad_xs.is_clean_outside() && grad_gain.is_clean_outside() &&
              grad_bias.is_clean_outside() && workspace.is_clean_outside());
  return {ys.bits(), grad_xs.bits(), grad_gain.bits(), grad_bias.bits()};
}

TEST_F(CpuRows, NormFollowsItsFormulas) {
  for (const Storage storage : testing::kStorages) {
    for (const int64_t dim : {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 128, 512}) {
      SCOPED_TRACE(dim);
      run_norm({.rows = 70, .heads = 3, .dim = dim, .storage = storage}, 1);
      run_norm({.rows = 5, .heads = 2, .dim = dim, .storage = storage, .layout = Layout::rows_apart}, 1, true);
      run_norm({.rows = 5, .heads = 2, .dim = dim, .storage = storage, .layout = Layout::heads_first}, 1);
    }
  }
}

TEST_F(CpuRows, NormOfRowsFarFromZeroAndOfEqualNumbers) {
  run_norm({.rows = 9, .heads = 2, .dim = 33, .mean = 100, .deviation = 10}, 1);
  // all channels alike: what is left is the bias, exactly
  const NormCase c{.rows = 4, .heads = 1, .dim = 3, .mean = 0.1, .deviation = 0};
  run_norm(c, 1);
  Numbers x(12, 0.1f);
  StoredRows xs(4, 1, 3, Storage::float32), ys(4, 1, 3, Storage::float32);
  xs.store(x);
  const std::vector<float> gain = {1, 2, 3}, bias = {4, 5, 6};
  cpu::NormParams params{.rows = 4, .heads = 1, .dim = 3, .x = xs.view()};
  params.gain = gain.data(), params.bias = bias.data();
  cpu::norm_forward(params, ys.view(), make_threads(1));
  EXPECT_EQ(ys.load(), Numbers({4, 5, 6, 4, 5, 6, 4, 5, 6, 4, 5, 6}));
}

TEST_F(CpuRows, NormOfNothing) {
  const NormOutcome none = run_norm({.rows = 0, .heads = 2, .dim = 4}, 1);
  EXPECT_EQ(none.gain, std::vector<uint32_t>(4, 0));
  run_norm({.rows = 3, .heads = 0, .dim = 4}, 2);
}

TEST_F(CpuRows, NormHasTheSameBitsForAnyNumberOfThreads) {
  const NormCase c{.rows = 700, .heads = 3, .dim = 20};
  const NormOutcome alone = run_norm(c, 1, true);
  for (const int64_t threads : {2, 3, 7}) {
    const NormOutcome shared = run_norm(c, threads, true);
    EXPECT_TRUE(alone.y == shared.y && alone.x == shared.x && alone.gain == shared.gain && alone.bias == shared.bias);
  }
}

struct GeluOutcome {
  std::vector<uint32_t> y, x, bias;
};

GeluOutcome run_gelu(int64_t rows, int64_t width, double deviation, int64_t threads) {
  Numbers x = normal_numbers(rows * width, 1, 0, deviation), bias = normal_numbers(width, 2),
          grad = normal_numbers(rows * width, 3);
  const std::vector<float> xs = floats_of(x), biases = floats_of(bias), grads = floats_of(grad);
  const cpu::BiasGeluParams params{rows, width, xs.data(), biases.data()};
  GuardedFloats y(rows * width), grad_x(rows * width), grad_bias(width), workspace(cpu::bias_gelu_workspace(params));
  cpu::bias_gelu_forward(params, y.data(), make_threads(threads));
  cpu::bias_gelu_backward(params, {grads.data(), grad_x.data(), grad_bias.data()}, workspace.data(),
                          make_threads(threads));
  Numbers wanted_bias(width, 0);
  for (int64_t i = 0; i < rows * width; ++i) {
    const double u = static_cast<float>(xs[i] + biases[i % width]);
    const double share = std::erfc(-u / std::numbers::sqrt2) / 2;
    const double slope = share + u * std::exp(-u * u / 2) / std::sqrt(2 * std::numbers::pi);
    EXPECT_NEAR(y.values()[i], u * share, 4e-7 * std::max(1.0, std::abs(u)));
    EXPECT_NEAR(grad_x.values()[i], grad[i] * slope, 1e-6 * std::max(1.0, std::abs(grad[i])));
    wanted_bias[i % width] += grad[i] * slope;
  }
  EXPECT_LE(distance(numbers_of(grad_bias.values()), wanted_bias), 3e-6);
  EXPECT_TRUE(y.is_clean_outside() && grad_x.is_clean_outside() && grad_bias.is_clean_outside());
  return {y.bits(), grad_x.bits(), grad_bias.bits()};
}

TEST_F(CpuRows, GeluOfSumsFollowsItsFormula) {
  for (const int64_t width : {1, 3, 8, 16, 17, 100, 128}) {
    for (const double deviation : {0.1, 1.0, 3.0, 30.0}) run_gelu(20, width, deviation, 1);
  }
  run_gelu(0, 5, 1, 1);
}

TEST_F(CpuRows, GeluHasTheSameBitsForAnyNumberOfThreads) {
  const GeluOutcome alone = run_gelu(300, 37, 1, 1), shared = run_gelu(300, 37, 1, 3);
  EXPECT_TRUE(alone.y == shared.y && alone.x == shared.x && alone.bias == shared.bias);
}

TEST_F(CpuRows, RowsOfATableGetTheSumsOfTheirTakers) {
  for (const int64_t width : {1, 5, 16, 64, 100}) {
    std::mt19937 generator(7);
    const int64_t table = 50, takers = 1500;
    std::vector<int64_t> ids(takers);
    for (int64_t& id : ids) id = std::min<int64_t>(table - 1, std::geometric_distribution<int64_t>(0.1)(generator));
    Numbers gradient = normal_numbers(takers * width, 1);
    const std::vector<float> floats = floats_of(gradient);
    Numbers wanted(table * width, 0);
    for (int64_t i = 0; i < takers; ++i) {
      for (int64_t c = 0; c < width; ++c) wanted[ids[i] * width + c] += gradient[i * width + c];
    }
    const cpu::TakenRows taken = cpu::taken_rows(ids, table);
    const auto rows = static_cast<int64_t>(taken.row.size());
    EXPECT_TRUE(std::ranges::is_sorted(taken.row));
    GuardedFloats alone(rows * width), shared(rows * width);
    cpu::sum_taken_rows(taken, floats.data(), width, alone.data(), make_threads(1));
    cpu::sum_taken_rows(taken, floats.data(), width, shared.data(), make_threads(3));
    EXPECT_EQ(alone.bits(), shared.bits());
    EXPECT_TRUE(alone.is_clean_outside());
    Numbers found(table * width, 0);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t c = 0; c < width; ++c) found[taken.row[i] * width + c] = alone.values()[i * width + c];
    }
    EXPECT_LE(distance(found, wanted), 3e-6);
  }
  EXPECT_TRUE(cpu::taken_rows({}, 3).row.empty());
}

TEST_F(CpuRows, AdamWTakesMissingRowsAsZero) {
  const int64_t rows = 900, width = 21;
  const std::vector<int64_t> touched = {0, 1, 5, 600, 899};
  Numbers values = normal_numbers(rows * width, 1), mean = normal_numbers(rows * width, 2),
          gradient = normal_numbers(5 * width, 3);
  Numbers square = normal_numbers(rows * width, 4);
  for (double& number : square) number *= number;
  std::fill_n(mean.begin() + 3 * width, width, 0.0), std::fill_n(square.begin() + 3 * width, width, 0.0);
  const std::vector<float> v = floats_of(values), m = floats_of(mean), s = floats_of(square), g = floats_of(gradient);
  const cpu::AdamWStep step{.rest = 0.999f,
                            .rate = 0.01f,
                            .mean_rate = 0.1f,
                            .square_rest = 0.99f,
                            .square_rate = 0.01f,
                            .root_scale = 1.5f,
                            .epsilon = 1e-8f};
  Numbers dense(rows * width, 0), wanted(rows * width);
  for (size_t i = 0; i < touched.size(); ++i) {
    std::copy_n(gradient.begin() + i * width, width, dense.begin() + touched[i] * width);
  }
  for (int64_t i = 0; i < rows * width; ++i) {
    mean[i] += step.mean_rate * (dense[i] - mean[i]);
    square[i] = step.square_rest * square[i] + step.square_rate * dense[i] * dense[i];
    wanted[i] = step.rest * values[i] - step.rate * mean[i] / (step.root_scale * std::sqrt(square[i]) + step.epsilon);
  }
  std::vector<std::vector<float>> results;
  for (const int64_t threads : {1, 4}) {
    std::vector<float> v2 = v, m2 = m, s2 = s;
    cpu::adamw_rows({.rows = rows,
                     .width = width,
                     .values = v2.data(),
                     .mean = m2.data(),
                     .square = s2.data(),
                     .gradient_rows = touched,
                     .gradient = g.data()},
                    step, make_threads(threads));
    EXPECT_LE(distance(numbers_of(v2), wanted), 1e-6);
    EXPECT_LE(distance(numbers_of(m2), mean), 1e-6);
    EXPECT_LE(distance(numbers_of(s2), square), 1e-6);
    results.push_back(v2);
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace ramify
