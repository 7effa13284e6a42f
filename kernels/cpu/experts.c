/* The routed experts. The (row, choice) pairs of a slab are sorted by expert (count, scan, place), so that
 * each expert sees a run of `slots`; then three loops over the pool:
 *     hidden    h[slot] = silu(gate x[row of slot]) * (up x[row of slot])
 *     down      out[slot] = down h[slot]
 *     combine   y[row] = sum over j of weights[row][j] * out[slot of (row, j)], j in router order
 * A work item is a range of one expert's slots and of its columns; an expert without rows has none. */
#include "kernels/cpu/matrix.h"

#include <string.h>

/* Which experts have rows, and how their work is cut. */
typedef struct plan {
    int32_t active;
    int32_t *expert; /* [active] ascending */
    int32_t *begin;  /* [active + 1] first slot */
    int64_t *items;  /* [active + 1] first item of the loop in progress */
    int32_t *row;    /* [slots] of x, within the slab */
    int32_t *slot;   /* [rows][k] */
    int32_t *count;  /* [experts] */
} plan;

typedef struct job {
    const qw_cpu *cpu;
    const qw_experts_args *args;
    int64_t first_row, rows; /* of the slab */
    qw_rows x;
    char *h;
    int64_t h_stride; /* bytes */
    float *out;       /* [slots][H] */
    float *buffer;    /* [threads][QW_HIDDEN_BUFFER] */
    plan plan;
} job;

/* ---- sorting ----------------------------------------------------------------------------------------- */

static void count_rows(job *j)
{
    const qw_experts_args *args = j->args;
    const int64_t k = args->ids.shape[1];
    memset(j->plan.count, 0, (size_t)args->experts * sizeof *j->plan.count);
    for (int64_t r = 0; r < j->rows; r++) {
        const int32_t *ids = qw_view_row_i32(&args->ids, j->first_row + r);
        for (int64_t c = 0; c < k; c++)
            j->plan.count[ids[c]]++;
    }
}

/* Turns the counts into the first slot of each expert. */
static void scan(job *j)
{
    plan *p = &j->plan;
    int32_t next = 0;
    p->active = 0;
    for (int32_t e = 0; e < j->args->experts; e++) {
        const int32_t count = p->count[e];
        p->count[e] = next;
        if (count == 0)
            continue;
        p->expert[p->active] = e;
        p->begin[p->active++] = next;
        next += count;
    }
    p->begin[p->active] = next;
}

static void place(job *j)
{
    plan *p = &j->plan;
    const int64_t k = j->args->ids.shape[1];
    for (int64_t r = 0; r < j->rows; r++) {
        const int32_t *ids = qw_view_row_i32(&j->args->ids, j->first_row + r);
        for (int64_t c = 0; c < k; c++) {
            const int32_t slot = p->count[ids[c]]++;
            p->row[slot] = (int32_t)r;
            p->slot[r * k + c] = slot;
        }
    }
}

/* ---- the loops --------------------------------------------------------------------------------------- */

typedef const qw_view *pick(const qw_expert_view *expert);
static const qw_view *pick_gate(const qw_expert_view *expert)
{
    return &expert->gate;
}
static const qw_view *pick_down(const qw_expert_view *expert)
{
    return &expert->down;
}

static qw_matrix_cut cut_of(const job *j, int32_t a, pick *which)
{
    const plan *p = &j->plan;
    return qw_matrix_cut_for(which(&j->args->expert[p->expert[a]]), p->begin[a + 1] - p->begin[a]);
}

/* Numbers the items of a loop; returns how many there are. */
static int64_t number_items(job *j, pick *which)
{
    plan *p = &j->plan;
    p->items[0] = 0;
    for (int32_t a = 0; a < p->active; a++) {
        const qw_matrix_cut cut = cut_of(j, a, which);
        p->items[a + 1] = p->items[a] + qw_matrix_cut_items(&cut);
    }
    return p->items[p->active];
}

