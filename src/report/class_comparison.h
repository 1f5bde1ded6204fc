// The classes of several runs side by side: where the runs differ.
#pragma once

#include <string>

#include "report/likeness.h"

namespace ramify::report {

// F1 of every class under every run, as numbers and as dots on a line. Empty where there are no classes, and of
// one run.
std::string class_comparison_html(ShownRuns runs);

}  // namespace ramify::report
