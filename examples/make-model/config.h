/*
 * The configuration that make-model writes: that of a published size, or one read from a file in any form
 * that is in use (nested or text-only, rope values nested or flat, defaults left out), normalised to the
 * published nested form.
 */
#ifndef MAKE_MODEL_CONFIG_H
#define MAKE_MODEL_CONFIG_H

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weights.h"

enum { EXIT_IO = 1, EXIT_USAGE = 2 };

#define MAX_DIMENSION (INT64_C(1) << 24)
#define MAX_LAYERS 1024

/* Every size of the text configuration: JSON key = member name, default of MoE and of dense
 * models; 0 means that this kind of model does not have it. */
#define FIELDS(X)                                                                                            \
    X(vocab_size, 248320, 248320)                                                                            \
    X(hidden_size, 2048, 4096)                                                                               \
    X(num_hidden_layers, 40, 32)                                                                             \
    X(num_attention_heads, 16, 16)                                                                           \
    X(num_key_value_heads, 2, 4)                                                                             \
    X(head_dim, 256, 256)                                                                                    \
    X(linear_num_key_heads, 16, 16)                                                                          \
    X(linear_num_value_heads, 32, 32)                                                                        \
    X(linear_key_head_dim, 128, 128)                                                                         \
    X(linear_value_head_dim, 128, 128)                                                                       \
    X(linear_conv_kernel_dim, 4, 4)                                                                          \
    X(max_position_embeddings, 32768, 32768)                                                                 \
    X(full_attention_interval, 4, 4)                                                                         \
    X(intermediate_size, 0, 12288)                                                                           \
    X(num_experts, 256, 0)                                                                                   \
    X(num_experts_per_tok, 8, 0)                                                                             \
    X(moe_intermediate_size, 512, 0)                                                                         \
    X(shared_expert_intermediate_size, 512, 0)

struct options {
    const char *like, *config, *output, *tokenizer_from;
    int64_t layers; /* 0: as configured */
    int64_t shard_bytes;
    uint64_t seed;
    enum dtype dtype;
    bool per_expert, mtp, sparse, help;
};

struct model {
#define MEMBER(name, moe_default, dense_default) int64_t name;
    FIELDS(MEMBER)
#undef MEMBER
    bool moe, tied;
    bool full_attention[MAX_LAYERS];
    cJSON *root; /* the configuration in the published nested form */
    cJSON *text; /* its text_config */
};

