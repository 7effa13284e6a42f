/* sample and logprob. docs/sampling.md defines each option. The modifications of a row (bitmask, bias,
 * penalties) are kernels of their own, issued only for rows that ask for them; then one block per row looks,
 * chooses, draws, and takes the log-probabilities of the row as it was. Results come back to the host, so
 * both ops wait at their end. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/select.h"

enum { GROUP = 32, TOP = QWEN36_LOGPROBS_MAX, MODIFY_THREADS = 256 };

/* ---- modification ----------------------------------------------------------------------------------- */

#define FLOAT_MAX qw_bits_float(0x7F7FFFFF)

/* Overflow upwards ends at the largest finite number, so that finite parts never make +infinity. */
static QW_DEVICE float capped(float x)
{
    return x < FLOAT_MAX ? x : FLOAT_MAX;
}

static QW_DEVICE int flat_thread()
{
    return static_cast<int>(blockIdx.x) * MODIFY_THREADS + qw_thread();
}

/* y = x, -infinity where the token's bit is 0; counters to zero. */
static QW_KERNEL mask_row(const float *x, float *y, int32_t *seen, const uint32_t *allowed, int32_t live)
{
    const int i = flat_thread();
    if (i >= live)
        return;
    y[i] = allowed == nullptr || (allowed[i / 32] >> (i % 32) & 1) != 0 ? x[i] : -QW_INFINITY;
    seen[i] = 0;
}

static QW_KERNEL bias_row(float *y, const int32_t *token, const float *bias, int32_t count, int32_t live)
{
    const int i = flat_thread();
    if (i < count && token[i] < live && y[token[i]] >= -FLOAT_MAX)
        y[token[i]] = capped(y[token[i]] + bias[i]);
}

static QW_KERNEL count_tokens(const int32_t *token, int32_t *seen, int32_t count, int32_t live)
{
    const int i = flat_thread();
    if (i < count && token[i] < live)
        qw_atomic_add(&seen[token[i]], 1);
}

/* Each token that occurs, once; the counters are zero again. A forbidden token stays so. */
static QW_KERNEL penalise_repetition(float *y, int32_t *seen, float penalty, int32_t live)
{
    const int i = flat_thread();
    if (i >= live || seen[i] == 0)
        return;
    if (y[i] >= -FLOAT_MAX)
        y[i] = capped(y[i] > 0 ? y[i] / penalty : y[i] * penalty);
    seen[i] = 0;
}

/* Each step in float32, and not fused. */
static QW_KERNEL penalise_output(float *y, int32_t *seen, float presence, float frequency, int32_t live)
{
    const int i = flat_thread();
    if (i >= live || seen[i] == 0)
        return;
    if (y[i] >= -FLOAT_MAX) {
        const float once = capped(y[i] - presence),
                    more = qw_product_rounded(frequency, static_cast<float>(seen[i]));
        y[i] = once >= -FLOAT_MAX ? capped(once - more) : once;
    }
    seen[i] = 0;
}

/* ---- choice ----------------------------------------------------------------------------------------- */

struct chosen_row {
    int32_t row, top_k, logprobs, modified;
    float temperature, top_p, min_p;
    double uniform;
};

struct chosen_rows {
    chosen_row row[GROUP];
};

struct row_result {
    int32_t status, token, top_count;
    float logprob;
    int32_t top_token[TOP];
    float top_logprob[TOP];
};

struct sample_job {
    const float *logits;
    int64_t stride;
    float *work; /* [GROUP][V] modified logits, then weights */
    int64_t work_stride;
    row_result *result; /* [GROUP] */
    int32_t live;
};

