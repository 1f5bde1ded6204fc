// Labels of the items of an array: which node of the tree each belongs to.
#pragma once

#include <optional>
#include <string>

#include "report/run.h"
#include "report/tree.h"

namespace ramify::report {

// Predictions and truths of a record on the children of the array at `path`, keys with dots between. None where the
// tree has no such array, or one of another length.
std::optional<ItemLabels> item_labels(const Explanation& record, const std::string& path);

// The same as a table, for such records.
std::string item_table_html(const Explanation& record);

// "12 of 15 items right"; without truths "15 items". Plain text.
std::string items_right_text(const Explanation& record);

}  // namespace ramify::report
