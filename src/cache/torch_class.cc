// The cache as a TorchBind class, for Python (python/ramify/cache.py).
#include <ATen/ops/empty.h>
#include <torch/custom_class.h>

#include <cstring>

#include "ramify/cache.h"

namespace ramify {
namespace {

at::Tensor tensor_of(const std::string& bytes) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.to(at::kCPU, at::kByte).contiguous();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

struct CacheHandle : torch::CustomClassHolder {
  CacheHandle(std::vector<int64_t> shape, std::string hierarchy, const std::string& tie, int64_t window,
              std::optional<double> scale, std::string owner, int64_t sequences)
      : cache({.heads = shape.at(0),
               .key_heads = shape.at(1),
               .dim = shape.at(2),
               .value_dim = shape.at(3),
               .hierarchy = std::move(hierarchy),
               .tie = tie == "none" ? Tie::none : Tie::block,
               .window = window,
               .scale = scale,
               .owner = std::move(owner)},
              sequences) {}
  explicit CacheHandle(HierarchicalCache given) : cache(std::move(given)) {}
  HierarchicalCache cache;
};
using Handle = c10::intrusive_ptr<CacheHandle>;

}  // namespace

TORCH_LIBRARY_FRAGMENT(ramify, m) {
  m.class_<CacheHandle>("HierarchicalCache")
      .def(torch::init<std::vector<int64_t>, std::string, std::string, int64_t, std::optional<double>, std::string,
                       int64_t>())
      .def("append", [](const Handle& self, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        std::optional<int64_t> sequence) { return self->cache.append(q, k, v, sequence); })
      .def("look", [](const Handle& self, const at::Tensor& q) { return self->cache.look(q); })
      .def("close", [](const Handle& self, int64_t level,
                       std::optional<int64_t> sequence) { self->cache.close(level, sequence); })
      .def("roll_back", [](const Handle& self, int64_t tokens) { self->cache.roll_back(tokens); })
      .def("max_roll_back", [](const Handle& self) { return self->cache.max_roll_back(); })
      .def("reorder", [](const Handle& self, const std::vector<int64_t>& sequences) { self->cache.reorder(sequences); })
      .def("fork", [](const Handle& self) { return c10::make_intrusive<CacheHandle>(HierarchicalCache(self->cache)); })
      .def("num_sequences", [](const Handle& self) { return self->cache.num_sequences(); })
      .def("tokens", [](const Handle& self, int64_t sequence) { return self->cache.tokens(sequence); })
      .def("bytes", [](const Handle& self) { return self->cache.bytes(); })
      .def("serialize", [](const Handle& self) { return tensor_of(self->cache.serialize()); })
      // of the same options as this one
      .def(
          "restore",
          [](const Handle& self, const at::Tensor& bytes) {
            return c10::make_intrusive<CacheHandle>(HierarchicalCache::restore(bytes_of(bytes), self->cache.options()));
          })
      .def_static("restored", [](const at::Tensor& bytes) {
        return c10::make_intrusive<CacheHandle>(HierarchicalCache::restore(bytes_of(bytes)));
      });
}

}  // namespace ramify
