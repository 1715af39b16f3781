// Images: decoding of JPEG, PNG and WebP, and resizing. A decoded image is rows of 8-bit values without gaps, one
// value a pixel (grey) or three (RGB). Both give byte for byte what Pillow gives with the same libraries below it:
// a model that was trained on its pixels must not see others.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    DATA_IMAGE_SIDE_MAX = 1 << 16,
    DATA_IMAGE_PIXELS_MAX = 178956970,  // Pillow's own limit against decompression bombs, the double of its warning
};

enum data_mode { DATA_MODE_RGB, DATA_MODE_GREY };

struct data_image {
    uint32_t width, height, channels;
    uint8_t *pixels;
};

void data_image_done(struct data_image *image);
// The format is found in the bytes, not in a name. Transparency is dropped, as by Pillow's convert("RGB").
int data_image_decode(const void *bytes, size_t len, enum data_mode mode, struct data_image *out, struct error *e);

enum data_filter {
    DATA_FILTER_BILINEAR,
    DATA_FILTER_BICUBIC,
    DATA_FILTER_LANCZOS,
    DATA_FILTER_BOX,
    DATA_FILTER_HAMMING
};
extern const char *const data_filter_words[];

// Resizes to width × height; `out` has room for width * height * channels bytes. When shrinking, every pixel of the
// source counts (antialiasing).
void data_image_resize(const struct data_image *in, uint32_t width, uint32_t height, enum data_filter filter,
                       uint8_t *out);

// How an image becomes a row of a batch: resized to width × height, or, where `shorter` is given, first so that its
// shorter side has that length, and then the middle of width × height is cut out. All 0: as it is.
struct data_fit {
    uint32_t width, height, shorter;
    enum data_filter filter;
};
int data_image_fit(const struct data_image *in, const struct data_fit *fit, uint8_t *out, struct error *e);

// Values for a model: (value / 255 - mean) / std, channel by channel, planes one after the other (CHW).
void data_image_planes(const uint8_t *pixels, uint32_t width, uint32_t height, uint32_t channels, const float *mean,
                       const float *std, float *out);
