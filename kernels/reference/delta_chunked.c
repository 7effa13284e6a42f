/* The gated delta rule in chunks of up to 64 rows (WY form). With G_i = g_1 + ... + g_i inside a chunk,
 * D_ij = e^(G_i - G_j), and q, k as the contract of delta normalises them:
 *     A_ij = beta_i (k_i k_j) D_ij, j < i
 *     (I + A) U = diag(beta) V;  (I + A) W = diag(beta e^G) K     by forward substitution
 *     V' = U - W S
 *     O_i = e^G_i q_i^T S + sum_{j <= i} (q_i k_j) D_ij V'_j
 *     S = e^G_n S + sum_j e^(G_n - G_j) k_j V'_j^T
 * Exponents are differences before they are raised, so nothing overflows. Chunks end at absolute multiples of
 * 64 tokens, where a state is to be stored, and with the segment. */
#include "kernels/reference/internal.h"

#include <math.h>
#include <string.h>

enum { CHUNK = QW_KV_BLOCK };

/* One value head of one segment. */
typedef struct chunk_task {
    qw_reference *self;
    const qw_delta_args *args;
    int64_t head, dk, dv;
    double *state;      /* [dk,dv] */
    double *q, *k, *w;  /* [CHUNK,dk] */
    double *u, *change; /* [CHUNK,dv]: U and V' */
    double g[CHUNK];    /* G */
    double beta[CHUNK];
} chunk_task;

static size_t chunk_doubles(const qw_dims *dims)
{
    const size_t dk = (size_t)dims->lin_k_dim, dv = (size_t)dims->lin_v_dim;
    return dk * dv + CHUNK * (3 * dk + 2 * dv);
}

static void place(chunk_task *task, double *memory)
{
    task->state = memory;
    task->q = task->state + task->dk * task->dv;
    task->k = task->q + CHUNK * task->dk;
    task->w = task->k + CHUNK * task->dk;
    task->u = task->w + CHUNK * task->dk;
    task->change = task->u + CHUNK * task->dv;
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* q, k, G, beta of the chunk's rows, and the right-hand sides diag(beta) V and diag(beta e^G) K. */
static void load_rows(chunk_task *task, int64_t row, int64_t count)
{
    const qw_dims *dims = &task->self->dims;
    const qw_delta_args *args = task->args;
    const int64_t dk = task->dk, dv = task->dv, nk = dims->lin_k_heads;
    const int64_t key_head = task->head / (dims->lin_v_heads / nk);
    const double rate = -exp((double)qw_ref_get(&args->a_log, 0, task->head));
    const double bias = (double)qw_ref_get(&args->dt_bias, 0, task->head);
    double g = 0;
    for (int64_t i = 0; i < count; i++) {
        const float *c = qw_ref_row(&args->c, row + i);
        qw_ref_unit(c + key_head * dk, dk, 1 / sqrt((double)dk), task->q + i * dk);
        qw_ref_unit(c + (nk + key_head) * dk, dk, 1, task->k + i * dk);
        g += rate * qw_ref_softplus((double)qw_ref_get(&args->a, row + i, task->head) + bias);
        task->g[i] = g;
        task->beta[i] = qw_ref_sigmoid((double)qw_ref_get(&args->b, row + i, task->head));
        for (int64_t d = 0; d < dv; d++)
            task->u[i * dv + d] = task->beta[i] * (double)c[2 * nk * dk + task->head * dv + d];
        for (int64_t d = 0; d < dk; d++)
            task->w[i * dk + d] = task->beta[i] * exp(g) * task->k[i * dk + d];
    }
}

static void substitute(chunk_task *task, int64_t count)
{
    const int64_t dk = task->dk, dv = task->dv;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < i; j++) {
            const double a =
                task->beta[i] * dot(task->k + i * dk, task->k + j * dk, dk) * exp(task->g[i] - task->g[j]);
            for (int64_t d = 0; d < dv; d++)
                task->u[i * dv + d] -= a * task->u[j * dv + d];
            for (int64_t d = 0; d < dk; d++)
                task->w[i * dk + d] -= a * task->w[j * dk + d];
        }
}

