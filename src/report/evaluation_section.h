// The scores of one evaluation: confusion and classes, or predictions against truth.
#pragma once

#include <string>

#include "report/run.h"

namespace ramify::report {

std::string evaluation_html(const Evaluation& evaluation);

// How a figure is called and written: "macro_f1", 0.87 is "Macro F1" and "87.0%".
std::string figure_name(const std::string& name);
std::string figure_text(const std::string& name, double value);
bool is_share(const std::string& name);        // accuracy and F1: 0..1
bool is_less_better(const std::string& name);  // losses and errors

}  // namespace ramify::report
