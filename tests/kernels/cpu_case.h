// A case of attention_cases.h in the memory of the fused CPU kernels: storage, strides, threads, and what surrounds it.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <ostream>
#include <span>
#include <thread>
#include <vector>

#include "hierarchy/contraction.h"
#include "hierarchy/walk.h"
#include "kernels/attention_cases.h"
#include "kernels/cpu/attention.h"

namespace ramify::cpu {

inline void PrintTo(Storage storage, std::ostream* stream) {
  const char* names[] = {"float32", "bfloat16", "float16"};
  *stream << names[static_cast<int>(storage)];
}

}  // namespace ramify::cpu

namespace ramify::testing {

inline constexpr cpu::Storage kStorages[] = {cpu::Storage::float32, cpu::Storage::bfloat16, cpu::Storage::float16};

inline bool applies_to_cpu(const AttentionCase& c) {
  return c.mode.alpha == 1 && c.alpha_levels.empty();
}

// The modes that the kernels have.
inline std::vector<AttentionMode> cpu_modes() {
  return attention_modes({1});
}

inline int64_t bytes_of(cpu::Storage storage) {
  return storage == cpu::Storage::float32 ? 4 : 2;
}

// The nearest number that a storage has, half to even, as its bits.
inline uint32_t encode(double value, cpu::Storage storage) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (storage == cpu::Storage::float32) return bits;
  if (storage == cpu::Storage::bfloat16) {
    return std::isnan(value) ? 0x7fc0u : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  }
  const uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  if (std::isnan(value)) return sign | 0x7e00u;
  const int exponent = std::max(std::ilogb(value == 0 ? 1e-30 : value), -14);
  const auto units = static_cast<int64_t>(std::nearbyint(std::ldexp(std::abs(value), 10 - exponent)));
  if (exponent > 15 || (exponent == 15 && units > 2047)) return sign | 0x7c00u;
  // units runs from 1024 to 2048 for normal numbers, so that 2048 carries into the exponent
  return sign | static_cast<uint32_t>((exponent + 14) * 1024 + units);
}

inline double decode(uint32_t bits, cpu::Storage storage) {
  if (storage == cpu::Storage::float32) return std::bit_cast<float>(bits);
  if (storage == cpu::Storage::bfloat16) return std::bit_cast<float>(bits << 16);
  const double sign = bits & 0x8000u ? -1 : 1;
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const double fraction = bits & 1023u;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

// [rows, heads, dim] inside a larger array that is NaN everywhere else: whoever reads beside a row spoils its result,
// and whoever writes there is seen.
class StoredRows {
 public:
  enum class Layout {
    dense,
    rows_apart,   // gaps between heads and rows
    lines_apart,  // the same, of whole 16 bytes
    heads_first,  // [heads, rows, dim], with gaps
  };

  StoredRows(int64_t rows, int64_t heads, int64_t dim, cpu::Storage storage, Layout layout = Layout::dense)
      : rows_(rows), heads_(heads), dim_(dim), storage_(storage) {
    const bool heads_first = layout == Layout::heads_first, in_lines = layout == Layout::lines_apart;
    const int64_t gap = layout == Layout::dense ? 0 : in_lines ? 8 : 5;
    head_stride_ = heads_first ? (dim + gap) * rows + 3 : dim + gap;
    row_stride_ = heads_first ? dim + gap : head_stride_ * heads + (gap == 5 ? 7 : gap);
    const int64_t span = rows * heads == 0 ? 0 : (rows - 1) * row_stride_ + (heads - 1) * head_stride_ + dim;
    size_ = (kMargin + span + kMarginBehind) * bytes_of(storage);
    memory_.reset(static_cast<uint8_t*>(::operator new(size_, std::align_val_t(kLine))));
    std::memset(memory_.get(), 0xff, size_);
  }
  cpu::Rows view() { return {memory_.get() + offset(), row_stride_, head_stride_}; }

  // All the memory, for whoever copies it, and where the rows begin in it.
  std::span<uint8_t> bytes() { return {memory_.get(), static_cast<size_t>(size_)}; }
  int64_t offset() const { return kMargin * bytes_of(storage_); }

  // Writes numbers [rows, heads, dim] and puts what became of them back.
  void store(std::vector<double>& values) {
    for_each([&](int64_t i, int64_t place) {
      set(place, encode(values[i], storage_));
      values[i] = decode(get(place), storage_);
    });
  }
  std::vector<double> load() const {
    std::vector<double> values(rows_ * heads_ * dim_);
    for_each([&](int64_t i, int64_t place) { values[i] = decode(get(place), storage_); });
    return values;
  }
  // The bits of all rows.
  std::vector<uint32_t> bits() const {
    std::vector<uint32_t> values(rows_ * heads_ * dim_);
    for_each([&](int64_t i, int64_t place) { values[i] = get(place); });
    return values;
  }
  // Whether what lies around the rows is as it was.
  bool is_clean_outside() const {
    std::vector<uint8_t> rest(memory_.get(), memory_.get() + size_);
    for_each([&](int64_t, int64_t place) {
      std::memset(rest.data() + offset() + place * bytes_of(storage_), 0xff, bytes_of(storage_));
    });
    return std::all_of(rest.begin(), rest.end(), [](uint8_t byte) { return byte == 0xff; });
  }

 private:
  static constexpr int64_t kLine = 64, kMargin = 64;
#if defined(__SANITIZE_ADDRESS__)
  static constexpr int64_t kMarginBehind = 0;  // the sanitizer sees who reads behind the last row
#else
  static constexpr int64_t kMarginBehind = kMargin;
#endif
  struct Free {
    void operator()(uint8_t* memory) const { ::operator delete(memory, std::align_val_t(kLine)); }
  };

  template <class Visit>
  void for_each(const Visit& visit) const {
    int64_t i = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t head = 0; head < heads_; ++head) {
        for (int64_t c = 0; c < dim_; ++c) visit(i++, row * row_stride_ + head * head_stride_ + c);
      }
    }
  }
  void set(int64_t place, uint32_t bits) {
    std::memcpy(memory_.get() + offset() + place * bytes_of(storage_), &bits, bytes_of(storage_));
  }
  uint32_t get(int64_t place) const {
    uint32_t bits = 0;
    std::memcpy(&bits, memory_.get() + offset() + place * bytes_of(storage_), bytes_of(storage_));
    return bits;
  }

  int64_t rows_, heads_, dim_, row_stride_, head_stride_;
  cpu::Storage storage_;
  int64_t size_ = 0;
  std::unique_ptr<uint8_t[], Free> memory_;
};

