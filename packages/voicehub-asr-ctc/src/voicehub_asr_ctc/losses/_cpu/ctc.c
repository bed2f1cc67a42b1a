/* Connectionist temporal classification on logits: softmax, forward and backward sums, gradient.
 *
 * Graves et al. 2006, with sums of probabilities that are rescaled to 1 in every frame, in double,
 * instead of sums of logarithms. The states of a target of n labels are its blanks b[0..n] and its
 * labels a[0..n-1], kept apart so that each is one vector operation a frame:
 *     b[i] <- (b[i] + a[i-1]) * y(blank)
 *     a[i] <- (a[i] + b[i] + k[i] a[i-1]) * y(label i),   k[i] = label i differs from label i-1
 * Only states that can still end the target are summed. Where sums underflow all the same, the
 * utterance is done again with logarithms. No log-probability tensor is kept: a row of exponentials
 * is computed where it is needed, in the gradient's own memory.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16
#define PAD 8
#define TINY 1e-200
#define SAFE (-660.0)
#define OUT_OF_MEMORY 1

typedef struct {
    int64_t frames, labels, tokens, blank;
    const int64_t *label;
} item_t;

/* e[v] = exp(x[v] - peak): 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2], 0 below -87. */
static void exponentials_float(const float *restrict x, float peak, float *restrict e, int64_t n) {
    for (int64_t v = 0; v < n; v++) {
        float d = x[v] - peak, c = d > -87.0f ? d : -87.0f;
        float whole = (c * 1.44269504f + 12582912.0f) - 12582912.0f;
        float r = (c - whole * 0.693359375f) + whole * 2.12194440e-4f;
        float p = 1.9875691500e-4f;
        p = p * r + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
        p = p * r * r + r + 1.0f;
        int32_t bits = ((int32_t)whole + 127) << 23;
        float scale;
        memcpy(&scale, &bits, sizeof scale);
        e[v] = d < -87.0f ? 0.0f : (d == d ? p * scale : d);
    }
}

/* The same in double, to 1e-16; the low bits of `shifted` are n. */
static void exponentials_of_differences(const double *d, double *e, int64_t n) {
    const double magic = 6755399441055744.0;
    for (int64_t v = 0; v < n; v++) {
        double c = d[v] > -708.0 ? d[v] : -708.0, shifted = c * 1.4426950408889634 + magic;
        double whole = shifted - magic;
        double r = (c - whole * 6.93147180369123816490e-01) - whole * 1.90821492927058770002e-10;
        double p = 1.0 / 479001600.0;
        p = p * r + 1.0 / 39916800.0;
        p = p * r + 1.0 / 3628800.0;
        p = p * r + 1.0 / 362880.0;
        p = p * r + 1.0 / 40320.0;
        p = p * r + 1.0 / 5040.0;
        p = p * r + 1.0 / 720.0;
        p = p * r + 1.0 / 120.0;
        p = p * r + 1.0 / 24.0;
        p = p * r + 1.0 / 6.0;
        p = p * r + 0.5;
        p = p * r * r + r + 1.0;
        uint64_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        bits = (bits + 1023) << 52;
        double scale;
        memcpy(&scale, &bits, sizeof scale);
        e[v] = d[v] < -708.0 ? 0.0 : (d[v] == d[v] ? p * scale : d[v]);
    }
}

static void exponentials_double(const double *restrict x, double peak, double *restrict e,
                                int64_t n) {
    for (int64_t v = 0; v < n; v++) e[v] = x[v] - peak;
    exponentials_of_differences(e, e, n);
}

static double sum_lanes(const double *restrict x, int64_t from, int64_t to) {
    double lane[8] = {0}, total = 0.0;
    int64_t i = from;
    for (; i + 8 <= to; i += 8)
        for (int k = 0; k < 8; k++) lane[k] += x[i + k];
    for (int k = 0; k < 8; k++) total += lane[k];
    for (; i < to; i++) total += x[i];
    return total;
}

