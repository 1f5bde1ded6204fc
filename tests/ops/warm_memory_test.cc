// Memory kept between calls: what is reused, what is given back, and that storages in it are ordinary ones.
#include "ops/warm_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace ramify {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

bool aligned_to(const void* data, size_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

TEST(WarmMemory, GivesAReleasedBlockAgain) {
  WarmMemory memory(256 * kMiB);
  const void* first = memory.allocate(10 * kMiB).get();
  EXPECT_EQ(memory.kept_bytes(), 10 * kMiB);
  const c10::DataPtr again = memory.allocate(10 * kMiB - 4096);
  EXPECT_EQ(again.get(), first);
  EXPECT_EQ(memory.kept_bytes(), 0u);
}

TEST(WarmMemory, GivesAHugePageToWhatFillsMostOfOne) {
  WarmMemory memory(256 * kMiB);
  memory.allocate(kMiB + kMiB / 2);
  EXPECT_EQ(memory.kept_bytes(), 2 * kMiB);
  memory.give_back();
  memory.allocate(kMiB + kMiB / 4);
  EXPECT_EQ(memory.kept_bytes(), kMiB + kMiB / 4);
}

TEST(WarmMemory, GivesTheBlockReleasedLastFirst) {
  WarmMemory memory(256 * kMiB);
  c10::DataPtr a = memory.allocate(4 * kMiB), b = memory.allocate(4 * kMiB);
  const void* released_last = a.get();
  b.clear();
  a.clear();
  EXPECT_EQ(memory.allocate(4 * kMiB).get(), released_last);
}

TEST(WarmMemory, BlocksInUseAreDistinct) {
  WarmMemory memory(256 * kMiB);
  c10::DataPtr a = memory.allocate(4 * kMiB), b = memory.allocate(4 * kMiB);
  std::memset(a.get(), 1, 4 * kMiB);
  std::memset(b.get(), 2, 4 * kMiB);
  EXPECT_EQ(static_cast<const char*>(a.get())[4 * kMiB - 1], 1);
}

TEST(WarmMemory, KeepsLargeBlocksForLargeRequests) {
  WarmMemory memory(256 * kMiB);
  const void* large = memory.allocate(64 * kMiB).get();
  const c10::DataPtr small = memory.allocate(32 * kMiB);
  EXPECT_NE(small.get(), large);
  EXPECT_EQ(memory.kept_bytes(), 64 * kMiB);
}

TEST(WarmMemory, PrefersTheBlockThatFitsBest) {
  WarmMemory memory(256 * kMiB);
  c10::DataPtr a = memory.allocate(12 * kMiB), b = memory.allocate(10 * kMiB), c = memory.allocate(14 * kMiB);
  const std::vector<const void*> by_fit = {b.get(), a.get()};
  for (c10::DataPtr* block : {&b, &a, &c}) block->clear();
  const c10::DataPtr first = memory.allocate(9 * kMiB), second = memory.allocate(9 * kMiB);
  EXPECT_EQ(first.get(), by_fit[0]);
  EXPECT_EQ(second.get(), by_fit[1]);
  const c10::DataPtr third = memory.allocate(9 * kMiB);
  EXPECT_EQ(memory.kept_bytes(), 14 * kMiB);
}

TEST(WarmMemory, ANewBlockWastesAtMostAnEighthUnlessItIsAHugePage) {
  WarmMemory memory(1024 * kMiB);
  for (size_t bytes = kMiB; bytes < 300 * kMiB; bytes += bytes / 5 + 12345) {
    const void* data = memory.allocate(bytes).get();
    EXPECT_GE(memory.kept_bytes(), bytes);
    EXPECT_LE(memory.kept_bytes(), bytes >= kMiB + kMiB / 2 && bytes < 2 * kMiB ? 2 * kMiB : bytes + bytes / 8);
#ifdef __linux__
    EXPECT_TRUE(aligned_to(data, 2 * kMiB));
#else
    EXPECT_TRUE(aligned_to(data, 64));
#endif
    memory.give_back();
  }
}

TEST(WarmMemory, LeavesSmallAndExcessiveRequestsToTorch) {
  WarmMemory memory(16 * kMiB);
  for (const size_t bytes : {size_t{0}, size_t{1}, kMiB / 8 - 1, 17 * kMiB}) {
    const c10::DataPtr data = memory.allocate(bytes);
    EXPECT_EQ(data.get_deleter(), c10::GetAllocator(c10::DeviceType::CPU)->allocate(bytes).get_deleter()) << bytes;
  }
  EXPECT_EQ(memory.kept_bytes(), 0u);
}

TEST(WarmMemory, LimitOfZeroKeepsNothing) {
  WarmMemory memory(0);
  memory.allocate(8 * kMiB).clear();
  EXPECT_EQ(memory.kept_bytes(), 0u);
}

TEST(WarmMemory, KeepsNoMoreThanTheLimitAndTheNewest) {
  WarmMemory memory(20 * kMiB);
  std::vector<c10::DataPtr> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(memory.allocate(8 * kMiB));
  const void* newest = blocks.back().get();
  for (c10::DataPtr& block : blocks) block.clear();
  EXPECT_EQ(memory.kept_bytes(), 16 * kMiB);
  EXPECT_EQ(memory.allocate(8 * kMiB).get(), newest);
}

TEST(WarmMemory, KeepsNoMoreThanWasInUseAtOnce) {
  WarmMemory memory(256 * kMiB);
  for (size_t megabytes = 32; megabytes >= 4; --megabytes) memory.allocate(megabytes * kMiB).clear();
  EXPECT_LE(memory.kept_bytes(), 32 * kMiB);
  EXPECT_GE(memory.kept_bytes(), 4 * kMiB);
}

TEST(WarmMemory, ForgetsAPeakThatIsLongPast) {
  WarmMemory memory(256 * kMiB);
  std::vector<c10::DataPtr> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(memory.allocate(8 * kMiB));
  blocks.clear();
  EXPECT_EQ(memory.kept_bytes(), 128 * kMiB);
  for (int i = 0; i < 1000; ++i) memory.allocate(4 * kMiB).clear();
  EXPECT_EQ(memory.kept_bytes(), 4 * kMiB);
}

TEST(WarmMemory, ReportsMissingMemoryAsTorchDoes) {
  WarmMemory memory(std::numeric_limits<size_t>::max());
  for (const size_t bytes : {size_t{1} << 60, size_t{1} << 62}) {
    try {
      memory.allocate(bytes);
      FAIL() << "no such memory";
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find("you tried to allocate " + std::to_string(bytes)), std::string::npos);
    }
  }
}

