// Random numbers that are the same on every machine and with every compiler (SplitMix64; Steele, Lea, Flood 2014).
#pragma once

#include <cstdint>

namespace ramify::signal {

class Random {
 public:
  // Streams of different (seed, a, b) have nothing to do with each other.
  explicit Random(uint64_t seed, uint64_t a = 0, uint64_t b = 0) : state_(seed) {
    state_ = next() ^ a;
    state_ = next() ^ b;
    next();
  }

  uint64_t next() {
    uint64_t bits = (state_ += 0x9e3779b97f4a7c15);
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    return bits ^ (bits >> 31);
  }

  // 0, ..., n - 1, each as likely.
  uint64_t below(uint64_t n) {
    const uint64_t excess = (0 - n) % n;  // 2^64 mod n: these would come once too often
    for (;;) {
      const uint64_t bits = next();
      if (bits >= excess) return bits % n;
    }
  }

 private:
  uint64_t state_;
};

}  // namespace ramify::signal
