#include "io/sha256.h"

#include <gtest/gtest.h>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"

namespace ramify::io {
namespace {

TEST(Sha256, KnownDigests) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, FileHasTheDigestOfItsBytes) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.write("a", std::string(1'000'000, 'a'));
  EXPECT_EQ(sha256_file(path), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(testing::error_message<Error>([&] { sha256_file(folder / "none"); }),
            folder / "none" + ": cannot open: No such file or directory");
}

}  // namespace
}  // namespace ramify::io