#define DEFINE_ROW(REAL)                                                                           \
    static REAL highest_##REAL(const REAL *restrict x, int64_t n) {                                \
        REAL lane[LANES], best = x[0];                                                             \
        int64_t v = 0;                                                                             \
        for (int k = 0; k < LANES; k++) lane[k] = x[0];                                            \
        for (; v + LANES <= n; v += LANES)                                                         \
            for (int k = 0; k < LANES; k++) lane[k] = x[v + k] > lane[k] ? x[v + k] : lane[k];     \
        for (int k = 0; k < LANES; k++) best = lane[k] > best ? lane[k] : best;                    \
        for (; v < n; v++) best = x[v] > best ? x[v] : best;                                       \
        return best;                                                                               \
    }                                                                                              \
    /* Blocks are short enough for single precision, their sum is double. */                       \
    static double total_##REAL(const REAL *restrict e, int64_t n) {                                \
        double total = 0.0;                                                                        \
        for (int64_t from = 0; from < n; from += 32 * LANES) {                                     \
            int64_t to = from + 32 * LANES < n ? from + 32 * LANES : n, v = from;                  \
            REAL lane[LANES] = {0};                                                                \
            for (; v + LANES <= to; v += LANES)                                                    \
                for (int k = 0; k < LANES; k++) lane[k] += e[v + k];                               \
            for (int k = 0; k < LANES; k++) total += (double)lane[k];                              \
            for (; v < to; v++) total += (double)e[v];                                             \
        }                                                                                          \
        return total;                                                                              \
    }                                                                                              \
                                                                                                   \
    /* Probabilities of the labels, y[0..labels-1], and of the blank, y[labels], in double: errors   \
     * of single precision would add up over the frames. */                                        \
    static void probabilities_##REAL(const item_t *it, const REAL *x, REAL peak, double total,     \
                                     double *y) {                                                  \
        for (int64_t i = 0; i < it->labels; i++) y[i] = (double)x[it->label[i]] - (double)peak;    \
        y[it->labels] = (double)x[it->blank] - (double)peak;                                       \
        exponentials_of_differences(y, y, it->labels + 1);                                         \
        double share = 1.0 / total;                                                                \
        for (int64_t i = 0; i <= it->labels; i++) y[i] *= share;                                   \
    }

DEFINE_ROW(float)
DEFINE_ROW(double)

typedef struct { int64_t a_low, a_high, b_low, b_high; } band_t;

/* States that are reached by frame t and can still end the target. */
static band_t band(const item_t *it, int64_t t) {
    int64_t low = it->labels - it->frames + t;
    band_t found = {low > 0 ? low : 0, t + 1 < it->labels ? t + 1 : it->labels,
                    low + 1 > 0 ? low + 1 : 0, (t < it->labels ? t : it->labels) + 1};
    return found;
}

/* One frame of the forward sums, times `scale`; returns their sum. */
static double advance(const item_t *it, int64_t t, const double *restrict k,
                      const double *restrict ob, const double *restrict oa,
                      const double *restrict y, double yb, double scale, double *restrict nb,
                      double *restrict na) {
    band_t in = band(it, t);
    for (int64_t i = in.a_low; i < in.a_high; i++)
        na[i] = (oa[i] + ob[i] + k[i] * oa[i - 1]) * (y[i] * scale);
    double blank = yb * scale;
    for (int64_t i = in.b_low; i < in.b_high; i++) nb[i] = (ob[i] + oa[i - 1]) * blank;
    na[in.a_high] = nb[in.b_high] = 0.0;
    return sum_lanes(na, in.a_low, in.a_high) + sum_lanes(nb, in.b_low, in.b_high);
}

/* One frame of the backward sums, of frame t from those of t + 1, whose probabilities are given;
 * ua and ub are room for the sums times them; returns the sum that was scaled to 1. */
