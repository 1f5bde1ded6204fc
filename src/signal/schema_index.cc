#include "signal/schema_index.h"

#include <fmt/format.h>

#include <limits>
#include <stdexcept>
#include <utility>

#include "io/error.h"

namespace ramify::signal {
namespace {

std::vector<std::string> left_out(const Schema& schema) {
  std::vector<std::string> paths;
  for (const Field& field : schema.fields) {
    if (field.kind == Kind::ignore) paths.push_back(field.path);
  }
  if (!schema.target.path.empty()) paths.push_back(schema.target.path);
  return paths;
}

}  // namespace

Slot slot_of(Kind kind) {
  switch (kind) {
    case Kind::object:
      return kObjectSlot;
    case Kind::array:
    case Kind::set:
    case Kind::graph:
      return kListSlot;
    case Kind::image:
      return kImageSlot;
    case Kind::vector:
      return kVectorSlot;
    default:
      return kScalarSlot;
  }
}

SchemaIndex::SchemaIndex(std::shared_ptr<const Schema> schema)
    : schema_(std::move(schema)), tree_(schema_->only, left_out(*schema_)) {
  const std::vector<Modality> modalities = schema_->modalities();
  if (modalities.size() > std::numeric_limits<uint8_t>::max()) {
    throw io::Error(fmt::format(
        "the schema has {} kinds of leaves; expected at most 255 (vectors of different widths?)", modalities.size()));
  }
  for (size_t m = 0; m < modalities.size(); ++m) {
    const auto modality = static_cast<uint8_t>(m);
    if (modalities[m].name == "number") number_modality_ = modality;
    if (modalities[m].name == "patch") patch_modality_ = modality;
    if (modalities[m].name == "text") text_modality_ = modality;
    if (modalities[m].name.starts_with("vector:")) vector_modalities_[modalities[m].size] = modality;
  }
  const CategoryTable table = category_table(schema_->fields);
  int32_t numbers = 0;
  for (size_t f = 0; f < schema_->fields.size(); ++f) {
    const Field& field = schema_->fields[f];
    const int32_t place = tree_.add(field.path);
    if (place >= static_cast<int32_t>(nodes_.size())) nodes_.resize(static_cast<size_t>(place) + 1);
    IndexedField& indexed = fields_.emplace_back();
    indexed.field = &field;
    indexed.rows = table.rows[f];
    if (field.kind == Kind::number) indexed.number = ++numbers;
    for (size_t v = 0; v < field.values.size(); ++v) {
      indexed.values.emplace(field.values[v], indexed.rows.values + static_cast<int32_t>(v));
    }
    Node& node = nodes_[static_cast<size_t>(place)];
    if (indexed.rows.null != kNull) node.null = indexed.rows.null;
    if (indexed.rows.empty != kEmpty) node.empty = indexed.rows.empty;
    if (field.kind == Kind::null || field.kind == Kind::ignore) continue;
    node.is_typed = true;
    node.field[slot_of(field.kind)] = static_cast<int32_t>(f);
  }
  nodes_.resize(static_cast<size_t>(tree_.size()));
  for (size_t k = 0; k < schema_->keys.size(); ++k) key_ids_.emplace(schema_->keys[k], static_cast<int32_t>(k));
}

std::string SchemaIndex::kinds_at(int32_t node) const {
  std::string kinds;
  for (const int32_t field : nodes_[static_cast<size_t>(node)].field) {
    if (field < 0) continue;
    kinds += (kinds.empty() ? "" : " or ") + std::string(name_of(fields_[static_cast<size_t>(field)].field->kind));
  }
  return kinds;
}

std::optional<uint8_t> SchemaIndex::vector_modality(int64_t width) const {
  const auto found = vector_modalities_.find(width);
  if (found == vector_modalities_.end()) return std::nullopt;
  return found->second;
}

}  // namespace ramify::signal
