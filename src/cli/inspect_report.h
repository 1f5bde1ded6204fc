// What `ramify inspect` found, as text, JSON, or tables of a page.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/table.h"
#include "signal/dataset.h"
#include "signal/schema.h"
#include "signal/statistics.h"

namespace ramify::cli {

struct Throughput {
  int threads = 0;
  int64_t records = 0;
  int64_t bytes = 0;        // of JSON
  double seconds = 0;       // on the clock
  double core_seconds = 0;  // of all threads together

  double per_second() const { return static_cast<double>(records) / seconds; }
  double per_core_second() const { return static_cast<double>(records) / core_seconds; }
};

struct Inspection {
  std::vector<std::string> files;
  signal::Schema schema;
  signal::SignalStatistics statistics;
  signal::BadRecords bad;
  std::optional<Throughput> throughput;
};

std::string inspection_text(const Inspection& inspection);
nlohmann::json inspection_json(const Inspection& inspection);
std::vector<report::Table> inspection_tables(const Inspection& inspection);

}  // namespace ramify::cli
