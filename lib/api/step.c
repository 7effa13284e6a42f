/* Exported functions of section 8: step and sample. */
#include "lib/api/api.h"

qwen36_status qwen36_step_options_init(const qwen36_model *model, qwen36_step_options *options, size_t size)
{
    qwen36_status status = qw_enter_model(model, NULL);
    if (status != QWEN36_OK || options == NULL)
        return status != QWEN36_OK ? status : QWEN36_ERROR_ARGUMENT;
    qwen36_step_options defaults = {sizeof defaults, model->max_rows};
    qw_defaults_write(options, size, &defaults, sizeof defaults);
    return QWEN36_OK;
}

static qwen36_status adopt_budget(const qwen36_model *model, const qwen36_step_options *given,
                                  int32_t *budget, qwen36_error *error)
{
    qwen36_step_options ours = {sizeof ours, model->max_rows};
    qwen36_status status = given == NULL
                               ? QWEN36_OK
                               : qw_options_adopt(&ours, sizeof ours, given,
                                                  QW_SIZE_THROUGH(qwen36_step_options, max_tokens), error);
    if (status == QWEN36_OK && (ours.max_tokens < 1 || ours.max_tokens > model->max_rows))
        status = qw_fail(error, QWEN36_ERROR_ARGUMENT, "max_tokens is %d, outside 1..%d", ours.max_tokens,
                         model->max_rows);
    *budget = ours.max_tokens;
    return status;
}

static void copy_statuses(qwen36_session *const *sessions, size_t count, qwen36_status *statuses)
{
    for (size_t i = 0; i < count && statuses != NULL; i++)
        statuses[i] = sessions[i]->step.status;
}

qwen36_status qwen36_step(qwen36_session *const *sessions, size_t count, const qwen36_step_options *options,
                          qwen36_status *statuses, qwen36_error *error)
{
    qwen36_status status = qw_enter_sessions(sessions, count, error);
    if (status != QWEN36_OK)
        return status;
    int32_t budget = 0;
    status = adopt_budget(sessions[0]->model, options, &budget, error);
    if (status == QWEN36_OK) {
        status = qw_step(sessions, count, budget, error);
        copy_statuses(sessions, count, statuses);
    }
    qw_leave_sessions(sessions, count);
    return status;
}

qwen36_status qwen36_sample(qwen36_session *const *sessions, size_t count, int32_t *tokens,
                            qwen36_status *statuses, qwen36_error *error)
{
    qwen36_status status = qw_enter_sessions(sessions, count, error);
    if (status != QWEN36_OK)
        return status;
    if (tokens == NULL) {
        status = qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the tokens is NULL");
    } else {
        status = qw_sample(sessions, count, tokens, error);
        copy_statuses(sessions, count, statuses);
    }
    qw_leave_sessions(sessions, count);
    return status;
}
