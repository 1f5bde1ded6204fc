#include "ops/warm_memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace ramify {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallest = size_t{1} << 17;
constexpr size_t kRequestsPerSpan = 256;
constexpr size_t kRoomBefore = size_t{64} << 10;  // for the Block; whole pages on every system, only one is touched

// What fills most of a huge page gets a whole one: its rows are read and written in strides.
size_t size_class(size_t bytes) {
  if (bytes >= kHugePage / 4 * 3 && bytes < kHugePage) return kHugePage;
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

#ifdef __linux__

// Covers the whole huge pages only: MADV_FREE is next to free on those, but not on the small pages of a remainder. A
// system that refuses the advice leaves the memory as usable as before, so the result does not matter.
void advise(void* data, size_t size, int advice) {
  madvise(data, size / kHugePage * kHugePage, advice);
}

// Memory aligned to huge pages, with kRoomBefore in front of it; null if there is none.
std::byte* map(size_t size) {
  const size_t room = kRoomBefore + kHugePage + size;
  void* const begin = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return nullptr;
  void* aligned = static_cast<std::byte*>(begin) + kRoomBefore;
  size_t left = room - kRoomBefore;
  std::align(kHugePage, size, aligned, left);
  auto* const data = static_cast<std::byte*>(aligned);
  if (const size_t before = room - kRoomBefore - left; before > 0) munmap(begin, before);
  if (left > size) munmap(data + size, left - size);
  advise(data, size, MADV_HUGEPAGE);
  return data;
}

void unmap(std::byte* data, size_t size) {
  munmap(data - kRoomBefore, kRoomBefore + size);
}

// The pages stay until memory is short; they are taken then without being written anywhere.
void mark_idle(void* data, size_t size) {
  advise(data, size, MADV_FREE);
}

#else

constexpr std::align_val_t kAlignment{64};

std::byte* map(size_t size) {
  void* const begin = ::operator new(kRoomBefore + size, kAlignment, std::nothrow);
  return begin == nullptr ? nullptr : static_cast<std::byte*>(begin) + kRoomBefore;
}

void unmap(std::byte* data, size_t) {
  ::operator delete(data - kRoomBefore, kAlignment);
}

void mark_idle(void*, size_t) {}

#endif

// Never destroyed: tensors may be released while the process ends.
WarmMemory& shared_memory() {
  static WarmMemory* const memory = new WarmMemory(warm_memory_limit(std::getenv("RAMIFY_CPU_CACHE_MB")));
  static const int registered =
      pthread_atfork([] { memory->before_fork(); }, [] { memory->after_fork(); }, [] { memory->after_fork(); });
  (void)registered;
  return *memory;
}

}  // namespace

at::Tensor warm_empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::CPU);
  return at::detail::empty_generic(sizes, &shared_memory(), keys, dtype, std::nullopt);
}

size_t warm_memory_limit(const char* megabytes) {
#ifdef __SANITIZE_ADDRESS__
  return 0;  // a kept block would hide its use after release
#endif
  if (megabytes != nullptr) {
    const char* const end = megabytes + std::strlen(megabytes);
    size_t value = 0;
    const auto [rest, error] = std::from_chars(megabytes, end, value);
    if (error == std::errc() && rest == end) return std::min(value, std::numeric_limits<size_t>::max() >> 20) << 20;
    TORCH_WARN("RAMIFY_CPU_CACHE_MB is \"", megabytes, "\"; it must be a whole number of MiB, and is ignored");
  }
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(page) / 4 : 0;
}

c10::DataPtr WarmMemory::allocate(size_t bytes) {
  if (bytes < kSmallest || bytes > limit_) return c10::GetCPUAllocator()->allocate(bytes);
  Block* const block = take(size_class(bytes));
  // torch's allocator knows how to report that memory is out
  if (block == nullptr) return c10::GetCPUAllocator()->allocate(bytes);
  c10::profiledCPUMemoryReporter().New(block->data(), bytes);
  return {block->data(), block->data(), &WarmMemory::release, c10::Device(c10::DeviceType::CPU)};
}

void WarmMemory::copy_data(void* destination, const void* source, size_t bytes) const {
  default_copy_data(destination, source, bytes);
}

size_t WarmMemory::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

void WarmMemory::give_back() {
  const std::lock_guard lock(mutex_);
  shrink_to(0);
}

void WarmMemory::before_fork() {
  mutex_.lock();
  shrink_to(0);
}

// A kept block or a new one; null if there is no memory.
WarmMemory::Block* WarmMemory::take(size_t size) {
  const std::lock_guard lock(mutex_);
  Block* block = take_kept(size);
  if (block == nullptr) {
    std::byte* data = map(size);
    if (data == nullptr) {
      shrink_to(0);
      data = map(size);
    }
    if (data == nullptr) return nullptr;
    block = new (data - sizeof(Block)) Block{*this, size};
  }
  block->is_idle = false;
  if (++num_requests_ % kRequestsPerSpan == 0) {
    earlier_peak_ = std::exchange(peak_, 0);
    mark_idle_blocks();
  }
  bytes_in_use_ += block->size;
  peak_ = std::max(peak_, bytes_in_use_);
  return block;
}

// The smallest that fits, of these the last released, since caches may still hold it; null if none is near enough.
WarmMemory::Block* WarmMemory::take_kept(size_t size) {
  auto best = kept_.rend();
  for (auto block = kept_.rbegin(); block != kept_.rend(); ++block) {
    if ((*block)->size < size || (*block)->size > size + size / 2) continue;
    if (best == kept_.rend() || (*block)->size < (*best)->size) best = block;
  }
  if (best == kept_.rend()) return nullptr;
  Block* const block = *best;
  kept_.erase(std::next(best).base());
  kept_bytes_ -= block->size;
  return block;
}

void WarmMemory::release(void* data) {
  auto* const block = static_cast<Block*>(data) - 1;
  c10::profiledCPUMemoryReporter().Delete(data);
  block->owner.keep(block);
}

void WarmMemory::keep(Block* block) {
  const std::lock_guard lock(mutex_);
  bytes_in_use_ -= block->size;
  block->released_at = num_requests_;
  kept_.push_back(block);
  kept_bytes_ += block->size;
  shrink_to(std::min(limit_, std::max(peak_, earlier_peak_)));
}

// Not every block that is released: the advice interrupts all other threads, which takes longer than small kernels.
void WarmMemory::mark_idle_blocks() {
  for (Block* const block : kept_) {
    if (block->is_idle || block->released_at + kRequestsPerSpan > num_requests_) continue;
    mark_idle(block->data(), block->size);
    block->is_idle = true;
  }
}

void WarmMemory::shrink_to(size_t bytes) {
  auto block = kept_.begin();
  for (; kept_bytes_ > bytes; ++block) {
    kept_bytes_ -= (*block)->size;
    unmap((*block)->data(), (*block)->size);
  }
  kept_.erase(kept_.begin(), block);
}

}  // namespace ramify
