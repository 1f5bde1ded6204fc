// A writer of a folder is stopped before each system call that changes something on the disk, one run a call, and
// killed there: what it leaves must be readable.
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iterator>

#include "generators/temporary_folder.h"
#include "io/atomic_file.h"
#include "io/folder.h"

namespace ramify::io {
namespace {

namespace fs = std::filesystem;

bool changes_the_disk(uint64_t call) {
  constexpr uint64_t kCalls[] = {SYS_write,  SYS_fsync,  SYS_unlinkat, SYS_mkdirat, SYS_renameat, SYS_renameat2,
#ifdef SYS_rename  // calls that newer machines have no more
                                 SYS_rename, SYS_unlink, SYS_rmdir,    SYS_mkdir
#endif
  };
  return std::find(std::begin(kCalls), std::end(kCalls), call) != std::end(kCalls);
}

enum class Outcome { killed, finished, untraceable };

// Runs `work` in a child up to its `count`-th call that changes the disk, and kills it there.
Outcome run_until(int count, const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(2);
    ::raise(SIGSTOP);
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD);  // or stops do not say what they are for
  while (WIFSTOPPED(status)) {
    __ptrace_syscall_info info = {};
    const long known = ::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info);
    const bool changes = info.op == PTRACE_SYSCALL_INFO_ENTRY && changes_the_disk(info.entry.nr);
    if (known <= 0 || (changes && count-- == 0)) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return known > 0 ? Outcome::killed : Outcome::untraceable;
    }
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? Outcome::finished : Outcome::untraceable;
}

void write(const std::string& folder, const std::string& generation, FolderSwap swap) {
  FolderWriter writer(folder);
  writer.write("a", generation);
  writer.commit(swap);
}

std::string read(const std::string& folder) {
  return read_file(open_folder(folder) + "/a");
}

// `prepare` makes the folder as it is before the writer comes, readable as generation "1".
void expect_readable_after_every_kill(FolderSwap swap, const std::function<void(const std::string&)>& prepare) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not follow a fork";
#endif
  for (int count = 0;; ++count) {
    const testing::TemporaryFolder parent;
    const std::string folder = parent / "checkpoint";
    prepare(folder);
    const Outcome outcome = run_until(count, [&] { write(folder, "2", swap); });
    if (outcome == Outcome::untraceable) GTEST_SKIP() << "this system does not let a process trace its child";
    const std::string generation = read(folder);
    if (outcome == Outcome::finished) {
      EXPECT_EQ(generation, "2");
      EXPECT_GT(count, 10) << "kills";
      return;
    }
    EXPECT_TRUE(generation == "1" || generation == "2") << generation;
    write(folder, "3", swap);
    EXPECT_EQ(read(folder), "3");
    EXPECT_EQ(parent.num_entries(), 1u) << "leftovers after call " << count;
  }
}

class FolderKill : public ::testing::TestWithParam<FolderSwap> {};

TEST_P(FolderKill, OldFolderOrNewOne) {
  expect_readable_after_every_kill(GetParam(), [](const std::string& folder) { write(folder, "1", GetParam()); });
}

TEST_P(FolderKill, LastGoodFolderIsKeptWhenTheOtherIsBroken) {
  expect_readable_after_every_kill(GetParam(), [](const std::string& folder) {
    write(folder, "1", GetParam());
    fs::rename(folder, folder + ".old");
    fs::create_directory(folder);
  });
}

INSTANTIATE_TEST_SUITE_P(, FolderKill, ::testing::Values(FolderSwap::exchange, FolderSwap::renames),
                         [](const auto& swap) { return swap.param == FolderSwap::exchange ? "Exchange" : "Renames"; });

}  // namespace
}  // namespace ramify::io
