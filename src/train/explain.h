// Which parts of a record a model looked at: its tree with the share of attention on every node.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "ramify/nn/network.h"
#include "signal/dataset.h"
#include "train/run_folder.h"

namespace ramify::train {

// {"line", "truth", "prediction", "probabilities", "tree"} of a record that was compiled with labels; "truth" only
// where it is known. A node of the tree has label, kind, text, leaves, mass, children; no mass if leaves do not see
// each other. With sparse attention also "zero_weights", the share of weights that are exactly 0.
nlohmann::json explain(nn::Network& model, const RunDescription& run, const signal::Signal& labelled,
                       at::Device device);

// The same for records of a data set, read once more with labels: {"records": [...]}. `text_vectors` where the schema
// wants them.
nlohmann::json explain_records(nn::Network& model, const RunDescription& run, const signal::Dataset& data,
                               const std::vector<int64_t>& records, at::Device device,
                               std::shared_ptr<const signal::TextVectors> text_vectors);

}  // namespace ramify::train
