// Predicted against true values of a regression, and how the errors are spread.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ramify::report {

// Empty where nothing can be drawn.
std::string scatter_html(const std::vector<std::pair<double, double>>& truth_and_prediction);
std::string error_histogram_html(const std::vector<std::pair<double, double>>& truth_and_prediction);

}  // namespace ramify::report
