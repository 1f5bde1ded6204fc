#include "signal/inference.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "io/error.h"
#include "signal/compiler.h"
#include "signal/counted.h"
#include "signal/document.h"
#include "signal/field_notes.h"
#include "signal/field_statistics.h"
#include "signal/path.h"
#include "signal/schema_index.h"
#include "signal/similar_names.h"
#include "signal/special_values.h"
#include "signal/target_inference.h"
#include "text/words.h"

namespace ramify::signal {
namespace {

std::vector<std::string> left_out(const SchemaOptions& options) {
  std::vector<std::string> paths = options.ignore;
  for (const auto& [path, declaration] : options.declared) {
    if (declaration.kind == Kind::ignore) paths.push_back(path);
  }
  if (!options.target.empty()) paths.push_back(options.target);
  return paths;
}

void check_contradictions(const SchemaOptions& options) {
  for (const std::string& path : options.fields) {
    for (const std::string& ignored : options.ignore) {
      if (path == ignored) {
        throw std::invalid_argument(fmt::format("the field {} is named by --fields and by --ignore", path));
      }
      if (path.starts_with(ignored + ".") || path.starts_with(ignored + "[]")) {
        throw std::invalid_argument(
            fmt::format("the field {}, which --fields names, is inside {}, which --ignore names", path, ignored));
      }
    }
  }
}

}  // namespace

OnBad on_bad_of(std::string_view name) {
  if (name == "fail") return OnBad::fail;
  if (name == "skip") return OnBad::skip;
  throw std::invalid_argument(fmt::format("'{}' is no way to treat bad records; expected fail or skip", name));
}

class SchemaInference::State {
 public:
  explicit State(SchemaOptions options)
      : options_(std::move(options)), tree_(options_.fields, left_out(options_)), target_(options_) {
    check_contradictions(options_);
    for (const auto& [path, declaration] : options_.declared) declared_.emplace(tree_.add(path), declaration);
    grow();
  }

  void add(std::string_view json, const RecordPlace& place);
  Schema finish();

 private:
  struct Family {
    size_t end;
    size_t resume;
    int32_t field;  // as in RecordWalk
    bool is_object;
  };

  void grow();
  void walk();
  void count_words(std::string_view text, int64_t count);
  int32_t child(const Family& family, size_t value);
  size_t visit(size_t value, int32_t field);
  size_t visit_object(size_t value, int32_t field);
  size_t open_list(size_t value, size_t array, int32_t field, Kind kind);
  void see_vector(size_t array, int32_t field);
  void check_asked_for() const;
  void check_declared(const std::vector<Field>& fields, int32_t node) const;
  void check_something_is_left(const Schema& schema) const;
  void add_fields(Schema& schema) const;
  void add_notes(const std::vector<Field>& fields, int32_t node, Schema& schema) const;

