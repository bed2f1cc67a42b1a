/* Squared error of a velocity over valid frames, and its gradient by the prediction.
 *
 *     d = prediction - (data - share * noise)      share = 1 - min_sigma
 *     error = sum d^2 over frames whose mask is set      gradient = slope * d
 *
 * Tensors are read where they lie, each in its own dtype, BLOCK channels at a time; nothing as
 * large as they are is made. Differences are REAL, sums of a block too, all others double. An item
 * is summed in the order of its frames, so that the number of threads changes nothing.
 */
#include <stdint.h>
#include <string.h>

#define LANES 16
#define BLOCK 512

enum { FLOAT32, FLOAT64, BFLOAT16 };

/* The channels of a frame lie next to each other; strides are in elements. */
typedef struct {
    const void *values;
    int64_t kind, item, frame;
} tensor_t;

static void widen(const uint16_t *restrict from, float *restrict to, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(to + i, &bits, sizeof bits);
    }
}

/* To the nearest, ties to even; NaN stays NaN. */
static void narrow(const float *restrict from, uint16_t *restrict to, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, sizeof bits);
        uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        to[i] = (uint16_t)(from[i] == from[i] ? rounded : (bits >> 16) | 0x40);
    }
}

static const float *read_float(const tensor_t *x, int64_t at, int64_t n, float *room) {
    if (x->kind == FLOAT32) return (const float *)x->values + at;
    widen((const uint16_t *)x->values + at, room, n);
    return room;
}

static const double *read_double(const tensor_t *x, int64_t at, int64_t n, double *room) {
    if (x->kind == FLOAT64) return (const double *)x->values + at;
    float narrow_room[BLOCK];
    const float *from = read_float(x, at, n, narrow_room);
    for (int64_t i = 0; i < n; i++) room[i] = (double)from[i];
    return room;
}

static void write_float(void *to, int64_t kind, int64_t at, const float *from, int64_t n) {
    if (kind == FLOAT32)
        memcpy((float *)to + at, from, sizeof(float) * (size_t)n);
    else
        narrow(from, (uint16_t *)to + at, n);
}

static void write_double(void *to, int64_t kind, int64_t at, const double *from, int64_t n) {
    if (kind == FLOAT64) {
        memcpy((double *)to + at, from, sizeof(double) * (size_t)n);
        return;
    }
    float room[BLOCK];
    for (int64_t i = 0; i < n; i++) room[i] = (float)from[i];
    write_float(to, kind, at, room, n);
}

#define DEFINE_MASKED_VELOCITY(REAL)                                                               \
    static double squares_##REAL(const REAL *restrict p, const REAL *restrict x,                   \
                                 const REAL *restrict y, REAL share, int64_t n) {                  \
        REAL lane[LANES] = {0};                                                                    \
        double total = 0.0;                                                                        \
        int64_t i = 0;                                                                             \
        for (; i + LANES <= n; i += LANES)                                                         \
            for (int k = 0; k < LANES; k++) {                                                      \
                REAL d = p[i + k] - (y[i + k] - share * x[i + k]);                                 \
                lane[k] += d * d;                                                                  \
            }                                                                                      \
        for (int k = 0; k < LANES; k++) total += (double)lane[k];                                  \
        for (; i < n; i++) {                                                                       \
            REAL d = p[i] - (y[i] - share * x[i]);                                                 \
            total += (double)(d * d);                                                              \
        }                                                                                          \
        return total;                                                                              \
    }                                                                                              \
                                                                                                   \
    /* tensors: prediction, noise, data. Items first to last - 1. */                               \
    int masked_velocity_forward_##REAL(const tensor_t *tensors, const uint8_t *mask, double share, \
                                       int64_t first, int64_t last, int64_t frames,                \
                                       int64_t channels, double *errors) {                         \
        REAL room[3][BLOCK];                                                                       \
        for (int64_t b = first; b < last; b++) {                                                   \
            double total = 0.0;                                                                    \
            for (int64_t t = 0; t < frames; t++) {                                                 \
                if (!mask[b * frames + t]) continue;                                               \
                for (int64_t c = 0; c < channels; c += BLOCK) {                                    \
                    int64_t n = channels - c < BLOCK ? channels - c : BLOCK;                       \
                    const REAL *row[3];                                                            \
                    for (int k = 0; k < 3; k++)                                                    \
                        row[k] = read_##REAL(tensors + k, b * tensors[k].item +                    \
                                             t * tensors[k].frame + c, n, room[k]);                \
                    total += squares_##REAL(row[0], row[1], row[2], (REAL)share, n);               \
                }                                                                                  \
            }                                                                                      \
            errors[b] = total;                                                                     \
        }                                                                                          \
        return 0;                                                                                  \
    }                                                                                              \
                                                                                                   \
    /* gradient: dense, of the prediction's kind; 0 in frames whose mask is not set. */            \
    int masked_velocity_backward_##REAL(const tensor_t *tensors, const uint8_t *mask,              \
                                        double share, int64_t first, int64_t last, int64_t frames, \
                                        int64_t channels, const double *slopes, void *gradient) {  \
        REAL room[3][BLOCK], found[BLOCK];                                                         \
        for (int64_t b = first; b < last; b++)                                                     \
            for (int64_t t = 0; t < frames; t++)                                                   \
                for (int64_t c = 0; c < channels; c += BLOCK) {                                    \
                    int64_t n = channels - c < BLOCK ? channels - c : BLOCK;                       \
                    REAL slope = (REAL)slopes[b], part = (REAL)share;                              \
                    const REAL *row[3];                                                            \
                    for (int k = 0; k < 3 && mask[b * frames + t]; k++)                            \
                        row[k] = read_##REAL(tensors + k, b * tensors[k].item +                    \
                                             t * tensors[k].frame + c, n, room[k]);                \
                    for (int64_t i = 0; i < n; i++)                                                \
                        found[i] = mask[b * frames + t]                                            \
                                       ? slope * (row[0][i] - (row[2][i] - part * row[1][i]))      \
                                       : 0;                                                        \
                    write_##REAL(gradient, tensors[0].kind, (b * frames + t) * channels + c,       \
                                 found, n);                                                        \
                }                                                                                  \
        return 0;                                                                                  \
    }

DEFINE_MASKED_VELOCITY(float)
DEFINE_MASKED_VELOCITY(double)
