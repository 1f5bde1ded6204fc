// The weights of a published model: model.safetensors, or the shards that model.safetensors.index.json lists.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "models/config.h"
#include "models/tensor_file.h"

namespace ramify::models {

class Weights {
 public:
  // io::Error names the file, and the tensor that is not where the index says.
  explicit Weights(const std::string& folder);

  bool contains(const std::string& name) const { return places_.contains(name); }

  // io::Error if there are fewer values than a network of this shape has: before memory is asked for.
  void check_room(const ModelConfig& config) const;

  // Copies each tensor into the one of `parts` with its name, converting between float32, float16 and bfloat16. The
  // names in the files may have one of `prefixes` in front ("bert."). Tensors that begin with one of `ignored` are no
  // part of the network and are left out; any other that is missing, too many, or of another shape or dtype is an
  // io::Error that names it, before anything is copied.
  void copy_into(const NamedTensors& parts, std::span<const std::string_view> prefixes,
                 std::span<const std::string_view> ignored) const;

 private:
  struct Place {
    const io::SafetensorsReader* file;
    const io::TensorInfo* info;
  };
  void add_file(const std::string& path);
  void add_shards(const std::string& index);
  std::string prefix_of(const NamedTensors& parts, std::span<const std::string_view> prefixes) const;

  std::string folder_;
  std::vector<std::unique_ptr<io::SafetensorsReader>> files_;
  std::map<std::string, Place> places_;  // by the names of today: older files say gamma and beta
};

}  // namespace ramify::models