static int fail(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("make-model: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return code;
}

static const struct like {
    const char *name;
    bool moe, tied;
    int hidden, layers, heads, kv_heads, key_heads, value_heads;
    int width; /* of the dense MLP, of an expert and of the shared expert */
    int experts, top_k;
} likes[] = {
    {"35B-A3B", true, false, 2048, 40, 16, 2, 16, 32, 512, 256, 8},
    {"122B-A10B", true, false, 3072, 48, 32, 2, 16, 64, 1024, 256, 8},
    {"397B-A17B", true, false, 4096, 60, 32, 2, 16, 64, 1024, 512, 10},
    {"27B", false, false, 5120, 64, 24, 4, 16, 48, 17408, 0, 0},
    {"0.8B", false, true, 1024, 24, 8, 2, 16, 16, 3584, 0, 0},
    {"2B", false, true, 2048, 24, 8, 2, 16, 16, 6144, 0, 0},
    {"4B", false, true, 2560, 32, 16, 4, 16, 32, 9216, 0, 0},
    {"9B", false, false, 4096, 32, 16, 4, 16, 32, 12288, 0, 0},
};

static void set_number(cJSON *object, const char *key, double value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    cJSON_AddNumberToObject(object, key, value);
}

static void set_string(cJSON *object, const char *key, const char *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    cJSON_AddStringToObject(object, key, value);
}

static void set_bool(cJSON *object, const char *key, bool value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    cJSON_AddBoolToObject(object, key, value);
}

static const cJSON *get(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNull(item) ? NULL : item;
}

static cJSON *config_like(const struct like *like)
{
    cJSON *root = cJSON_CreateObject();
    set_string(root, "model_type", like->moe ? "qwen3_5_moe" : "qwen3_5");
    set_number(root, "image_token_id", 248056);
    set_number(root, "video_token_id", 248057);
    set_number(root, "vision_start_token_id", 248053);
    set_number(root, "vision_end_token_id", 248054);
    set_bool(root, "tie_word_embeddings", like->tied);
    cJSON *text = cJSON_AddObjectToObject(root, "text_config");
    set_number(text, "bos_token_id", 248044);
    set_number(text, "eos_token_id", 248044);
    set_number(text, "hidden_size", like->hidden);
    set_number(text, "num_hidden_layers", like->layers);
    set_number(text, "num_attention_heads", like->heads);
    set_number(text, "num_key_value_heads", like->kv_heads);
    set_number(text, "linear_num_key_heads", like->key_heads);
    set_number(text, "linear_num_value_heads", like->value_heads);
    set_number(text, "max_position_embeddings", 262144);
    if (like->moe) {
        set_number(text, "moe_intermediate_size", like->width);
        set_number(text, "shared_expert_intermediate_size", like->width);
        set_number(text, "num_experts", like->experts);
        set_number(text, "num_experts_per_tok", like->top_k);
    } else {
        set_number(text, "intermediate_size", like->width);
    }
    return root;
}

/* Reads a whole file as a string to be freed; NULL with errno set on failure. */
static char *read_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    char *text = NULL;
    size_t size = 0, capacity = 0, got = 1;
    while (got > 0) {
        if (capacity - size < 4096) {
            capacity = 2 * capacity + 65536;
            char *grown = realloc(text, capacity);
            if (!grown)
                break;
            text = grown;
        }
        got = fread(text + size, 1, capacity - size - 1, f);
        size += got;
    }
    if (got > 0 || ferror(f)) {
        free(text);
        text = NULL;
    } else {
        text[size] = '\0';
    }
    fclose(f);
    return text;
}

/* One integer of text_config: filled in when missing, checked otherwise. */
static int read_size(cJSON *text, const char *key, int fallback, int64_t *out)
{
    const cJSON *item = get(text, key);
    *out = fallback;
    if (!fallback)
        return 0;
    if (!item) {
        set_number(text, key, fallback);
        return 0;
    }
    double v = cJSON_IsNumber(item) ? item->valuedouble : 0;
    if (!(v >= 1 && v <= (double)MAX_DIMENSION) || (double)(int64_t)v != v)
        return fail(EXIT_USAGE, "config: %s is not an integer from 1 to %" PRId64, key, MAX_DIMENSION);
    *out = (int64_t)v;
    return 0;
}

