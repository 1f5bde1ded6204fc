// Chosen records of a run: what was predicted and which parts of the record mattered.
#pragma once

#include <string>

#include "report/run.h"

namespace ramify::report {

// Empty where there are none.
std::string explanations_html(const Run& run);

}  // namespace ramify::report
