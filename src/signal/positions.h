// The positions of a batch's nodes: each distinct one once.
#pragma once

#include <span>

#include "signal/batch.h"

namespace ramify::signal {

Positions hierarchical_positions(std::span<const Signal* const> signals, const Schema& schema,
                                 const CollateOptions& options);
Positions flat_positions(std::span<const Signal* const> signals);

}  // namespace ramify::signal
