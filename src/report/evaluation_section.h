// The scores of one evaluation: confusion and classes, or predictions against truth.
#pragma once

#include <string>

#include "report/run.h"

namespace ramify::report {

std::string evaluation_html(const Evaluation& evaluation);

// What was evaluated: "1,132 records of the valid split", "150 items of 30 records of the valid split". Plain text.
std::string evaluated_text(const Evaluation& evaluation);

}  // namespace ramify::report
