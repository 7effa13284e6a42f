/* Exported functions of section 7 that save and restore sessions. */
#include "lib/session/snapshot.h"
#include "lib/api/api.h"

qwen36_status qwen36_session_save(const qwen36_session *session, const char *path, qwen36_error *error)
{
    qwen36_status status = qw_enter_session(session, error);
    if (status != QWEN36_OK)
        return status;
    if (path == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the path is NULL");
    if (qw_model_has_turn(session->model))
        return qw_fail(error, QWEN36_ERROR_BUSY, "called from a callback of a call on the same model");
    return qw_session_save_file(session, path, error);
}

qwen36_status qwen36_session_save_memory(const qwen36_session *session, void *memory, size_t capacity,
                                         size_t *size, qwen36_error *error)
{
    uint64_t bytes = 0;
    qwen36_status status = qw_enter_session(session, error);
    if (status != QWEN36_OK)
        return status;
    if (size == NULL || (memory == NULL && capacity > 0))
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the memory or the place for its size is NULL");
    if (qw_model_has_turn(session->model))
        return qw_fail(error, QWEN36_ERROR_BUSY, "called from a callback of a call on the same model");
    status = qw_session_save_memory(session, memory, capacity, &bytes, error);
    *size = (size_t)bytes;
    return status;
}

void qwen36_restore_options_init(qwen36_restore_options *options, size_t size)
{
    qwen36_restore_options defaults = {.struct_size = sizeof defaults};
    qw_defaults_write(options, size, &defaults, sizeof defaults);
}

static qwen36_status adopt(const qwen36_model *model, const qwen36_restore_options *given,
                           qwen36_restore_options *ours, qwen36_session_options *session, qwen36_error *error)
{
    *ours = (qwen36_restore_options){.struct_size = sizeof *ours};
    qwen36_status status = QWEN36_OK;
    if (given != NULL)
        status = qw_options_adopt(ours, sizeof *ours, given, QW_SIZE_THROUGH(qwen36_restore_options, session),
                                  error);
    if (status == QWEN36_OK && (ours->any_numerics < 0 || ours->any_numerics > 1))
        status =
            qw_fail(error, QWEN36_ERROR_ARGUMENT, "any_numerics is %d, outside 0..1", ours->any_numerics);
    return status == QWEN36_OK ? qw_session_options_adopt(model, ours->session, session, error) : status;
}

static qwen36_status restore(qwen36_model *model, const qw_snapshot_source *source,
                             const qwen36_restore_options *options, qwen36_session **session,
                             qwen36_error *error)
{
    if (qw_model_has_turn(model))
        return qw_fail(error, QWEN36_ERROR_BUSY, "called from a callback of a call on the same model");
    qwen36_restore_options ours;
    qwen36_session_options session_options;
    qwen36_sampling sampling = qw_sampling_defaults(model);
    qwen36_status status = adopt(model, options, &ours, &session_options, error);
    if (status == QWEN36_OK)
        status = qw_session_restore(model, source, &session_options, &sampling, ours.any_numerics != 0,
                                    session, error);
    if (status == QWEN36_OK)
        qwen36_model_retain(model);
    return status;
}

qwen36_status qwen36_session_restore(qwen36_model *model, const char *path,
                                     const qwen36_restore_options *options, qwen36_session **session,
                                     qwen36_error *error)
{
    qwen36_status status = qw_enter_model(model, error);
    if (session != NULL)
        *session = NULL;
    if (status != QWEN36_OK)
        return status;
    if (session == NULL || path == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the path or the place for the session is NULL");
    qw_snapshot_source source = {.path = path};
    return restore(model, &source, options, session, error);
}

qwen36_status qwen36_session_restore_memory(qwen36_model *model, const void *memory, size_t size,
                                            const qwen36_restore_options *options, qwen36_session **session,
                                            qwen36_error *error)
{
    qwen36_status status = qw_enter_model(model, error);
    if (session != NULL)
        *session = NULL;
    if (status != QWEN36_OK)
        return status;
    if (session == NULL || memory == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the memory or the place for the session is NULL");
    qw_snapshot_source source = {.memory = memory, .bytes = size};
    return restore(model, &source, options, session, error);
}