// Floats at a cache line, all NaN, with more behind them that must stay so.
class GuardedFloats {
 public:
  explicit GuardedFloats(int64_t size) : size_(size), floats_(size + 2 * kGuard) {
    std::memset(floats_.data(), 0xff, floats_.size() * sizeof(float));
    const auto address = reinterpret_cast<uintptr_t>(floats_.data());
    begin_ = static_cast<int64_t>(((address + 63) / 64 * 64 - address) / sizeof(float));
  }
  GuardedFloats(const GuardedFloats&) = delete;
  GuardedFloats& operator=(const GuardedFloats&) = delete;

  float* data() { return floats_.data() + begin_; }
  std::span<const float> values() const { return {floats_.data() + begin_, static_cast<size_t>(size_)}; }
  std::vector<uint32_t> bits() const {
    std::vector<uint32_t> bits(size_);
    if (size_ > 0) std::memcpy(bits.data(), floats_.data() + begin_, size_ * sizeof(float));
    return bits;
  }
  bool is_clean_outside() const {
    return std::all_of(floats_.begin() + begin_ + size_, floats_.end(),
                       [](float value) { return std::bit_cast<uint32_t>(value) == 0xffffffffu; });
  }

 private:
  static constexpr int64_t kGuard = 64;
  int64_t size_;
  std::vector<float> floats_;
  int64_t begin_;
};

// Threads that take the parts of a task as they come, one at a time: no two runs share the work alike.
inline cpu::Threads make_threads(int64_t count) {
  if (count == 1) return {1, [](int64_t parts, const cpu::Task& task) { task(0, parts, 0); }};
  return {count, [count](int64_t parts, const cpu::Task& task) {
            std::atomic<int64_t> next = 0;
            const auto work = [&](int64_t number) {
              for (int64_t part = next++; part < parts; part = next++) task(part, part + 1, number);
            };
            std::vector<std::thread> others;
            for (int64_t t = 1; t < std::min(count, parts); ++t) others.emplace_back(work, t);
            work(0);
            for (std::thread& other : others) other.join();
          }};
}

// What the kernels made of a case.
struct CpuOutcome {
  std::vector<double> out, energy;          // energy a tree
  std::vector<double> q, k, v, positions;   // gradients
  std::vector<std::vector<uint32_t>> bits;  // of all of these and of what forward saved
  bool is_clean = true;                     // nothing was written beside results and workspace
};

// Runs cases; numbers of `arrays` are rounded to the storage.
class CpuCase {
 public:
  using Layout = StoredRows::Layout;

  CpuCase(const AttentionCase& c, AttentionArrays& arrays, cpu::Storage storage, Layout layout = Layout::dense)
      : case_(c),
        arrays_(arrays),
        storage_(storage),
        layout_(layout),
        contraction_(contract(c.forest)),
        walk_(make_walk(contraction_.forest)),
        q_(leaves(), c.heads, c.dim, storage, layout),
        k_(leaves(), c.key_heads, c.dim, storage, layout),
        v_(leaves(), c.key_heads, c.value_dim, storage, layout),
        grad_out_(leaves(), c.heads, c.value_dim, storage, layout),
        positions_(c.position_dim > 0 ? c.num_positions : 0, c.heads, c.position_dim, storage, layout) {
    q_.store(arrays.q), k_.store(arrays.k), v_.store(arrays.v), grad_out_.store(arrays.grad_out);
    positions_.store(arrays.positions);
    for (double& value : arrays.grad_energy) value = static_cast<float>(value);
    params_.walk = walk_.view();
    params_.storage = storage;
    params_.heads = c.heads, params_.key_heads = c.key_heads;
    params_.dim = c.dim, params_.value_dim = c.value_dim;
    params_.q = q_.view(), params_.k = k_.view(), params_.v = v_.view();
    params_.scale = static_cast<float>(kScale);
    params_.include_self = c.mode.include_self, params_.tie = c.mode.tie, params_.causal = c.mode.causal;
    params_.window = c.mode.window;
    if (c.position_dim > 0) take_positions();
  }

