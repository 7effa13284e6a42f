/* A configuration of any bytes, read as config.json and as generation_config.json: refused, or its sizes
 * keep what qw_dims_check promises. */
#include "lib/model/weights.h"
#include "lib/weights/config.h"

#include <math.h>
#include <stdlib.h>

static qwen36_status check_spec(void *user, const qw_weight_spec *spec)
{
    uint64_t bytes = 4;
    (void)user;
    for (int32_t i = 0; i < spec->rank; i++)
        if (spec->shape[i] < 1 || spec->shape[i] > INT32_MAX ||
            !qw_mul(bytes, (uint64_t)spec->shape[i], &bytes))
            abort();
    if (bytes > INT64_MAX)
        abort();
    return QWEN36_OK;
}

static void check_rope(const qw_dims *d)
{
    float inv_freq[512], scale = 0;
    uint8_t axis[512];
    if (d->rotary_dim > 1024)
        return;
    qw_dims_rope_table(d, inv_freq, axis, &scale);
    for (int32_t j = 0; j < d->rotary_dim / 2; j++)
        if (!isfinite(inv_freq[j]) || axis[j] > 2)
            abort();
    if (!isfinite(scale))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qw_dims dims;
    qw_generation generation;
    qw_generation_init(&generation);
    qwen36_status status = qw_config_parse((const char *)data, size, "fuzz", &dims, &generation, &error);
    if (status != error.status)
        abort();
    if (status == QWEN36_OK) {
        check_rope(&dims);
        qw_weights_visit(&dims, "model.language_model.", true, check_spec, NULL);
    }
    error = (qwen36_error)QWEN36_ERROR_INIT;
    qw_generation_init(&generation);
    status = qw_generation_parse((const char *)data, size, "fuzz", 1000, &generation, &error);
    if (status != error.status || generation.end_count > QW_MAX_END_TOKENS)
        abort();
    return 0;
}
