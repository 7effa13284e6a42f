/* logprob: the log-probability of one given token per row. */
#include "kernels/cpu/cpu.h"

#include <float.h>

static uint64_t peaks_bytes(const qw_backend_config *config)
{
    const uint64_t blocks = ((uint64_t)config->dims->vocab_size + QW_ROW_BLOCK - 1) / QW_ROW_BLOCK;
    return qw_scratch_round(blocks * sizeof(float));
}

uint64_t qw_cpu_logprob_scratch_bytes(const qw_backend_config *config)
{
    return (uint64_t)config->threads * peaks_bytes(config);
}

typedef struct logprob_task {
    const qw_cpu *cpu;
    const qw_logprob_args *args;
} logprob_task;

static void run_row(void *argument, int64_t item, int32_t worker)
{
    const logprob_task *task = argument;
    const qw_logprob_args *args = task->args;
    const qw_cpu *cpu = task->cpu;
    const float *logits = qw_view_row(&args->logits, args->row[item]);
    const int64_t width = args->logits.shape[1];
    float *peaks = (float *)((char *)cpu->scratch + (uint64_t)worker * peaks_bytes(&cpu->config));
    float largest;
    args->logprob[item] = 0;
    args->status[item] = QWEN36_ERROR_NON_FINITE;
    if (!cpu->kernels->row_peaks(logits, width, peaks, &largest) || largest < -FLT_MAX)
        return;
    args->status[item] = QWEN36_OK;
    args->logprob[item] =
        (logits[args->token[item]] - largest) - cpu->kernels->row_log_sum(logits, width, largest);
}

qwen36_status qw_cpu_logprob(qw_backend *backend, const qw_logprob_args *args)
{
    qw_cpu *cpu = qw_cpu_of(backend);
    logprob_task task = {cpu, args};
    qw_pool_run(cpu->pool, run_row, &task, args->count);
    return QWEN36_OK;
}
