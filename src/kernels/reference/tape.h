// Reverse-mode differentiation of scalar code: a Variable is a double that remembers how it was computed.
//
// The definition of attention is written once, over a scalar type. With double it gives values; with Variable
// the same lines give exact gradients. Every operation costs one entry of the tape: for small inputs only.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace ramify::reference {

class Tape {
 public:
  // A value that depends on entries a and b (-1: on a constant) with the given partial derivatives.
  int64_t record(int64_t a, double da, int64_t b, double db) {
    entries_.push_back({a, b, da, db});
    return static_cast<int64_t>(entries_.size()) - 1;
  }

  // Turns the derivatives of some result by its entries (`seed`, one an entry) into those by all entries.
  std::vector<double> backward(std::vector<double> seed) const {
    seed.resize(entries_.size(), 0.0);
    for (auto i = static_cast<int64_t>(entries_.size()) - 1; i >= 0; --i) {
      if (seed[i] == 0) continue;
      const Entry& entry = entries_[i];
      if (entry.a >= 0) seed[entry.a] += seed[i] * entry.da;
      if (entry.b >= 0) seed[entry.b] += seed[i] * entry.db;
    }
    return seed;
  }

 private:
  struct Entry {
    int64_t a, b;
    double da, db;
  };
  std::vector<Entry> entries_;
};

class Variable {
 public:
  Variable(double value = 0) : value_(value) {}  // implicit: constants mix freely with variables

  // An input, to be differentiated by.
  Variable(Tape& tape, double value) : value_(value), tape_(&tape), id_(tape.record(-1, 0, -1, 0)) {}

  double value() const { return value_; }
  int64_t id() const { return id_; }  // entry of the tape, -1 for a constant

  friend Variable operator+(const Variable& a, const Variable& b) { return {a, b, a.value_ + b.value_, 1, 1}; }
  friend Variable operator-(const Variable& a, const Variable& b) { return {a, b, a.value_ - b.value_, 1, -1}; }
  friend Variable operator*(const Variable& a, const Variable& b) {
    return {a, b, a.value_ * b.value_, b.value_, a.value_};
  }
  friend Variable operator/(const Variable& a, const Variable& b) {
    const double ratio = a.value_ / b.value_;
    return {a, b, ratio, 1 / b.value_, -ratio / b.value_};
  }
  Variable& operator+=(const Variable& other) { return *this = *this + other; }
  friend Variable exp(const Variable& a) {
    const double value = std::exp(a.value_);
    return {a, Variable(), value, value, 0};
  }
  friend Variable log(const Variable& a) { return {a, Variable(), std::log(a.value_), 1 / a.value_, 0}; }
  // Base above zero.
  friend Variable pow(const Variable& base, const Variable& exponent) {
    const double value = std::pow(base.value_, exponent.value_);
    return {base, exponent, value, exponent.value_ * value / base.value_, value * std::log(base.value_)};
  }

 private:
  Variable(const Variable& a, const Variable& b, double value, double da, double db) : value_(value) {
    tape_ = a.tape_ ? a.tape_ : b.tape_;
    if (tape_) id_ = tape_->record(a.id_, da, b.id_, db);
  }

  double value_;
  Tape* tape_ = nullptr;
  int64_t id_ = -1;
};

inline double value_of(double x) {
  return x;
}
inline double value_of(const Variable& x) {
  return x.value();
}

}  // namespace ramify::reference
