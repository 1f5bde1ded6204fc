// Which runs of a page can be set against each other, and what keeps the others apart.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/run.h"

namespace ramify::report {

// A run on a page of several; it keeps its colour in whichever part of the page it stands.
struct ShownRun {
  const Run* run = nullptr;
  int colour = 0;
};

using ShownRuns = std::span<const ShownRun>;

std::vector<ShownRun> shown_runs(std::span<const Run> runs);

// By what they learn, task and target: scores of two such groups cannot be compared. In the order of the runs.
std::vector<std::vector<ShownRun>> by_problem(ShownRuns runs);

// By their settings: runs of one group differ in nothing but the seed, and where they were written.
std::vector<std::vector<ShownRun>> by_settings(ShownRuns runs);

// Whether all that were evaluated were so on as many records of one split. Others are not ranked.
bool have_same_records(ShownRuns runs);

// In what the runs differ, attention and seed aside: "epochs (6, 30), rate (0.001, 0.01)". Empty: in nothing.
std::string differences_of(ShownRuns runs);

}  // namespace ramify::report
