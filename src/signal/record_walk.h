// The way through one record, value by value, that builds its signal. The nesting is kept in a list: nothing recurses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "signal/compiler.h"
#include "signal/document.h"
#include "signal/image_patches.h"
#include "signal/schema_index.h"
#include "signal/signal_builder.h"
#include "signal/special_values.h"
#include "signal/target_reader.h"
#include "signal/text_leaves.h"

namespace ramify::signal {

class RecordWalk {
 public:
  struct Context {
    const SchemaIndex& index;
    const ImageSource& images;
    const TextVectors* text_vectors;  // nullptr: texts are tokens
    const TargetReader& target;
    Labels labels;
    const std::string& folder;
  };

  // BadRecord. May be called again afterwards.
  Signal run(std::string_view json, const Context& context);

 private:
  // An object, array, set or graph that is being read.
  struct Family {
    Domain domain = Domain::none;      // of its children
    size_t end = 0;                    // of its items in the document
    size_t resume = 0;                 // where to go on after them
    int32_t field = FieldTree::kNone;  // of an object: itself; of others: that of their items
    int32_t next = 0;                  // place of the next item
    int32_t first_row = 0;             // graph: of its positions
    int32_t empty = kEmpty;            // what it is if nothing is in it
    bool is_labelled = false;          // its items are what the target tells about
  };
  // A value with its place in the tree of fields and in its family.
  struct Item {
    size_t value = 0;
    int32_t field = FieldTree::kNone;  // kNone: not in the schema
    Place place;
    std::string_view label;
  };

  void walk();
  bool step(Family& family, size_t& value);
  bool find_member(const Family& object, Item& item) const;
  void close_family();
  void begin_labelled_item();
  void end_labelled_item();

  // Each returns where the walk goes on.
  size_t visit(const Item& item);
  size_t visit_object(const Item& item);
  size_t visit_array(const Item& item);
  size_t visit_set(const Item& item, size_t inner);
  size_t visit_graph(const Item& item, const SpecialValue& graph);
  size_t visit_vector(const Item& item, size_t array);
  size_t visit_image(const Item& item, size_t string);
  size_t visit_string(const Item& item);
  size_t visit_number(const Item& item);
  size_t visit_boolean(const Item& item);

  int32_t add_unknown_key(std::string_view key);  // its place
  std::vector<std::pair<int64_t, int64_t>> read_edges(const Item& item, size_t edges, int64_t nodes) const;
  void open_list(const Item& item, size_t array, Domain domain, std::string_view kind);
  void add_text(const Item& item, std::string_view text, const std::vector<TextLevel>& levels);
  void add_written(const Item& item, const SchemaIndex::IndexedField& field);
  void add_category(const Item& item, int32_t row, std::string_view text);
  void add_patches(std::string_view path, uint8_t modality);
  void describe(const Item& item, std::string_view kind, std::string_view text = "");

  bool is_unknown(const Item& item) const;
  int32_t empty_row(const Item& item) const;
  [[noreturn]] void wrong_type(const Item& item, std::string_view found) const;
  [[noreturn]] void fail(const Item& item, const std::string& message) const;

  const Context* context_ = nullptr;
  Document document_;
  SignalBuilder builder_;
  TextLeaves texts_;
  std::vector<Family> families_;
  SignalTarget target_;
  size_t labelled_items_ = 0;  // the array of the items that the target tells about
  std::string buffer_, label_;
  std::vector<float> values_;
};

}  // namespace ramify::signal
