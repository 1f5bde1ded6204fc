#include "io/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <memory>
#include <vector>

#include "io/input_file.h"

namespace ramify::io {
namespace {

class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new()) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) fail();
  }
  void update(std::span<const std::byte> bytes) {
    if (EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) != 1) fail();
  }
  std::string hex() {
    std::array<unsigned char, 32> digest;
    if (EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) != 1) fail();
    std::string text;
    for (const unsigned char byte : digest) text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
    return text;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  [[noreturn]] static void fail() { throw Error("sha256: libcrypto cannot compute it"); }

  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace

std::string sha256_hex(std::span<const std::byte> bytes) {
  Digest digest;
  digest.update(bytes);
  return digest.hex();
}

std::string sha256_hex(std::string_view bytes) {
  return sha256_hex(std::as_bytes(std::span(bytes)));
}

std::string sha256_file(const std::string& path) {
  InputFile file(path);
  Digest digest;
  std::vector<std::byte> buffer(size_t{1} << 18);
  while (const size_t count = file.read(buffer)) digest.update(std::span(buffer).first(count));
  return digest.hex();
}

}  // namespace ramify::io
