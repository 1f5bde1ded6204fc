// The user's own word on the kinds of fields.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "signal/inference.h"
#include "signal/path.h"

namespace ramify::signal {
namespace {

using nlohmann::json;

constexpr size_t kMaxBytes = size_t{16} << 20;

Declaration declaration_of(const json& said) {
  if (said.is_string()) return {kind_of(said.get<std::string>()), std::nullopt};
  if (!said.is_object()) throw std::invalid_argument("expected the name of a kind");
  Declaration declaration;
  for (const auto& [key, value] : said.items()) {
    if (key == "kind") {
      declaration.kind = kind_of(value.get<std::string>());
    } else if (key == "levels") {
      std::string list;
      for (const json& level : value) list += (list.empty() ? "" : ",") + level.get<std::string>();
      declaration.levels = parse_text_levels(list);
    } else {
      throw std::invalid_argument(fmt::format("'{}' is not known here; expected kind or levels", key));
    }
  }
  if (declaration.levels && declaration.kind != Kind::text) throw std::invalid_argument("levels are for texts");
  return declaration;
}

void read_image_options(const json& said, ImageOptions& image) {
  constexpr int64_t kMaxSide = 16384;
  if (!said.is_object()) throw std::invalid_argument("image is no object; expected patch, longest_side, width, height");
  for (const auto& [key, value] : said.items()) {
    int64_t* option = key == "patch"          ? &image.patch
                      : key == "longest_side" ? &image.longest_side
                      : key == "width"        ? &image.width
                      : key == "height"       ? &image.height
                                              : nullptr;
    if (!option) {
      throw std::invalid_argument(
          fmt::format("image.{} is not known; expected patch, longest_side, width, height", key));
    }
    const bool is_right = value.is_number_integer() && value >= 1 && value <= kMaxSide;
    if (!is_right) {
      throw std::invalid_argument(fmt::format("image.{} is {:.40}; expected 1 to {}", key, value.dump(), kMaxSide));
    }
    value.get_to(*option);
  }
}

void read(const json& file, SchemaOptions& options) {
  if (!file.is_object()) throw std::invalid_argument(R"(expected {"fields": {"PATH": "KIND", ...}})");
  for (const auto& [key, value] : file.items()) {
    if (key == "image") {
      read_image_options(value, options.image);
    } else if (key != "fields") {
      throw std::invalid_argument(fmt::format("'{}' is not known; expected fields or image", key));
    }
  }
  const json fields = file.value("fields", json::object());
  if (!fields.is_object()) throw std::invalid_argument(R"("fields" is no object; expected {"PATH": "KIND", ...})");
  for (const auto& [path, said] : fields.items()) {
    try {
      parse_path(path);
      options.declared[path] = declaration_of(said);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("field {}: {}", path, error.what()));
    } catch (const json::exception& error) {
      throw std::invalid_argument(fmt::format("field {}: {}", path, io::json_reason(error.what())));
    }
  }
}

}  // namespace

void read_schema_file(const std::string& path, SchemaOptions& options) {
  try {
    read(json::parse(io::read_file(path, kMaxBytes)), options);
  } catch (const json::exception& error) {
    throw io::Error(fmt::format("{}: {}", path, io::json_reason(error.what())));
  } catch (const std::invalid_argument& error) {
    throw io::Error(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace ramify::signal
