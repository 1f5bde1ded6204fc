// Memory for the large CPU tensors that ops make, kept warm between calls: pages fresh from the system cost more than
// the arithmetic of a memory-bound kernel. Only for tensors made here; what torch makes stays with torch's allocator.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstddef>
#include <mutex>
#include <vector>

namespace ramify {

// A contiguous CPU tensor with undefined contents, in memory that was used before where possible. Its storage is an
// ordinary one: it can be resized, shared, and released by any thread.
//
// RAMIFY_CPU_CACHE_MB in the environment, read once, bounds the memory that is kept (in MiB; a quarter of the physical
// memory if unset); 0 leaves everything to torch's allocator.
at::Tensor warm_empty(at::IntArrayRef sizes, at::ScalarType dtype);

// The bound in bytes that a value of RAMIFY_CPU_CACHE_MB asks for; null is an unset variable. Warns of what is not a
// number, and takes it as unset.
size_t warm_memory_limit(const char* megabytes);

// The allocator behind it. New blocks come in size classes an eighth of a power of two apart, but from 1.5 to 2 MiB
// always a huge page. A released block is kept for later requests of its size or down to two thirds of it. When all
// kept blocks together exceed the limit, or the largest amount in use at once during the last few hundred requests,
// those idle for longest go back to the system; it may also take the pages of blocks by itself, when memory is short,
// that were kept over some hundred requests. Requests under 128 KiB or above the limit go to torch's allocator.
// Outlives its tensors.
class WarmMemory final : public c10::Allocator {
 public:
  explicit WarmMemory(size_t limit) : limit_(limit) {}
  ~WarmMemory() override { give_back(); }
  WarmMemory(const WarmMemory&) = delete;
  WarmMemory& operator=(const WarmMemory&) = delete;

  c10::DataPtr allocate(size_t bytes) override;
  void copy_data(void* destination, const void* source, size_t bytes) const override;

  size_t kept_bytes() const;
  void give_back();  // everything that is kept

  // Around fork(), so that the child finds the lock free, and kept blocks do not become shared pages, which would have
  // to be copied on their next use.
  void before_fork();
  void after_fork() { mutex_.unlock(); }

 private:
  // Stands right before the memory, so that a storage's context is its data, as torch expects of plain memory.
  struct alignas(64) Block {
    WarmMemory& owner;
    size_t size;
    size_t released_at = 0;  // in requests
    bool is_idle = false;    // the system may take its pages
    std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
  };
  static void release(void* data);

  Block* take(size_t size);
  void keep(Block* block);
  // the lock is held by the caller:
  Block* take_kept(size_t size);
  void mark_idle_blocks();
  void shrink_to(size_t bytes);

  const size_t limit_;
  mutable std::mutex mutex_;
  std::vector<Block*> kept_;  // the one released last at the end
  size_t kept_bytes_ = 0, bytes_in_use_ = 0;
  size_t num_requests_ = 0, peak_ = 0, earlier_peak_ = 0;  // peaks of bytes_in_use_ over two spans of requests
};

}  // namespace ramify
