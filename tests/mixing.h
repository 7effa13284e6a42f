/* Running sequences through ops in steps, cut and batched in different ways: what the tests of attention,
 * convolution and delta rule share. mix_run builds the batch of each step; the test's own function moves the
 * rows' inputs in, runs ops, and moves the outputs out. */
#ifndef QW_TESTS_MIXING_H
#define QW_TESTS_MIXING_H

#include "kernels/reference/reference.h"
#include "tests/harness.h"
#include "tests/views.h"

#include <math.h>

enum { MIX_SEQUENCES = 4, MIX_CUTS = 12, MIX_SNAPSHOTS = 16 };

/* Sequence s is cut into chunks of cuts[s][0], cuts[s][1], ... rows, repeated from the start; 0 ends the
 * list. With snapshot_every, the state after each so many tokens also goes to a slot of its own. */
typedef struct mix_plan {
    int32_t sequences;
    int32_t length[MIX_SEQUENCES];
    int32_t cuts[MIX_SEQUENCES][MIX_CUTS];
    int32_t snapshot_every;
} mix_plan;

/* Row of a step: token `token` of sequence `sequence`. */
typedef struct mix_row {
    int32_t sequence, token;
} mix_row;

typedef void mix_step(void *test, const qw_batch *batch, const mix_row *row);

/* A run in progress: per sequence the tokens done, the next cut, the slot of its state (-1: none yet). */
typedef struct mix_state {
    const mix_plan *plan;
    int32_t done[MIX_SEQUENCES], cut[MIX_SEQUENCES], slot[MIX_SEQUENCES];
    int32_t *positions, *kv_index, *table;
    qw_segment segment[MIX_SEQUENCES];
    qw_state_write *write;
    mix_row *row;
    qw_batch batch;
} mix_state;

static inline int32_t mix_rows(const mix_plan *plan)
{
    int32_t rows = 0;
    for (int32_t s = 0; s < plan->sequences; s++)
        rows += plan->length[s];
    return rows;
}

/* KV blocks: those before sequence s (block 0 belongs to none), so that all of them are those before the end.
 */
static inline int32_t mix_blocks(const mix_plan *plan, int32_t sequence)
{
    int32_t blocks = 1;
    for (int32_t s = 0; s < sequence; s++)
        blocks += (plan->length[s] + QW_KV_BLOCK - 1) / QW_KV_BLOCK;
    return blocks;
}

/* The block of the i-th 64 tokens: in memory they lie in descending order. */
static inline int32_t mix_block(const mix_plan *plan, int32_t sequence, int32_t i)
{
    return mix_blocks(plan, sequence + 1) - 1 - i;
}

/* State slots: two of each sequence, then the snapshots. */
static inline int32_t mix_slots(const mix_plan *plan)
{
    return plan->sequences * (2 + MIX_SNAPSHOTS);
}

static inline int32_t mix_snapshot(const mix_plan *plan, int32_t sequence, int32_t index)
{
    return 2 * plan->sequences + sequence * MIX_SNAPSHOTS + index;
}

static inline void mix_add_row(mix_state *m, int32_t s, int32_t t)
{
    const int32_t r = m->batch.rows++, every = m->plan->snapshot_every;
    m->row[r] = (mix_row){s, t};
    m->kv_index[r] = mix_block(m->plan, s, t / QW_KV_BLOCK) * QW_KV_BLOCK + t % QW_KV_BLOCK;
    if (every > 0 && (t + 1) % every == 0 && (t + 1) / every <= MIX_SNAPSHOTS)
        m->write[m->batch.writes++] = (qw_state_write){r, mix_snapshot(m->plan, s, (t + 1) / every - 1)};
}

static inline void mix_add_segment(mix_state *m, int32_t s, int32_t count)
{
    qw_segment *segment = &m->segment[m->batch.segments++];
    *segment = (qw_segment){.row_begin = m->batch.rows,
                            .row_count = count,
                            .position = m->done[s],
                            .table = m->batch.blocks,
                            .state_read = m->slot[s],
                            .write_begin = m->batch.writes};
    for (int32_t i = 0; i * QW_KV_BLOCK < m->done[s] + count; i++)
        m->table[m->batch.blocks++] = mix_block(m->plan, s, i);
    for (int32_t i = 0; i < count; i++)
        mix_add_row(m, s, m->done[s] + i);
    m->slot[s] = m->slot[s] == 2 * s ? 2 * s + 1 : 2 * s;
    m->write[m->batch.writes++] = (qw_state_write){m->batch.rows - 1, m->slot[s]};
    segment->write_count = m->batch.writes - segment->write_begin;
    m->done[s] += count;
}