/* The lowest id with the largest value. */
static QW_DEVICE int greedy(const float *x, int count, float largest)
{
    QW_SHARED(int, lowest, QW_ROW_WARPS);
    int best = count;
    for (int i = qw_thread(); i < count; i += QW_ROW_THREADS)
        best = x[i] == largest && i < best ? i : best;
    for (int mask = QW_WARP / 2; mask > 0; mask /= 2) {
        const int other = qw_shuffle_xor(QW_ALL_LANES, best, mask);
        best = other < best ? other : best;
    }
    if (qw_lane() == 0)
        lowest[qw_warp()] = best;
    qw_block_sync();
    for (int w = 0; w < QW_ROW_WARPS; w++)
        best = lowest[w] < best ? static_cast<int>(lowest[w]) : best;
    return best;
}

/* The draw: weights of what top_k, top_p and min_p leave, zero for the others. x and weight may be the same
 * row. */
static QW_DEVICE int draw_row(const chosen_row &row, const float *x, float *weight, int live, float largest,
                              qw_shared<qw_mass> bins, qw_shared<qw_mass> amounts)
{
    auto weigh = [&](int i) { return expf((x[i] - largest) / row.temperature); };
    if (row.top_k > 0 && row.top_k < live) {
        const qw_cut cut = qw_select(bins, x, live, static_cast<qw_mass>(row.top_k), false);
        qw_apply_cut(amounts, x, live, cut, [&](int i, bool keep) { weight[i] = keep ? weigh(i) : 0.0F; });
    } else {
        for (int i = qw_thread(); i < live; i += QW_ROW_THREADS)
            weight[i] = weigh(i);
    }
    qw_block_sync();
    if (row.top_p < 1.0F) {
        const double total = static_cast<double>(qw_row_mass(weight, live));
        const qw_mass target = static_cast<qw_mass>(ceil(static_cast<double>(row.top_p) * total));
        const qw_cut cut = qw_select(bins, weight, live, target, true);
        qw_apply_cut(amounts, weight, live, cut,
                     [&](int i, bool keep) { weight[i] = keep ? weight[i] : 0.0F; });
        qw_block_sync();
    }
    if (row.min_p > 0.0F)
        for (int i = qw_thread(); i < live; i += QW_ROW_THREADS)
            weight[i] = weight[i] >= row.min_p ? weight[i] : 0.0F;
    qw_block_sync();
    return qw_draw(amounts, weight, live, row.uniform);
}

/* The n largest finite logits, descending, ties by ascending id: gathered in any order, then sorted by one
 * thread. */
static QW_DEVICE void write_top(const float *x, int live, int n, float largest, float log_sum,
                                row_result *out, qw_shared<qw_mass> bins, qw_shared<qw_mass> amounts)
{
    QW_SHARED(int, count, 1);
    QW_SHARED(int, ids, TOP);
    const qw_cut cut = qw_select(bins, x, live, static_cast<qw_mass>(n), false);
    if (qw_thread() == 0)
        count[0] = 0;
    qw_apply_cut(amounts, x, live, cut, [&](int i, bool keep) {
        if (keep && x[i] >= -FLOAT_MAX)
            ids[count.atomic_add(0, 1)] = i;
    });
    qw_block_sync();
    if (qw_thread() != 0)
        return;
    out->top_count = count[0];
    for (int i = 0; i < out->top_count; i++) {
        const int id = ids[i];
        int place = i;
        for (; place > 0; place--) {
            const int before = out->top_token[place - 1];
            if (x[before] > x[id] || (x[before] == x[id] && before < id))
                break;
            out->top_token[place] = before;
        }
        out->top_token[place] = id;
    }
    for (int i = 0; i < out->top_count; i++)
        out->top_logprob[i] = (x[out->top_token[i]] - largest) - log_sum;
}

