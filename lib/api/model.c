/* Exported functions of section 4: the model. */
#include "lib/api/api.h"

#include "lib/os/process.h"
#include "lib/os/threads.h"
#include "lib/session/disk.h"

#include <string.h>

static qwen36_model_options model_defaults(void)
{
    return (qwen36_model_options){.struct_size = sizeof(qwen36_model_options),
                                  .numerics = QWEN36_NUMERICS_FAST,
                                  .kv_dtype = QWEN36_KV_AUTO,
                                  .weights_access = QWEN36_WEIGHTS_MAP,
                                  .cpu_tier = QWEN36_CPU_AUTO,
                                  .threads = QW_MIN(qw_processor_count(), 1024),
                                  .max_sessions = 4,
                                  .context_length = 4096,
                                  .max_batch_tokens = 512,
                                  .prefix_reuse = 1,
                                  .snapshot_bytes = QWEN36_BYTES_AUTO,
                                  .prefix_directory_bytes = (uint64_t)4 << 30};
}

void qwen36_model_options_init(qwen36_model_options *options, size_t size)
{
    qwen36_model_options defaults = model_defaults();
    qw_defaults_write(options, size, &defaults, sizeof defaults);
}

static qwen36_status check_range(const char *name, int32_t value, int32_t lowest, int32_t highest,
                                 qwen36_error *error)
{
    if (value < lowest || value > highest)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "%s is %d, outside %d..%d", name, value, lowest,
                       highest);
    return QWEN36_OK;
}

static qwen36_status check_model_options(const qwen36_model_options *o, qwen36_error *error)
{
    const struct {
        const char *name;
        int32_t value, lowest, highest;
    } ranges[] = {
        {"numerics", o->numerics, QWEN36_NUMERICS_REFERENCE, QWEN36_NUMERICS_FAST},
        {"kv_dtype", o->kv_dtype, QWEN36_KV_AUTO, QWEN36_KV_I8},
        {"weights_access", o->weights_access, QWEN36_WEIGHTS_MAP, QWEN36_WEIGHTS_READ},
        {"cpu_tier", o->cpu_tier, QWEN36_CPU_AUTO, QWEN36_CPU_AVX512},
        {"threads", o->threads, 1, 1024},
        {"max_sessions", o->max_sessions, 1, 65536},
        {"context_length", o->context_length, 1, INT32_MAX / 2},
        {"max_batch_tokens", o->max_batch_tokens, 1, 65536},
        {"prefix_reuse", o->prefix_reuse, 0, 1},
        {"device", o->device, 0, 1023},
        {"device_tier", o->device_tier, QWEN36_DEVICE_TIER_AUTO, QWEN36_DEVICE_TIER_GENERAL},
        {"batch_invariant", o->batch_invariant, 0, 1},
    };
    for (size_t i = 0; i < QW_COUNT_OF(ranges); i++) {
        qwen36_status status =
            check_range(ranges[i].name, ranges[i].value, ranges[i].lowest, ranges[i].highest, error);
        if (status != QWEN36_OK)
            return status;
    }
    if (!(o->memory_share >= 0 && o->memory_share <= 1))
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "memory_share is outside 0..1");
    if (o->memory_share > 0 && o->cache_bytes > 0)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "cache_bytes and memory_share exclude each other");
    return QWEN36_OK;
}

qwen36_status qw_model_options_adopt(qwen36_model_options *ours, const qwen36_model_options *given,
                                     qwen36_error *error)
{
    *ours = model_defaults();
    if (given == NULL)
        return QWEN36_OK;
    qwen36_status status = qw_options_adopt(ours, sizeof *ours, given,
                                            QW_SIZE_THROUGH(qwen36_model_options, batch_invariant), error);
    return status == QWEN36_OK ? check_model_options(ours, error) : status;
}

qwen36_status qwen36_model_load(const char *directory, const qwen36_model_options *options,
                                qwen36_model **model, qwen36_error *error)
{
    qw_error_clear(error);
    if (model == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the model is NULL");
    *model = NULL;
    if (directory == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the directory is NULL");
    qwen36_model_options ours;
    qwen36_status status = qw_model_options_adopt(&ours, options, error);
    if (status != QWEN36_OK)
        return status;
    return qw_model_open(directory, &ours, qw_backend_open, model, error);
}

qwen36_model *qwen36_model_retain(qwen36_model *model)
{
    if (model != NULL)
        atomic_fetch_add_explicit(&model->references, 1, memory_order_relaxed);
    return model;
}

/* In a child process the worker threads do not exist and locks may be held for ever: the copy of the
 * model is left alone. */
void qwen36_model_release(qwen36_model *model)
{
    if (model == NULL || model->process != qw_process_id())
        return;
    if (atomic_fetch_sub_explicit(&model->references, 1, memory_order_acq_rel) == 1)
        qw_model_close(model);
}

qwen36_status qwen36_model_flush_prefixes(qwen36_model *model, qwen36_error *error)
{
    qwen36_status status = qw_enter_model(model, error);
    if (status != QWEN36_OK)
        return status;
    if (qw_model_has_turn(model))
        return qw_fail(error, QWEN36_ERROR_BUSY, "called from a callback of a call on the same model");
    return qw_disk_flush(model, error);
}

qwen36_status qwen36_memory_estimate_read(const char *directory, const qwen36_model_options *options,
                                          qwen36_memory_estimate *estimate, qwen36_error *error)
{
    qw_error_clear(error);
    if (directory == NULL || estimate == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the directory or the place for the estimate is NULL");
    qwen36_model_options ours;
    qwen36_memory_estimate values = {.struct_size = sizeof values};
    qwen36_status status = qw_model_options_adopt(&ours, options, error);
    if (status == QWEN36_OK)
        status = qw_model_estimate(directory, &ours, &values, error);
    return status == QWEN36_OK ? qw_output_write(estimate, &values, sizeof values, error) : status;
}

qwen36_status qwen36_model_get_info(const qwen36_model *model, qwen36_model_info *info, qwen36_error *error)
{
    qwen36_status status = qw_enter_model(model, error);
    if (status != QWEN36_OK)
        return status;
    if (info == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the info is NULL");
    qwen36_model_info values = {.struct_size = sizeof values};
    qw_model_describe(model, &values);
    return qw_output_write(info, &values, sizeof values, error);
}

qwen36_status qwen36_model_end_tokens(const qwen36_model *model, int32_t *ids, size_t capacity, size_t *count,
                                      qwen36_error *error)
{
    qwen36_status status = qw_enter_model(model, error);
    if (status != QWEN36_OK)
        return status;
    if (count == NULL || (ids == NULL && capacity > 0))
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the ids or their count is NULL");
    *count = (size_t)model->generation.end_count;
    if (*count > capacity)
        return qw_fail(error, QWEN36_ERROR_BUFFER_TOO_SMALL, "%zu ids do not fit into %zu", *count, capacity);
    if (*count > 0)
        memcpy(ids, model->generation.end_tokens, *count * sizeof *ids);
    return QWEN36_OK;
}

const qwen36_tokenizer *qwen36_model_tokenizer(const qwen36_model *model)
{
    return model == NULL ? NULL : model->tokenizer;
}
