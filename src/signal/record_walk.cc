// The walk and the families of a record. Leaves are in record_leaves.cc.
#include "signal/record_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "signal/graph_positions.h"
#include "signal/special_values.h"

namespace ramify::signal {
namespace {

TextLeaves::Source leaves_of_texts(const RecordWalk::Context& context) {
  const Schema& schema = context.index.schema();
  if (!context.text_vectors) return {.tokenizer = schema.tokenizer.get(), .modality = context.index.token_modality()};
  return {.vectors = context.text_vectors,
          .level = schema.leaf_encoding->level,
          .modality = *context.index.text_modality()};
}

}  // namespace

Signal RecordWalk::run(std::string_view json, const Context& context) {
  context_ = &context;
  const Schema& schema = context.index.schema();
  document_.parse(json, {.max_depth = schema.max_depth});
  builder_.reset(schema.max_leaves, context.index.category_modality());
  texts_.reset(leaves_of_texts(context), context.labels, builder_);
  families_.clear();
  target_ = context.target.read(document_);
  labelled_items_ = context.target.items(document_);
  walk();

  Signal signal = builder_.finish();
  if (labelled_items_ != 0 && target_.known) {
    target_.classes.resize(target_.leaf_begin.size());  // items that were cut off are not asked for
  }
  signal.target = std::move(target_);
  return signal;
}

void RecordWalk::walk() {
  size_t value = visit({.value = 0, .field = 0, .label = ""});
  while (!families_.empty()) {
    if (value == families_.back().end) {
      value = families_.back().resume;
      close_family();
      continue;
    }
    if (!step(families_.back(), value)) {
      builder_.mark_truncated();
      break;
    }
  }
  while (!families_.empty()) close_family();
}

// Goes over one item of the family; false where there is no room for it any more.
bool RecordWalk::step(Family& family, size_t& value) {
  Item item = {.value = value, .field = family.field};
  const bool is_member = family.domain == Domain::key;
  if (is_member && !find_member(family, item)) {
    value = document_[value].end;
    return true;
  }
  if (builder_.room() == 0) return false;
  if (family.is_labelled) begin_labelled_item();
  item.place = {family.domain, family.next};
  if (family.domain == Domain::graph) item.place.place += family.first_row;
  if (is_member) {
    const int32_t id = context_->index.key_id(item.label);
    item.place.place = id >= 0 ? id : add_unknown_key(item.label);
  } else if (context_->labels == Labels::all) {
    label_ = std::to_string(family.next);
    item.label = label_;
  }
  ++family.next;
  value = visit(item);  // may add to families_: `family` is not valid any more
  return true;
}

// Sets the key and the field of a member; false if it is left out.
bool RecordWalk::find_member(const Family& object, Item& item) const {
  using Use = FieldTree::Use;
  const FieldTree& tree = context_->index.tree();
  const Value& value = document_[item.value];
  item.label = document_.key(value);
  if (object.field == FieldTree::kNone) return true;
  item.field = tree.find_member(object.field, item.label);
  const Use use = item.field == FieldTree::kNone ? tree.use_of_new(object.field) : tree.use(item.field);
  const bool is_inner = value.type == Value::Type::object || value.type == Value::Type::array;
  return use == Use::kept || (use == Use::partly && is_inner);
}

int32_t RecordWalk::add_unknown_key(std::string_view key) {
  std::vector<int32_t> tokens;
  context_->index.schema().tokenizer->tokenize(key_words(key), tokens);
  return builder_.add_unknown_key(std::move(tokens));
}

void RecordWalk::end_labelled_item() {
  if (target_.leaf_end.size() == target_.leaf_begin.size()) return;
  target_.leaf_end.push_back(static_cast<int32_t>(builder_.num_leaves()));
}

void RecordWalk::begin_labelled_item() {
  end_labelled_item();
  target_.leaf_begin.push_back(static_cast<int32_t>(builder_.num_leaves()));
}

void RecordWalk::close_family() {
  if (families_.back().is_labelled) end_labelled_item();
  builder_.close(families_.back().empty);
  families_.pop_back();
}

size_t RecordWalk::visit(const Item& item) {
  switch (document_[item.value].type) {
    case Value::Type::object:
      return visit_object(item);
    case Value::Type::array:
      return visit_array(item);
    case Value::Type::string:
      return visit_string(item);
    case Value::Type::integer:
    case Value::Type::real:
      return visit_number(item);
    case Value::Type::boolean:
      return visit_boolean(item);
    case Value::Type::null:
      add_category(item, item.field == FieldTree::kNone ? kNull : context_->index.node(item.field).null, "null");
      break;
  }
  return document_[item.value].end;
}

size_t RecordWalk::visit_object(const Item& item) {
  const Value& object = document_[item.value];
  const SpecialValue special = special_value(document_, item.value);
  if (!special.error.empty()) fail(item, special.error);
  switch (special.special) {
    case Special::image:
      return visit_image(item, special.inner);
    case Special::set:
      return visit_set(item, special.inner);
    case Special::vector:
      return visit_vector(item, special.inner);
    case Special::graph:
      return visit_graph(item, special);
    case Special::none:
      break;
  }
  if (!context_->index.field(item.field, kObjectSlot) && !is_unknown(item)) wrong_type(item, "an object");
  builder_.open(item.place);
  describe(item, "object");
  families_.push_back(
      {.domain = Domain::key, .end = object.end, .resume = object.end, .field = item.field, .empty = empty_row(item)});
  return item.value + 1;
}

size_t RecordWalk::visit_array(const Item& item) {
  const auto* list = context_->index.field(item.field, kListSlot);
  if (!list && context_->index.field(item.field, kVectorSlot)) return visit_vector(item, item.value);
  if (!list && !is_unknown(item)) wrong_type(item, "an array");
  const bool is_set = list && list->field->kind == Kind::set;
  open_list(item, item.value, is_set ? Domain::none : Domain::sequence, is_set ? "set" : "array");
  return item.value + 1;
}

size_t RecordWalk::visit_set(const Item& item, size_t inner) {
  if (!context_->index.field(item.field, kListSlot) && !is_unknown(item)) wrong_type(item, "a $set");
  open_list(item, inner, Domain::none, "set");
  return inner + 1;
}

size_t RecordWalk::visit_graph(const Item& item, const SpecialValue& graph) {
  const Schema& schema = context_->index.schema();
  if (!context_->index.field(item.field, kListSlot) && !is_unknown(item)) wrong_type(item, "a $graph");
  const int64_t count = document_[graph.inner].items;
  if (count > schema.max_graph_nodes) {
    fail(item, fmt::format("is a $graph of {} nodes; at most {} are allowed", count, schema.max_graph_nodes));
  }
  open_list(item, graph.inner, Domain::graph, "graph");
  const auto positions = laplacian_positions(count, read_edges(item, graph.edges, count), schema.graph_features);
  families_.back().first_row = builder_.add_graph(positions, schema.graph_features);
  return graph.inner + 1;
}

std::vector<std::pair<int64_t, int64_t>> RecordWalk::read_edges(const Item& item, size_t edges, int64_t nodes) const {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (size_t e = edges + 1; e < document_[edges].end; e = document_[e].end) {
    const bool is_pair = document_[e].type == Value::Type::array && document_[e].items == 2;
    for (size_t end = e + 1; end <= e + 2 && is_pair; ++end) {
      const Value& node = document_[end];
      if (node.type == Value::Type::integer && node.integer >= 0 && node.integer < nodes) continue;
      fail(item, fmt::format("is a $graph of {} nodes; edge {} has another end than 0 to {}", nodes, pairs.size(),
                             nodes - 1));
    }
    if (!is_pair) fail(item, fmt::format("is a $graph whose edge {} is no pair of nodes", pairs.size()));
    pairs.emplace_back(document_[e + 1].integer, document_[e + 2].integer);
  }
  return pairs;
}

void RecordWalk::open_list(const Item& item, size_t array, Domain domain, std::string_view kind) {
  builder_.open(item.place);
  describe(item, kind);
  const bool is_known = item.field != FieldTree::kNone;
  families_.push_back({.domain = domain,
                       .end = document_[array].end,
                       .resume = document_[item.value].end,
                       .field = is_known ? context_->index.tree().find_item(item.field) : FieldTree::kNone,
                       .empty = empty_row(item),
                       .is_labelled = array == labelled_items_ && labelled_items_ != 0});
}

bool RecordWalk::is_unknown(const Item& item) const {
  return item.field == FieldTree::kNone || !context_->index.node(item.field).is_typed;
}

int32_t RecordWalk::empty_row(const Item& item) const {
  return item.field == FieldTree::kNone ? static_cast<int32_t>(kEmpty) : context_->index.node(item.field).empty;
}

void RecordWalk::describe(const Item& item, std::string_view kind, std::string_view text) {
  if (context_->labels == Labels::none) return;
  builder_.describe({std::string(item.label), std::string(kind), std::string(text)});
}

void RecordWalk::wrong_type(const Item& item, std::string_view found) const {
  fail(item, fmt::format("is {}, the schema says {}", found, context_->index.kinds_at(item.field)));
}

void RecordWalk::fail(const Item& item, const std::string& message) const {
  const std::string path =
      item.field == FieldTree::kNone ? std::string(item.label) : context_->index.tree().path(item.field);
  throw BadRecord(item.value == 0 ? "the record " + message : fmt::format("field {} {}", path, message));
}

}  // namespace ramify::signal
