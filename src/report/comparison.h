// Several runs of one task and target side by side: their figures and how they differ.
#pragma once

#include <string>

#include "report/likeness.h"

namespace ramify::report {

// Figures of the runs, and their differences or, with several runs of the same settings, means and deviations. Runs
// that were evaluated on other records than the rest are shown, but none is called the best.
std::string comparison_html(ShownRuns runs);

}  // namespace ramify::report