/* V' = U - W S */
static void predict(chunk_task *task, int64_t count)
{
    const int64_t dk = task->dk, dv = task->dv;
    memcpy(task->change, task->u, (size_t)(count * dv) * sizeof *task->u);
    for (int64_t i = 0; i < count; i++)
        for (int64_t e = 0; e < dk; e++)
            for (int64_t d = 0; d < dv; d++)
                task->change[i * dv + d] -= task->w[i * dk + e] * task->state[e * dv + d];
}

static void write_outputs(const chunk_task *task, int64_t row, int64_t count)
{
    const int64_t dk = task->dk, dv = task->dv;
    for (int64_t i = 0; i < count; i++)
        for (int64_t d = 0; d < dv; d++) {
            double o = 0;
            for (int64_t e = 0; e < dk; e++)
                o += exp(task->g[i]) * task->q[i * dk + e] * task->state[e * dv + d];
            for (int64_t j = 0; j <= i; j++)
                o += dot(task->q + i * dk, task->k + j * dk, dk) * exp(task->g[i] - task->g[j]) *
                     task->change[j * dv + d];
            qw_ref_row(&task->args->o, row + i)[task->head * dv + d] = (float)o;
        }
}

static void advance_state(chunk_task *task, int64_t count)
{
    const int64_t dk = task->dk, dv = task->dv;
    const double last = task->g[count - 1];
    for (int64_t e = 0; e < dk; e++)
        for (int64_t d = 0; d < dv; d++) {
            double s = exp(last) * task->state[e * dv + d];
            for (int64_t j = 0; j < count; j++)
                s += exp(last - task->g[j]) * task->k[j * dk + e] * task->change[j * dv + d];
            task->state[e * dv + d] = s;
        }
}

static float *head_state(const chunk_task *task, int32_t slot)
{
    return qw_ref_slot(&task->args->state, slot) + task->head * task->dk * task->dv;
}

static void run_segment(chunk_task *task, const qw_segment *segment)
{
    const qw_state_write *write = task->args->batch->state_write + segment->write_begin;
    const qw_state_write *end = write + segment->write_count;
    const int64_t size = task->dk * task->dv;
    for (int64_t i = 0; i < size; i++)
        task->state[i] = segment->state_read < 0 ? 0 : (double)head_state(task, segment->state_read)[i];
    for (int32_t i = 0, count; i < segment->row_count; i += count) {
        count = QW_MIN(CHUNK - (segment->position + i) % CHUNK, segment->row_count - i);
        if (write < end)
            count = QW_MIN(count, write->row + 1 - segment->row_begin - i);
        load_rows(task, segment->row_begin + i, count);
        substitute(task, count);
        predict(task, count);
        write_outputs(task, segment->row_begin + i, count);
        advance_state(task, count);
        for (; write < end && write->row == segment->row_begin + i + count - 1; write++)
            for (int64_t e = 0; e < size; e++)
                head_state(task, write->slot)[e] = (float)task->state[e];
    }
}

qwen36_status qw_reference_delta_chunked(qw_backend *backend, const qw_delta_args *args)
{
    qw_reference *self = qw_ref_self(backend);
    double *memory = qw_alloc(&self->allocator, chunk_doubles(&self->dims), sizeof *memory);
    if (memory == NULL)
        return QWEN36_ERROR_OUT_OF_MEMORY;
    chunk_task task = {.self = self, .args = args, .dk = self->dims.lin_k_dim, .dv = self->dims.lin_v_dim};
    place(&task, memory);
    for (int32_t s = 0; s < args->batch->segments; s++)
        for (task.head = 0; task.head < self->dims.lin_v_heads; task.head++)
            run_segment(&task, &args->batch->segment[s]);
    qw_free(&self->allocator, memory);
    return QWEN36_OK;
}
