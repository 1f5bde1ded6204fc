// Several runs side by side: their figures and how they differ.
#pragma once

#include <span>
#include <string>

#include "report/run.h"

namespace ramify::report {

// Figures of the runs, and their differences or, with several runs of one attention, their means and deviations.
std::string comparison_html(std::span<const Run> runs);

// What makes a comparison unfair, in words: runs of other data, targets or tasks. Empty: nothing.
std::string differences_of_data(std::span<const Run> runs);

// The evaluation that figures are taken from: of the test split, else of another. Null: none.
const Evaluation* main_evaluation(const Run& run);

}  // namespace ramify::report
