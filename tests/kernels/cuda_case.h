// A case of attention_cases.h in a CUDA device's memory, and what the kernels make of it.
#pragma once

#include <cuda_runtime.h>

#include <cstring>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "hierarchy/block_walk.h"
#include "kernels/cpu_case.h"
#include "kernels/cuda/attention.h"

namespace ramify::testing {

inline void check_cuda(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t size) : size_(size) { check_cuda(cudaMalloc(&data_, std::max<size_t>(size, 1))); }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  uint8_t* data() const { return static_cast<uint8_t*>(data_); }
  void upload(const void* from) { check_cuda(cudaMemcpy(data_, from, size_, cudaMemcpyHostToDevice)); }
  void download(void* to) const { check_cuda(cudaMemcpy(to, data_, size_, cudaMemcpyDeviceToHost)); }

 private:
  size_t size_;
  void* data_ = nullptr;
};

template <class Record>
class DeviceArray {
 public:
  explicit DeviceArray(std::span<const Record> values) : memory_(kBefore + values.size_bytes()), size_(values.size()) {
    std::vector<std::byte> bytes(kBefore + values.size_bytes());
    if (!values.empty()) std::memcpy(bytes.data() + kBefore, values.data(), values.size_bytes());
    memory_.upload(bytes.data());
  }
  std::span<const Record> view() const { return {reinterpret_cast<const Record*>(memory_.data() + kBefore), size_}; }

 private:
  static constexpr size_t kBefore = 8;  // tables lie at multiples of 8 bytes, no more
  DeviceMemory memory_;
  size_t size_;
};

// A walk whose tables are on the device.
class DeviceWalk {
 public:
  explicit DeviceWalk(BlockWalk walk) : host_(std::move(walk)) {}

  BlockWalkView view() const {
    BlockWalkView view = host_.view();
    view.nodes = nodes_.view(), view.families = families_.view(), view.members = members_.view();
    view.leaf_nodes = leaf_nodes_.view(), view.bare_leaves = bare_leaves_.view(), view.rounds = rounds_.view();
    view.units = units_.view(), view.wide_tiles = wide_tiles_.view(), view.groves = groves_.view(),
    view.tiles = tiles_.view();
    view.grove_families = grove_families_.view(), view.places = places_.view();
    view.grove_rounds = grove_rounds_.view(), view.tile_blocks = tile_blocks_.view();
    view.leaf_sights = leaf_sights_.view(), view.leaf_above = leaf_above_.view();
    return view;
  }

 private:
  BlockWalk host_;
  DeviceArray<BlockNode> nodes_{host_.nodes};
  DeviceArray<int64_t> families_{host_.families}, members_{host_.members}, leaf_nodes_{host_.leaf_nodes},
      bare_leaves_{host_.bare_leaves};
  DeviceArray<BlockRound> rounds_{host_.rounds};
  DeviceArray<BlockUnit> units_{host_.units};
  DeviceArray<WideTile> wide_tiles_{host_.wide_tiles};
  DeviceArray<BlockGrove> groves_{host_.groves};
  DeviceArray<GroveTile> tiles_{host_.tiles};
  DeviceArray<GroveFamily> grove_families_{host_.grove_families};
  DeviceArray<GrovePlace> places_{host_.places};
  DeviceArray<GroveRound> grove_rounds_{host_.grove_rounds};
  DeviceArray<TileBlock> tile_blocks_{host_.tile_blocks};
  DeviceArray<LeafSight> leaf_sights_{host_.leaf_sights};
  DeviceArray<LeafAbove> leaf_above_{host_.leaf_above};
};

// StoredRows with a copy on the device.
class DeviceRows : public StoredRows {
 public:
  DeviceRows(int64_t rows, int64_t heads, int64_t dim, cpu::Storage storage, Layout layout)
      : StoredRows(rows, heads, dim, storage, layout), memory_(bytes().size() + kLine) {}

  cuda::Rows device_view() {
    const cpu::Rows rows = view();
    return {begin() + offset(), rows.row_stride, rows.head_stride};
  }
  void upload() { check_cuda(cudaMemcpy(begin(), bytes().data(), bytes().size(), cudaMemcpyHostToDevice)); }
  void download() { check_cuda(cudaMemcpy(bytes().data(), begin(), bytes().size(), cudaMemcpyDeviceToHost)); }

