#include "inspect_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "signal/counted.h"

namespace ramify::cli {
namespace {

using nlohmann::json;
using signal::counted;
using signal::Field;
using signal::Kind;
using signal::Sizes;

constexpr std::string_view kFamilies[] = {"in sets", "in objects", "in sequences", "in grids", "in graphs"};

std::string list_of(const std::vector<std::string>& names, size_t most) {
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), most); ++i) list += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > most) list += fmt::format(", … ({})", names.size());
  return list;
}

std::string details(const Field& field) {
  std::string text;
  switch (field.kind) {
    case Kind::number:
      text = fmt::format("{:.6g} to {:.6g}{}", field.min, field.max, field.logarithmic ? ", logarithmic" : "");
      break;
    case Kind::category:
    case Kind::text_leaf:
      text = list_of(field.values, 6);
      break;
    case Kind::vector:
      text = fmt::format("{} wide", field.width);
      break;
    case Kind::text:
      for (const signal::TextLevel level : field.levels) {
        text += (text.empty() ? "" : " > ") + std::string(name_of(level));
      }
      break;
    default:
      break;
  }
  if (field.nulls > 0) text += fmt::format("{}{} null", text.empty() ? "" : "; ", field.nulls);
  if (field.empties > 0) text += fmt::format("{}{} empty", text.empty() ? "" : "; ", field.empties);
  return text;
}

std::string shown_path(const std::string& path) {
  return path.empty() ? "(record)" : path;
}

std::string target_text(const signal::Target& target) {
  if (target.task == signal::Task::none) return "none";
  std::string text = fmt::format("{} ({}", target.path, name_of(target.task));
  if (!target.of.empty()) text += " of the items of " + target.of;
  if (target.task == signal::Task::regression) {
    return text + fmt::format(", mean {:.6g}, deviation {:.6g})", target.mean, target.deviation);
  }
  return text + fmt::format(", {}: {})", counted(static_cast<int64_t>(target.classes.size()), "class", "classes"),
                            list_of(target.classes, 8));
}

// "token (vocabulary of 50)": what a model has to embed of each sort of leaf.
std::string leaves_text(const signal::Modality& modality) {
  std::string size = counted(modality.size, "value") + " each";
  if (modality.name == "token") size = fmt::format("vocabulary of {}", modality.size);
  if (modality.name == "category") size = fmt::format("table of {}", counted(modality.size, "value"));
  if (modality.feature == signal::Feature::numbers) size = counted(modality.size - 1, "field");  // without the unknown
  return fmt::format("{} ({})", modality.name, size);
}

struct SizeRow {
  std::string name;
  const Sizes* sizes;
};

std::vector<SizeRow> size_rows(const signal::SignalStatistics& statistics) {
  std::vector<SizeRow> rows = {{"leaves of a record", &statistics.leaves},
                               {"nodes of a record", &statistics.nodes},
                               {"depth of a record", &statistics.depth}};
  for (size_t d = 0; d < statistics.families.size(); ++d) {
    const Sizes& sizes = statistics.families[d];
    if (sizes.count() > 0) rows.push_back({fmt::format("children {}", kFamilies[d]), &sizes});
  }
  return rows;
}

std::string schema_text(const signal::Schema& schema) {
  size_t widest = 5;
  for (const Field& field : schema.fields) widest = std::clamp(shown_path(field.path).size(), widest, size_t{40});
  std::string text = fmt::format("{:<{}}  {:<10}{:>10}\n", "field", widest, "kind", "values");
  for (const Field& field : schema.fields) {
    const std::string count = field.kind == Kind::ignore ? "" : std::to_string(field.count);
    std::string line = fmt::format("{:<{}}  {:<10}{:>10}  {}", shown_path(field.path), widest, name_of(field.kind),
                                   count, details(field));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  text += fmt::format("\ntarget: {}\nleaves: ", target_text(schema.target));
  for (const signal::Modality& modality : schema.modalities()) {
    text += (modality.name == "token" ? "" : ", ") + leaves_text(modality);
  }
  text += "\n";
  for (const std::string& note : schema.notes) text += "note: " + note + "\n";
  return text;
}

std::string statistics_text(const signal::SignalStatistics& statistics) {
  std::string text = fmt::format("{:<24}{:>12}{:>10}{:>10}{:>10}\n", "", "number", "median", "90%", "largest");
  for (const SizeRow& row : size_rows(statistics)) {
    text += fmt::format("{:<24}{:>12}{:>10}{:>10}{:>10}\n", row.name, row.sizes->count(), row.sizes->quantile(0.5),
                        row.sizes->quantile(0.9), row.sizes->quantile(1));
  }
  return text;
}

json sizes_json(const Sizes& sizes) {
  return {{"count", sizes.count()},
          {"total", sizes.total()},
          {"median", sizes.quantile(0.5)},
          {"ninety_percent", sizes.quantile(0.9)},
          {"largest", sizes.quantile(1)}};
}

json statistics_json(const Inspection& inspection) {
  const signal::SignalStatistics& statistics = inspection.statistics;
  json result = {{"leaves", sizes_json(statistics.leaves)},
                 {"nodes", sizes_json(statistics.nodes)},
                 {"depth", sizes_json(statistics.depth)},
                 {"families", json::object()},
                 {"modalities", json::object()}};
  for (size_t d = 0; d < statistics.families.size(); ++d) {
    const std::string name(kFamilies[d].substr(3));
    if (statistics.families[d].count() > 0) result["families"][name] = sizes_json(statistics.families[d]);
  }
  const std::vector<signal::Modality> modalities = inspection.schema.modalities();
  for (size_t m = 0; m < modalities.size(); ++m) {
    const bool is_seen = m < statistics.leaves_of_modality.size();
    result["modalities"][modalities[m].name] = {{"size", modalities[m].size},
                                                {"leaves", is_seen ? statistics.leaves_of_modality[m] : 0}};
  }
  return result;
}

}  // namespace

