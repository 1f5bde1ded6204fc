// Vectors that were computed once: in memory, and between runs in a safetensors file. What a key stands for, and how
// its vectors are computed, is the caller's matter.
//
//   keys         U8  [n, 64]        SHA-256 of each piece, in hexadecimal digits, sorted
//   begin        I64 [n + 1]        piece i has the rows begin[i], ..., begin[i + 1] - 1
//   rows.000000  F32 [rows, width]  all rows, in as many parts as it takes
//   metadata     "model", "level": what they were computed with; "sha256": of all tensors
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "signal/schema.h"

namespace ramify::train {

// Many threads may ask at once.
class LeafCache {
 public:
  // With the vectors of `file`, if it is there; "": in memory alone, and no more of it than `max_bytes`. io::Error for
  // a file that is broken, or of another model or level.
  LeafCache(const signal::LeafEncoding& encoding, std::string file, int64_t max_bytes);
  ~LeafCache();

  // The rows of a key, which `compute` gives if they are not known. It is called once for a key, as long as there is
  // room to remember.
  std::vector<float> rows(const std::string& key, const std::function<std::vector<float>()>& compute);

  // Writes the file, if there are vectors that it does not have, and gives the memory back: from then on nothing is
  // remembered. io::Error names the file.
  void close();

  struct Counts {
    int64_t asked = 0, computed = 0;
  };
  Counts counts() const;

 private:
  // A key that was asked for. Who comes second waits for who computes.
  struct Entry {
    std::mutex mutex;
    bool is_known = false;
    std::vector<float> rows;
  };

  void load();
  void save() const;
  std::shared_ptr<Entry> entry_of(const std::string& key);  // nullptr: there is no room

  const signal::LeafEncoding encoding_;
  const std::string file_;
  const int64_t max_bytes_;
  std::vector<float> loaded_rows_;                                  // of the file
  std::unordered_map<std::string, std::span<const float>> loaded_;  // parts of it
  mutable std::mutex mutex_;                                        // of all below
  std::unordered_map<std::string, std::shared_ptr<Entry>> entries_;
  int64_t bytes_ = 0;
  bool is_closed_ = false;
  Counts counts_;
};

}  // namespace ramify::train
