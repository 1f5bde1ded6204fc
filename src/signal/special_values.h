// Objects that stand for something else than an object: {"$image": path}, {"$set": [...]}, {"$vector": [...]},
// {"$graph": {"nodes": [...], "edges": [...]}}.
#pragma once

#include <cstddef>
#include <string>

#include "signal/document.h"

namespace ramify::signal {

enum class Special { none, image, set, vector, graph };

struct SpecialValue {
  Special special = Special::none;
  size_t inner = 0;   // the path; the array; of a graph, the nodes
  size_t edges = 0;   // of a graph
  std::string error;  // what is wrong with it, to be said of the field: "is a $set of ..."; empty: nothing
};

SpecialValue special_value(const Document& document, size_t object);

}  // namespace ramify::signal