/* A block per row. */
static QW_KERNEL choose_rows(sample_job j, chosen_rows rows)
{
    qw_shared_arena arena;
    const qw_shared<qw_mass> bins = arena.take<qw_mass>(QW_BINS), amounts = arena.take<qw_mass>(QW_ROW_WARPS);
    const chosen_row row = rows.row[blockIdx.x];
    const float *logits = j.logits + row.row * j.stride;
    float *work = j.work + blockIdx.x * j.work_stride;
    const float *x = row.modified != 0 ? work : logits;
    row_result *out = &j.result[blockIdx.x];
    bool bad, unused;
    const float largest = qw_row_max(logits, j.live, &bad);
    const float modified = row.modified != 0 ? qw_row_max(x, j.live, &unused) : largest;
    int32_t status = QWEN36_OK, token = -1;
    if (bad || largest < -FLOAT_MAX)
        status = QWEN36_ERROR_NON_FINITE;
    else if (modified < -FLOAT_MAX)
        status = QWEN36_ERROR_NO_CANDIDATE;
    else if (row.temperature == 0.0F || row.top_k == 1)
        token = greedy(x, j.live, modified);
    else
        token = draw_row(row, x, work, j.live, modified, bins, amounts);
    if (qw_thread() == 0) {
        out->status = status;
        out->token = token;
        out->top_count = 0;
        out->logprob = 0;
    }
    if (status != QWEN36_OK || row.logprobs < 0)
        return;
    const float log_sum = qw_row_log_sum(logits, j.live, largest);
    if (qw_thread() == 0)
        out->logprob = (logits[token] - largest) - log_sum;
    if (row.logprobs > 0)
        write_top(logits, j.live, row.logprobs, largest, log_sum, out, bins, amounts);
}

/* ---- log-probabilities of given tokens -------------------------------------------------------------- */

static QW_KERNEL logprob_rows(const float *logits, int64_t stride, int32_t width, const int32_t *row,
                              const int32_t *token, float *logprob, int32_t *status)
{
    const float *x = logits + row[blockIdx.x] * stride;
    bool bad;
    const float largest = qw_row_max(x, width, &bad);
    bad = bad || largest < -FLOAT_MAX;
    const float log_sum = bad ? 0.0F : qw_row_log_sum(x, width, largest);
    if (qw_thread() == 0) {
        status[blockIdx.x] = bad ? QWEN36_ERROR_NON_FINITE : QWEN36_OK;
        logprob[blockIdx.x] = bad ? 0.0F : (x[token[blockIdx.x]] - largest) - log_sum;
    }
}

uint64_t qw_cuda_logprob_scratch_bytes(const qw_backend_config *config)
{
    return 4 * (static_cast<uint64_t>(config->max_head_rows) * sizeof(int32_t) + QW_CUDA_ALIGNMENT);
}

qwen36_status qw_cuda_logprob(qw_backend *backend, const qw_logprob_args *args)
{
    qw_cuda *cuda = qw_cuda_of(backend);
    const int32_t count = args->count;
    if (count > cuda->config.max_head_rows)
        return QWEN36_ERROR_INTERNAL;
    if (count == 0)
        return QWEN36_OK;
    qw_cuda_scratch scratch = {cuda->scratch, 0};
    int32_t *row = scratch.take<int32_t>(count), *token = scratch.take<int32_t>(count);
    float *logprob = scratch.take<float>(count);
    int32_t *row_status = scratch.take<int32_t>(count);
    qwen36_status status = qw_cuda_put_ints(cuda, row, args->row, count);
    if (status == QWEN36_OK)
        status = qw_cuda_put_ints(cuda, token, args->token, count);
    if (status == QWEN36_OK)
        status = qw_launch(cuda->stream, logprob_rows, dim3(static_cast<unsigned>(count)), QW_ROW_THREADS, 0,
                           qw_data<const float>(args->logits), args->logits.stride[0],
                           static_cast<int32_t>(args->logits.shape[1]), row, token, logprob, row_status);
    const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(int32_t);
    if (status == QWEN36_OK)
        status = qw_runtime_download(cuda->stream, args->logprob, logprob, bytes);
    if (status == QWEN36_OK)
        status = qw_runtime_download(cuda->stream, args->status, row_status, bytes);
    return status != QWEN36_OK ? status : qw_runtime_wait(cuda->stream);
}

/* ---- the operation ---------------------------------------------------------------------------------- */

