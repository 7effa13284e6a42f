/* sample: logits to tokens, one row per task. A row goes through
 *     look (peaks, non-finite values) -> modify (bitmask, bias, penalties) -> choose (top_k, weights, top_p,
 *     min_p, draw) -> log-probabilities of the row as it was,
 * in the scratch of its slot. docs/sampling.md defines each option. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/select.h"

#include <float.h>
#include <string.h>

/* ---- scratch -------------------------------------------------------------------------------------- */

typedef struct slot {
    float *value;          /* [V] the modified logits, then the weights of what is left */
    int32_t *id;           /* [V] occurrences of a token, then the ids of what is left */
    float *peaks;          /* [blocks] of the logits */
    float *modified_peaks; /* [blocks] */
    double *mass;          /* [blocks] */
    double *bins;          /* [QW_SELECT_BINS] */
} slot;

/* Rows in flight: each worker has one, or each row if there are fewer rows than workers. */
static int64_t slot_count(const qw_backend_config *config)
{
    return QW_MAX(1, QW_MIN(config->threads, config->max_head_rows));
}

static uint64_t block_count(const qw_backend_config *config)
{
    return ((uint64_t)config->dims->vocab_size + QW_ROW_BLOCK - 1) / QW_ROW_BLOCK;
}

static uint64_t slot_bytes(const qw_backend_config *config)
{
    const uint64_t vocab = (uint64_t)config->dims->vocab_size, blocks = block_count(config);
    return qw_scratch_round(vocab * sizeof(float)) + qw_scratch_round(vocab * sizeof(int32_t)) +
           2 * qw_scratch_round(blocks * sizeof(float)) + qw_scratch_round(blocks * sizeof(double)) +
           qw_scratch_round(QW_SELECT_BINS * sizeof(double));
}

uint64_t qw_cpu_sample_scratch_bytes(const qw_backend_config *config)
{
    return (uint64_t)slot_count(config) * slot_bytes(config);
}

static slot slot_at(const qw_cpu *cpu, int64_t index)
{
    const uint64_t vocab = (uint64_t)cpu->config.dims->vocab_size, blocks = block_count(&cpu->config);
    qw_scratch scratch = qw_scratch_begin(cpu);
    scratch.next += (uint64_t)index * slot_bytes(&cpu->config);
    slot s;
    s.value = qw_scratch_take(&scratch, vocab * sizeof(float));
    s.id = qw_scratch_take(&scratch, vocab * sizeof(int32_t));
    s.peaks = qw_scratch_take(&scratch, blocks * sizeof(float));
    s.modified_peaks = qw_scratch_take(&scratch, blocks * sizeof(float));
    s.mass = qw_scratch_take(&scratch, blocks * sizeof(double));
    s.bins = qw_scratch_take(&scratch, QW_SELECT_BINS * sizeof(double));
    return s;
}

/* ---- modification ---------------------------------------------------------------------------------- */

/* Overflow upwards ends at the largest finite number, so that finite parts never make +infinity. */
static float capped(float x)
{
    return x < FLT_MAX ? x : FLT_MAX;
}

static bool forbidden(float logit)
{
    return logit < -FLT_MAX;
}

static void add_biases(const qw_sample_row *row, int64_t live, float *x)
{
    for (int32_t i = 0; i < row->biases; i++) {
        const int32_t token = row->bias_token[i];
        if (token < live && !forbidden(x[token]))
            x[token] = capped(x[token] + row->bias[i]);
    }
}

static float with_repetition(const qw_sample_row *row, float logit)
{
    return capped(logit > 0 ? logit / row->repetition : logit * row->repetition);
}

/* logit - presence - frequency * occurrences, each step in float32 */
static float with_occurrences(const qw_sample_row *row, float logit, int32_t occurrences)
{
    logit = capped(logit - row->presence);
    return forbidden(logit) ? logit : capped(logit - row->frequency * (float)occurrences);
}

/* Counts the tokens from `begin` on, then visits each of them once; `seen` is zero before and after. */
static void penalise(const qw_sample_row *row, int64_t begin, bool output, int64_t live, float *x,
                     int32_t *seen)
{
    for (int64_t i = begin; i < row->token_count; i++)
        seen[row->tokens[i]]++;
    for (int64_t i = begin; i < row->token_count; i++) {
        const int32_t token = row->tokens[i];
        if (seen[token] > 0 && token < live && !forbidden(x[token]))
            x[token] = output ? with_occurrences(row, x[token], seen[token]) : with_repetition(row, x[token]);
        seen[token] = 0;
    }
}

/* Whether the row's logits differ from the model's; then s->value holds them. */
static bool modify(const qw_cpu_kernels *kernels, const qw_sample_row *row, const float *logits, int64_t live,
                   int64_t vocab, slot *s)
{
    const bool repetition = row->repetition != 1.0F && row->token_count > 0;
    const bool output =
        (row->presence != 0.0F || row->frequency != 0.0F) && row->output_begin < row->token_count;
    if (row->bitmask == NULL && row->biases == 0 && !repetition && !output)
        return false;
    if (row->bitmask != NULL)
        kernels->row_mask(logits, row->bitmask, live, s->value);
    else
        memcpy(s->value, logits, (size_t)live * sizeof *logits);
    add_biases(row, live, s->value);
    if (repetition || output)
        memset(s->id, 0, (size_t)vocab * sizeof *s->id);
    if (repetition)
        penalise(row, 0, false, live, s->value, s->id);
    if (output)
        penalise(row, row->output_begin, true, live, s->value, s->id);
    return true;
}

/* ---- choice ---------------------------------------------------------------------------------------- */

