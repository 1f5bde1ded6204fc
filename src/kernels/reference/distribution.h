// Weights over a handful of entries, and their energy: softmax with its log-sum-exp, or alpha-entmax
// (docs/algorithm.md, section 7).
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/tape.h"
#include "ramify/options.h"

namespace ramify::reference {

template <class Real>
struct Distribution {
  std::vector<Real> weights;  // sum to 1
  Real energy;                // log-sum-exp for softmax; p·z + Tsallis entropy of p in general
};

// NaN if any entry is.
template <class Real>
double largest(const std::vector<Real>& entries) {
  double largest = -INFINITY;
  for (const Real& z : entries) {
    if (std::isnan(value_of(z))) return NAN;
    largest = std::max(largest, value_of(z));
  }
  return largest;
}

template <class Real>
Distribution<Real> softmax(const std::vector<Real>& entries) {
  using std::exp, std::log;
  const double shift = largest(entries);
  Distribution<Real> result;
  Real sum = 0;
  for (const Real& z : entries) {
    result.weights.push_back(exp(z - Real(shift)));
    sum += result.weights.back();
  }
  for (Real& weight : result.weights) weight = weight / sum;
  result.energy = log(sum) + Real(shift);
  return result;
}

// The threshold tau at which sum_i max((alpha-1) z_i - tau, 0)^(1/(alpha-1)) is 1, by bisection.
template <class Real>
double entmax_threshold(const std::vector<Real>& entries, double alpha) {
  const double power = 1 / (alpha - 1);
  const double top = (alpha - 1) * largest(entries);
  double low = top - 1, high = top;
  for (int step = 0; step < 80; ++step) {
    const double tau = (low + high) / 2;
    double sum = 0;
    for (const Real& z : entries) sum += std::pow(std::max((alpha - 1) * value_of(z) - tau, 0.0), power);
    (sum >= 1 ? low : high) = tau;
  }
  return low;
}

template <class Real>
Distribution<Real> entmax(const std::vector<Real>& entries, const Real& alpha) {
  using std::pow;
  if (!std::isfinite(largest(entries))) return {std::vector<Real>(entries.size(), Real(NAN)), Real(NAN)};
  const Real gain = alpha - Real(1), power = Real(1) / gain;
  const double found = entmax_threshold(entries, value_of(alpha));
  const auto supported = [&](const Real& z) { return value_of(gain) * value_of(z) > found; };

  // The found threshold is a number; one Newton step from it is a function of the entries and of alpha, with
  // the derivatives that the implicit function theorem gives.
  Real sum = 0;
  double slope = 0;
  for (const Real& z : entries) {
    if (!supported(z)) continue;
    const Real base = gain * z - Real(found);
    sum += pow(base, power);
    slope += value_of(power) * std::pow(value_of(base), value_of(power) - 1);
  }
  const Real tau = Real(found) + (sum - Real(1)) / Real(slope);

  Distribution<Real> result;
  result.energy = 0;
  for (const Real& z : entries) {
    // An entry at the very edge may fall out with the last step.
    const bool inside = supported(z) && value_of(gain) * value_of(z) > value_of(tau);
    result.weights.push_back(inside ? pow(gain * z - tau, power) : Real(0));
    const Real& p = result.weights.back();
    if (value_of(p) > 0) result.energy += p * z + (p - pow(p, alpha)) / (alpha * gain);
  }
  return result;
}

template <class Real>
Distribution<Real> distribution(const std::vector<Real>& entries, const Real& alpha) {
  return value_of(alpha) < kSoftmaxAlpha ? softmax(entries) : entmax(entries, alpha);
}

}  // namespace ramify::reference
