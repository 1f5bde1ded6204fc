#include "signal/graph_positions.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

namespace ramify::signal {
namespace {

// The Laplacian I - D^-1/2 A D^-1/2 with the trivial eigenvector's eigenvalue, 0, moved above all others: so it is out
// of the way even where 0 comes several times, once for each connected part.
Eigen::MatrixXd deflated_laplacian(int64_t num_nodes, const std::vector<std::pair<int64_t, int64_t>>& edges) {
  Eigen::MatrixXd adjacency = Eigen::MatrixXd::Zero(num_nodes, num_nodes);
  for (const auto& [from, to] : edges) {
    if (from != to) adjacency(from, to) = adjacency(to, from) = 1;
  }
  const Eigen::VectorXd degrees = adjacency.rowwise().sum();
  const Eigen::VectorXd scale = degrees.unaryExpr([](double degree) { return degree > 0 ? 1 / std::sqrt(degree) : 0; });
  Eigen::MatrixXd laplacian = -(scale.asDiagonal() * adjacency * scale.asDiagonal());
  laplacian.diagonal().array() += 1;
  constexpr double kAboveAll = 3;  // eigenvalues of a normalised Laplacian are within 0 and 2
  const Eigen::VectorXd trivial = degrees.cwiseSqrt().normalized();
  return laplacian + kAboveAll * trivial * trivial.transpose();
}

// By the first entry that is as large as any, so that rounding does not decide between equals.
double sign_of(const Eigen::VectorXd& vector) {
  const double largest = vector.cwiseAbs().maxCoeff();
  for (const double entry : vector) {
    if (std::abs(entry) > largest * (1 - 1e-6)) return entry < 0 ? -1 : 1;
  }
  return 1;
}

}  // namespace

std::vector<float> laplacian_positions(int64_t num_nodes, const std::vector<std::pair<int64_t, int64_t>>& edges,
                                       int64_t k) {
  std::vector<float> positions(static_cast<size_t>(num_nodes * k), 0.F);
  const bool has_edges =
      std::any_of(edges.begin(), edges.end(), [](const auto& edge) { return edge.first != edge.second; });
  if (!has_edges) return positions;
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(deflated_laplacian(num_nodes, edges));
  const int64_t count = std::min(k, num_nodes - 1);
  for (int64_t e = 0; e < count; ++e) {
    const Eigen::VectorXd vector = solver.eigenvectors().col(e);
    const double scale = sign_of(vector) * std::sqrt(static_cast<double>(num_nodes));
    for (int64_t n = 0; n < num_nodes; ++n)
      positions[static_cast<size_t>(n * k + e)] = static_cast<float>(scale * vector[n]);
  }
  return positions;
}

}  // namespace ramify::signal
