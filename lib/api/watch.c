/* Exported functions of section 12: watching. */
#include "lib/api/api.h"

static qwen36_status check_place(const qwen36_stats *stats, qwen36_error *error)
{
    if (stats == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the statistics is NULL");
    return qw_output_check(stats, sizeof *stats, error);
}

qwen36_status qwen36_model_get_stats(qwen36_model *model, qwen36_stats *stats, qwen36_error *error)
{
    qwen36_status status = qw_enter_model(model, error);
    if (status == QWEN36_OK)
        status = check_place(stats, error);
    if (status != QWEN36_OK)
        return status;
    qwen36_stats values = {.struct_size = sizeof values};
    qw_model_watch(model, &values);
    return qw_output_write(stats, &values, sizeof values, error);
}

qwen36_status qwen36_session_get_stats(const qwen36_session *session, qwen36_stats *stats,
                                       qwen36_error *error)
{
    qwen36_status status = qw_enter_session(session, error);
    if (status == QWEN36_OK)
        status = check_place(stats, error);
    if (status != QWEN36_OK)
        return status;
    qwen36_stats values = {.struct_size = sizeof values};
    qw_session_watch(session, &values);
    return qw_output_write(stats, &values, sizeof values, error);
}

qwen36_status qwen36_model_clear_cache(qwen36_model *model, qwen36_error *error)
{
    qwen36_status status = qw_enter_model(model, error);
    if (status != QWEN36_OK)
        return status;
    qw_mutex_lock(&model->lock);
    qw_prefix_clear(&model->cache.prefix);
    qw_mutex_unlock(&model->lock);
    return QWEN36_OK;
}
