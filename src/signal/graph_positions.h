// Positions of the nodes of a graph: eigenvectors of its Laplacian.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace ramify::signal {

// [num_nodes, k]: the k eigenvectors of the symmetric normalised Laplacian with the smallest eigenvalues, without the
// trivial one (the square roots of the degrees); zeros where there are not as many. Scaled to a mean square of 1, with
// the sign that makes the largest entry positive. Edges count in both directions, once; loops do not count. All
// zeros without edges.
std::vector<float> laplacian_positions(int64_t num_nodes, const std::vector<std::pair<int64_t, int64_t>>& edges,
                                       int64_t k);

}  // namespace ramify::signal
