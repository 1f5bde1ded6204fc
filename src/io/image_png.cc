// libpng's simplified interface: it converts every kind of PNG, and reports errors by return value.
#include <png.h>

#include <memory>

#include "io/image_codecs.h"

namespace ramify::io {
namespace {

struct FreeImage {
  void operator()(png_image* image) const { png_image_free(image); }
};

}  // namespace

Image decode_png(std::span<const uint8_t> bytes, const std::string& name, const ImageLimits& limits) {
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, FreeImage> owner(&png);
  const auto check = [&](int success) {
    if (!success) throw Error(name + ": is a broken PNG: " + png.message);
  };
  check(png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()));
  check_image_size(name, png.width, png.height, limits);

  png.format = PNG_FORMAT_RGB;
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  Image image;
  image.width = static_cast<int>(png.width);
  image.height = static_cast<int>(png.height);
  image.rgb.resize(PNG_IMAGE_SIZE(png));
  const png_color white = {255, 255, 255};
  check(png_image_finish_read(&png, &white, image.rgb.data(), 0, nullptr));
  return image;
}

}  // namespace ramify::io
