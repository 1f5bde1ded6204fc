// Pictures cut into square patches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/image.h"
#include "io/tar.h"
#include "signal/schema.h"

namespace ramify::signal {

// Where images come from: files, or a .tar.
class ImageSource {
 public:
  explicit ImageSource(const std::string& tar);  // "": files, relative to the folder given with each

  // io::Error names the image.
  io::Image load(std::string_view path, const std::string& folder) const;

 private:
  std::optional<io::TarIndex> tar_;
};

struct Patches {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<uint8_t> bytes;  // [rows, columns, patch, patch, 3]
};

// The image in the size that the options say, cut. The sides become whole patches by stretching, at least one.
Patches cut_patches(const io::Image& image, const ImageOptions& options);

}  // namespace ramify::signal