static int read_sizes(struct model *m)
{
    int error = 0;
#define READ(name, moe_default, dense_default)                                                               \
    if (!error)                                                                                              \
        error = read_size(m->text, #name, m->moe ? moe_default : dense_default, &m->name);
    FIELDS(READ)
#undef READ
    return error;
}

/* Finds out the kind of model; model_type may be that of the whole model or of its text part. */
static int read_kind(struct model *m, const cJSON *source)
{
    const cJSON *own = get(m->text, "model_type");
    const cJSON *type = own ? own : get(source, "model_type");
    const char *name = cJSON_IsString(type) ? type->valuestring : "";
    m->moe = strcmp(name, "qwen3_5_moe") == 0 || strcmp(name, "qwen3_5_moe_text") == 0;
    if (!m->moe && strcmp(name, "qwen3_5") != 0 && strcmp(name, "qwen3_5_text") != 0)
        return fail(EXIT_USAGE, "config: model_type \"%s\" is not of this family", name);
    const cJSON *tie = get(m->text, "tie_word_embeddings");
    if (!tie)
        tie = get(source, "tie_word_embeddings");
    if (tie && !cJSON_IsBool(tie))
        return fail(EXIT_USAGE, "config: tie_word_embeddings is not a boolean");
    m->tied = cJSON_IsTrue(tie);
    set_string(m->text, "model_type", m->moe ? "qwen3_5_moe_text" : "qwen3_5_text");
    set_bool(m->text, "tie_word_embeddings", m->tied);
    return 0;
}

/* Moves a rope value from the top of text_config into rope_parameters, unless it is there. */
static void move_rope_number(cJSON *text, cJSON *rope, const char *key, double fallback)
{
    const cJSON *flat = get(text, key);
    if (!get(rope, key))
        set_number(rope, key, cJSON_IsNumber(flat) ? flat->valuedouble : fallback);
    cJSON_DeleteItemFromObjectCaseSensitive(text, key);
}

static int normalise_rope(struct model *m)
{
    static const int default_section[] = {11, 11, 10};
    cJSON *rope = cJSON_DetachItemFromObjectCaseSensitive(m->text, "rope_parameters");
    if (!cJSON_IsObject(rope)) {
        cJSON_Delete(rope);
        rope = cJSON_DetachItemFromObjectCaseSensitive(m->text, "rope_scaling");
    }
    if (!cJSON_IsObject(rope)) {
        cJSON_Delete(rope);
        rope = cJSON_CreateObject();
    }
    cJSON_DeleteItemFromObjectCaseSensitive(m->text, "rope_scaling");
    cJSON_AddItemToObject(m->text, "rope_parameters", rope);
    const cJSON *type = get(rope, "rope_type") ? get(rope, "rope_type") : get(rope, "type");
    if (type && !cJSON_IsString(type))
        return fail(EXIT_USAGE, "config: rope_type is not a string");
    if (!get(rope, "rope_type"))
        set_string(rope, "rope_type", type ? type->valuestring : "default");
    cJSON_DeleteItemFromObjectCaseSensitive(rope, "type");
    move_rope_number(m->text, rope, "rope_theta", 10000000);
    move_rope_number(m->text, rope, "partial_rotary_factor", 0.25);
    if (!get(rope, "mrope_section"))
        cJSON_AddItemToObject(rope, "mrope_section", cJSON_CreateIntArray(default_section, 3));
    if (!get(rope, "mrope_interleaved"))
        set_bool(rope, "mrope_interleaved", true);
    return 0;
}

/* Layer kinds: layer_types, cut to --layers; derived from the interval when absent or too short. */
static int read_layers(struct model *m, int64_t wanted)
{
    cJSON *given = cJSON_DetachItemFromObjectCaseSensitive(m->text, "layer_types");
    int64_t count = cJSON_IsArray(given) ? cJSON_GetArraySize(given) : 0, configured = m->num_hidden_layers;
    if (wanted)
        m->num_hidden_layers = wanted;
    set_number(m->text, "num_hidden_layers", (double)m->num_hidden_layers);
    int error = 0;
    if (m->num_hidden_layers > MAX_LAYERS)
        error = fail(EXIT_USAGE, "more than %d layers", MAX_LAYERS);
    else if (count && count != configured)
        error = fail(EXIT_USAGE, "config: layer_types has %" PRId64 " entries for %" PRId64 " layers", count,
                     configured);
    cJSON *types = cJSON_AddArrayToObject(m->text, "layer_types");
    for (int i = 0; !error && i < m->num_hidden_layers; i++) {
        const cJSON *item = i < count ? cJSON_GetArrayItem(given, i) : NULL;
        bool full = (i + 1) % m->full_attention_interval == 0;
        const char *name = full ? "full_attention" : "linear_attention";
        if (item)
            name = cJSON_IsString(item) ? item->valuestring : "";
        m->full_attention[i] = strcmp(name, "full_attention") == 0;
        if (!m->full_attention[i] && strcmp(name, "linear_attention") != 0)
            error = fail(EXIT_USAGE, "config: layer_types[%d] is \"%s\"", i, name);
        cJSON_AddItemToArray(types, cJSON_CreateString(name));
    }
    cJSON_Delete(given);
    return error;
}

static int check_model(const struct model *m)
{
    if (m->num_attention_heads % m->num_key_value_heads)
        return fail(EXIT_USAGE, "config: num_attention_heads is no multiple of num_key_value_heads");
    if (m->linear_num_value_heads % m->linear_num_key_heads)
        return fail(EXIT_USAGE, "config: linear_num_value_heads is no multiple of linear_num_key_heads");
    if (m->num_experts_per_tok > m->num_experts)
        return fail(EXIT_USAGE, "config: num_experts_per_tok is larger than num_experts");
    return 0;
}

/* The published nested form around a normalised text_config. */
static void wrap_text(struct model *m, const cJSON *source, const struct options *o)
{
    static const char *const kept[] = {"image_token_id", "video_token_id", "vision_start_token_id",
                                       "vision_end_token_id"};
    const char *architecture =
        m->moe ? "Qwen3_5MoeForConditionalGeneration" : "Qwen3_5ForConditionalGeneration";
    m->root = cJSON_CreateObject();
    cJSON_AddItemToObject(m->root, "architectures", cJSON_CreateStringArray(&architecture, 1));
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (get(source, kept[i]))
            cJSON_AddItemToObject(m->root, kept[i], cJSON_Duplicate(get(source, kept[i]), true));
    set_bool(m->root, "language_model_only", true);
    set_string(m->root, "model_type", m->moe ? "qwen3_5_moe" : "qwen3_5");
    set_bool(m->root, "tie_word_embeddings", m->tied);
    set_string(m->text, "dtype", dtypes[o->dtype].config_name);
    set_number(m->text, "mtp_num_hidden_layers", o->mtp ? 1 : 0);
    if (!get(m->text, "rms_norm_eps"))
        set_number(m->text, "rms_norm_eps", 1e-6);
    if (!get(m->text, "hidden_act"))
        set_string(m->text, "hidden_act", "silu");
    if (!get(m->text, "attn_output_gate"))
        set_bool(m->text, "attn_output_gate", true);
    cJSON_AddItemToObject(m->root, "text_config", m->text);
}

/* Fills `m` from a configuration of any accepted form. m->text belongs to m->root afterwards. */
static int normalise(struct model *m, const cJSON *source, const struct options *o)
{
    static const char *const not_text[] = {"architectures",         "transformers_version", "text_config",
                                           "vision_config",         "image_token_id",       "video_token_id",
                                           "vision_start_token_id", "vision_end_token_id",  "torch_dtype",
                                           "language_model_only"};
    const cJSON *nested = get(source, "text_config");
    m->text = cJSON_Duplicate(nested ? nested : source, true);
    if (!cJSON_IsObject(m->text))
        return fail(EXIT_USAGE, "config: no object with a text configuration");
    for (size_t i = 0; i < sizeof not_text / sizeof *not_text; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(m->text, not_text[i]);
    int error = read_kind(m, source);
    if (!error)
        error = read_sizes(m);
    if (!error)
        error = normalise_rope(m);
    if (!error)
        error = read_layers(m, o->layers);
    if (!error)
        error = check_model(m);
    if (!error)
        wrap_text(m, source, o);
    return error;
}

static int load_config(struct model *m, const struct options *o)
{
    cJSON *source = NULL;
    for (size_t i = 0; o->like && i < sizeof likes / sizeof *likes; i++)
        if (strcmp(o->like, likes[i].name) == 0)
            source = config_like(&likes[i]);
    if (o->like && !source)
        return fail(EXIT_USAGE, "--like: \"%s\" is not a known size", o->like);
    if (o->config) {
        char *text = read_text(o->config);
        if (!text)
            return fail(EXIT_IO, "cannot read %s: %s", o->config, strerror(errno));
        source = cJSON_Parse(text);
        free(text);
        if (!source)
            return fail(EXIT_USAGE, "%s is not valid JSON", o->config);
    }
    int error = normalise(m, source, o);
    if (error && !m->root)
        cJSON_Delete(m->text);
    cJSON_Delete(source);
    return error;
}

#endif
