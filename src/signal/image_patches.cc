#include "signal/image_patches.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "io/atomic_file.h"

namespace ramify::signal {
namespace {

constexpr size_t kMaxImageBytes = size_t{1} << 28;

struct Size {
  int64_t width, height;
};

Size whole_patches(const io::Image& image, const ImageOptions& options) {
  const int64_t patch = options.patch;
  const auto rounded = [&](double pixels) { return std::max<int64_t>(1, std::llround(pixels / patch)) * patch; };
  if (options.width > 0 && options.height > 0) return {rounded(options.width), rounded(options.height)};
  const double longest = std::max(image.width, image.height);
  const double scale = std::min(1.0, options.longest_side / longest);
  return {rounded(image.width * scale), rounded(image.height * scale)};
}

}  // namespace

ImageSource::ImageSource(const std::string& tar) {
  if (!tar.empty()) tar_.emplace(tar);
}

io::Image ImageSource::load(std::string_view path, const std::string& folder) const {
  if (tar_) {
    return io::decode_image(tar_->read(path, kMaxImageBytes), tar_->path() + ":" + std::string(path));
  }
  const std::string file = (std::filesystem::path(folder) / path).string();
  // a pipe or a terminal would be waited for
  if (std::filesystem::exists(file) && !std::filesystem::is_regular_file(file)) {
    throw io::Error(file + ": is no ordinary file; expected an image");
  }
  const std::string bytes = io::read_file(file, kMaxImageBytes);
  return io::decode_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, file);
}

Patches cut_patches(const io::Image& original, const ImageOptions& options) {
  const Size size = whole_patches(original, options);
  const bool fits = original.width == size.width && original.height == size.height;
  const io::Image resized =
      fits ? io::Image{} : io::resize(original, static_cast<int>(size.width), static_cast<int>(size.height));
  const io::Image& image = fits ? original : resized;

  const int64_t patch = options.patch;
  Patches patches = {size.height / patch, size.width / patch, {}};
  patches.bytes.resize(image.rgb.size());
  uint8_t* to = patches.bytes.data();
  for (int64_t row = 0; row < patches.rows; ++row) {
    for (int64_t column = 0; column < patches.columns; ++column) {
      for (int64_t y = 0; y < patch; ++y) {
        const int64_t pixel = (row * patch + y) * size.width + column * patch;
        to = std::copy_n(image.rgb.data() + 3 * pixel, 3 * patch, to);
      }
    }
  }
  return patches;
}

}  // namespace ramify::signal