/* Scratch: the job's arrays, counters [V], and the host's lists of one row at a time. */
struct sample_memory {
    float *work;
    row_result *result;
    int32_t *seen;    /* [V] */
    int32_t *allowed; /* [V / 32] */
    int32_t *token;   /* [max (V, context)]: of the biases, then the timeline */
    float *bias;      /* [V] */
};

static uint64_t carve(unsigned char *base, const qw_backend_config *config, sample_memory *m)
{
    qw_cuda_scratch scratch = {base, 0};
    const int64_t vocab = config->dims->vocab_size, rows = QW_MIN(int32_t{GROUP}, config->max_head_rows);
    m->work = scratch.take<float>(rows * vocab);
    m->result = scratch.take<row_result>(rows);
    m->seen = scratch.take<int32_t>(vocab);
    m->allowed = scratch.take<int32_t>((vocab + 31) / 32);
    m->token = scratch.take<int32_t>(QW_MAX(vocab, int64_t{config->max_context} + 1));
    m->bias = scratch.take<float>(vocab);
    return scratch.used;
}

uint64_t qw_cuda_sample_scratch_bytes(const qw_backend_config *config)
{
    sample_memory unused;
    return carve(nullptr, config, &unused);
}

struct modification {
    const qw_cuda *cuda;
    const sample_memory *memory;
    float *y; /* the row's work */
    int32_t live;
    dim3 grid;
};

static qwen36_status issue_biases(const modification &m, const qw_sample_row *row)
{
    const uint64_t bytes = static_cast<uint64_t>(row->biases) * sizeof(int32_t);
    const qw_stream stream = m.cuda->stream;
    qwen36_status status = qw_runtime_upload(stream, m.memory->token, row->bias_token, bytes);
    if (status == QWEN36_OK)
        status = qw_runtime_upload(stream, m.memory->bias, row->bias, bytes);
    if (status != QWEN36_OK)
        return status;
    return qw_launch(stream, bias_row, dim3(qw_blocks(row->biases, MODIFY_THREADS)), MODIFY_THREADS, 0, m.y,
                     m.memory->token, m.memory->bias, row->biases, m.live);
}

/* The counters of the timeline from `begin` on. */
static qwen36_status issue_counts(const modification &m, const qw_sample_row *row, int64_t begin)
{
    const int64_t count = row->token_count - begin;
    const qwen36_status status = qw_runtime_upload(m.cuda->stream, m.memory->token, row->tokens + begin,
                                                   static_cast<uint64_t>(count) * sizeof(int32_t));
    if (status != QWEN36_OK)
        return status;
    return qw_launch(m.cuda->stream, count_tokens, dim3(qw_blocks(count, MODIFY_THREADS)), MODIFY_THREADS, 0,
                     m.memory->token, m.memory->seen, static_cast<int32_t>(count), m.live);
}

static qwen36_status issue_penalties(const modification &m, const qw_sample_row *row)
{
    const bool output = (row->presence != 0 || row->frequency != 0) && row->output_begin < row->token_count;
    qwen36_status status = QWEN36_OK;
    if (row->repetition != 1 && row->token_count > 0) {
        status = issue_counts(m, row, 0);
        if (status == QWEN36_OK)
            status = qw_launch(m.cuda->stream, penalise_repetition, m.grid, MODIFY_THREADS, 0, m.y,
                               m.memory->seen, row->repetition, m.live);
    }
    if (status != QWEN36_OK || !output)
        return status;
    status = issue_counts(m, row, row->output_begin);
    return status != QWEN36_OK ? status
                               : qw_launch(m.cuda->stream, penalise_output, m.grid, MODIFY_THREADS, 0, m.y,
                                           m.memory->seen, row->presence, row->frequency, m.live);
}

static bool is_modified(const qw_sample_row *row)
{
    return row->bitmask != nullptr || row->biases > 0 || (row->repetition != 1 && row->token_count > 0) ||
           ((row->presence != 0 || row->frequency != 0) && row->output_begin < row->token_count);
}

