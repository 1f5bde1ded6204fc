// Where each field's values stand in the one table of categories.
#pragma once

#include <cstdint>
#include <vector>

#include "signal/schema.h"

namespace ramify::signal {

struct CategoryRows {
  int32_t values = 0;             // first of the field's values; false and true of a boolean
  int32_t other = kUnknownValue;  // a value that is not among them
  int32_t null = kNull;
  int32_t empty = kEmpty;
};

struct CategoryTable {
  std::vector<CategoryRows> rows;  // [fields]
  int64_t size = kGenericCategories;
};

CategoryTable category_table(const std::vector<Field>& fields);

}  // namespace ramify::signal
