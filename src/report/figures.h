// The figures that runs record: in which order they are shown, how they are called and written, and which way is
// better. The values themselves are in run.h.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ramify::report {

enum class Better { more, less, neither };
enum class FigureRole { score, speed, time };

struct FigureKind {
  std::string_view name;   // in the files: "macro_f1"
  std::string_view shown;  // "Macro F1"
  FigureRole role = FigureRole::score;
  Better better = Better::neither;
  bool is_share = false;  // 0..1, written as percent
};

// All that are known, in the order in which they are shown.
std::span<const FigureKind> figure_kinds();

// Null: not known. Others may record figures of their own.
const FigureKind* find_figure(std::string_view name);

// The known ones in their order, then the others as they come; each once.
std::vector<std::string> in_order(std::vector<std::string> names);

// How a figure is called and written: "macro_f1", 0.87 is "Macro F1" and "87.0%".
std::string figure_name(std::string_view name);
std::string figure_text(std::string_view name, double value);
bool is_share(std::string_view name);
Better better_of(std::string_view name);

}  // namespace ramify::report
