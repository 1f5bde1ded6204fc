// config.json: what was trained on what.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "report/json_file.h"
#include "report/run_files.h"

namespace ramify::report {
namespace {

using nlohmann::json;

constexpr size_t kMaxSettings = 300;
constexpr int kMaxSettingsDepth = 8;

std::string text_or(const std::optional<JsonField>& field, const std::string& otherwise) {
  return field ? field->text() : otherwise;
}

int64_t count_or_0(const std::optional<JsonField>& field) {
  return field ? field->count() : 0;
}

std::string command_line(const JsonField& command) {
  std::string line;
  for (const std::string& word : command.texts()) {
    const bool is_plain = !word.empty() && word.find_first_of(" \t\n\"'\\$*?[]{}()<>|&;#~`!") == std::string::npos;
    line += (line.empty() ? "" : " ") + (is_plain ? word : "'" + word + "'");
  }
  return line;
}

// Nested settings as flat ones: a row each for what is not an object or a list of objects.
void flatten(const JsonField& root, const std::string& prefix, std::vector<std::pair<std::string, std::string>>& rows) {
  struct Item {
    JsonField field;
    std::string path;
    int depth;
  };
  std::vector<Item> stack = {{root, prefix, 0}};
  while (!stack.empty() && rows.size() < kMaxSettings) {
    const Item item = std::move(stack.back());
    stack.pop_back();
    const json& value = item.field.value();
    const bool is_list_of_objects = value.is_array() && !value.empty() && value[0].is_object();
    if (item.depth >= kMaxSettingsDepth || !(value.is_object() || is_list_of_objects)) {
      rows.emplace_back(item.path, item.field.shown());
      continue;
    }
    std::vector<Item> inner;
    if (value.is_object()) {
      for (const auto& [key, member] : item.field.members()) {
        inner.push_back({member, item.path + "." + key, item.depth + 1});
      }
    } else {
      for (const JsonField& each : item.field.items()) {
        inner.push_back({each, fmt::format("{}[{}]", item.path, inner.size()), item.depth + 1});
      }
    }
    std::move(inner.rbegin(), inner.rend(), std::back_inserter(stack));
  }
}

std::string without_seed(json document) {
  for (const char* key : {"seed", "command", "out"}) document.erase(key);
  const auto training = document.find("training");
  if (training != document.end() && training->is_object()) training->erase("seed");
  return document.dump();
}

}  // namespace

RunConfig read_config(std::string_view text, const std::string& name) {
  const json document = parse_json(text, name);
  const JsonField root(document, name + ": ");
  if (root.find("model_type")) {  // as Hugging Face writes it, and train-lm
    throw Error(name + ": that of a language model or another published model; expected one of a run of ramify train");
  }
  RunConfig config;
  config.task = root.at("task").text();
  config.target = text_or(root.find("target"), "");
  config.attention = root.at("attention").text();
  config.version = text_or(root.find("ramify"), "");
  if (const auto seed = root.find("seed")) config.seed = seed->count();
  if (const auto command = root.find("command")) config.command = command_line(*command);
  if (const auto classes = root.find("classes")) config.classes = std::ssize(classes->texts());
  if (const auto parameters = root.find("parameters")) {
    config.parameters = parameters->at("total").count();
    config.encoder_parameters = count_or_0(parameters->find("encoder"));
    config.table_parameters = count_or_0(parameters->find("tables"));
  }
  if (const auto data = root.find("data")) {
    if (const auto files = data->find("train")) config.train = files->shown();
    config.target_of = text_or(data->find("target_of"), "");
  }
  if (const auto records = root.find("records")) config.records = records->at("train").count();
  for (const char* part : {"data", "model", "training"}) {
    if (const auto field = root.find(part)) flatten(*field, part, config.settings);
  }
  config.all_but_seed = without_seed(document);
  return config;
}

}  // namespace ramify::report