static double retreat(const item_t *it, int64_t t, const double *restrict k,
                      const double *restrict y, double *restrict bb, double *restrict ba,
                      double *restrict ub, double *restrict ua) {
    double yb = y[it->labels];
    band_t in = band(it, t), next = band(it, t + 1);
    for (int64_t i = next.a_low; i < next.a_high; i++) ua[i] = ba[i] * y[i];
    for (int64_t i = next.b_low; i < next.b_high; i++) ub[i] = bb[i] * yb;
    ua[next.a_low - 1] = ub[next.b_low - 1] = ua[next.a_high] = ub[next.b_high] = 0.0;
    for (int64_t i = in.a_low; i < in.a_high; i++)
        ba[i] = ua[i] + ub[i + 1] + k[i + 1] * ua[i + 1];
    for (int64_t i = in.b_low; i < in.b_high; i++) bb[i] = ub[i] + ua[i];
    double total = sum_lanes(ba, in.a_low, in.a_high) + sum_lanes(bb, in.b_low, in.b_high);
    double scale = total > 0.0 ? 1.0 / total : 1.0;
    for (int64_t i = in.a_low; i < in.a_high; i++) ba[i] *= scale;
    for (int64_t i = in.b_low; i < in.b_high; i++) bb[i] *= scale;
    return total;
}

/* Likelihood of the first frame's states, by the backward sums. */
static double first_frame(const item_t *it, const double *y, const double *bb, const double *ba) {
    band_t in = band(it, 0);
    double sum = in.b_low == 0 ? y[it->labels] * bb[0] : 0.0;
    return it->labels && in.a_low == 0 ? sum + y[0] * ba[0] : sum;
}

/* The log-likelihood once more, from the last frame back; room holds four zeroed arrays. */
static double from_behind(const item_t *it, const double *k, const double *y, int64_t width,
                          double *room) {
    double *bb = room, *ba = bb + width, *ub = ba + width, *ua = ub + width, sum = 0.0;
    bb[it->labels] = 1.0;
    if (it->labels) ba[it->labels - 1] = 1.0;
    for (int64_t t = it->frames - 2; t >= 0; t--)
        sum += log(retreat(it, t, k, y + (t + 1) * width, bb, ba, ub, ua));
    return sum + log(first_frame(it, y, bb, ba));
}

/* Sums lose paths that fall 1e-308 behind others for a while. A frame's sums are at most 1 in all,
 * so that a path of likelihood above e^-660 is never among them; below, both directions, which lose
 * different ones, must agree. */
static int loses_paths(double one, double other) {
    return !(fabs(one - other) <= 1e-9 * (1.0 + fabs(one)));
}

static double log_add(double x, double y) {
    double high = x > y ? x : y, low = x > y ? y : x;
    return low == -INFINITY ? high : high + log1p(exp(low - high));
}

static int64_t token(const item_t *it, int64_t s) { return s % 2 ? it->label[s / 2] : it->blank; }

static int skips(const item_t *it, int64_t s) {
    return s % 2 && s > 1 && it->label[s / 2] != it->label[s / 2 - 1];
}

/* The same with logarithms, for what underflows: lp[t * states + s] in, log of the share of
 * each state in each frame out; returns the log-likelihood. */
static double with_logarithms(const item_t *it, double *lp, double *alpha) {
    int64_t states = 2 * it->labels + 1, frames = it->frames;
    for (int64_t t = 0; t < frames; t++)
        for (int64_t s = 0; s < states; s++) {
            const double *old = alpha + (t - 1) * states;
            double sum = t == 0 ? (s < 2 ? 0.0 : -INFINITY) : old[s];
            if (t && s) sum = log_add(sum, old[s - 1]);
            if (t && skips(it, s)) sum = log_add(sum, old[s - 2]);
            alpha[t * states + s] = sum + lp[t * states + s];
        }
    const double *last = alpha + (frames - 1) * states;
    double total = states > 1 ? log_add(last[states - 1], last[states - 2]) : last[0];
    /* lp turns into the backward sums with the frame's own probability taken in. */
    for (int64_t t = frames - 1; t >= 0; t--)
        for (int64_t s = 0; s < states; s++) {
            const double *next = lp + (t + 1) * states;
            double sum = t == frames - 1 ? (s >= states - 2 ? 0.0 : -INFINITY) : next[s];
            if (t < frames - 1 && s + 1 < states) sum = log_add(sum, next[s + 1]);
            if (t < frames - 1 && s + 2 < states && skips(it, s + 2)) sum = log_add(sum, next[s + 2]);
            alpha[t * states + s] += sum - total;
            lp[t * states + s] += sum;
        }
    return total;
}

