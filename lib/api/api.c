#include "lib/api/api.h"

#include "lib/os/process.h"

#include <string.h>

enum { STRUCT_SIZE_MAX = 1 << 16 };

static uint32_t struct_size(const void *options)
{
    uint32_t size = 0;
    memcpy(&size, options, sizeof size);
    return size;
}

static bool is_zero(const char *bytes, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

qwen36_status qw_options_adopt(void *ours, size_t known, const void *given, size_t minimum,
                               qwen36_error *error)
{
    size_t size = struct_size(given);
    if (size < minimum || size > STRUCT_SIZE_MAX)
        return qw_fail(error, QWEN36_ERROR_STRUCT_SIZE,
                       "struct_size is %zu, but this library knows %zu to %zu", size, minimum, known);
    if (!is_zero(given, known, size))
        return qw_fail(error, QWEN36_ERROR_STRUCT_SIZE,
                       "struct_size is %zu, and fields beyond the %zu bytes that this library knows are set",
                       size, known);
    memset(ours, 0, known);
    memcpy(ours, given, QW_MIN(size, known));
    return QWEN36_OK;
}

void qw_defaults_write(void *options, size_t size, const void *defaults, size_t known)
{
    if (options == NULL || size < sizeof(uint32_t) || size > STRUCT_SIZE_MAX)
        return;
    memset(options, 0, size);
    memcpy(options, defaults, QW_MIN(size, known));
    uint32_t stored = (uint32_t)size;
    memcpy(options, &stored, sizeof stored);
}

qwen36_status qw_output_check(const void *output, size_t known, qwen36_error *error)
{
    size_t size = struct_size(output);
    if (size < sizeof(uint32_t) || size > STRUCT_SIZE_MAX)
        return qw_fail(error, QWEN36_ERROR_STRUCT_SIZE, "struct_size is %zu, expected %zu", size, known);
    return QWEN36_OK;
}

qwen36_status qw_output_write(void *output, const void *values, size_t known, qwen36_error *error)
{
    qwen36_status status = qw_output_check(output, known, error);
    if (status == QWEN36_OK)
        qw_defaults_write(output, struct_size(output), values, known);
    return status;
}

/* ---- the door ------------------------------------------------------------------------------------------ */

static qwen36_status check_process(int64_t process, qwen36_error *error)
{
    if (process != qw_process_id())
        return qw_fail(error, QWEN36_ERROR_FORKED, "the object belongs to the parent process of this one");
    return QWEN36_OK;
}

static qwen36_status check_device(const qwen36_model *model, qwen36_error *error)
{
    if (atomic_load_explicit(&model->device_lost, memory_order_relaxed) != 0)
        return qw_fail(error, QWEN36_ERROR_DEVICE_LOST,
                       "the device of this model is lost: its sessions and the model can only be given back");
    return QWEN36_OK;
}

static qwen36_status busy(qwen36_error *error)
{
    return qw_fail(error, QWEN36_ERROR_BUSY, "called from a callback of a call on the same model");
}

qwen36_status qw_enter_model(const qwen36_model *model, qwen36_error *error)
{
    qw_error_clear(error);
    if (model == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the model is NULL");
    qwen36_status status = check_process(model->process, error);
    return status == QWEN36_OK ? check_device(model, error) : status;
}

/* Without clearing: for sessions in an array. */
static qwen36_status check_session(const qwen36_session *session, qwen36_error *error)
{
    if (session == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the session is NULL");
    qwen36_status status = check_process(session->process, error);
    if (status == QWEN36_OK && (session->in_call || qw_model_has_turn(session->model)))
        status = busy(error);
    return status == QWEN36_OK ? check_device(session->model, error) : status;
}

qwen36_status qw_enter_session(const qwen36_session *session, qwen36_error *error)
{
    qw_error_clear(error);
    return check_session(session, error);
}

void qw_leave_sessions(qwen36_session *const *sessions, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sessions[i]->in_call = false;
}

/* A session that stands in the array a second time is busy with this very call. */
static bool is_twice(qwen36_session *const *sessions, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (sessions[i] == sessions[index])
            return true;
    return false;
}

qwen36_status qw_enter_sessions(qwen36_session *const *sessions, size_t count, qwen36_error *error)
{
    qw_error_clear(error);
    if (sessions == NULL || count == 0)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "no sessions were given");
    size_t entered = 0;
    qwen36_status status = QWEN36_OK;
    for (; entered < count; entered++) {
        status = check_session(sessions[entered], error);
        if (status == QWEN36_OK && sessions[entered]->model != sessions[0]->model)
            status = qw_fail(error, QWEN36_ERROR_ARGUMENT, "session %zu belongs to another model", entered);
        if (status != QWEN36_OK)
            break;
        sessions[entered]->in_call = true;
    }
    if (status == QWEN36_OK)
        return status;
    qw_leave_sessions(sessions, entered);
    if (status != QWEN36_ERROR_BUSY || !is_twice(sessions, entered))
        return status;
    qw_error_clear(error);
    return qw_fail(error, QWEN36_ERROR_ARGUMENT, "session %zu stands in the array twice", entered);
}