TEST(WarmMemory, ManyThreadsNeverShareABlock) {
  WarmMemory memory(64 * kMiB);
  std::atomic<int> clashes = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 20000; ++i) {
        const size_t bytes = (2 + (i * 7 + thread) % 2) * kMiB;
        const c10::DataPtr block = memory.allocate(bytes);
        auto* values = static_cast<int*>(block.get());
        const std::atomic_ref<int> first(values[0]), last(values[bytes / sizeof(int) - 1]);
        const int mark = thread * 10000 + i;
        first = mark;
        last = mark;
        std::this_thread::yield();
        if (first != mark || last != mark) ++clashes;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clashes, 0);
  EXPECT_LE(memory.kept_bytes(), 4 * 3 * kMiB);
}

TEST(WarmMemory, ABlockReleasedByAnotherThreadIsKept) {
  WarmMemory memory(64 * kMiB);
  c10::DataPtr block = memory.allocate(8 * kMiB);
  const void* data = block.get();
  std::thread([moved = std::move(block)]() mutable { moved.clear(); }).join();
  EXPECT_EQ(memory.allocate(8 * kMiB).get(), data);
}

TEST(WarmMemory, GivesKeptBlocksBackBeforeAFork) {
  WarmMemory memory(64 * kMiB);
  memory.allocate(8 * kMiB).clear();
  memory.before_fork();
  memory.after_fork();
  EXPECT_EQ(memory.kept_bytes(), 0u);
}

