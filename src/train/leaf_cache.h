// Vectors that were computed once: in memory, and between runs in a safetensors file. What a key stands for, and how
// its vectors are computed, is the caller's matter. Vectors of the file stay there, and are read when they are asked
// for: no run has a second copy of them, and what the system keeps of the file is there once for all runs.
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
#include <string>
#include <unordered_map>
#include <vector>

#include "signal/schema.h"

namespace ramify::train {

// Many threads may ask at once.
class LeafCache {
 public:
  // With the vectors of `file`, if it is there; "": in memory alone, and no more of it than `max_bytes`. io::Error for
  // a file that is broken, or of another model or level. A file that takes its place later does not matter.
  LeafCache(const signal::LeafEncoding& encoding, std::string file, int64_t max_bytes);
  ~LeafCache();

  // The rows of a key, which `compute` gives if they are not known. It is called once for a key, as long as there is
  // room to remember. io::Error if the file was cut short meanwhile.
  std::vector<float> rows(const std::string& key, const std::function<std::vector<float>()>& compute);

  // Writes the file, if there are vectors that it does not have, and gives the memory back to the system: from then on
  // nothing is remembered. io::Error names the file, also if its bytes were changed since it was opened.
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

  class StoredVectors;  // a file that is there

  void save() const;
  std::shared_ptr<Entry> entry_of(const std::string& key);  // nullptr: there is no room

  const signal::LeafEncoding encoding_;
  const std::string file_;
  const int64_t max_bytes_;
  std::unique_ptr<const StoredVectors> stored_;  // nullptr: there is no file
  mutable std::mutex mutex_;                     // of all below
  std::unordered_map<std::string, std::shared_ptr<Entry>> entries_;
  int64_t bytes_ = 0;
  bool is_closed_ = false;
  Counts counts_;
};

}  // namespace ramify::train
