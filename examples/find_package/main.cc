// Hierarchical attention over two sequences of 100 and 37 leaves in windows of 4.
#include <ATen/ATen.h>
#include <ramify/attention.h>
#include <ramify/builders.h>

#include <iostream>
#include <vector>

int main() {
  at::manual_seed(0);
  const auto forest = ramify::windows(std::vector<int64_t>{100, 37}, ramify::Branching::parse("4*"));
  const auto x = at::randn({forest.num_leaves(), 8, 16});
  std::cout << ramify::attention(x, x, x, forest).norm().item<float>() << '\n';
}
