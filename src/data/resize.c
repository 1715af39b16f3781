// Resizing by convolution with a filter that is as wide as the source's pixels under one pixel of the result, first
// along rows, then along columns. Weights are integers of 22 fractional bits and each pass rounds to 8 bits, exactly
// as Pillow does, so that results are equal to the bit.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "image.h"

enum { WEIGHT_BITS = 22 };

const char *const data_filter_words[] = {"bilinear", "bicubic", "lanczos", "box", "hamming", NULL};

static double filter_bilinear(double x) {
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double filter_bicubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double sinc(double x) {
    if (x == 0)
        return 1;
    x *= M_PI;
    return sin(x) / x;
}

static double filter_lanczos(double x) {
    return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static double filter_box(double x) {
    return x > -0.5 && x <= 0.5 ? 1 : 0;
}

static double filter_hamming(double x) {
    x = fabs(x);
    if (x == 0)
        return 1;
    if (x >= 1)
        return 0;
    x *= M_PI;
    return sin(x) / x * (0.54 + 0.46 * cos(x));
}

static const struct {
    double (*weight)(double x);
    double support;
} filters[] = {
    [DATA_FILTER_BILINEAR] = {filter_bilinear, 1}, [DATA_FILTER_BICUBIC] = {filter_bicubic, 2},
    [DATA_FILTER_LANCZOS] = {filter_lanczos, 3},   [DATA_FILTER_BOX] = {filter_box, 0.5},
    [DATA_FILTER_HAMMING] = {filter_hamming, 1},
};

// For each position of the result: where its source begins, how many values it has, and their weights.
struct weights {
    uint32_t *first, *count;
    int32_t *values;
    uint32_t stride;
};

static void weights_done(struct weights *w) {
    free(w->first);
    free(w->count);
    free(w->values);
}

static struct weights weights_make(uint32_t from, uint32_t to, enum data_filter filter) {
    double scale = (double)from / to, wide = scale < 1 ? 1 : scale, support = filters[filter].support * wide;
    struct weights w = {.stride = (uint32_t)ceil(support) * 2 + 1};
    w.first = xcalloc(to, sizeof *w.first);
    w.count = xcalloc(to, sizeof *w.count);
    w.values = xcalloc((size_t)to * w.stride, sizeof *w.values);
    cleanup_free double *exact = xcalloc(w.stride, sizeof *exact);
    for (uint32_t i = 0; i < to; i++) {
        double center = (i + 0.5) * scale, sum = 0, inverse = 1 / wide;
        int low = (int)(center - support + 0.5), high = (int)(center + support + 0.5);
        low = low < 0 ? 0 : low;
        high = high > (int)from ? (int)from : high;
        uint32_t count = (uint32_t)(high - low);
        for (uint32_t k = 0; k < count; k++) {
            exact[k] = filters[filter].weight(((int)k + low - center + 0.5) * inverse);
            sum += exact[k];
        }
        for (uint32_t k = 0; k < count; k++) {
            double v = sum != 0 ? exact[k] / sum : exact[k];
            w.values[(size_t)i * w.stride + k] = (int32_t)((v < 0 ? -0.5 : 0.5) + v * (1 << WEIGHT_BITS));
        }
        w.first[i] = (uint32_t)low;
        w.count[i] = count;
    }
    return w;
}

static uint8_t to_byte(int32_t sum) {
    sum >>= WEIGHT_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static void resize_row(const uint8_t *in, uint32_t channels, const struct weights *w, uint32_t width, uint8_t *out) {
    for (uint32_t x = 0; x < width; x++, out += channels) {
        const int32_t *weight = w->values + (size_t)x * w->stride;
        const uint8_t *p = in + (size_t)w->first[x] * channels;
        uint32_t count = w->count[x];
        if (channels == 3) {
            int32_t r = 1 << (WEIGHT_BITS - 1), g = r, b = r;
            for (uint32_t k = 0; k < count; k++, p += 3) {
                r += p[0] * weight[k];
                g += p[1] * weight[k];
                b += p[2] * weight[k];
            }
            out[0] = to_byte(r);
            out[1] = to_byte(g);
            out[2] = to_byte(b);
        } else {
            int32_t v = 1 << (WEIGHT_BITS - 1);
            for (uint32_t k = 0; k < count; k++)
                v += p[k] * weight[k];
            out[0] = to_byte(v);
        }
    }
}

// All values of one row of the result at once: the inner loop runs over neighbouring bytes.
static void resize_column(const uint8_t *rows, size_t row_bytes, const int32_t *weight, uint32_t count, int32_t *sums,
                          uint8_t *out) {
    for (size_t x = 0; x < row_bytes; x++)
        sums[x] = 1 << (WEIGHT_BITS - 1);
    for (uint32_t k = 0; k < count; k++) {
        const uint8_t *p = rows + k * row_bytes;
        int32_t v = weight[k];
        for (size_t x = 0; x < row_bytes; x++)
            sums[x] += p[x] * v;
    }
    for (size_t x = 0; x < row_bytes; x++)
        out[x] = to_byte(sums[x]);
}

void data_image_resize(const struct data_image *in, uint32_t width, uint32_t height, enum data_filter filter,
                       uint8_t *out) {
    size_t row_bytes = (size_t)width * in->channels, in_bytes = (size_t)in->width * in->channels;
    const uint8_t *rows = in->pixels;
    cleanup_free uint8_t *between = NULL;
    if (width != in->width) {
        bool only = height == in->height;
        uint8_t *target = only ? out : (between = xmalloc(row_bytes * in->height));
        struct weights w = weights_make(in->width, width, filter);
        for (uint32_t y = 0; y < in->height; y++)
            resize_row(in->pixels + y * in_bytes, in->channels, &w, width, target + y * row_bytes);
        weights_done(&w);
        if (only)
            return;
        rows = between;
    }
    if (height == in->height) {
        memcpy(out, rows, row_bytes * height);
        return;
    }
    struct weights w = weights_make(in->height, height, filter);
    cleanup_free int32_t *sums = xmalloc(row_bytes * sizeof *sums);
    for (uint32_t y = 0; y < height; y++)
        resize_column(rows + w.first[y] * row_bytes, row_bytes, w.values + (size_t)y * w.stride, w.count[y], sums,
                      out + y * row_bytes);
    weights_done(&w);
}

// The length of the longer side that torchvision's Resize gives: cut, not rounded.
static uint32_t longer_side(uint32_t shorter, uint32_t small, uint32_t large) {
    uint64_t v = (uint64_t)shorter * large / small;
    return v > DATA_IMAGE_SIDE_MAX ? DATA_IMAGE_SIDE_MAX : (uint32_t)v;
}

int data_image_fit(const struct data_image *in, const struct data_fit *fit, uint8_t *out, struct error *e) {
    if (!fit->shorter) {
        data_image_resize(in, fit->width, fit->height, fit->filter, out);
        return 0;
    }
    bool wide = in->width >= in->height;
    struct data_image whole = {.channels = in->channels};
    whole.height = wide ? fit->shorter : longer_side(fit->shorter, in->width, in->height);
    whole.width = wide ? longer_side(fit->shorter, in->height, in->width) : fit->shorter;
    if (whole.width < fit->width || whole.height < fit->height)
        return error_set(e, EINVAL, "the middle of %u × %u does not fit into the resized image of %u × %u",
                         fit->width, fit->height, whole.width, whole.height);
    if ((uint64_t)whole.width * whole.height > DATA_IMAGE_PIXELS_MAX)
        return error_set(e, EFBIG, "the resized image would have %u × %u pixels", whole.width, whole.height);
    whole.pixels = xmalloc((size_t)whole.width * whole.height * whole.channels);
    data_image_resize(in, whole.width, whole.height, fit->filter, whole.pixels);
    // torchvision's CenterCrop rounds halves to even.
    uint32_t left = (uint32_t)lrint((whole.width - fit->width) / 2.0),
             top = (uint32_t)lrint((whole.height - fit->height) / 2.0);
    size_t row = (size_t)fit->width * in->channels;
    for (uint32_t y = 0; y < fit->height; y++)
        memcpy(out + y * row, whole.pixels + (((size_t)top + y) * whole.width + left) * in->channels, row);
    data_image_done(&whole);
    return 0;
}

void data_image_planes(const uint8_t *pixels, uint32_t width, uint32_t height, uint32_t channels, const float *mean,
                       const float *std, float *out) {
    size_t count = (size_t)width * height;
    for (uint32_t c = 0; c < channels; c++) {
        float table[256];
        for (int v = 0; v < 256; v++)
            table[v] = ((float)v / 255.0f - mean[c]) / std[c];
        for (size_t i = 0; i < count; i++)
            *out++ = table[pixels[i * channels + c]];
    }
}
