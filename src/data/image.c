// Decoding of images by libjpeg-turbo, libpng and libwebp. Every byte is a stranger's: sizes are checked before
// anything is allocated, and a damaged file ends with an error, never with part of an image.
#include "image.h"

#include <errno.h>
#include <stdio.h>
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <webp/decode.h>

#include "base/alloc.h"
#include "base/cleanup.h"

void data_image_done(struct data_image *image) {
    free(image->pixels);
    *image = (struct data_image){0};
}

static int check_size(uint32_t width, uint32_t height, struct error *e) {
    if (!width || !height || width > DATA_IMAGE_SIDE_MAX || height > DATA_IMAGE_SIDE_MAX ||
        (uint64_t)width * height > DATA_IMAGE_PIXELS_MAX)
        return error_set(e, EFBIG, "the image says that it has %u × %u pixels; at most %d are read", width, height,
                         DATA_IMAGE_PIXELS_MAX);
    return 0;
}

// Pillow's convert("L"), to the bit: ITU-R 601 weights in 16 fractional bits.
static uint8_t grey_of(const uint8_t *rgb) {
    return (uint8_t)((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

static void to_mode(struct data_image *image, enum data_mode mode) {
    uint32_t channels = mode == DATA_MODE_GREY ? 1 : 3;
    if (image->channels == channels)
        return;
    size_t count = (size_t)image->width * image->height;
    uint8_t *out = xmalloc(count * channels);
    for (size_t i = 0; i < count; i++) {
        if (channels == 1)
            out[i] = grey_of(image->pixels + i * 3);
        else
            memset(out + i * 3, image->pixels[i], 3);
    }
    free(image->pixels);
    image->pixels = out;
    image->channels = channels;
}

// --- JPEG ---

enum { JPEG_SCANS_MAX = 500 };

struct jpeg_state {
    struct jpeg_decompress_struct d;
    struct jpeg_progress_mgr progress;
    struct jpeg_error_mgr errors;
    jmp_buf out;
    char text[JMSG_LENGTH_MAX];
    bool truncated;
};

static void jpeg_fails(j_common_ptr common) {
    struct jpeg_state *s = common->client_data;
    common->err->format_message(common, s->text);
    longjmp(s->out, 1);
}

// A progressive file of a few bytes per scan can ask for its whole image to be gone over thousands of times.
static void jpeg_goes_on(j_common_ptr common) {
    struct jpeg_state *s = common->client_data;
    if (s->d.input_scan_number <= JPEG_SCANS_MAX)
        return;
    snprintf(s->text, sizeof s->text, "it has more than %d scans", JPEG_SCANS_MAX);
    longjmp(s->out, 1);
}

static void jpeg_warns(j_common_ptr common, int level) {
    struct jpeg_state *s = common->client_data;
    if (level < 0 && common->err->msg_code == JWRN_JPEG_EOF)
        s->truncated = true;  // what is missing would be grey
}

static void cmyk_to_rgb(uint8_t *row, const uint8_t *cmyk, uint32_t width, bool inverted) {
    for (uint32_t x = 0; x < width; x++, cmyk += 4, row += 3) {
        for (int c = 0; c < 3; c++) {
            // Pillow: Adobe's files store inverted values; then clip(255 - c - k * (255 - c) / 255) as convert does.
            int v = inverted ? 255 - cmyk[c] : cmyk[c], k = inverted ? 255 - cmyk[3] : cmyk[3], light = 255 - k;
            int product = v * light + 128;
            product = ((product >> 8) + product) >> 8;
            int value = light - product;
            row[c] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
}

static int decode_jpeg(const void *bytes, size_t len, struct data_image *out, struct error *e) {
    struct jpeg_state s = {0};
    uint8_t *volatile pixels = NULL;
    uint8_t *volatile row = NULL;
    s.d.err = jpeg_std_error(&s.errors);
    s.errors.error_exit = jpeg_fails;
    s.errors.emit_message = jpeg_warns;
    s.d.client_data = &s;
    if (setjmp(s.out)) {
        jpeg_destroy_decompress(&s.d);
        free(pixels);
        free(row);
        return error_set(e, EBADMSG, "damaged JPEG: %s", s.text);
    }
    jpeg_create_decompress(&s.d);
    s.progress.progress_monitor = jpeg_goes_on;
    s.d.progress = &s.progress;
    jpeg_mem_src(&s.d, bytes, len);
    jpeg_read_header(&s.d, TRUE);
    int r = check_size(s.d.image_width, s.d.image_height, e);
    if (r) {
        jpeg_destroy_decompress(&s.d);
        return r;
    }
    bool four = s.d.jpeg_color_space == JCS_CMYK || s.d.jpeg_color_space == JCS_YCCK;
    s.d.out_color_space = four ? JCS_CMYK : s.d.jpeg_color_space == JCS_GRAYSCALE ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(&s.d);
    uint32_t channels = s.d.out_color_space == JCS_GRAYSCALE ? 1 : 3;
    size_t row_bytes = (size_t)s.d.output_width * channels;
    pixels = xmalloc(row_bytes * s.d.output_height);
    if (four)
        row = xmalloc((size_t)s.d.output_width * 4);
    while (s.d.output_scanline < s.d.output_height) {
        uint8_t *target = pixels + s.d.output_scanline * row_bytes;
        uint8_t *into = four ? row : target;
        jpeg_read_scanlines(&s.d, &into, 1);
        if (four)
            cmyk_to_rgb(target, row, s.d.output_width, s.d.saw_Adobe_marker);
    }
    *out = (struct data_image){.width = s.d.output_width, .height = s.d.output_height, .channels = channels};
    jpeg_finish_decompress(&s.d);
    jpeg_destroy_decompress(&s.d);
    free(row);
    out->pixels = pixels;
    if (s.truncated) {
        data_image_done(out);
        return error_set(e, EBADMSG, "damaged JPEG: it ends too early");
    }
    return 0;
}

// --- PNG ---

struct png_input {
    const uint8_t *at;
    size_t left;
    char text[128];
};

static void png_bytes(png_structp png, png_bytep into, size_t count) {
    struct png_input *in = png_get_io_ptr(png);
    if (count > in->left)
        png_error(png, "it ends too early");
    memcpy(into, in->at, count);
    in->at += count;
    in->left -= count;
}

static void png_fails(png_structp png, png_const_charp text) {
    struct png_input *in = png_get_error_ptr(png);
    size_t n = strnlen(text, sizeof in->text - 1);
    memcpy(in->text, text, n);
    in->text[n] = 0;
    png_longjmp(png, 1);
}

static void png_warns(png_structp png, png_const_charp text) {
    (void)png;
    (void)text;
}

// 16 bits become 8 by dropping the low ones, palettes and few bits become whole values, transparency is dropped.
static void png_plain(png_structp png, png_infop info) {
    png_byte type = png_get_color_type(png, info);
    if (png_get_bit_depth(png, info) == 16)
        png_set_strip_16(png);
    if (type == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(png);
    if (type == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png, info) < 8)
        png_set_expand_gray_1_2_4_to_8(png);
    if (type & PNG_COLOR_MASK_ALPHA || png_get_valid(png, info, PNG_INFO_tRNS)) {
        if (type == PNG_COLOR_TYPE_PALETTE)
            png_set_tRNS_to_alpha(png);
        png_set_strip_alpha(png);
    }
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
}

static int decode_png(const void *bytes, size_t len, struct data_image *out, struct error *e) {
    struct png_input in = {.at = bytes, .left = len};
    uint8_t *volatile pixels = NULL;
    png_bytep *volatile rows = NULL;
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &in, png_fails, png_warns);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info) {
        png_destroy_read_struct(&png, NULL, NULL);
        return error_set(e, ENOMEM, "no memory for the PNG decoder");
    }
    if (setjmp(png_jmpbuf(png))) {
        png_destroy_read_struct(&png, &info, NULL);
        free(pixels);
        free(rows);
        return error_set(e, EBADMSG, "damaged PNG: %s", in.text);
    }
    png_set_user_limits(png, DATA_IMAGE_SIDE_MAX, DATA_IMAGE_SIDE_MAX);
    png_set_read_fn(png, &in, png_bytes);
    png_read_info(png, info);
    uint32_t width = png_get_image_width(png, info), height = png_get_image_height(png, info);
    int r = check_size(width, height, e);
    if (r) {
        png_destroy_read_struct(&png, &info, NULL);
        return r;
    }
    png_plain(png, info);
    uint32_t channels = png_get_channels(png, info);
    size_t row_bytes = png_get_rowbytes(png, info);
    if ((channels != 1 && channels != 3) || row_bytes != (size_t)width * channels)
        png_error(png, "a kind of pixels that is not known");
    pixels = xmalloc(row_bytes * height);
    rows = xmalloc(height * sizeof *rows);
    for (uint32_t y = 0; y < height; y++)
        rows[y] = pixels + y * row_bytes;
    png_read_image(png, rows);
    png_read_end(png, NULL);
    png_destroy_read_struct(&png, &info, NULL);
    free(rows);
    *out = (struct data_image){.width = width, .height = height, .channels = channels, .pixels = pixels};
    return 0;
}

// --- WebP ---

static int decode_webp(const void *bytes, size_t len, struct data_image *out, struct error *e) {
    int width = 0, height = 0;
    if (!WebPGetInfo(bytes, len, &width, &height))
        return error_set(e, EBADMSG, "damaged WebP");
    int r = check_size((uint32_t)width, (uint32_t)height, e);
    if (r)
        return r;
    size_t size = (size_t)width * (size_t)height * 3;
    uint8_t *pixels = xmalloc(size);
    if (!WebPDecodeRGBInto(bytes, len, pixels, size, width * 3)) {
        free(pixels);
        return error_set(e, EBADMSG, "damaged WebP");
    }
    *out = (struct data_image){.width = (uint32_t)width, .height = (uint32_t)height, .channels = 3, .pixels = pixels};
    return 0;
}

int data_image_decode(const void *bytes, size_t len, enum data_mode mode, struct data_image *out, struct error *e) {
    const uint8_t *b = bytes;
    struct data_image image = {0};
    int r;
    if (len >= 3 && b[0] == 0xff && b[1] == 0xd8 && b[2] == 0xff)
        r = decode_jpeg(bytes, len, &image, e);
    else if (len >= 8 && !png_sig_cmp(b, 0, 8))
        r = decode_png(bytes, len, &image, e);
    else if (len >= 12 && !memcmp(b, "RIFF", 4) && !memcmp(b + 8, "WEBP", 4))
        r = decode_webp(bytes, len, &image, e);
    else
        r = error_set(e, EBADMSG, len ? "not an image: JPEG, PNG and WebP are read" : "the file is empty");
    if (r)
        return r;
    to_mode(&image, mode);
    *out = image;
    return 0;
}
