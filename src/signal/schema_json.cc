// The schema as it is stored with a model.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/error.h"
#include "signal/path.h"
#include "signal/schema.h"

namespace ramify::signal {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;

json levels_json(const std::vector<TextLevel>& levels) {
  json names = json::array();
  for (const TextLevel level : levels) names.push_back(name_of(level));
  return names;
}

std::vector<TextLevel> levels_of(const json& names) {
  std::string list;
  for (const json& name : names) list += (list.empty() ? "" : ",") + name.get<std::string>();
  return list.empty() ? std::vector<TextLevel>{} : parse_text_levels(list);
}

json field_json(const Field& field) {
  json result = {{"path", field.path}, {"kind", name_of(field.kind)}, {"count", field.count}};
  if (field.nulls > 0) result["nulls"] = field.nulls;
  if (field.empties > 0) result["empties"] = field.empties;
  if (field.graphs > 0) result["graphs"] = field.graphs;
  if (field.kind == Kind::number) {
    result["mean"] = field.mean;
    result["deviation"] = field.deviation;
    result["min"] = field.min;
    result["max"] = field.max;
    result["logarithmic"] = field.logarithmic;
  }
  if (field.kind == Kind::category || field.kind == Kind::text_leaf) result["values"] = field.values;
  if (field.kind == Kind::vector) result["width"] = field.width;
  if (field.kind == Kind::text) result["levels"] = levels_json(field.levels);
  return result;
}

void require(bool holds, const std::string& message) {
  if (!holds) throw std::invalid_argument(message);
}

Field field_of(const json& stored) {
  Field field;
  stored.at("path").get_to(field.path);
  parse_path(field.path);  // for its checks
  field.kind = kind_of(stored.at("kind").get<std::string>());
  stored.at("count").get_to(field.count);
  field.nulls = stored.value("nulls", int64_t{0});
  field.empties = stored.value("empties", int64_t{0});
  field.graphs = stored.value("graphs", int64_t{0});
  if (field.kind == Kind::number) {
    stored.at("mean").get_to(field.mean);
    stored.at("deviation").get_to(field.deviation);
    stored.at("min").get_to(field.min);
    stored.at("max").get_to(field.max);
    stored.at("logarithmic").get_to(field.logarithmic);
    require(field.deviation > 0, fmt::format("the deviation of {} is {}", field.path, field.deviation));
  }
  if (field.kind == Kind::category || field.kind == Kind::text_leaf) stored.at("values").get_to(field.values);
  if (field.kind == Kind::vector) stored.at("width").get_to(field.width);
  if (field.kind == Kind::text) field.levels = levels_of(stored.at("levels"));
  require(field.kind != Kind::vector || field.width > 0, fmt::format("the width of {} is {}", field.path, field.width));
  require(field.kind != Kind::text || !field.levels.empty(), fmt::format("{} is a text without levels", field.path));
  return field;
}

json target_json(const Target& target) {
  json result = {{"path", target.path}, {"task", name_of(target.task)}};
  if (target.task == Task::nodes) result["of"] = target.of;
  if (target.task == Task::regression) {
    result["mean"] = target.mean;
    result["deviation"] = target.deviation;
  } else {
    result["classes"] = target.classes;
  }
  return result;
}

Target target_of(const json& stored) {
  Target target;
  stored.at("path").get_to(target.path);
  target.task = task_of(stored.at("task").get<std::string>());
  if (target.task == Task::nodes) stored.at("of").get_to(target.of);
  if (target.task == Task::regression) {
    stored.at("mean").get_to(target.mean);
    stored.at("deviation").get_to(target.deviation);
    require(target.deviation > 0, fmt::format("the deviation of the target is {}", target.deviation));
  } else {
    stored.at("classes").get_to(target.classes);
  }
  return target;
}

json leaf_encoding_json(const LeafEncoding& encoding) {
  return {{"model", encoding.model},
          {"level", name_of(encoding.level)},
          {"width", encoding.width},
          {"sha256", encoding.sha256}};
}

LeafEncoding leaf_encoding_of(const json& stored) {
  LeafEncoding encoding;
  stored.at("model").get_to(encoding.model);
  encoding.level = leaf_level_of(stored.at("level").get<std::string>());
  stored.at("width").get_to(encoding.width);
  stored.at("sha256").get_to(encoding.sha256);
  require(encoding.width > 0, fmt::format("the width of leaf_encoding is {}", encoding.width));
  return encoding;
}

void check_options(const Schema& schema) {
  require(schema.image.patch >= 1 && schema.image.patch <= 1024, "image.patch must be within 1 and 1024");
  require(schema.image.longest_side >= 1, "image.longest_side must be at least 1");
  require(schema.image.width >= 0 && schema.image.height >= 0, "image.width and height must not be negative");
  require(schema.graph_features >= 1 && schema.graph_features <= 4096, "graph_features must be within 1 and 4096");
  require(schema.max_leaves >= 1, "max_leaves must be at least 1");
  require(schema.max_depth >= 1, "max_depth must be at least 1");
}

Schema schema_of(const json& stored, const std::string& name) {
  require(stored.at("version").get<int>() == kVersion,
          fmt::format("version {}, expected {}", stored.at("version").get<int>(), kVersion));
  Schema schema;
  for (const json& field : stored.at("fields")) schema.fields.push_back(field_of(field));
  stored.at("keys").get_to(schema.keys);
  schema.tokenizer = text::Tokenizer::from_json(stored.at("tokenizer"), name);
  for (const std::string& key : schema.keys) {
    schema.tokenizer->tokenize(key_words(key), schema.key_tokens.emplace_back());
  }
  if (stored.contains("target")) schema.target = target_of(stored.at("target"));
  stored.at("only").get_to(schema.only);
  schema.text_levels = levels_of(stored.at("text_levels"));
  if (stored.contains("leaf_encoding")) schema.leaf_encoding = leaf_encoding_of(stored.at("leaf_encoding"));
  const json& image = stored.at("image");
  image.at("patch").get_to(schema.image.patch);
  image.at("longest_side").get_to(schema.image.longest_side);
  image.at("width").get_to(schema.image.width);
  image.at("height").get_to(schema.image.height);
  stored.at("graph_features").get_to(schema.graph_features);
  stored.at("max_graph_nodes").get_to(schema.max_graph_nodes);
  stored.at("max_leaves").get_to(schema.max_leaves);
  stored.at("max_depth").get_to(schema.max_depth);
  check_options(schema);
  return schema;
}

}  // namespace

json Schema::to_json() const {
  json result = {{"version", kVersion},
                 {"fields", json::array()},
                 {"keys", keys},
                 {"tokenizer", tokenizer->to_json()},
                 {"only", only},
                 {"text_levels", levels_json(text_levels)},
                 {"image",
                  {{"patch", image.patch},
                   {"longest_side", image.longest_side},
                   {"width", image.width},
                   {"height", image.height}}},
                 {"graph_features", graph_features},
                 {"max_graph_nodes", max_graph_nodes},
                 {"max_leaves", max_leaves},
                 {"max_depth", max_depth}};
  for (const Field& field : fields) result["fields"].push_back(field_json(field));
  if (target.task != Task::none) result["target"] = target_json(target);
  if (leaf_encoding) result["leaf_encoding"] = leaf_encoding_json(*leaf_encoding);
  return result;
}

Schema Schema::from_json(const json& stored, const std::string& name) {
  try {
    return schema_of(stored, name);
  } catch (const json::exception& error) {
    throw io::Error(fmt::format("{}: not a schema: {}", name, io::json_reason(error.what())));
  } catch (const std::invalid_argument& error) {
    throw io::Error(fmt::format("{}: not a schema: {}", name, error.what()));
  }
}

}  // namespace ramify::signal
