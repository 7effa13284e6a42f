#include "lib/weights/manifest.h"

#include "lib/model/weights.h"

#include <stdio.h>
#include <string.h>

typedef struct check {
    qw_checkpoint *checkpoint;
    qwen36_error *error;
} check;

const char *qw_manifest_source(const qw_checkpoint *checkpoint)
{
    return checkpoint->indexed ? QW_INDEX_FILE : QW_SINGLE_FILE;
}

/* "[2,3]" */
static const char *shape_text(char *text, size_t room, const uint64_t *dims, uint32_t rank)
{
    size_t used = 1;
    text[0] = '[';
    for (uint32_t i = 0; i < rank && used + 24 < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%llu", i > 0 ? "," : "",
                                 (unsigned long long)dims[i]);
    memcpy(text + used, "]", 2);
    return text;
}

static qwen36_status check_shape(const check *c, const qw_tensor *t, const qw_weight_spec *spec)
{
    const uint64_t *dims = c->checkpoint->tensors.dims + t->dims_at;
    uint64_t expected[3];
    bool equal = t->rank == (uint32_t)spec->rank;
    for (int32_t i = 0; i < spec->rank; i++) {
        expected[i] = (uint64_t)spec->shape[i];
        equal = equal && dims[i] == expected[i];
    }
    if (equal)
        return QWEN36_OK;
    char has[128], wanted[128];
    return qw_fail(c->error, QWEN36_ERROR_TENSOR_SHAPE, "%s: tensor %s has shape %s, expected %s",
                   c->checkpoint->shards[t->shard].file, spec->name,
                   shape_text(has, sizeof has, dims, t->rank),
                   shape_text(wanted, sizeof wanted, expected, (uint32_t)spec->rank));
}

/* For qw_weights_visit. */
static qwen36_status check_tensor(void *user, const qw_weight_spec *spec)
{
    const check *c = user;
    qw_checkpoint *checkpoint = c->checkpoint;
    const qw_name *found = qw_names_find(&checkpoint->names, spec->name, strlen(spec->name));
    if (found == NULL)
        return qw_fail(c->error, QWEN36_ERROR_MISSING_TENSOR, "%s: tensor %s is missing",
                       qw_manifest_source(checkpoint), spec->name);
    qw_tensor *t = &checkpoint->tensors.items[found->value];
    if (!qw_dtype_is_weight(t->dtype))
        return qw_fail(c->error, QWEN36_ERROR_TENSOR_DTYPE,
                       "%s: tensor %s has dtype %s, expected BF16, F16 or F32",
                       checkpoint->shards[t->shard].file, spec->name, qw_dtype_name(t->dtype));
    qwen36_status status = check_shape(c, t, spec);
    if (status != QWEN36_OK)
        return status;
    t->role = QW_ROLE_BOUND;
    checkpoint->weight_bytes += t->bytes; /* each is below the size of a file on this machine */
    checkpoint->parameters += t->bytes / (uint64_t)qw_dtype_size(t->dtype);
    return QWEN36_OK;
}

static qwen36_status check_head(const check *c)
{
    const qw_checkpoint *checkpoint = c->checkpoint;
    const qw_tensor *head = qw_checkpoint_find(checkpoint, "lm_head.weight");
    if (checkpoint->dims.tied_head && head != NULL)
        return qw_fail(c->error, QWEN36_ERROR_TIED_HEAD,
                       "%s: tie_word_embeddings is true, but %s holds the tensor lm_head.weight",
                       QW_CONFIG_FILE, checkpoint->shards[head->shard].file);
    if (!checkpoint->dims.tied_head && head == NULL)
        return qw_fail(c->error, QWEN36_ERROR_TIED_HEAD,
                       "%s: tie_word_embeddings is false, but %s has no tensor lm_head.weight",
                       QW_CONFIG_FILE, qw_manifest_source(checkpoint));
    return QWEN36_OK;
}

/* Published checkpoints hold the text model inside a larger one; those that were saved as a text model alone
 * lack that part of the prefix. Fine-tunes of older tools keep each expert's matrices apart. */
static void find_layout(qw_checkpoint *c)
{
    char name[QW_WEIGHT_NAME_MAX];
    c->prefix = "model.language_model.";
    if (qw_checkpoint_find(c, "model.language_model.embed_tokens.weight") == NULL &&
        qw_checkpoint_find(c, "model.embed_tokens.weight") != NULL)
        c->prefix = "model.";
    snprintf(name, sizeof name, "%slayers.0.mlp.experts.0.gate_proj.weight", c->prefix);
    const bool apart = qw_checkpoint_find(c, name) != NULL;
    snprintf(name, sizeof name, "%slayers.0.mlp.experts.gate_up_proj", c->prefix);
    c->fused_experts = qw_checkpoint_find(c, name) != NULL || !apart;
}

static bool begins_with(const qw_tensor *t, const char *prefix)
{
    size_t length = strlen(prefix);
    return t->name_length >= length && memcmp(t->name, prefix, length) == 0;
}

/* The bound ones are marked already. */
static void count_roles(qw_checkpoint *c)
{
    for (size_t i = 0; i < c->tensors.count; i++) {
        qw_tensor *t = &c->tensors.items[i];
        if (t->role == QW_ROLE_OTHER && begins_with(t, "mtp."))
            t->role = QW_ROLE_MTP;
        else if (t->role == QW_ROLE_OTHER && (begins_with(t, "model.visual.") || begins_with(t, "visual.")))
            t->role = QW_ROLE_VISION;
        c->role_count[t->role]++;
    }
}

qwen36_status qw_manifest_check(qw_checkpoint *checkpoint, qwen36_error *error)
{
    check c = {checkpoint, error};
    qwen36_status status = check_head(&c);
    if (status != QWEN36_OK)
        return status;
    find_layout(checkpoint);
    status =
        qw_weights_visit(&checkpoint->dims, checkpoint->prefix, checkpoint->fused_experts, check_tensor, &c);
    if (status == QWEN36_OK)
        count_roles(checkpoint);
    return status;
}
