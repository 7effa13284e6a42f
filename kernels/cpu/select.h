/* Selection without sorting: the k largest of a row, or the smallest set that holds a share of its mass,
 * by radix select on the order-preserving integer image of a float. All of it runs on one thread in one
 * fixed order, so that a result depends on the values alone. */
#ifndef QW_CPU_SELECT_H
#define QW_CPU_SELECT_H

#include "lib/base/base.h"

enum { QW_SELECT_BINS = 2048 };

/* Values of a row that are still considered, in ascending id. */
typedef struct qw_picks {
    float *value;
    int32_t *id; /* NULL: id i is i */
    int64_t count;
} qw_picks;

/* Keeps values with a larger image, and the first `ties` values with this one. */
typedef struct qw_cut {
    uint32_t image;
    int64_t ties;
} qw_cut;

/* Order: a < b exactly if image(a) < image(b). */
uint32_t qw_float_image(float value);

/* The cut that leaves the fewest values, largest first, whose amounts reach `target`: an amount is 1
 * (by_mass false) or the value itself (by_mass true, values >= 0). All of them if they do not reach it.
 * bins: scratch [QW_SELECT_BINS]. */
qw_cut qw_select(const float *value, int64_t count, double target, bool by_mass, double *bins);

void qw_picks_keep(qw_picks *picks, qw_cut cut);

/* out = the values >= bound of x[0..n), looking only into blocks whose peak reaches it. out->value may be x.
 */
void qw_picks_gather(const float *x, int64_t n, const float *peaks, float bound, qw_picks *out);

/* out = the k largest finite values (ties: lowest ids), or all finite values if they are fewer. */
void qw_picks_largest(const float *x, int64_t n, const float *peaks, int64_t k, double *bins, qw_picks *out);

/* The sum of weights; mass[b] that of block b. */
double qw_masses(const float *weight, int64_t count, double *mass);

/* The first index at which the cumulative weight exceeds uniform * total; mass as from qw_masses. */
int64_t qw_draw_index(const float *weight, int64_t count, const double *mass, double uniform, double total);

#endif
