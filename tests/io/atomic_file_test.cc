#include "io/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"

namespace ramify::io {
namespace {

using testing::error_message;
using testing::TemporaryFolder;

TEST(AtomicFile, CommitReplacesTheWholeFile) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "a", "a long first text");
  write_file_atomic(folder / "a", "second");
  EXPECT_EQ(read_file(folder / "a"), "second");
  EXPECT_EQ(folder.num_entries(), 1u);
}

TEST(AtomicFile, NothingHappensBeforeCommit) {
  const TemporaryFolder folder;
  folder.write("a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("new");
    EXPECT_EQ(read_file(folder / "a"), "old");
  }
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(folder.num_entries(), 1u);
}

// A limit on the size of files stands for a full disk: write() fails the same way.
TEST(AtomicFile, WriteThatFailsKeepsTheOldFileAndSaysWhy) {
  const TemporaryFolder folder;
  folder.write("a", "old");
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = error_message<Error>([&] { write_file_atomic(folder / "a", std::string(10'000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, previous);
  EXPECT_EQ(message, folder / "a" + ": cannot write: File too large");
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(folder.num_entries(), 1u);
}

TEST(AtomicFile, FolderThatIsNotThereIsNamed) {
  const TemporaryFolder folder;
  EXPECT_NE(error_message<Error>([&] { write_file_atomic(folder / "none/a", "x"); }).find("No such file or directory"),
            std::string::npos);
}

TEST(AtomicFile, LeftoversOfDeadProcessesAreRemovedThoseOfLivingOnesStay) {
  const TemporaryFolder folder;
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  folder.write("a.tmp-" + std::to_string(dead), "left");
  folder.write("a.tmp-" + std::to_string(::getppid()), "being written");
  folder.write("a.tmp-notes", "not ours");
  folder.write("b.tmp-" + std::to_string(dead), "of another file");
  write_file_atomic(folder / "a", "new");
  EXPECT_EQ(folder.num_entries(), 4u);
  EXPECT_FALSE(std::filesystem::exists(folder / ("a.tmp-" + std::to_string(dead))));
}

TEST(ReadFile, RefusesMoreThanTheLimit) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", std::string(1000, 'x'));
  EXPECT_EQ(read_file(path, 1000).size(), 1000u);
  EXPECT_EQ(error_message<Error>([&] { read_file(path, 999); }),
            path + ": has more than 999 bytes; expected a smaller file");
  EXPECT_NE(error_message<Error>([&] { read_file("/dev/zero", 1 << 20); }).find("more than"), std::string::npos);
}

}  // namespace
}  // namespace ramify::io