static int64_t fewest_frames(const item_t *it) {
    int64_t count = it->labels;
    for (int64_t i = 1; i < it->labels; i++) count += it->label[i] == it->label[i - 1];
    return count;
}

static int is_sound(const item_t *it, int64_t all_frames, int64_t all_labels) {
    if (it->frames < 0 || it->frames > all_frames || it->labels < 0 || it->labels > all_labels)
        return 0;
    for (int64_t i = 0; i < it->labels; i++)
        if (it->label[i] < 0 || it->label[i] >= it->tokens || it->label[i] == it->blank) return 0;
    return fewest_frames(it) <= it->frames;
}

static void set_skips(const item_t *it, double *k) {
    for (int64_t i = 0; i <= it->labels; i++)
        k[i] = i > 0 && i < it->labels && it->label[i] != it->label[i - 1] ? 1.0 : 0.0;
}

#define DEFINE_CTC(REAL)                                                                           \
    static int logarithms_##REAL(const item_t *it, const REAL *x, int64_t stride,                  \
                                 const REAL *peak, const double *total, double *loss, REAL *grad,  \
                                 double upstream) {                                                \
        int64_t states = 2 * it->labels + 1, cells = states * it->frames;                          \
        double *lp = malloc(sizeof(double) * (size_t)(2 * cells));                                 \
        if (!lp) return OUT_OF_MEMORY;                                                             \
        for (int64_t t = 0; t < it->frames; t++)                                                   \
            for (int64_t s = 0; s < states; s++)                                                   \
                lp[t * states + s] = (double)x[t * stride + token(it, s)] - (double)peak[t] -      \
                                     log(total[t]);                                                \
        double sum = with_logarithms(it, lp, lp + cells);                                          \
        if (loss) *loss = -sum;                                                                    \
        for (int64_t t = 0; grad && t < it->frames; t++) {                                         \
            REAL *row = grad + t * it->tokens;                                                     \
            exponentials_##REAL(x + t * stride, peak[t], row, it->tokens);                         \
            double scale = sum == -INFINITY ? 0.0 : upstream / total[t];                           \
            for (int64_t v = 0; v < it->tokens; v++) row[v] = (REAL)((double)row[v] * scale);      \
            for (int64_t s = 0; s < states && sum != -INFINITY; s++)                               \
                row[token(it, s)] -= (REAL)(upstream * exp(lp[cells + t * states + s]));           \
        }                                                                                          \
        free(lp);                                                                                  \
        return 0;                                                                                  \
    }                                                                                              \
                                                                                                   \
    static int forward_##REAL(const item_t *it, const REAL *x, int64_t stride, REAL *peak,         \
                              double *total, REAL *e, double *room, double *loss) {                \
        int64_t width = it->labels + 2 * PAD, frames = it->frames;                                 \
        memset(room, 0, sizeof(double) * (size_t)(9 * width));                                     \
        double *k = room + PAD, *ob = k + width, *oa = ob + width, *nb = oa + width;               \
        double *na = nb + width, *behind = na + width, *y = behind + 4 * width;                    \
        double scale = 1.0, likelihood = 0.0;                                                      \
        int lost = 0;                                                                              \
        set_skips(it, k);                                                                          \
        ob[0] = 1.0;                                                                               \
        for (int64_t t = 0; t < frames; t++) {                                                     \
            const REAL *row = x + t * stride;                                                      \
            double *yt = y + t * width;                                                            \
            peak[t] = highest_##REAL(row, it->tokens);                                             \
            exponentials_##REAL(row, peak[t], e, it->tokens);                                      \
            total[t] = total_##REAL(e, it->tokens);                                                \
            if (lost) continue;                                                                    \
            probabilities_##REAL(it, row, peak[t], total[t], yt);                                  \
            double sum = advance(it, t, k, ob, oa, yt, yt[it->labels], scale, nb, na), *swap;      \
            lost = !(sum > TINY);                                                                  \
            likelihood += log(sum);                                                                \
            scale = 1.0 / sum;                                                                     \
            swap = ob, ob = nb, nb = swap;                                                         \
            swap = oa, oa = na, na = swap;                                                         \
        }                                                                                          \
        *loss = -likelihood;                                                                       \
        if (!lost && likelihood < SAFE)                                                            \
            lost = loses_paths(likelihood, from_behind(it, k, y, width, behind));                  \
        if (!lost) return 0;                                                                       \
        return logarithms_##REAL(it, x, stride, peak, total, loss, 0, 0.0);                        \
    }                                                                                              \
                                                                                                   \
    static int backward_##REAL(const item_t *it, const REAL *x, int64_t stride, const REAL *peak,  \
                               const double *total, double upstream, double *room, REAL *grad) {   \
        int64_t width = it->labels + 2 * PAD, frames = it->frames;                                 \
        memset(room, 0, sizeof(double) * (size_t)((5 + 3 * (frames + 1)) * width));                \
        double *k = room + PAD, *bb = k + width, *ba = bb + width, *ub = ba + width;               \
        double *ua = ub + width, *y = ua + width, *fb = y + (frames + 1) * width;                  \
        double *fa = fb + (frames + 1) * width, scale = 1.0, ahead = 0.0, behind = 0.0;            \
        int lost = 0;                                                                              \
        set_skips(it, k);                                                                          \
        fb[0] = 1.0; /* row t + 1 of fb and fa is frame t */                                       \
        for (int64_t t = 0; t < frames; t++) {                                                     \
            double *yt = y + t * width;                                                            \
            probabilities_##REAL(it, x + t * stride, peak[t], total[t], yt);                       \
            double sum = advance(it, t, k, fb + t * width, fa + t * width, yt, yt[it->labels],     \
                                 scale, fb + (t + 1) * width, fa + (t + 1) * width);               \
            lost = lost || !(sum > TINY);                                                          \
            ahead += log(sum);                                                                     \
            scale = 1.0 / sum;                                                                     \
        }                                                                                          \
        bb[it->labels] = 1.0;                                                                      \
        if (it->labels) ba[it->labels - 1] = 1.0;                                                  \
        for (int64_t t = frames - 1; !lost && t >= 0; t--) {                                       \
            if (t < frames - 1)                                                                    \
                behind += log(retreat(it, t, k, y + (t + 1) * width, bb, ba, ub, ua));             \
            band_t in = band(it, t);                                                               \
            double *wb = fb + (t + 1) * width, *wa = fa + (t + 1) * width;                         \
            for (int64_t i = in.a_low; i < in.a_high; i++) wa[i] *= ba[i];                         \
            for (int64_t i = in.b_low; i < in.b_high; i++) wb[i] *= bb[i];                         \
            double blank = sum_lanes(wb, in.b_low, in.b_high);                                     \
            double sum = blank + sum_lanes(wa, in.a_low, in.a_high), share = upstream / sum;       \
            lost = !(sum > TINY);                                                                  \
            REAL *row = grad + t * it->tokens, factor = (REAL)(upstream / total[t]);               \
            exponentials_##REAL(x + t * stride, peak[t], row, it->tokens);                         \
            for (int64_t v = 0; v < it->tokens; v++) row[v] *= factor;                             \
            row[it->blank] -= (REAL)(share * blank);                                               \
            for (int64_t i = in.a_low; i < in.a_high; i++)                                         \
                row[it->label[i]] -= (REAL)(share * wa[i]);                                        \
        }                                                                                          \
        behind += log(first_frame(it, y, bb, ba));                                                 \
        lost = lost || (ahead < SAFE && loses_paths(ahead, behind));                               \
        return lost ? logarithms_##REAL(it, x, stride, peak, total, 0, grad, upstream) : 0;        \
    }                                                                                              \
                                                                                                   \
    /* Items first to last - 1. Of an unsound one, and of one without an alignment, the loss is    \
     * infinite and the gradient 0. Every entry of the results that belongs to them is written. */ \
    int ctc_forward_##REAL(const REAL *logits, int64_t item_stride, int64_t stride, int64_t first, \
                           int64_t last, int64_t all_frames, int64_t tokens, int64_t all_labels,   \
                           int64_t blank, const int64_t *labels, const int64_t *frame_lengths,     \
                           const int64_t *label_lengths, double *losses, REAL *peaks,              \
                           double *totals) {                                                       \
        double *room = malloc(sizeof(double) * (size_t)((9 + all_frames) * (all_labels + 2 * PAD)));  \
        REAL *e = malloc(sizeof(REAL) * (size_t)(tokens + 1));                                     \
        int code = room && e ? 0 : OUT_OF_MEMORY;                                                  \
        for (int64_t n = first; code == 0 && n < last; n++) {                                      \
            item_t it = {frame_lengths[n], label_lengths[n], tokens, blank,                        \
                         labels + n * all_labels};                                                 \
            REAL *peak = peaks + n * all_frames;                                                   \
            double *total = totals + n * all_frames;                                               \
            for (int64_t t = 0; t < all_frames; t++) peak[t] = 0, total[t] = 1.0;                  \
            losses[n] = INFINITY;                                                                  \
            if (!is_sound(&it, all_frames, all_labels)) continue;                                  \
            losses[n] = 0.0;                                                                       \
            if (it.frames)                                                                         \
                code = forward_##REAL(&it, logits + n * item_stride, stride, peak, total, e, room, \
                                      losses + n);                                                 \
        }                                                                                          \
        free(room);                                                                                \
        free(e);                                                                                   \
        return code;                                                                               \
    }                                                                                              \
                                                                                                   \
    int ctc_backward_##REAL(const REAL *logits, int64_t item_stride, int64_t stride,               \
                            int64_t first, int64_t last, int64_t all_frames, int64_t tokens,       \
                            int64_t all_labels, int64_t blank, const int64_t *labels,              \
                            const int64_t *frame_lengths, const int64_t *label_lengths,            \
                            const double *upstream, const REAL *peaks, const double *totals,       \
                            REAL *gradients) {                                                     \
        size_t rows = (size_t)(5 + 3 * (all_frames + 1));                                          \
        double *room = malloc(sizeof(double) * rows * (size_t)(all_labels + 2 * PAD));             \
        int code = room ? 0 : OUT_OF_MEMORY;                                                       \
        for (int64_t n = first; code == 0 && n < last; n++) {                                      \
            item_t it = {frame_lengths[n], label_lengths[n], tokens, blank,                        \
                         labels + n * all_labels};                                                 \
            REAL *grad = gradients + n * all_frames * tokens;                                      \
            int64_t used = is_sound(&it, all_frames, all_labels) ? it.frames : 0;                  \
            memset(grad + used * tokens, 0, sizeof(REAL) * (size_t)((all_frames - used) * tokens)); \
            if (used)                                                                              \
                code = backward_##REAL(&it, logits + n * item_stride, stride,                      \
                                       peaks + n * all_frames, totals + n * all_frames,            \
                                       upstream[n], room, grad);                                   \
        }                                                                                          \
        free(room);                                                                                \
        return code;                                                                               \
    }

DEFINE_CTC(float)
DEFINE_CTC(double)