/* The active expert to which an item belongs: the last whose first item is not beyond it. */
static int32_t find_active(const plan *p, int64_t item)
{
    int32_t low = 0, high = p->active;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (p->items[middle] <= item)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* What the next item of a loop reads: of this expert, or the beginning of the next one. */
static const char *next_weights(const job *j, int32_t a, pick *which, const qw_matrix_cut *cut,
                                const qw_matrix_tile *tile)
{
    const plan *p = &j->plan;
    const char *next = qw_matrix_next(which(&j->args->expert[p->expert[a]]), cut, tile);
    const bool is_last = tile->row + tile->count == cut->rows && tile->column + tile->columns == cut->columns;
    if (is_last && a + 1 < p->active)
        next = qw_view_data(which(&j->args->expert[p->expert[a + 1]]));
    return next;
}

static void hidden_item(void *argument, int64_t item, int32_t worker)
{
    const job *j = argument;
    const plan *p = &j->plan;
    const int32_t a = find_active(p, item);
    const qw_expert_view *expert = &j->args->expert[p->expert[a]];
    const qw_matrix_cut cut = cut_of(j, a, pick_gate);
    qw_matrix_tile tile = {.x = &j->x};
    qw_matrix_cut_item(&cut, item - p->items[a], &tile);
    tile.next = next_weights(j, a, pick_gate, &cut, &tile);
    const int64_t slot = p->begin[a] + tile.row;
    tile.index = p->row + slot;
    float *buffer = j->buffer + (int64_t)worker * (QW_HIDDEN_BUFFER / 4);
    qw_matrix_hidden(j->cpu, &expert->gate, &expert->up, &tile, j->h + slot * j->h_stride, j->h_stride,
                     qw_matrix_is_narrow(j->cpu, expert->down.dtype), buffer);
}

static void down_item(void *argument, int64_t item, int32_t worker)
{
    (void)worker;
    const job *j = argument;
    const plan *p = &j->plan;
    const int32_t a = find_active(p, item);
    const qw_view *down = &j->args->expert[p->expert[a]].down;
    const qw_matrix_cut cut = cut_of(j, a, pick_down);
    const qw_rows h = {j->h, j->h_stride, j->h, j->h_stride};
    qw_matrix_tile tile = {.w = down, .x = &h};
    qw_matrix_cut_item(&cut, item - p->items[a], &tile);
    tile.next = next_weights(j, a, pick_down, &cut, &tile);
    tile.row += p->begin[a];
    const int64_t width = j->args->y.shape[1];
    qw_matrix_product(j->cpu, &tile, j->out + tile.row * width + tile.column, width);
}

enum { COMBINE_COLUMNS = 512, MAX_CHOICES = QW_MAX_TOP_K };

/* One item is a row, or a part of it: one row alone must spread too. */
static void combine_item(void *argument, int64_t item, int32_t worker)
{
    (void)worker;
    const job *j = argument;
    const int64_t k = j->args->ids.shape[1], width = j->args->y.shape[1];
    const int64_t parts = (width + COMBINE_COLUMNS - 1) / COMBINE_COLUMNS;
    const int64_t r = item / parts, column = item % parts * COMBINE_COLUMNS;
    const float *from[MAX_CHOICES];
    for (int64_t c = 0; c < k; c++)
        from[c] = j->out + j->plan.slot[r * k + c] * width + column;
    j->cpu->kernels->combine(from, qw_view_row(&j->args->weights, j->first_row + r), (int32_t)k,
                             qw_view_row(&j->args->y, j->first_row + r) + column,
                             QW_MIN(width - column, COMBINE_COLUMNS));
}

static void experts_slab(job *j, qw_cpu *cpu)
{
    const qw_experts_args *args = j->args;
    count_rows(j);
    scan(j);
    place(j);
    j->x.wide = (const char *)qw_view_row(&args->x, j->first_row);
    if (cpu->dot_bf16 != NULL)
        qw_matrix_narrow_rows(cpu, &j->x, args->x.shape[1], j->rows);
    qw_pool_run(cpu->pool, hidden_item, j, number_items(j, pick_gate));
    qw_pool_run(cpu->pool, down_item, j, number_items(j, pick_down));
    const int64_t parts = (args->y.shape[1] + COMBINE_COLUMNS - 1) / COMBINE_COLUMNS;
    qw_pool_run(cpu->pool, combine_item, j, j->rows * parts);
}

/* ---- the op -------------------------------------------------------------------------------------------- */

/* The pieces of scratch, in order; `at` NULL only counts. */
static uint64_t lay_out(job *j, qw_scratch *at, int64_t rows, int64_t threads, int64_t hidden, int64_t width,
                        int64_t experts, int64_t k)
{
    const int64_t slots = rows * k;
    plan *p = &j->plan;
    struct {
        void *where;
        int64_t bytes;
    } piece[] = {
        {&j->x.narrow, rows * qw_matrix_stride(hidden, 2)},
        {&j->h, slots * qw_matrix_stride(width, 4)},
        {&j->out, slots * hidden * 4},
        {&j->buffer, threads * QW_HIDDEN_BUFFER},
        {&p->expert, experts * 4},
        {&p->begin, (experts + 1) * 4},
        {&p->items, (experts + 1) * 8},
        {&p->row, slots * 4},
        {&p->slot, slots * 4},
        {&p->count, experts * 4},
    };
    uint64_t total = 0;
    for (size_t i = 0; i < QW_COUNT_OF(piece); i++) {
        total += qw_scratch_round((uint64_t)piece[i].bytes);
        if (at == NULL)
            continue;
        void *memory = qw_scratch_take(at, (uint64_t)piece[i].bytes);
        if (memory == NULL)
            return 0;
        memcpy(piece[i].where, &memory, sizeof memory);
    }
    return total;
}

qwen36_status qw_cpu_experts(qw_backend *backend, const qw_experts_args *args)
{
    qw_cpu *cpu = qw_cpu_of(backend);
    const int64_t rows = args->x.shape[0], hidden = args->x.shape[1];
    const int64_t width = args->expert[0].gate.shape[0];
    job j = {.cpu = cpu, .args = args, .h_stride = qw_matrix_stride(width, 4)};
    j.x = (qw_rows){.wide_stride = args->x.stride[0] * 4, .narrow_stride = qw_matrix_stride(hidden, 2)};
    qw_scratch scratch = qw_scratch_begin(cpu);
    if (lay_out(&j, &scratch, QW_MIN(rows, QW_SLAB_ROWS), cpu->config.threads, hidden, width, args->experts,
                args->ids.shape[1]) == 0)
        return QWEN36_ERROR_INTERNAL;
    for (int64_t first = 0; first < rows; first += QW_SLAB_ROWS) {
        j.first_row = first;
        j.rows = QW_MIN(rows - first, QW_SLAB_ROWS);
        experts_slab(&j, cpu);
    }
    return QWEN36_OK;
}

uint64_t qw_cpu_experts_scratch_bytes(const qw_backend_config *config)
{
    const qw_dims *d = config->dims;
    job j = {0};
    return lay_out(&j, NULL, QW_MIN(config->max_rows, QW_SLAB_ROWS), config->threads, d->hidden,
                   d->expert_size, d->experts, d->top_k);
}
