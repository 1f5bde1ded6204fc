#include "report/figures.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "report/html.h"

namespace ramify::report {
namespace {

constexpr auto kScore = FigureRole::score;
constexpr auto kSpeed = FigureRole::speed;

constexpr std::array kFigures = {
    FigureKind{"micro_f1", "Micro F1", kScore, Better::more, true},
    FigureKind{"accuracy", "Accuracy", kScore, Better::more, true},
    FigureKind{"macro_f1", "Macro F1", kScore, Better::more, true},
    FigureKind{"precision", "Precision", kScore, Better::more, true},
    FigureKind{"recall", "Recall", kScore, Better::more, true},
    FigureKind{"r2", "R\xC2\xB2", kScore, Better::more},
    FigureKind{"rmse", "RMSE", kScore, Better::less},
    FigureKind{"mae", "MAE", kScore, Better::less},
    FigureKind{"loss", "Loss", kScore, Better::less},
    FigureKind{"rate", "Rate", kSpeed},
    FigureKind{"leaves_per_second", "Leaves per second", kSpeed, Better::more},
    FigureKind{"records_per_second", "Records per second", kSpeed, Better::more},
    FigureKind{"seconds", "Seconds", FigureRole::time, Better::less},
};

size_t figure_rank(std::string_view name) {
  const FigureKind* kind = find_figure(name);
  return kind ? static_cast<size_t>(kind - kFigures.data()) : kFigures.size();
}

}  // namespace

std::span<const FigureKind> figure_kinds() {
  return kFigures;
}

const FigureKind* find_figure(std::string_view name) {
  const auto* found = std::ranges::find(kFigures, name, &FigureKind::name);
  return found == kFigures.end() ? nullptr : found;
}

std::vector<std::string> in_order(std::vector<std::string> names) {
  std::vector<std::string> ordered;
  for (std::string& name : names) {
    if (std::ranges::find(ordered, name) == ordered.end()) ordered.push_back(std::move(name));
  }
  std::ranges::stable_sort(ordered, {}, figure_rank);
  return ordered;
}

std::string figure_name(std::string_view name) {
  if (const FigureKind* kind = find_figure(name)) return std::string(kind->shown);
  std::string shown(name);
  std::ranges::replace(shown, '_', ' ');
  if (!shown.empty()) shown[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(shown[0])));
  return shown;
}

std::string figure_text(std::string_view name, double value) {
  return is_share(name) ? percent(value) : decimal(value);
}

bool is_share(std::string_view name) {
  const FigureKind* kind = find_figure(name);
  return kind && kind->is_share;
}

Better better_of(std::string_view name) {
  const FigureKind* kind = find_figure(name);
  return kind ? kind->better : Better::neither;
}

}  // namespace ramify::report
