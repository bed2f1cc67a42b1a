/* Maximum path through text and frames: the best monotonic alignment without skips.
 *
 * best[j][i] = scores[i][j] + max(best[j-1][i], best[j-1][i-1]), a frame j at a time over all i,
 * which the compiler turns into vectors. Frames lie next to each other in most tensors, so TILE of
 * them are turned into rows first. What decides the path is one byte a cell: whether the step came
 * from the text position before. A sum that is not a number counts as minus infinity.
 *
 * float32 scores add up in double: that costs next to nothing, since turning the frames is the limit,
 * and keeps the sums of a thousand frames as exact as the scores.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define TILE 16
#define OUT_OF_MEMORY 1

/* Cells that a complete path can pass in frame j: at least as many frames left as text positions,
 * and no more positions than frames so far. */
static int64_t lowest(int64_t text, int64_t frames, int64_t j) {
    int64_t low = text - frames + j;
    return low < 0 ? 0 : low;
}

static int64_t above(int64_t text, int64_t j) { return j + 1 < text ? j + 1 : text; }

static void backtrack(const uint8_t *moved, int64_t width, int64_t text, int64_t frames,
                      int64_t *index) {
    int64_t i = text - 1;
    for (int64_t j = frames - 1; j >= 0; j--) {
        index[j] = i;
        if (i > 0 && (i == j || moved[j * width + i])) i--;
    }
}

#define DEFINE_MAXIMUM_PATH(NAME, SCORE)                                                           \
    static void NAME##_rows(const SCORE *scores, int64_t row, int64_t column, int64_t count,       \
                            int64_t low, int64_t high, double *tile, int64_t width) {              \
        if (column == 1 && count == TILE) {                                                        \
            for (int64_t i = low; i < high; i++) {                                                 \
                const SCORE *from = scores + i * row;                                              \
                __builtin_prefetch(from + TILE); /* a line a row: no processor foresees it */      \
                for (int64_t k = 0; k < TILE; k++) tile[k * width + i] = (double)from[k];          \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (int64_t k = 0; k < count; k++) {                                                      \
            const SCORE *from = scores + k * column;                                               \
            for (int64_t i = low; i < high; i++) tile[k * width + i] = (double)from[i * row];      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* One item. The best sum of text position i is at old[i + 1]; old[0] stands for "before the   \
     * text": 0 ahead of the first frame, minus infinity later. */                                 \
    static void NAME##_item(const SCORE *scores, int64_t row, int64_t column, int64_t text,        \
                            int64_t frames, int64_t width, double *tile, uint8_t *moved,           \
                            int64_t *index) {                                                      \
        double *before = tile + TILE * width, *after = before + width;                             \
        for (int64_t i = 0; i < width; i++) before[i] = after[i] = -INFINITY;                      \
        before[0] = 0.0;                                                                           \
        for (int64_t first = 0; first < frames; first += TILE) {                                   \
            int64_t count = frames - first < TILE ? frames - first : TILE;                         \
            NAME##_rows(scores + first * column, row, column, count, lowest(text, frames, first),  \
                        above(text, first + count - 1), tile, width);                              \
            for (int64_t k = 0; k < count; k++) {                                                  \
                int64_t low = lowest(text, frames, first + k), high = above(text, first + k);      \
                const double *restrict score = tile + k * width, *restrict old = before;           \
                double *restrict new = after;                                                      \
                uint8_t *restrict move = moved + (first + k) * width;                              \
                for (int64_t i = low; i < high; i++) {                                             \
                    double step = old[i], stay = old[i + 1];                                       \
                    double sum = (step > stay ? step : stay) + score[i];                           \
                    move[i] = step > stay;                                                         \
                    new[i + 1] = sum == sum ? sum : -INFINITY;                                     \
                }                                                                                  \
                before[0] = -INFINITY;                                                             \
                double *swap = before;                                                             \
                before = after;                                                                    \
                after = swap;                                                                      \
            }                                                                                      \
        }                                                                                          \
        backtrack(moved, width, text, frames, index);                                              \
    }                                                                                              \
                                                                                                   \
    /* scores[b * batch + i * row + j * column] with strides in elements; index is dense, of       \
     * all_frames a row, and every entry is written: -1 where there is no path. */                 \
    int NAME(const SCORE *scores, int64_t batch, int64_t row, int64_t column, int64_t items,       \
             int64_t all_text, int64_t all_frames, const int64_t *text, const int64_t *frames,     \
             int64_t *index) {                                                                     \
        int64_t width = (all_text + 1 + 7) / 8 * 8;                                                \
        double *tile = malloc(sizeof(double) * (size_t)((TILE + 2) * width));                      \
        uint8_t *moved = malloc((size_t)(width * (all_frames ? all_frames : 1)));                  \
        int code = tile && moved ? 0 : OUT_OF_MEMORY;                                              \
        for (int64_t b = 0; code == 0 && b < items; b++) {                                         \
            int64_t *out = index + b * all_frames, n = text[b], m = frames[b];                     \
            for (int64_t j = 0; j < all_frames; j++) out[j] = -1;                                  \
            if (n < 1 || n > all_text || m < n || m > all_frames) continue;                        \
            NAME##_item(scores + b * batch, row, column, n, m, width, tile, moved, out);           \
        }                                                                                          \
        free(tile);                                                                                \
        free(moved);                                                                               \
        return code;                                                                               \
    }

DEFINE_MAXIMUM_PATH(maximum_path_float32, float)
DEFINE_MAXIMUM_PATH(maximum_path_float64, double)