 private:
  static constexpr size_t kLine = 64;
  uint8_t* begin() { return memory_.data() + reinterpret_cast<uintptr_t>(bytes().data()) % kLine; }

  DeviceMemory memory_;
};

// GuardedFloats likewise.
class DeviceFloats : public GuardedFloats {
 public:
  explicit DeviceFloats(int64_t size) : GuardedFloats(size), memory_((size + kBehind) * sizeof(float)) { upload(); }

  float* device_data() const { return reinterpret_cast<float*>(memory_.data()); }
  void upload() { memory_.upload(data()); }
  void download() { memory_.download(data()); }

 private:
  static constexpr int64_t kBehind = 32;  // less than GuardedFloats has there
  DeviceMemory memory_;
};

// Small ones have a crown above them in small forests, too.
enum class Groves { without, small, with };

class CudaCase {
 public:
  using Layout = StoredRows::Layout;

  CudaCase(const AttentionCase& c, AttentionArrays& arrays, cpu::Storage storage, Groves groves = Groves::with,
           Layout layout = Layout::dense)
      : case_(c),
        arrays_(arrays),
        storage_(storage),
        layout_(layout),
        contraction_(contract(c.forest)),
        q_(leaves(), c.heads, c.dim, storage, layout),
        k_(leaves(), c.key_heads, c.dim, storage, layout),
        v_(leaves(), c.key_heads, c.value_dim, storage, layout),
        grad_out_(leaves(), c.heads, c.value_dim, storage, layout),
        positions_(c.position_dim > 0 ? c.num_positions : 0, c.heads, c.position_dim, storage, layout),
        walk_(make_walk_for(groves)) {
    q_.store(arrays.q), k_.store(arrays.k), v_.store(arrays.v), grad_out_.store(arrays.grad_out);
    positions_.store(arrays.positions);
    for (DeviceRows* rows : {&q_, &k_, &v_, &grad_out_, &positions_}) rows->upload();
    for (double& value : arrays.grad_energy) value = static_cast<float>(value);
    params_ = params_without_walk();
    params_.walk = walk_.view();
    if (c.position_dim > 0) take_positions();
  }

  const cuda::AttentionParams& params() const { return params_; }

  CpuOutcome run() {
    DeviceRows out(leaves(), case_.heads, case_.value_dim, storage_, layout_);
    out.upload();
    DeviceFloats energy(num_roots() * case_.heads), saved(cuda::saved_size(params_));
    cuda::forward(params_, {out.device_view(), energy.device_data(), saved.device_data()}, nullptr);
    check_cuda(cudaDeviceSynchronize());
    out.download(), energy.download(), saved.download();
    CpuOutcome outcome;
    outcome.out = out.load(), outcome.energy = energy_of_trees(energy.values());
    outcome.bits = {out.bits(), energy.bits()};
    outcome.is_clean = out.is_clean_outside() && energy.is_clean_outside() && saved.is_clean_outside();
    outcome.is_clean = outcome.is_clean && outcome.bits == bits_without_saving();
    run_backward(saved, outcome);
    return outcome;
  }

 private:
  // Of out and energy where no backward pass will come.
  auto bits_without_saving() -> decltype(CpuOutcome::bits) {
    DeviceRows out(leaves(), case_.heads, case_.value_dim, storage_, layout_);
    out.upload();
    DeviceFloats energy(num_roots() * case_.heads), saved(cuda::saved_size(params_, cuda::Keep::nothing));
    cuda::forward(params_, {out.device_view(), energy.device_data(), saved.device_data(), cuda::Keep::nothing},
                  nullptr);
    check_cuda(cudaDeviceSynchronize());
    out.download(), energy.download(), saved.download();
    if (!saved.is_clean_outside()) return {};
    return {out.bits(), energy.bits()};
  }

  int64_t leaves() const { return case_.forest.num_leaves(); }
  int64_t num_roots() const { return params_.walk.totals.num_roots; }

  cuda::AttentionParams params_without_walk() {
    cuda::AttentionParams params;
    params.storage = static_cast<cuda::Storage>(storage_);
    params.heads = case_.heads, params.key_heads = case_.key_heads;
    params.dim = case_.dim, params.value_dim = case_.value_dim, params.position_dim = case_.position_dim;
    params.q = q_.device_view(), params.k = k_.device_view(), params.v = v_.device_view();
    params.scale = static_cast<float>(kScale);
    params.include_self = case_.mode.include_self, params.tie = case_.mode.tie, params.causal = case_.mode.causal;
    return params;
  }

