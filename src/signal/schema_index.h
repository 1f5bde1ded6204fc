// A schema made ready for looking things up while records are compiled.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "signal/category_rows.h"
#include "signal/path.h"
#include "signal/schema.h"

namespace ramify::signal {

// Values of different sorts can stand at one path, each with a field of its own.
enum Slot { kObjectSlot, kListSlot, kScalarSlot, kImageSlot, kVectorSlot, kSlots };
Slot slot_of(Kind kind);  // not for ignore and null: they have none

class SchemaIndex {
 public:
  struct IndexedField {
    const Field* field = nullptr;
    CategoryRows rows;
    int32_t number = 0;                                    // id of a number
    std::unordered_map<std::string_view, int32_t> values;  // of a category: rows; points into the schema
  };
  struct Node {
    std::array<int32_t, kSlots> field = {-1, -1, -1, -1, -1};
    int32_t null = kNull;
    int32_t empty = kEmpty;
    bool is_typed = false;  // false: never anything but null, so that any value is allowed
  };

  explicit SchemaIndex(std::shared_ptr<const Schema> schema);

  const Schema& schema() const { return *schema_; }
  const std::shared_ptr<const Schema>& shared_schema() const { return schema_; }
  const FieldTree& tree() const { return tree_; }
  const Node& node(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  // nullptr: the path has no field of this slot
  const IndexedField* field(int32_t node, Slot slot) const {
    if (node == FieldTree::kNone) return nullptr;
    const int32_t found = nodes_[static_cast<size_t>(node)].field[slot];
    return found < 0 ? nullptr : &fields_[static_cast<size_t>(found)];
  }
  int32_t key_id(std::string_view key) const {  // -1: not in the schema, at no path
    const auto found = key_ids_.find(key);
    return found == key_ids_.end() ? -1 : found->second;
  }
  // "number", or "array or text"
  std::string kinds_at(int32_t node) const;

  uint8_t token_modality() const { return 0; }
  uint8_t category_modality() const { return 1; }
  std::optional<uint8_t> number_modality() const { return number_modality_; }
  std::optional<uint8_t> patch_modality() const { return patch_modality_; }
  std::optional<uint8_t> vector_modality(int64_t width) const;
  std::optional<uint8_t> text_modality() const { return text_modality_; }  // of vectors for texts

 private:
  std::shared_ptr<const Schema> schema_;
  FieldTree tree_;
  std::vector<Node> nodes_;
  std::vector<IndexedField> fields_;
  std::unordered_map<std::string_view, int32_t> key_ids_;
  std::optional<uint8_t> number_modality_, patch_modality_, text_modality_;
  std::map<int64_t, uint8_t> vector_modalities_;  // by width
};

}  // namespace ramify::signal