/* T = H = W = token, but for a few tokens, as if there were images. */
static inline void mix_set_positions(mix_state *m)
{
    for (int32_t axis = 0; axis < 3; axis++)
        for (int32_t r = 0; r < m->batch.rows; r++) {
            const int32_t t = m->row[r].token;
            m->positions[axis * m->batch.rows + r] = t % 10 == 7 ? t + 3 * axis : t;
        }
}

/* The next step's batch; false when all sequences are done. */
static inline bool mix_next(mix_state *m)
{
    m->batch.rows = m->batch.segments = m->batch.writes = m->batch.blocks = 0;
    for (int32_t s = 0; s < m->plan->sequences; s++) {
        if (m->done[s] == m->plan->length[s])
            continue;
        if (m->cut[s] == MIX_CUTS || m->plan->cuts[s][m->cut[s]] == 0)
            m->cut[s] = 0;
        const int32_t cut = m->plan->cuts[s][m->cut[s]++], left = m->plan->length[s] - m->done[s];
        mix_add_segment(m, s, QW_MIN(cut, left));
    }
    mix_set_positions(m);
    return m->batch.rows > 0;
}

static inline void mix_run(const mix_plan *plan, mix_step *step, void *test)
{
    const size_t rows = (size_t)mix_rows(plan);
    mix_state m = {.plan = plan, .slot = {-1, -1, -1, -1}};
    m.positions = calloc(3 * rows, sizeof *m.positions);
    m.kv_index = calloc(rows, sizeof *m.kv_index);
    m.table = calloc(rows + MIX_SEQUENCES, sizeof *m.table);
    m.write = calloc(2 * rows + MIX_SEQUENCES, sizeof *m.write);
    m.row = calloc(rows, sizeof *m.row);
    m.batch.positions = m.positions;
    m.batch.kv_index = m.kv_index;
    m.batch.block_table = m.table;
    m.batch.segment = m.segment;
    m.batch.state_write = m.write;
    while (mix_next(&m))
        step(test, &m.batch, m.row);
    free(m.positions);
    free(m.kv_index);
    free(m.table);
    free(m.write);
    free(m.row);
}

/* ---- material ---------------------------------------------------------------------------------------- */

/* Values in [-1, 1), the same on every machine. */
static inline void mix_fill(float *x, size_t count, uint64_t seed)
{
    uint64_t state = seed * 2 + 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(state >> 40) / 8388608.0f - 1.0f;
    }
}

static inline float *mix_random(size_t count, uint64_t seed)
{
    float *x = malloc(count * sizeof *x);
    CHECK(x != NULL);
    mix_fill(x, count, seed);
    return x;
}

/* max |a - b| / max |b| */
static inline double mix_distance(const float *a, const float *b, size_t count)
{
    double worst = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        worst = isnan(a[i]) || isnan(b[i]) ? HUGE_VAL : fmax(worst, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)b[i]));
    }
    return worst == 0 ? 0 : worst / largest;
}

/* Tier 0 is the reference backend. False: this machine lacks the tier. */
static inline bool mix_open(const qw_dims *dims, int32_t tier, int32_t threads, int32_t kv_dtype,
                            int32_t rows, qw_backend *backend)
{
    static qw_allocator allocator;
    allocator = qw_allocator_default();
    const qw_backend_config config = {.allocator = &allocator,
                                      .dims = dims,
                                      .numerics = QWEN36_NUMERICS_REFERENCE,
                                      .kv_dtype = kv_dtype,
                                      .cpu_tier = tier,
                                      .threads = threads,
                                      .max_rows = rows,
                                      .max_segments = MIX_SEQUENCES,
                                      .max_head_rows = 1,
                                      .max_context = rows + 1};
    qwen36_error error = {0};
    qwen36_status status = tier == 0 ? qw_reference_backend_open(&config, backend, &error)
                                     : qw_cpu_backend_open(&config, backend, &error);
    CHECK(status == QWEN36_OK || tier > QWEN36_CPU_PORTABLE);
    return status == QWEN36_OK;
}

#endif
