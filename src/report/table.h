// A table as HTML; a click on the head of a column sorts by it.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ramify::report {

enum class Align { text, number, drawing };  // drawings are left out on narrow screens

struct Column {
  std::string name;
  Align align = Align::text;
};

// Plain text, escaped here, and how it looks.
struct Cell {
  std::string text;
  double order = 0;      // what a column of numbers is sorted by
  double bar = -1;       // 0..1: a bar under the number; -1: none
  bool is_best = false;  // bold
  int colour = -1;       // of this row in the charts; -1: none
  std::string drawing;   // HTML of our own, of a column of drawings

  Cell(std::string shown) : text(std::move(shown)) {}  // NOLINT(google-explicit-constructor)
  Cell(const char* shown) : text(shown) {}             // NOLINT(google-explicit-constructor)
  Cell(std::string shown, double value) : text(std::move(shown)), order(value) {}
};

struct Table {
  std::string title;  // above it; empty: none
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // each of as many cells as columns
};

std::string table_html(const Table& table);

// The class of an element in the n-th colour of the charts; they repeat after eight.
std::string colour_class(int number);

}  // namespace ramify::report