std::string inspection_text(const Inspection& inspection) {
  const signal::SignalStatistics& statistics = inspection.statistics;
  std::string text = fmt::format("{}: {}", list_of(inspection.files, 3), counted(statistics.records, "record"));
  if (inspection.bad.count > 0) text += fmt::format(", {} left out", counted(inspection.bad.count, "bad one"));
  text += "\n\n" + schema_text(inspection.schema) + "\n" + statistics_text(statistics);
  if (statistics.truncated > 0) {
    text += fmt::format("{} cut off at {} (--max-leaves)\n", counted(statistics.truncated, "record is", "records are"),
                        counted(inspection.schema.max_leaves, "leaf", "leaves"));
  }
  if (const auto& speed = inspection.throughput) {
    text += fmt::format(
        "\nthroughput: {:.0f} records/s a core, {:.0f} records/s in all ({}); {:.0f} bytes a record, "
        "{:.1f} MB/s a core\n",
        speed->per_core_second(), speed->per_second(), counted(speed->threads, "thread"),
        static_cast<double>(speed->bytes) / static_cast<double>(speed->records),
        static_cast<double>(speed->bytes) / speed->core_seconds / 1e6);
  }
  return text;
}

json inspection_json(const Inspection& inspection) {
  json schema = inspection.schema.to_json();
  schema.erase("tokenizer");  // the vocabulary: large, and nothing to read
  json result = {{"files", inspection.files},
                 {"records", inspection.statistics.records},
                 {"bad_records", inspection.bad.count},
                 {"truncated_records", inspection.statistics.truncated},
                 {"schema", schema},
                 {"notes", inspection.schema.notes},
                 {"statistics", statistics_json(inspection)}};
  if (const auto& speed = inspection.throughput) {
    result["throughput"] = {{"threads", speed->threads},
                            {"records", speed->records},
                            {"bytes", speed->bytes},
                            {"seconds", speed->seconds},
                            {"core_seconds", speed->core_seconds},
                            {"records_per_second", speed->per_second()},
                            {"records_per_second_per_core", speed->per_core_second()}};
  }
  return result;
}

namespace {

// What is to be predicted, with all classes as far as they can be read.
report::Table target_table(const signal::Target& target) {
  constexpr size_t kMostClasses = 100;
  report::Table table = {"Target", {{"field"}, {"task"}, {"classes", report::Align::number}, {"details"}}, {}};
  const std::string of = target.of.empty() ? "" : " of the items of " + target.of;
  const std::string details = target.task == signal::Task::regression
                                  ? fmt::format("mean {:.6g}, deviation {:.6g}", target.mean, target.deviation)
                                  : list_of(target.classes, kMostClasses);
  const size_t classes = target.classes.size();
  table.rows.push_back({target.path, std::string(name_of(target.task)) + of,
                        report::Cell(classes == 0 ? "" : std::to_string(classes), static_cast<double>(classes)),
                        details});
  return table;
}

}  // namespace

std::vector<report::Table> inspection_tables(const Inspection& inspection) {
  using report::Align;
  report::Table schema = {"Schema", {{"field"}, {"kind"}, {"values", Align::number}, {"details"}}, {}};
  for (const Field& field : inspection.schema.fields) {
    schema.rows.push_back({shown_path(field.path), std::string(name_of(field.kind)),
                           report::Cell(std::to_string(field.count), static_cast<double>(field.count)),
                           details(field)});
  }
  report::Table statistics = {
      "Trees",
      {{""}, {"number", Align::number}, {"median", Align::number}, {"90%", Align::number}, {"largest", Align::number}},
      {}};
  for (const SizeRow& row : size_rows(inspection.statistics)) {
    std::vector<report::Cell> cells = {row.name};
    for (const int64_t number :
         {row.sizes->count(), row.sizes->quantile(0.5), row.sizes->quantile(0.9), row.sizes->quantile(1)}) {
      cells.emplace_back(std::to_string(number), static_cast<double>(number));
    }
    statistics.rows.push_back(std::move(cells));
  }
  std::vector<report::Table> tables;
  if (inspection.schema.target.task != signal::Task::none) tables.push_back(target_table(inspection.schema.target));
  tables.push_back(std::move(schema));
  if (!inspection.schema.notes.empty()) {
    report::Table& notes = tables.emplace_back(report::Table{"Notes", {{"note"}}, {}});
    for (const std::string& note : inspection.schema.notes) notes.rows.push_back({report::Cell(note)});
  }
  tables.push_back(std::move(statistics));
  return tables;
}

}  // namespace ramify::cli