/* The lowest id with the largest logit. */
static int32_t greedy(const float *x, int64_t live, const float *peaks, float largest)
{
    int64_t i = 0;
    while (peaks[i / QW_ROW_BLOCK] != largest)
        i += QW_ROW_BLOCK;
    while (i < live - 1 && x[i] != largest)
        i++;
    return (int32_t)i;
}

/* The tokens and weights exp((x - largest) / temperature) that top_k leaves; *total is their sum. Without
 * top_k, tokens that neither min_p nor top_p can keep are left out of the list, but not of the sum: those
 * below (1 - top_p) * total / live are, taken together, less than the share that top_p drops. */
static qw_picks weigh(const qw_cpu_kernels *kernels, const qw_sample_row *row, const float *x, int64_t live,
                      const float *peaks, float largest, slot *s, double *total)
{
    qw_picks picks = {s->value, s->id, live};
    const bool top_k = row->top_k > 0 && row->top_k < live;
    if (top_k) {
        qw_picks_largest(x, live, peaks, row->top_k, s->bins, &picks);
        x = s->value;
    }
    kernels->row_weights(x, picks.count, largest, row->temperature, s->value, s->modified_peaks);
    *total = qw_masses(s->value, picks.count, s->mass);
    if (top_k)
        return picks;
    const double share = (1.0 - (double)row->top_p) * 0.999999;
    const float floor = QW_MAX(row->min_p, (float)(share * *total / (double)live));
    if (floor > 0)
        qw_picks_gather(s->value, live, s->modified_peaks, floor, &picks);
    else
        picks.id = NULL;
    return picks;
}

static int32_t draw(const qw_cpu_kernels *kernels, const qw_sample_row *row, const float *x, int64_t live,
                    const float *peaks, float largest, slot *s)
{
    double total;
    qw_picks picks = weigh(kernels, row, x, live, peaks, largest, s, &total);
    if (row->top_p < 1.0F)
        qw_picks_keep(&picks, qw_select(picks.value, picks.count, (double)row->top_p * total, true, s->bins));
    if (row->min_p > 0.0F)
        qw_picks_keep(&picks, (qw_cut){qw_float_image(row->min_p), picks.count});
    total = qw_masses(picks.value, picks.count, s->mass);
    const int64_t index = qw_draw_index(picks.value, picks.count, s->mass, row->uniform, total);
    return picks.id != NULL ? picks.id[index] : (int32_t)index;
}

/* ---- log-probabilities ------------------------------------------------------------------------------ */

/* Descending, ties by ascending id: insertion into the list so far. */
static void write_largest(qw_sample_row *row, const qw_picks *picks, const float *logits, float largest,
                          float log_sum)
{
    int32_t *token = row->top_token;
    row->top_count = (int32_t)picks->count;
    for (int32_t i = 0; i < row->top_count; i++) {
        int32_t place = i;
        for (; place > 0 && logits[token[place - 1]] < picks->value[i]; place--)
            token[place] = token[place - 1];
        token[place] = picks->id[i];
    }
    for (int32_t i = 0; i < row->top_count; i++)
        row->top_logprob[i] = (logits[token[i]] - largest) - log_sum;
}

static void write_logprobs(const qw_cpu_kernels *kernels, qw_sample_row *row, const float *logits,
                           int64_t live, float largest, slot *s)
{
    const float log_sum = kernels->row_log_sum(logits, live, largest);
    row->logprob = (logits[row->token] - largest) - log_sum;
    if (row->logprobs == 0)
        return;
    qw_picks picks = {s->value, s->id, 0};
    qw_picks_largest(logits, live, s->peaks, row->logprobs, s->bins, &picks);
    write_largest(row, &picks, logits, largest, log_sum);
}

/* ---- the operation ---------------------------------------------------------------------------------- */

static void sample_row(const qw_cpu *cpu, qw_sample_row *row, const float *logits, int64_t live, slot *s)
{
    const qw_cpu_kernels *kernels = cpu->kernels;
    const float *x = logits, *peaks = s->peaks;
    float largest, modified;
    row->token = -1;
    row->logprob = 0;
    row->top_count = 0;
    row->status = QWEN36_ERROR_NON_FINITE;
    if (!kernels->row_peaks(logits, live, s->peaks, &largest) || forbidden(largest))
        return;
    modified = largest;
    if (modify(kernels, row, logits, live, cpu->config.dims->vocab_size, s)) {
        x = s->value;
        peaks = s->modified_peaks;
        kernels->row_peaks(x, live, s->modified_peaks, &modified);
    }
    row->status = QWEN36_ERROR_NO_CANDIDATE;
    if (forbidden(modified))
        return;
    if (row->temperature == 0.0F || row->top_k == 1)
        row->token = greedy(x, live, peaks, modified);
    else
        row->token = draw(kernels, row, x, live, peaks, modified, s);
    row->status = QWEN36_OK;
    if (row->logprobs >= 0)
        write_logprobs(kernels, row, logits, live, largest, s);
}

typedef struct sample_task {
    const qw_cpu *cpu;
    qw_sample_args *args;
} sample_task;

static void run_row(void *argument, int64_t item, int32_t worker)
{
    const sample_task *task = argument;
    qw_sample_row *row = &task->args->row[item];
    const bool slot_per_worker = slot_count(&task->cpu->config) == task->cpu->config.threads;
    slot s = slot_at(task->cpu, slot_per_worker ? worker : item);
    sample_row(task->cpu, row, qw_view_row(&task->args->logits, row->row), task->args->live, &s);
}

qwen36_status qw_cpu_sample(qw_backend *backend, qw_sample_args *args)
{
    qw_cpu *cpu = qw_cpu_of(backend);
    if (args->count > cpu->config.max_head_rows)
        return QWEN36_ERROR_INTERNAL;
    sample_task task = {cpu, args};
    qw_pool_run(cpu->pool, run_row, &task, args->count);
    return QWEN36_OK;
}
