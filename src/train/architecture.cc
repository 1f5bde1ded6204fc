#include "train/architecture.h"

#include <ATen/Context.h>

#include <algorithm>
#include <stdexcept>

namespace ramify::train {
namespace {

template <class Self, class Visit>
void visit_architecture(Self& self, const Visit& visit) {
  visit("name", self.name);
  visit("width", self.width);
  visit("layers", self.layers);
  visit("heads", self.heads);
  visit("inner_width", self.inner_width);
  visit("positions", self.positions);
  visit("dropout", self.dropout);
  visit("hierarchy", self.hierarchy);
  visit("swapped", self.swapped);
  visit("tie", self.tie);
  visit("include_self", self.include_self);
  visit("config", self.config);
  visit("before", self.before);
  visit("between", self.between);
  visit("after", self.after);
  visit("second_type", self.second_type);
  visit("pair", self.pair);
  visit("second", self.second);
}

// The texts of a record, fields of their own at its top: in the order in which they were asked for, or came.
std::vector<std::string> texts_of(const signal::Schema& schema) {
  std::vector<std::string> texts;
  for (const signal::Field& field : schema.fields) {
    const bool is_record = field.path.empty() && field.kind == signal::Kind::object;
    if (is_record || field.path == schema.target.path || field.kind == signal::Kind::ignore) continue;
    if (field.kind != signal::Kind::text) {
      throw std::invalid_argument("--architecture takes texts; the field " + field.path + " is " +
                                  std::string(signal::name_of(field.kind)) + ". Choose with --fields");
    }
    texts.push_back(field.path);
  }
  if (texts.size() == 2 && std::ranges::find(schema.only, texts[1]) < std::ranges::find(schema.only, texts[0])) {
    std::swap(texts[0], texts[1]);
  }
  if (texts.size() == 1 || texts.size() == 2) return texts;
  throw std::invalid_argument("--architecture takes one text or two; the records have " + std::to_string(texts.size()) +
                              ". Choose with --fields");
}

// Words of a vocabulary of our own, and behind them what stands around texts.
struct SpecialWords {
  int64_t begin, separator, padding;
};
SpecialWords special_words(const signal::Schema& schema) {
  const int64_t words = schema.tokenizer->size();
  return {words, words + 1, words + 2};
}

nlohmann::json random_config(const Architecture& architecture, const signal::Schema& schema) {
  const SpecialWords special = special_words(schema);
  models::ModelConfig config;
  config.family = architecture.name == "bert" ? models::Family::bert : models::Family::roberta;
  config.vocabulary = special.padding + 1;
  config.width = architecture.width;
  config.layers = architecture.layers;
  config.heads = config.kv_heads = architecture.heads;
  config.inner_width = architecture.inner_width;
  config.dropout = config.attention_dropout = architecture.dropout;
  config.types = config.family == models::Family::bert ? 2 : 1;
  config.padding = config.family == models::Family::bert ? 0 : 1;
  config.norm_epsilon = config.family == models::Family::bert ? 1e-12 : 1e-5;
  config.positions = architecture.positions + (config.family == models::Family::bert ? 0 : config.padding + 1);
  return config.to_json();
}

}  // namespace

Architecture Architecture::from_json(const nlohmann::json& stored) {
  Architecture architecture;
  nlohmann::json rest = stored;
  visit_architecture(architecture, [&](const char* key, auto& member) {
    const auto found = rest.find(key);
    if (found == rest.end()) return;
    try {
      found->get_to(member);
    } catch (const nlohmann::json::exception&) {
      throw std::invalid_argument(std::string("architecture: ") + key + " is " + std::string(found->type_name()) +
                                  ", which is of another type");
    }
    rest.erase(found);
  });
  if (!rest.empty()) throw std::invalid_argument("architecture: there is no setting " + rest.begin().key());
  return architecture;
}

nlohmann::json Architecture::to_json() const {
  nlohmann::json stored = nlohmann::json::object();
  visit_architecture(*this, [&](const char* key, const auto& member) { stored[key] = member; });
  return stored;
}

void Architecture::resolve(const signal::Schema& schema) {
  const std::vector<std::string> texts = texts_of(schema);
  pair = texts.size() == 2;
  second = pair ? texts[1] : "";
  if (is_folder()) {
    const models::ModelConfig found = models::ModelConfig::load(name);
    if (found.is_decoder())
      throw std::invalid_argument("--architecture " + name + " is a decoder; expected an encoder");
    config = found.to_json();
    const auto frame = models::TextFrame::of(text::SpecialTokens::load(name, *schema.tokenizer), pair);
    if (schema.tokenizer->size() > found.vocabulary) {
      throw std::invalid_argument("--architecture " + name + ": its tokenizer has more tokens than the model");
    }
    if (pair && frame.second_type >= found.types) {
      throw std::invalid_argument("--architecture " + name + ": the model has no type for a second text");
    }
    before = frame.before, between = frame.between, after = frame.after;
    second_type = frame.second_type;
  } else {
    config = random_config(*this, schema);
    const SpecialWords special = special_words(schema);
    before = {special.begin}, after = {special.separator};
    if (pair) between = name == "roberta" ? std::vector<int64_t>{special.separator, special.separator} : after;
    second_type = name == "bert" ? 1 : 0;
  }
  models::ModelConfig::from_json(config, "architecture");  // for its checks
  models::parse_layers(swapped, config.at("num_hidden_layers"));
  if (models::TextHierarchy::parse(hierarchy).follows_text()) {
    throw std::invalid_argument("--hierarchy " + hierarchy + ": expected windows, such as 16,8,4,2");
  }
}

int64_t Architecture::max_leaves() const {
  const auto special = static_cast<int64_t>(before.size() + between.size() + after.size());
  const int64_t room = models::ModelConfig::from_json(config, "architecture").max_tokens() - special;
  if (room > 0) return room;
  throw std::invalid_argument("architecture: has no room for a token between its special ones");
}

std::shared_ptr<models::TextClassifier> Architecture::build(const signal::Schema& schema, bool exact,
                                                            uint64_t seed) const {
  models::TextClassifierParts parts{.config = models::ModelConfig::from_json(config, "architecture"),
                                    .plan = {},
                                    .frame = {before, between, after, second_type},
                                    .pair = pair,
                                    .num_keys = static_cast<int64_t>(schema.keys.size()),
                                    .unknown = std::max(0, schema.tokenizer->unknown()),
                                    .outputs = schema.num_outputs(),
                                    .dropout = dropout};
  const int64_t num_layers = parts.config.layers;
  parts.plan = exact ? models::AttentionPlan::exact(num_layers)
                     : models::AttentionPlan::swapped(num_layers,
                                                      {.hierarchy = models::TextHierarchy::parse(hierarchy),
                                                       .tie = models::parse_tie(tie),
                                                       .include_self = include_self},
                                                      models::parse_layers(swapped, num_layers));
  parts.second_key = std::ranges::find(schema.keys, second) - schema.keys.begin();
  const auto modalities = schema.modalities();
  for (size_t m = 0; m < modalities.size(); ++m) {
    if (modalities[m].name == "token") parts.token_modality = static_cast<int64_t>(m);
  }
  at::manual_seed(seed);
  return std::make_shared<models::TextClassifier>(std::move(parts));
}

}  // namespace ramify::train