  BlockWalk make_walk_for(Groves groves) {
    const bool in_lines = layout_ == Layout::dense || layout_ == Layout::lines_apart;
    const bool with = groves != Groves::without && in_lines && cuda::takes_groves(params_without_walk());
    const GroveLimits limits = !with ? kNoGroves : groves == Groves::small ? kSharedGroves : kGroves;
    return make_block_walk(contraction_.forest, limits);
  }

  void take_positions() {
    std::vector<int64_t> rows, order;  // of nodes, then of leaves
    for (const int64_t top : contraction_.top) rows.push_back(arrays_.position_index[top]);
    for (const int64_t node : case_.forest.leaf_nodes()) rows.push_back(arrays_.position_index[node]);
    order.resize(rows.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return rows[a] < rows[b]; });
    std::vector<int64_t> begin(case_.num_positions + 1);
    for (const int64_t row : rows) {
      for (int64_t p = row + 1; p <= case_.num_positions; ++p) ++begin[p];
    }
    const auto num_nodes = static_cast<int64_t>(contraction_.top.size());
    const std::span<const int64_t> all = rows;
    node_position_ = std::make_unique<DeviceArray<int64_t>>(all.first(num_nodes));
    self_position_ = std::make_unique<DeviceArray<int64_t>>(all.subspan(num_nodes));
    position_order_ = std::make_unique<DeviceArray<int64_t>>(order);
    position_begin_ = std::make_unique<DeviceArray<int64_t>>(begin);
    params_.positions = positions_.device_view();
    params_.node_position = node_position_->view().data(), params_.self_position = self_position_->view().data();
  }

  void run_backward(DeviceFloats& saved, CpuOutcome& outcome) {
    const AttentionCase& c = case_;
    DeviceRows q(leaves(), c.heads, c.dim, storage_, layout_), k(leaves(), c.key_heads, c.dim, storage_, layout_);
    DeviceRows v(leaves(), c.key_heads, c.value_dim, storage_, layout_);
    for (DeviceRows* rows : {&q, &k, &v}) rows->upload();
    DeviceFloats positions(static_cast<int64_t>(arrays_.positions.size()));
    DeviceFloats workspace(cuda::backward_workspace(params_));
    std::vector<float> grad_energy(num_roots() * c.heads);
    for_each_root([&](int64_t tree, int64_t root) {
      for (int64_t h = 0; h < c.heads; ++h) {
        grad_energy[root * c.heads + h] = static_cast<float>(arrays_.grad_energy[tree * c.heads + h]);
      }
    });
    const DeviceArray<float> device_grad_energy(grad_energy);
    cuda::BackwardInput input;
    input.grad_out = grad_out_.device_view();
    input.grad_root_energy = device_grad_energy.view().data(), input.saved = saved.device_data();
    if (c.position_dim > 0) {
      input.num_positions = c.num_positions;
      input.position_order = position_order_->view().data(), input.position_begin = position_begin_->view().data();
    }
    cuda::backward(params_, input, {q.device_view(), k.device_view(), v.device_view(), positions.device_data()},
                   workspace.device_data(), nullptr);
    check_cuda(cudaDeviceSynchronize());
    for (DeviceRows* rows : {&q, &k, &v}) rows->download();
    positions.download(), workspace.download();
    outcome.q = q.load(), outcome.k = k.load(), outcome.v = v.load();
    outcome.positions.assign(positions.values().begin(), positions.values().end());
    for (const auto& bits : {q.bits(), k.bits(), v.bits(), positions.bits()}) outcome.bits.push_back(bits);
    outcome.is_clean = outcome.is_clean && q.is_clean_outside() && k.is_clean_outside() && v.is_clean_outside() &&
                       positions.is_clean_outside() && workspace.is_clean_outside();
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
  DeviceRows q_, k_, v_, grad_out_, positions_;
  DeviceWalk walk_;
  std::unique_ptr<DeviceArray<int64_t>> node_position_, self_position_, position_order_, position_begin_;
  cuda::AttentionParams params_;
};

}  // namespace ramify::testing