static qwen36_status modify(const modification &m, const qw_sample_row *row, const float *logits)
{
    const qw_stream stream = m.cuda->stream;
    const uint64_t words = (static_cast<uint64_t>(m.live) + 31) / 32;
    qwen36_status status = QWEN36_OK;
    if (row->token_count >
            QW_MAX(int64_t{m.cuda->config.max_context} + 1, int64_t{m.cuda->dims.vocab_size}) ||
        row->biases > m.cuda->dims.vocab_size)
        return QWEN36_ERROR_INTERNAL;
    if (row->bitmask != nullptr)
        status = qw_runtime_upload(stream, m.memory->allowed, row->bitmask, words * sizeof(uint32_t));
    const uint32_t *allowed =
        row->bitmask != nullptr ? reinterpret_cast<const uint32_t *>(m.memory->allowed) : nullptr;
    if (status == QWEN36_OK)
        status = qw_launch(stream, mask_row, m.grid, MODIFY_THREADS, 0, logits, m.y, m.memory->seen, allowed,
                           m.live);
    if (status == QWEN36_OK && row->biases > 0)
        status = issue_biases(m, row);
    return status != QWEN36_OK ? status : issue_penalties(m, row);
}

static void take_result(qw_sample_row *row, const row_result *r)
{
    row->status = r->status;
    row->token = r->token;
    row->logprob = r->logprob;
    row->top_count = r->top_count;
    for (int32_t i = 0; i < r->top_count; i++) {
        row->top_token[i] = r->top_token[i];
        row->top_logprob[i] = r->top_logprob[i];
    }
}

static qwen36_status sample_group(qw_cuda *cuda, const sample_memory &memory, const qw_sample_args *args,
                                  qw_sample_row *rows, int32_t count)
{
    const int64_t vocab = cuda->dims.vocab_size;
    const float *logits = qw_data<const float>(args->logits);
    const dim3 columns(qw_blocks(args->live, MODIFY_THREADS));
    chosen_rows chosen = {};
    row_result results[GROUP];
    qwen36_status status = QWEN36_OK;
    for (int32_t i = 0; i < count && status == QWEN36_OK; i++) {
        const qw_sample_row *r = &rows[i];
        chosen.row[i] = {r->row,         QW_MAX(r->top_k, 0), QW_MIN(r->logprobs, int32_t{TOP}),
                         is_modified(r), r->temperature,      r->top_p,
                         r->min_p,       r->uniform};
        const modification m = {cuda, &memory, memory.work + i * vocab, args->live, columns};
        if (chosen.row[i].modified)
            status = modify(m, r, logits + r->row * args->logits.stride[0]);
    }
    const sample_job j = {logits, args->logits.stride[0], memory.work, vocab, memory.result, args->live};
    if (status == QWEN36_OK)
        status = qw_launch(cuda->stream, choose_rows, dim3(static_cast<unsigned>(count)), QW_ROW_THREADS,
                           (QW_BINS + QW_ROW_WARPS) * sizeof(qw_mass), j, chosen);
    if (status == QWEN36_OK)
        status = qw_runtime_download(cuda->stream, results, memory.result,
                                     static_cast<uint64_t>(count) * sizeof *results);
    if (status == QWEN36_OK)
        status = qw_runtime_wait(cuda->stream);
    for (int32_t i = 0; i < count && status == QWEN36_OK; i++)
        take_result(&rows[i], &results[i]);
    return status;
}

qwen36_status qw_cuda_sample(qw_backend *backend, qw_sample_args *args)
{
    qw_cuda *cuda = qw_cuda_of(backend);
    sample_memory memory;
    if (args->count > cuda->config.max_head_rows ||
        carve(cuda->scratch, &cuda->config, &memory) > cuda->scratch_bytes)
        return QWEN36_ERROR_INTERNAL;
    qwen36_status status = QWEN36_OK;
    for (int32_t begin = 0; begin < args->count && status == QWEN36_OK; begin += GROUP)
        status =
            sample_group(cuda, memory, args, args->row + begin, QW_MIN(int32_t{GROUP}, args->count - begin));
    return status;
}