  const SchemaOptions options_;
  FieldTree tree_;
  TargetInference target_;
  std::unordered_map<int32_t, Declaration> declared_;
  std::vector<FieldStatistics> statistics_;  // [tree_]
  std::vector<FieldNotes> notes_;            // [tree_]
  RecordPlace place_;                        // of the record being read
  int64_t records_ = 0, seen_ = 0;
  Document document_;
  std::vector<Family> families_;
  bool counts_ = false;  // else the walk only looks whether the record is a good one
  std::string buffer_;
  text::Words words_;
  text::VocabularyBuilder vocabulary_;
  const FieldStatistics::CountWords count_words_ = [this](std::string_view text, int64_t count) {
    if (!options_.tokenizer && !options_.leaf_encoding) count_words(text, count);
  };
};

void SchemaInference::State::grow() {
  while (static_cast<int32_t>(statistics_.size()) < tree_.size()) {
    const auto found = declared_.find(static_cast<int32_t>(statistics_.size()));
    statistics_.emplace_back(options_, found == declared_.end() ? std::nullopt : std::optional(found->second));
  }
  notes_.resize(statistics_.size());
}

// Huge texts in parts, so that the list of words stays small.
void SchemaInference::State::count_words(std::string_view text, int64_t count) {
  constexpr size_t kPart = size_t{1} << 20;
  while (!text.empty()) {
    const size_t end = text.size() <= kPart ? text.size() : std::min(text.size(), text.find_first_of(" \n", kPart));
    words_.split(text.substr(0, end));
    for (size_t w = 0; w < words_.size(); ++w) vocabulary_.add(words_[w], count);
    text.remove_prefix(end);
  }
}

// Twice: a record that turns out to be bad must not have been counted in part.
void SchemaInference::State::add(std::string_view json, const RecordPlace& place) {
  document_.parse(json, {.max_depth = options_.max_depth});
  place_ = place;
  counts_ = false;
  walk();
  target_.add(document_, place);
  counts_ = true;
  walk();
  ++records_;
}

void SchemaInference::State::walk() {
  families_.clear();
  size_t value = visit(0, 0);
  while (!families_.empty()) {
    Family& family = families_.back();
    if (value == family.end) {
      value = family.resume;
      families_.pop_back();
      continue;
    }
    const int32_t field = child(family, value);
    if (field == FieldTree::kNone || tree_.use(field) == FieldTree::Use::left_out) {
      if (field != FieldTree::kNone && counts_) statistics_[static_cast<size_t>(field)].see(seen_++);
      value = document_[value].end;
    } else {
      value = visit(value, field);
    }
  }
}

// Its place in the tree of fields, to which it is added if there is room.
int32_t SchemaInference::State::child(const Family& family, size_t value) {
  if (!family.is_object) return family.field;
  const std::string_view key = document_.key(document_[value]);
  const int32_t found = tree_.find_member(family.field, key);
  if (found != FieldTree::kNone || tree_.use_of_new(family.field) == FieldTree::Use::left_out ||
      tree_.size() >= options_.max_fields) {
    return found;
  }
  const int32_t added = tree_.add_member(family.field, key);
  grow();
  return added;
}

size_t SchemaInference::State::visit(size_t place, int32_t field) {
  const Value& value = document_[place];
  const bool is_list = value.type == Value::Type::array || value.type == Value::Type::object;
  if (!counts_ && !is_list) return value.end;
  FieldStatistics& statistics = statistics_[static_cast<size_t>(field)];
  if (counts_) statistics.see(seen_++);
  const bool is_scalar = value.is_number() || value.type == Value::Type::string || value.type == Value::Type::boolean;
  if (is_scalar && !declared_.contains(field)) notes_[static_cast<size_t>(field)].add(document_, value, place_);
  switch (value.type) {
    case Value::Type::null:
      statistics.add_null();
      break;
    case Value::Type::boolean:
      statistics.add_boolean(document_.written(value, buffer_), count_words_);
      break;
    case Value::Type::integer:
    case Value::Type::real:
      statistics.add_number(value.number(), document_.written(value, buffer_), count_words_);
      break;
    case Value::Type::string:
      if (statistics.is_declared(Kind::image)) {
        statistics.add_image();
      } else {
        statistics.add_string(document_.text(value), count_words_);
      }
      break;
    case Value::Type::array:
      if (!statistics.is_declared(Kind::vector)) return open_list(place, place, field, Kind::array);
      see_vector(place, field);
      break;
    case Value::Type::object:
      return visit_object(place, field);
  }
  return value.end;
}

size_t SchemaInference::State::visit_object(size_t place, int32_t field) {
  const SpecialValue special = special_value(document_, place);
  FieldStatistics& statistics = statistics_[static_cast<size_t>(field)];
  if (!special.error.empty()) {
    throw BadRecord(place == 0 ? "the record " + special.error
                               : fmt::format("field {} {}", tree_.path(field), special.error));
  }
  switch (special.special) {
    case Special::image:
      if (counts_) statistics.add_image();
      return document_[place].end;
    case Special::vector:
      see_vector(special.inner, field);
      return document_[place].end;
    case Special::set:
      return open_list(place, special.inner, field, Kind::set);
    case Special::graph:
      return open_list(place, special.inner, field, Kind::graph);
    case Special::none:
      break;
  }
  if (counts_) statistics.add_family(Kind::object, document_[place].items == 0);
  families_.push_back({document_[place].end, document_[place].end, field, true});
  return place + 1;
}

size_t SchemaInference::State::open_list(size_t value, size_t array, int32_t field, Kind kind) {
  if (counts_) statistics_[static_cast<size_t>(field)].add_family(kind, document_[array].items == 0);
  const int32_t item = tree_.add_item(field);
  grow();
  families_.push_back({document_[array].end, document_[value].end, item, false});
  return array + 1;
}

void SchemaInference::State::see_vector(size_t array, int32_t field) {
  FieldStatistics& statistics = statistics_[static_cast<size_t>(field)];
  const int64_t width = document_[array].items;
  if (width > 0 && (counts_ ? statistics.add_vector(width) : statistics.can_add_vector(width))) return;
  throw BadRecord(fmt::format("field {} is a vector of {}{}", tree_.path(field), counted(width, "number"),
                              width > 0 ? fmt::format(", those before had {}", statistics.vector_width()) : ""));
}

void SchemaInference::State::check_asked_for() const {
  const auto check = [&](const std::string& path, const char* asked_by) {
    const int32_t node = tree_.find(path);
    if (node != FieldTree::kNone && statistics_[static_cast<size_t>(node)].is_seen()) return node;
    std::vector<std::string> seen;
    for (int32_t n = 0; n < tree_.size(); ++n) {
      if (statistics_[static_cast<size_t>(n)].is_seen()) seen.push_back(tree_.path(n));
    }
    throw io::Error(
        fmt::format("no record has the field {}, which {} names{}", path, asked_by, did_you_mean(path, seen)));
  };
  for (const std::string& path : options_.fields) check(path, "--fields");
  for (const std::string& path : options_.ignore) check(path, "--ignore");
  for (const auto& [path, declaration] : options_.declared) check(path, "the schema file");
  if (options_.target_of.empty()) return;
  if (tree_.use(check(options_.target_of, "--target-of")) == FieldTree::Use::left_out) {
    throw io::Error(fmt::format("the field {}, which --target-of names, is left out", options_.target_of));
  }
}

// What is declared without being found would be silently ignored.
void SchemaInference::State::check_declared(const std::vector<Field>& fields, int32_t node) const {
  const auto declared = declared_.find(node);
  if (declared == declared_.end()) return;
  const Kind kind = declared->second.kind;
  const bool is_never_anything = fields.front().kind == Kind::null;
  if (is_never_anything && kind != Kind::null) return;
  std::string found;
  for (const Field& field : fields) {
    const bool has_its_own = kind == Kind::graph || kind == Kind::null || field.kind == Kind::null;
    if (has_its_own ? field.kind == kind : slot_of(field.kind) == slot_of(kind)) return;
    found += (found.empty() ? "" : " or ") + std::string(name_of(field.kind));
  }
  throw io::Error(fmt::format("the schema file says that the field {} is {}; in the records it is {}", tree_.path(node),
                              name_of(kind), found));
}

// A record that is not an object, or any field below it that is kept.
void SchemaInference::State::check_something_is_left(const Schema& schema) const {
  bool is_something_left_out = false;
  for (const Field& field : schema.fields) {
    const bool is_way = field.path.empty() || tree_.use(tree_.find(field.path)) == FieldTree::Use::partly;
    is_something_left_out |= field.kind == Kind::ignore;
    if (field.kind != Kind::ignore && !(is_way && field.kind == Kind::object)) return;
  }
  if (is_something_left_out || !options_.target.empty() || !options_.fields.empty()) {
    throw io::Error(options_.target.empty()
                        ? "nothing is left to learn from"
                        : fmt::format("nothing is left to learn from beside the target {}", options_.target));
  }
}

Schema SchemaInference::State::finish() {
  if (records_ == 0) throw io::Error("no records");
  check_asked_for();
  Schema schema;
  schema.target = target_.finish();
  if (std::string note = target_.note(); !note.empty()) schema.notes.push_back(std::move(note));
  add_fields(schema);
  check_something_is_left(schema);
  if (!options_.tokenizer) {
    for (const std::string& key : schema.keys) count_words(key_words(key), options_.vocabulary.min_count);
  }
  schema.tokenizer = options_.tokenizer;
  if (!schema.tokenizer) schema.tokenizer = text::Tokenizer::word(vocabulary_.build(options_.vocabulary));
  for (const std::string& key : schema.keys) {
    schema.tokenizer->tokenize(key_words(key), schema.key_tokens.emplace_back());
  }
  schema.only = options_.fields;
  schema.text_levels = options_.text_levels;
  schema.leaf_encoding = options_.leaf_encoding;
  schema.image = options_.image;
  schema.graph_features = options_.graph_features;
  schema.max_leaves = options_.max_leaves;
  schema.max_depth = options_.max_depth;
  return schema;
}

void SchemaInference::State::add_fields(Schema& schema) const {
  std::vector<int32_t> order;
  for (int32_t n = 0; n < tree_.size(); ++n) {
    if (statistics_[static_cast<size_t>(n)].is_seen()) order.push_back(n);
  }
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return statistics_[static_cast<size_t>(a)].first_seen() < statistics_[static_cast<size_t>(b)].first_seen();
  });
  std::unordered_set<std::string_view> keys;
  const int32_t target = options_.target.empty() ? FieldTree::kNone : tree_.find(options_.target);
  for (const int32_t n : order) {
    if (n == target) continue;
    if (tree_.use(n) == FieldTree::Use::left_out) {
      schema.fields.push_back({.path = tree_.path(n), .kind = Kind::ignore});
      continue;
    }
    std::vector<Field> fields = statistics_[static_cast<size_t>(n)].fields(tree_.path(n), count_words_);
    check_declared(fields, n);
    add_notes(fields, n, schema);
    std::move(fields.begin(), fields.end(), std::back_inserter(schema.fields));
    if (n > 0 && !tree_.is_item(n) && keys.insert(tree_.key(n)).second) schema.keys.push_back(tree_.key(n));
  }
}

void SchemaInference::State::add_notes(const std::vector<Field>& fields, int32_t node, Schema& schema) const {
  constexpr size_t kMostNotes = 20;
  for (const Field& field : fields) {
    if (field.kind == Kind::null || slot_of(field.kind) != kScalarSlot) continue;
    for (std::string& note : notes_[static_cast<size_t>(node)].notes(field.path, field.kind)) {
      if (schema.notes.size() < kMostNotes) schema.notes.push_back(std::move(note));
    }
  }
}

SchemaInference::SchemaInference(SchemaOptions options) : state_(std::make_unique<State>(std::move(options))) {}

SchemaInference::~SchemaInference() = default;

void SchemaInference::add(std::string_view json, const RecordPlace& place) {
  state_->add(json, place);
}

Schema SchemaInference::finish() {
  return state_->finish();
}

}  // namespace ramify::signal