TEST(WarmMemoryLimit, ReadsMegabytes) {
  EXPECT_EQ(warm_memory_limit("0"), 0u);
  EXPECT_EQ(warm_memory_limit("64"), 64 * kMiB);
  EXPECT_GE(warm_memory_limit("18446744073709551615"), size_t{1} << 62);
}

TEST(WarmMemoryLimit, TakesWhatIsNoNumberAsUnset) {
  const size_t unset = warm_memory_limit(nullptr);
  EXPECT_GT(unset, 0u);
  for (const char* text : {"", "-1", "many", "12MB", " 12", "99999999999999999999999"}) {
    EXPECT_EQ(warm_memory_limit(text), unset) << text;
  }
}

TEST(WarmEmpty, MakesOrdinaryTensors) {
  const at::Tensor tensor = warm_empty({1000, 3, 700}, at::kFloat);
  EXPECT_EQ(tensor.sizes(), at::IntArrayRef({1000, 3, 700}));
  EXPECT_EQ(tensor.scalar_type(), at::kFloat);
  EXPECT_TRUE(tensor.is_contiguous() && tensor.is_cpu() && !tensor.requires_grad());
  tensor.fill_(2).mul_(3);
  EXPECT_TRUE(at::equal(tensor.clone(), at::full({1000, 3, 700}, 6.f)));
  EXPECT_EQ(warm_empty({0, 5}, at::kHalf).numel(), 0);
  EXPECT_EQ(warm_empty({}, at::kLong).numel(), 1);
  EXPECT_THROW(warm_empty({-1}, at::kFloat), c10::Error);
}

TEST(WarmEmpty, SurvivesResizing) {
  const at::Tensor start = at::arange(1 << 20, at::kFloat);
  at::Tensor tensor = warm_empty({1 << 20}, at::kFloat).copy_(start);
  tensor.resize_({3 << 20});
  EXPECT_TRUE(at::equal(tensor.narrow(0, 0, 1 << 20), start));
  tensor.fill_(1).resize_({10}).resize_({1 << 20});
  EXPECT_EQ(tensor.sum().item<float>(), 1 << 20);
  at::Tensor small = warm_empty({4}, at::kFloat).fill_(5);
  small.resize_({1 << 20});
  EXPECT_EQ(small.narrow(0, 0, 4).sum().item<float>(), 20);
}

TEST(WarmEmpty, CanBeClonedLazily) {
  const at::Tensor tensor = warm_empty({1 << 20}, at::kFloat).fill_(2);
  const at::Tensor clone = at::_lazy_clone(tensor);
  EXPECT_EQ(clone.const_data_ptr(), tensor.const_data_ptr());
  clone.add_(1);
  tensor.add_(2);
  EXPECT_EQ(clone.sum().item<float>(), 3 << 20);
  EXPECT_EQ(tensor.sum().item<float>(), 4 << 20);
}

TEST(WarmEmpty, AViewHoldsTheMemory) {
  at::Tensor view;
  {
    const at::Tensor tensor = warm_empty({1024, 1024}, at::kFloat).fill_(7);
    view = tensor.select(0, 1023);
  }
  const at::Tensor other = warm_empty({1024, 1024}, at::kFloat).fill_(0);
  EXPECT_EQ(view.sum().item<float>(), 7 * 1024);
}

// A child of fork has only the forking thread: the lock must be free there whatever the other threads were doing.
TEST(WarmEmpty, WorksInTheChildOfAFork) {
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    // more sizes than are kept, so that the lock is held for long
    while (!stop) {
      for (const int64_t size : {1 << 20, 1 << 21, 1 << 22}) warm_empty({size}, at::kFloat);
    }
  });
  const at::Tensor before = warm_empty({1 << 20}, at::kFloat).fill_(3);
  bool all_ended_well = true;
  for (int i = 0; i < 100 && all_ended_well; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // a child waiting for the lock would wait forever
      auto* data = warm_empty({1 << 20}, at::kFloat).mutable_data_ptr<float>();
      data[0] = before.const_data_ptr<float>()[17];
      _exit(data[0] == 3 ? 0 : 1);
    }
    int status = -1;
    all_ended_well = waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  EXPECT_TRUE(all_ended_well);
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace ramify