  const cpu::AttentionParams& params() const { return params_; }

  CpuOutcome run(const cpu::Threads& threads) {
    StoredRows out(leaves(), case_.heads, case_.value_dim, storage_, layout_);
    GuardedFloats energy(walk_.totals.num_roots * case_.heads), saved(cpu::saved_size(params_));
    GuardedFloats workspace(cpu::forward_workspace(params_, threads.count));
    cpu::forward(params_, {out.view(), energy.data(), saved.data()}, workspace.data(), threads);
    CpuOutcome outcome;
    outcome.out = out.load(), outcome.energy = energy_of_trees(energy.values());
    outcome.bits = {out.bits(), energy.bits(), saved.bits()};
    outcome.is_clean =
        out.is_clean_outside() && energy.is_clean_outside() && saved.is_clean_outside() && workspace.is_clean_outside();
    run_backward(saved, threads, outcome);
    return outcome;
  }

 private:
  int64_t leaves() const { return case_.forest.num_leaves(); }

  void take_positions() {
    for (const int64_t top : contraction_.top) node_position_.push_back(arrays_.position_index[top]);
    for (const int64_t node : case_.forest.leaf_nodes()) self_position_.push_back(arrays_.position_index[node]);
    params_.position_dim = case_.position_dim, params_.positions = positions_.view();
    params_.node_position = node_position_, params_.self_position = self_position_;
  }

  void run_backward(GuardedFloats& saved, const cpu::Threads& threads, CpuOutcome& outcome) {
    const AttentionCase& c = case_;
    StoredRows q(leaves(), c.heads, c.dim, storage_, layout_), k(leaves(), c.key_heads, c.dim, storage_, layout_);
    StoredRows v(leaves(), c.key_heads, c.value_dim, storage_, layout_);
    GuardedFloats positions(static_cast<int64_t>(arrays_.positions.size()));
    GuardedFloats workspace(cpu::backward_workspace(params_, threads.count));
    std::vector<float> grad_energy(walk_.totals.num_roots * c.heads);
    for_each_root([&](int64_t tree, int64_t root) {
      for (int64_t h = 0; h < c.heads; ++h) {
        grad_energy[root * c.heads + h] = static_cast<float>(arrays_.grad_energy[tree * c.heads + h]);
      }
    });
    cpu::BackwardInput input;
    input.grad_out = grad_out_.view(), input.grad_root_energy = grad_energy.data(), input.saved = saved.data();
    input.num_positions = c.position_dim > 0 ? c.num_positions : 0;
    cpu::backward(params_, input, {q.view(), k.view(), v.view(), positions.data()}, workspace.data(), threads);
    outcome.q = q.load(), outcome.k = k.load(), outcome.v = v.load();
    outcome.positions.assign(positions.values().begin(), positions.values().end());
    for (const auto& bits : {q.bits(), k.bits(), v.bits(), positions.bits()}) outcome.bits.push_back(bits);
    outcome.is_clean = outcome.is_clean && q.is_clean_outside() && k.is_clean_outside() && v.is_clean_outside() &&
                       positions.is_clean_outside() && saved.is_clean_outside() && workspace.is_clean_outside();
  }

  template <class Visit>
  void for_each_root(const Visit& visit) const {
    const auto begin = case_.forest.tree_begin();
    for (int64_t t = 0; t < case_.forest.num_trees(); ++t) {
      if (begin[t] < begin[t + 1]) visit(t, begin[t]);
    }
  }

  std::vector<double> energy_of_trees(std::span<const float> roots) const {
    std::vector<double> energy(case_.forest.num_trees() * case_.heads, -std::numeric_limits<double>::infinity());
    for_each_root([&](int64_t tree, int64_t root) {
      std::copy_n(roots.begin() + root * case_.heads, case_.heads, energy.begin() + tree * case_.heads);
    });
    return energy;
  }

  const AttentionCase& case_;
  const AttentionArrays& arrays_;
  cpu::Storage storage_;
  Layout layout_;
  Contraction contraction_;
  Walk walk_;
  StoredRows q_, k_, v_, grad_out_, positions_;
  std::vector<int64_t> node_position_, self_position_;
  cpu::AttentionParams params_;
};

}  // namespace ramify::testing
