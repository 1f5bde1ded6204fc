#include <cstdio>  // jpeglib.h needs it before itself
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <csetjmp>
#include <cstring>

#include "io/image_codecs.h"

namespace ramify::io {
namespace {

// libjpeg reports errors by calling a function that must not return: it jumps back. Between setjmp and the jump nothing
// lives on the stack that has a destructor.
struct Decoder {
  jpeg_decompress_struct jpeg;  // first: libjpeg's callbacks get a pointer to it
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
  const ImageLimits* limits;
};

Decoder* decoder_of(j_common_ptr jpeg) {
  return reinterpret_cast<Decoder*>(jpeg);
}

[[noreturn]] void jump_back(j_common_ptr jpeg) {
  Decoder* decoder = decoder_of(jpeg);
  (*jpeg->err->format_message)(jpeg, decoder->message);
  longjmp(decoder->jump, 1);
}

// libjpeg goes on after broken data and paints the rest grey; only what leaves the picture whole passes here.
void judge_warning(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  switch (jpeg->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
    case JWRN_TOO_MUCH_DATA:
    case JWRN_BOGUS_PROGRESSION:
      return;
    default:
      jump_back(jpeg);
  }
}

void limit_scans(j_common_ptr jpeg) {
  Decoder* decoder = decoder_of(jpeg);
  const int64_t pixels = static_cast<int64_t>(decoder->jpeg.image_width) * decoder->jpeg.image_height;
  const int scans = decoder->jpeg.input_scan_number;
  if (scans <= decoder->limits->max_scans || scans * pixels <= decoder->limits->max_scan_pixels) return;
  std::strcpy(decoder->message, "it has too many scans");
  longjmp(decoder->jump, 1);
}

// Reads the header and begins. False: `message` says why.
bool start(Decoder& decoder, std::span<const uint8_t> bytes) {
  if (setjmp(decoder.jump)) return false;
  jpeg_mem_src(&decoder.jpeg, bytes.data(), bytes.size());
  jpeg_read_header(&decoder.jpeg, TRUE);
  const bool has_ink = decoder.jpeg.jpeg_color_space == JCS_CMYK || decoder.jpeg.jpeg_color_space == JCS_YCCK;
  decoder.jpeg.out_color_space = has_ink ? JCS_CMYK : JCS_RGB;
  return true;
}

// Decodes into `rows`, [height, width, components].
bool decode(Decoder& decoder, uint8_t* rows) {
  if (setjmp(decoder.jump)) return false;
  jpeg_start_decompress(&decoder.jpeg);
  const size_t stride = static_cast<size_t>(decoder.jpeg.output_width) * decoder.jpeg.output_components;
  while (decoder.jpeg.output_scanline < decoder.jpeg.output_height) {
    JSAMPROW row = rows + decoder.jpeg.output_scanline * stride;
    jpeg_read_scanlines(&decoder.jpeg, &row, 1);
  }
  jpeg_finish_decompress(&decoder.jpeg);
  return true;
}

// Four inks to three colours. Adobe writes inks inverted, which is how nearly all such files are.
std::vector<uint8_t> rgb_of_inks(const std::vector<uint8_t>& inks, bool inverted) {
  std::vector<uint8_t> rgb;
  rgb.reserve(inks.size() / 4 * 3);
  const int flip = inverted ? 0 : 255;
  for (size_t i = 0; i + 3 < inks.size(); i += 4) {
    const int black = inks[i + 3] ^ flip;
    for (size_t c = 0; c < 3; ++c) rgb.push_back(static_cast<uint8_t>(((inks[i + c] ^ flip) * black + 127) / 255));
  }
  return rgb;
}

}  // namespace

Image decode_jpeg(std::span<const uint8_t> bytes, const std::string& name, const ImageLimits& limits) {
  Decoder decoder = {};
  decoder.jpeg.err = jpeg_std_error(&decoder.errors);
  decoder.errors.error_exit = jump_back;
  decoder.errors.emit_message = judge_warning;
  decoder.progress.progress_monitor = limit_scans;
  decoder.limits = &limits;
  if (setjmp(decoder.jump)) throw Error(name + ": libjpeg cannot start: " + decoder.message);
  jpeg_create_decompress(&decoder.jpeg);
  decoder.jpeg.progress = &decoder.progress;
  struct Owner {
    jpeg_decompress_struct* jpeg;
    ~Owner() { jpeg_destroy_decompress(jpeg); }
  } const owner = {&decoder.jpeg};

  const auto check = [&](bool success) {
    if (!success) throw Error(name + ": is a broken JPEG: " + decoder.message);
  };
  check(start(decoder, bytes));
  check_image_size(name, decoder.jpeg.image_width, decoder.jpeg.image_height, limits);
  const size_t components = decoder.jpeg.out_color_space == JCS_CMYK ? 4 : 3;
  Image image;
  image.width = static_cast<int>(decoder.jpeg.image_width);
  image.height = static_cast<int>(decoder.jpeg.image_height);
  image.rgb.resize(static_cast<size_t>(image.width) * image.height * components);
  check(decode(decoder, image.rgb.data()));
  if (components == 4) image.rgb = rgb_of_inks(image.rgb, decoder.jpeg.saw_Adobe_marker != 0);
  return image;
}

}  // namespace ramify::io
