// How dark a leaf is drawn: by its share of the attention, measured against an even share for every leaf. So a shade
// means the same in short and in long records, and even attention looks even.
#pragma once

#include <cstdint>
#include <string>

namespace ramify::report {

struct TreeNode;

inline constexpr int kShades = 12;           // s0, transparent, to s12
inline constexpr double kDarkestTimes = 16;  // times its even share

class Shade {
 public:
  explicit Shade(int64_t leaves_of_tree) : leaves_(leaves_of_tree > 0 ? static_cast<double>(leaves_of_tree) : 1) {}

  // The mass of a node over that of as many leaves with even attention.
  double times_even(const TreeNode& node) const;

  // Class of an element: "s7". Empty where the mass is not known.
  std::string css_class(const TreeNode& node) const;

  // Share of the attention and of the leaves, in words. Empty where the mass is not known.
  std::string note(const TreeNode& node) const;

  double even_share(const TreeNode& node) const;

  // What the shades mean, drawn.
  static std::string legend_html();

 private:
  double leaves_;
};

}  // namespace ramify::report
