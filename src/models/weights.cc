#include "models/weights.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "text/json_files.h"

namespace ramify::models {
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

// TensorFlow's names of a norm's weight and bias are still in older checkpoints.
std::string name_of_today(const std::string& name) {
  for (const auto& [old, now] : {std::pair{".gamma", ".weight"}, std::pair{".beta", ".bias"}}) {
    if (name.ends_with(old)) return name.substr(0, name.size() - std::string_view(old).size()) + now;
  }
  return name;
}

bool is_shard_name(std::string_view name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

// What older versions stored beside the weights, and newer ones compute.
bool is_buffer(std::string_view name) {
  return name.ends_with("position_ids") || name.ends_with(".rotary_emb.inv_freq");
}

bool begins_with_any(std::string_view name, std::span<const std::string_view> prefixes) {
  return std::ranges::any_of(prefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

Weights::Weights(const std::string& folder) : folder_(folder) {
  const std::string single = folder + "/" + std::string(kSingleFile), index = folder + "/" + std::string(kIndexFile);
  if (std::filesystem::exists(single)) {
    add_file(single);
  } else if (std::filesystem::exists(index)) {
    add_shards(index);
  } else {
    throw io::Error(folder + ": has neither " + std::string(kSingleFile) + " nor " + std::string(kIndexFile) +
                    "; weights are read from safetensors only, never from pickles (*.bin)");
  }
}

void Weights::check_room(const ModelConfig& config) const {
  double stored = 0;
  for (const auto& [name, place] : places_) {
    stored += static_cast<double>(place.info->size) / static_cast<double>(io::dtype_bytes(place.info->dtype));
  }
  const double wanted = config.min_values();
  if (wanted <= stored) return;
  throw io::Error(folder_ + ": config.json describes a model of at least " + std::to_string(std::llround(wanted)) +
                  " values; its weights have " + std::to_string(std::llround(stored)));
}

void Weights::add_file(const std::string& path) {
  const auto& file = files_.emplace_back(std::make_unique<io::SafetensorsReader>(path));
  for (const io::TensorInfo& info : file->tensors()) {
    if (!places_.emplace(name_of_today(info.name), Place{file.get(), &info}).second) {
      throw io::Error(path + ": tensor " + io::printable(info.name) + " is there twice");
    }
  }
}

void Weights::add_shards(const std::string& index) {
  const nlohmann::json stored = text::read_json_file(index);
  const auto map = stored.find("weight_map");
  if (map == stored.end() || !map->is_object()) throw io::Error(index + ": has no weight_map");
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !is_shard_name(shard.get_ref<const std::string&>())) {
      const std::string found = shard.is_string() ? io::printable(shard.get_ref<const std::string&>()) : "no string";
      throw io::Error(index + ": tensor " + io::printable(tensor) + " is in " + found +
                      "; expected the name of a .safetensors file in the same folder");
    }
    shards.insert(shard.get<std::string>());
  }
  for (const std::string& shard : shards) add_file(folder_ + "/" + shard);
  for (const auto& [tensor, shard] : map->items()) {
    const auto place = places_.find(name_of_today(tensor));
    const std::string path = folder_ + "/" + shard.get<std::string>();
    if (place == places_.end() || place->second.file->path() != path) {
      throw io::Error(index + ": tensor " + io::printable(tensor) + " is not in " + path);
    }
  }
  for (const auto& [name, place] : places_) {
    if (!map->contains(place.info->name)) {
      throw io::Error(place.file->path() + ": tensor " + io::printable(name) + " is not in the index");
    }
  }
}

std::string Weights::prefix_of(const NamedTensors& parts, std::span<const std::string_view> prefixes) const {
  for (const std::string_view prefix : prefixes) {
    const auto has_prefix = [&](const auto& part) { return contains(std::string(prefix) + part.first); };
    if (std::ranges::any_of(parts, has_prefix)) return std::string(prefix);
  }
  return "";
}

void Weights::copy_into(const NamedTensors& parts, std::span<const std::string_view> prefixes,
                        std::span<const std::string_view> ignored) const {
  const std::string prefix = prefix_of(parts, prefixes);
  std::map<std::string, at::Tensor> wanted;
  for (const auto& [part, tensor] : parts) {
    const std::string name = contains(prefix + part) ? prefix + part : part;
    const auto place = places_.find(name);
    if (place == places_.end()) throw io::Error(folder_ + ": tensor " + prefix + part + " is missing");
    check_tensor(*place->second.file, *place->second.info, tensor);
    wanted.emplace(name, tensor);
  }
  for (const auto& [name, place] : places_) {
    const std::string_view bare = std::string_view(name).substr(name.starts_with(prefix) ? prefix.size() : 0);
    if (!wanted.contains(name) && !is_buffer(bare) && !begins_with_any(bare, ignored)) {
      throw io::Error(place.file->path() + ": tensor " + io::printable(place.info->name) +
                      " is not part of this architecture");
    }
  }
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : wanted) {
    const Place& place = places_.at(name);
    tensor.copy_(read_tensor(*place.file, *place.info));
  }
}

}  // namespace ramify::models
