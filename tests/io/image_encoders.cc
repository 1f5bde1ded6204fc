#include "io/image_encoders.h"

#include <png.h>

#include <cstdio>
#include <cstdlib>
// clang-format off
#include <jpeglib.h>
// clang-format on

namespace ramify::testing {

Bytes encode_jpeg(int width, int height, const Bytes& samples, JpegKind kind) {
  jpeg_compress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &buffer, &size);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.input_components = kind == JpegKind::grey ? 1 : kind == JpegKind::cmyk ? 4 : 3;
  jpeg.in_color_space = kind == JpegKind::grey ? JCS_GRAYSCALE : kind == JpegKind::cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  if (kind == JpegKind::cmyk) jpeg_set_colorspace(&jpeg, JCS_YCCK);
  jpeg_set_quality(&jpeg, 100, TRUE);
  for (int i = 0; i < jpeg.num_components; ++i) jpeg.comp_info[i].h_samp_factor = jpeg.comp_info[i].v_samp_factor = 1;
  if (kind == JpegKind::progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  const size_t stride = static_cast<size_t>(width) * static_cast<size_t>(jpeg.input_components);
  while (jpeg.next_scanline < jpeg.image_height) {
    auto* row = const_cast<unsigned char*>(samples.data() + jpeg.next_scanline * stride);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  const Bytes bytes(buffer, buffer + size);
  std::free(buffer);
  return bytes;
}

Bytes encode_png(int width, int height, const Bytes& samples, PngKind kind, const Bytes& palette) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  Bytes bytes;
  png_set_write_fn(
      png, &bytes,
      [](png_structp writer, png_bytep data, size_t size) {
        auto& all = *static_cast<Bytes*>(png_get_io_ptr(writer));
        all.insert(all.end(), data, data + size);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), kind.bit_depth,
               kind.colour_type, kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_BASE,
               PNG_FILTER_TYPE_BASE);
  if (!palette.empty()) {
    png_set_PLTE(png, info, reinterpret_cast<png_const_colorp>(palette.data()), static_cast<int>(palette.size() / 3));
  }
  png_write_info(png, info);
  const size_t stride = png_get_rowbytes(png, info);
  std::vector<png_bytep> rows;
  for (int y = 0; y < height; ++y) {
    rows.push_back(const_cast<png_bytep>(samples.data() + static_cast<size_t>(y) * stride));
  }
  png_write_image(png, rows.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

}  // namespace ramify::testing
