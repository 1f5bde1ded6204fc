// The page of one run or of several.
#pragma once

#include <span>
#include <string>

#include "report/run.h"

namespace ramify::report {

// runs: at least one.
std::string report_page(std::span<const Run> runs);

}  // namespace ramify::report
