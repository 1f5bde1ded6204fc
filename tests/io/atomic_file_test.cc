#include "io/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <future>

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
  EXPECT_EQ(error_message<Error>([&] { write_file_atomic(folder / "none/a", "x"); }),
            folder / "none/a" + ": cannot create: No such file or directory");
}

bool is_fifo(const std::string& path) {
  return std::filesystem::is_fifo(std::filesystem::symlink_status(path));
}

// Whoever reads a pipe gets what is written, and it stays a pipe, through links as well.
TEST(AtomicFile, PipesAreWrittenToAndStayPipes) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", folder / "link");
  for (const std::string name : {"pipe", "link"}) {
    auto reader = std::async(std::launch::async, [&] { return read_file(folder / "pipe"); });
    write_file_atomic(folder / name, "some bytes");
    EXPECT_EQ(reader.get(), "some bytes") << name;
    EXPECT_TRUE(is_fifo(folder / "pipe")) << name;
  }
  {
    auto reader = std::async(std::launch::async, [&] { return read_file(folder / "pipe"); });
    AtomicFile unfinished(folder / "pipe");
    unfinished.write("part");
  }
  EXPECT_TRUE(is_fifo(folder / "pipe")) << "without commit";
  EXPECT_EQ(folder.num_entries(), 2u);
}

TEST(AtomicFile, FullDevicesAreErrors) {
  if (!std::filesystem::is_character_file("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  EXPECT_EQ(error_message<Error>([] { write_file_atomic("/dev/full", "x"); }),
            "/dev/full: cannot write: No space left on device");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST(AtomicFile, FoldersAreErrors) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "a");
  EXPECT_EQ(error_message<Error>([&] { write_file_atomic(folder / "a", "x"); }),
            folder / "a" + ": cannot open: Is a directory");
}

TEST(AtomicFile, LinksStayAndWhatTheyLeadToIsReplaced) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  fs::create_directory(folder / "sub");
  folder.write("sub/file", "old");
  fs::create_symlink("sub/file", folder / "near");
  fs::create_symlink("../near", folder / "sub/far");  // a link to a link, from another folder
  fs::create_symlink("sub/new", folder / "dangling");
  write_file_atomic(folder / "sub/far", "new");
  EXPECT_EQ(folder.read("sub/file"), "new");
  write_file_atomic(folder / "dangling", "made");
  EXPECT_EQ(folder.read("sub/new"), "made");
  for (const std::string link : {"near", "sub/far", "dangling"}) EXPECT_TRUE(fs::is_symlink(folder / link)) << link;
  EXPECT_EQ(folder.num_entries(), 3u);
  fs::create_symlink("loop", folder / "loop");
  EXPECT_EQ(error_message<Error>([&] { write_file_atomic(folder / "loop", "x"); }),
            folder / "loop" + ": cannot create: Too many levels of symbolic links");
}

TEST(JsonReason, IsWhatTheLibrarySaysWithoutItsName) {
  EXPECT_EQ(json_reason("[json.exception.type_error.302] type must be string, but is number"),
            "type must be string, but is number");
  EXPECT_EQ(json_reason("something else"), "something else");
  EXPECT_LT(json_reason(std::string(1000, 'x')).size(), 250u);
}

TEST(AtomicFile, LeftoversOfDeadProcessesAreRemovedThoseOfLivingOnesStay) {
  const TemporaryFolder folder;
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  folder.write("a.tmp-" + std::to_string(dead), "left");
  folder.write("a.tmp-" + std::to_string(::getppid()), "being written");
  folder.write("a.tmp-notes", "not ours");
  folder.write("a.tmp-20240131", "no number of a process");
  folder.write("b.tmp-" + std::to_string(dead), "of another file");
  write_file_atomic(folder / "a", "new");
  EXPECT_EQ(folder.num_entries(), 5u);
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
