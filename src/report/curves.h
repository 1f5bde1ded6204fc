// Learning curves of one run or of several over each other.
#pragma once

#include <string>

#include "report/likeness.h"

namespace ramify::report {

// Loss and scores against the epoch (the step, where epochs are not known). Empty where there are no metrics.
std::string curves_html(ShownRuns runs);

// Learning rate and speed.
std::string diagnostics_html(ShownRuns runs);

double training_seconds(const Run& run);   // NaN: not known
double leaves_per_second(const Run& run);  // the median of its training lines; NaN: not known

}  // namespace ramify::report
