// The leaves of a record: numbers, categories, texts, images, vectors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "signal/counted.h"
#include "signal/record_walk.h"

namespace ramify::signal {
namespace {

// A number that nothing is known about: as it is when small, logarithmic when large.
float squeezed(double number) {
  return static_cast<float>(std::clamp(std::asinh(number), -Field::kMaxNormalised, Field::kMaxNormalised));
}

}  // namespace

void RecordWalk::add_category(const Item& item, int32_t row, std::string_view text) {
  builder_.add_leaf(item.place, context_->index.category_modality(), row);
  describe(item, "category", text);
}

void RecordWalk::add_text(const Item& item, std::string_view text, const std::vector<TextLevel>& levels) {
  if (levels.empty()) return add_category(item, kUnknownValue, text);
  builder_.open(item.place);
  describe(item, "text");
  texts_.add(text, levels);
  builder_.close(empty_row(item));
}

// A string, number or boolean where the schema has a text or one of several values: what counts is how it is written.
void RecordWalk::add_written(const Item& item, const SchemaIndex::IndexedField& field) {
  const std::string_view written = document_.written(document_[item.value], buffer_);
  if (field.field->kind == Kind::text) return add_text(item, written, field.field->levels);
  const auto found = field.values.find(written);
  add_category(item, found == field.values.end() ? field.rows.other : found->second, written);
}

size_t RecordWalk::visit_string(const Item& item) {
  const size_t next = document_[item.value].end;
  const auto* field = context_->index.field(item.field, kScalarSlot);
  if (!field && context_->index.field(item.field, kImageSlot)) return visit_image(item, item.value);
  if (!field && is_unknown(item)) {
    add_text(item, document_.text(document_[item.value]), context_->index.schema().text_levels);
    return next;
  }
  if (!field || field->field->kind == Kind::number || field->field->kind == Kind::boolean) {
    wrong_type(item, "a string");
  }
  add_written(item, *field);
  return next;
}

size_t RecordWalk::visit_number(const Item& item) {
  const Value& value = document_[item.value];
  const auto* field = context_->index.field(item.field, kScalarSlot);
  const bool is_number = field && field->field->kind == Kind::number;
  const auto modality = context_->index.number_modality();
  if ((!field && !is_unknown(item)) || (field && field->field->kind == Kind::boolean)) wrong_type(item, "a number");
  if (field && !is_number) {
    add_written(item, *field);
  } else if (!modality) {
    add_category(item, kUnknownValue, document_.written(value, buffer_));
  } else {
    builder_.add_leaf(item.place, *modality, is_number ? field->number : 0);
    const float normalised = is_number ? field->field->normalised(value.number()) : squeezed(value.number());
    builder_.add_values({&normalised, 1});
    describe(item, "number", document_.written(value, buffer_));
  }
  return value.end;
}

size_t RecordWalk::visit_boolean(const Item& item) {
  const Value& value = document_[item.value];
  const auto* field = context_->index.field(item.field, kScalarSlot);
  const std::string_view text = value.boolean ? "true" : "false";
  if ((!field && !is_unknown(item)) || (field && field->field->kind == Kind::number)) wrong_type(item, "true or false");
  if (!field) {
    add_category(item, value.boolean ? kTrue : kFalse, text);
  } else if (field->field->kind == Kind::boolean) {
    add_category(item, field->rows.values + (value.boolean ? 1 : 0), text);
  } else {
    add_written(item, *field);
  }
  return value.end;
}

size_t RecordWalk::visit_vector(const Item& item, size_t array) {
  const Value& list = document_[array];
  const auto* field = context_->index.field(item.field, kVectorSlot);
  if (!field && !is_unknown(item)) wrong_type(item, "a $vector");
  const int64_t width = list.items;
  if (field && width != field->field->width) {
    fail(item, fmt::format("is a vector of {}, the schema says {}", counted(width, "number"), field->field->width));
  }
  values_.clear();
  for (size_t i = array + 1; i < list.end; i = document_[i].end) {
    if (!document_[i].is_number()) fail(item, fmt::format("is a vector with {} in it", name_of(document_[i].type)));
    const double number = document_[i].number();
    if (std::abs(number) > std::numeric_limits<float>::max()) {
      fail(item, fmt::format("is a vector with {}, which does not fit into 32 bits", number));
    }
    values_.push_back(static_cast<float>(number));
  }
  const size_t next = document_[item.value].end;
  const auto modality = context_->index.vector_modality(width);
  if (!modality) {
    add_category(item, kUnknownValue, "vector");
    return next;
  }
  builder_.add_leaf(item.place, *modality, 0);
  builder_.add_values(values_);
  describe(item, "vector", counted(width, "number"));
  return next;
}

size_t RecordWalk::visit_image(const Item& item, size_t string) {
  if (!context_->index.field(item.field, kImageSlot) && !is_unknown(item)) wrong_type(item, "an $image");
  const size_t next = document_[item.value].end;
  const std::string_view path = document_.text(document_[string]);
  const auto modality = context_->index.patch_modality();
  if (!modality) {
    add_category(item, kUnknownValue, path);
    return next;
  }
  builder_.open(item.place);
  describe(item, "image", path);
  add_patches(path, *modality);
  builder_.close(kEmpty);
  return next;
}

void RecordWalk::add_patches(std::string_view path, uint8_t modality) {
  Patches patches;
  try {
    patches = cut_patches(context_->images.load(path, context_->folder), context_->index.schema().image);
  } catch (const io::Error& error) {
    throw BadRecord(error.what());
  }
  const int64_t patch = context_->index.schema().image.patch;
  const int64_t room = builder_.room(), count = patches.rows * patches.columns;
  if (count > room) builder_.mark_truncated();
  for (int64_t p = 0; p < std::min(count, room); ++p) {
    const auto row = static_cast<int32_t>(p / patches.columns), column = static_cast<int32_t>(p % patches.columns);
    builder_.add_leaf({Domain::grid, row << 16 | column}, modality, 0);
    builder_.add_patch_bytes({patches.bytes.data() + p * 3 * patch * patch, static_cast<size_t>(3 * patch * patch)});
    if (context_->labels == Labels::all) builder_.describe({fmt::format("{},{}", row, column), "patch", ""});
  }
}

}  // namespace ramify::signal
