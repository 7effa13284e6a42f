#include "lib/weights/config.h"

#include "lib/weights/fields.h"

#include <string.h>

/* --- Which architecture, and where its fields stand ----------------------------------------------- */

typedef struct source {
    qw_fields root; /* the whole file */
    qw_fields text; /* the fields of the text model */
    qw_fields rope; /* rope_parameters or rope_scaling; may have no object */
    bool moe;
} source;

static const char *const dense_type = "qwen3_5", *const moe_type = "qwen3_5_moe";

/* "qwen3_5_moe_text" belongs to "qwen3_5_moe". */
static bool is_of_type(const char *name, const char *type)
{
    size_t length = strlen(type);
    return strncmp(name, type, length) == 0 && (name[length] == '\0' || strcmp(name + length, "_text") == 0);
}

static qwen36_status find_architecture(source *s, const char *file, qwen36_error *error)
{
    const char *outer = NULL, *inner = NULL;
    qw_fields_text(&s->root, "model_type", &outer);
    if (s->root.status != QWEN36_OK)
        return s->root.status;
    qw_fields_text(&s->text, "model_type", &inner);
    if (s->text.status != QWEN36_OK)
        return s->text.status;
    const char *type = outer != NULL ? outer : inner;
    if (type == NULL)
        return qw_fail(error, QWEN36_ERROR_ARCHITECTURE, "%s: model_type is missing", file);
    s->moe = is_of_type(type, moe_type);
    if (!s->moe && !is_of_type(type, dense_type))
        return qw_fail(error, QWEN36_ERROR_ARCHITECTURE, "%s: model_type is \"%.80s\", expected %s or %s",
                       file, type, moe_type, dense_type);
    if (inner != NULL && !is_of_type(inner, s->moe ? moe_type : dense_type))
        return qw_fail(error, QWEN36_ERROR_ARCHITECTURE,
                       "%s: model_type is \"%.80s\", but \"%.80s\" in text_config", file, type, inner);
    return QWEN36_OK;
}

static qwen36_status find_parts(source *s, const cJSON *root, const char *file, qwen36_error *error)
{
    if (!cJSON_IsObject(root))
        return qw_fail(error, QWEN36_ERROR_CONFIG, "%s: expected an object", file);
    s->root = s->text = s->rope = (qw_fields){root, file, error, QWEN36_OK};
    const cJSON *text = qw_fields_find(&s->root, "text_config");
    if (text != NULL)
        s->text.object = text;
    if (!cJSON_IsObject(s->text.object))
        return qw_fail(error, QWEN36_ERROR_CONFIG, "%s: text_config: expected an object", file);
    const cJSON *rope = qw_fields_find(&s->text, "rope_parameters");
    s->rope.object = rope != NULL ? rope : qw_fields_find(&s->text, "rope_scaling");
    if (s->rope.object != NULL && !cJSON_IsObject(s->rope.object))
        return qw_fail(error, QWEN36_ERROR_CONFIG, "%s: rope_parameters: expected an object", file);
    return find_architecture(s, file, error);
}

/* --- What this library does not compute ----------------------------------------------------------- */

static qwen36_status refuse_quantization(const qw_fields *f)
{
    const cJSON *item = qw_fields_find(f, "quantization_config");
    if (item == NULL)
        return QWEN36_OK;
    const char *method = qw_json_string(qw_json_member(item, "quant_method"));
    return qw_fail(f->error, QWEN36_ERROR_QUANTIZATION,
                   "%s: quantization_config has quant_method \"%.80s\", expected BF16, F16 or F32 weights",
                   f->file, method != NULL ? method : "(none)");
}

static void expect_bool(qw_fields *f, const char *key, int32_t expected)
{
    int32_t value = expected;
    qw_fields_bool(f, key, &value);
    if (value != expected)
        qw_fields_fail(f, QWEN36_ERROR_CONFIG, key, expected ? "true" : "false");
}

static void expect_silu(qw_fields *f, const char *key)
{
    const char *value = "silu";
    qw_fields_text(f, key, &value);
    if (strcmp(value, "silu") != 0 && strcmp(value, "swish") != 0)
        qw_fields_fail(f, QWEN36_ERROR_CONFIG, key, "silu");
}

/* Fields that the reference implementation ignores are ignored here too; these change the arithmetic. */
static qwen36_status refuse_variants(source *s)
{
    expect_bool(&s->text, "attn_output_gate", 1);
    expect_bool(&s->text, "attention_bias", 0);
    expect_silu(&s->text, "hidden_act");
    expect_silu(&s->text, "output_gate_type");
    return s->text.status;
}

/* --- Sizes ---------------------------------------------------------------------------------------- */

static void read_sizes(source *s, qw_dims *d)
{
    qw_fields *f = &s->text;
    double eps = 1e-6;
    qw_fields_int(f, "vocab_size", &d->vocab_size);
    qw_fields_int(f, "hidden_size", &d->hidden);
    qw_fields_int(f, "num_hidden_layers", &d->layers);
    qw_fields_int(f, "num_attention_heads", &d->heads);
    qw_fields_int(f, "num_key_value_heads", &d->kv_heads);
    qw_fields_int(f, "head_dim", &d->head_dim);
    qw_fields_int(f, "linear_num_key_heads", &d->lin_k_heads);
    qw_fields_int(f, "linear_num_value_heads", &d->lin_v_heads);
    qw_fields_int(f, "linear_key_head_dim", &d->lin_k_dim);
    qw_fields_int(f, "linear_value_head_dim", &d->lin_v_dim);
    qw_fields_int(f, "linear_conv_kernel_dim", &d->conv_width);
    qw_fields_int(f, "max_position_embeddings", &d->max_positions);
    qw_fields_double(f, "rms_norm_eps", &eps);
    d->norm_eps = (float)eps;
    if (!d->is_moe) {
        qw_fields_int(f, "intermediate_size", &d->intermediate);
        return;
    }
    qw_fields_int(f, "num_experts", &d->experts);
    qw_fields_int(f, "num_experts_per_tok", &d->top_k);
    qw_fields_int(f, "moe_intermediate_size", &d->expert_size);
    qw_fields_int(f, "shared_expert_intermediate_size", &d->shared_size);
}

/* What the published classes assume for a field that is absent. */
static void set_defaults(qw_dims *d, bool moe)
{
    *d = (qw_dims){
        .vocab_size = 248320,
        .hidden = 4096,
        .layers = 32,
        .heads = 16,
        .kv_heads = 4,
        .head_dim = 256,
        .lin_k_heads = 16,
        .lin_v_heads = 32,
        .lin_k_dim = 128,
        .lin_v_dim = 128,
        .conv_width = 4,
        .intermediate = 12288,
        .max_positions = 32768,
        .bos_token = -1,
        .pad_token = -1,
        .rope_theta = 10000.0,
        .yarn_beta_fast = 32.0,
        .yarn_beta_slow = 1.0,
        .yarn_truncate = 1,
    };
    if (!moe)
        return;
    d->is_moe = 1;
    d->hidden = 2048;
    d->layers = 40;
    d->kv_heads = 2;
    d->intermediate = 0;
    d->experts = 256;
    d->top_k = 8;
    d->expert_size = 512;
    d->shared_size = 512;
}

/* layer_types, or every full_attention_interval-th layer. dims->layers is in range already. */
static qwen36_status read_layer_kinds(source *s, qw_dims *d)
{
    qw_fields *f = &s->text;
    const cJSON *types = qw_fields_find(f, "layer_types");
    int32_t interval = 4, count = 0;
    qw_fields_int(f, "full_attention_interval", &interval);
    if (f->status != QWEN36_OK)
        return f->status;
    if (types == NULL) {
        if (interval < 1)
            qw_fields_fail(f, QWEN36_ERROR_CONFIG, "full_attention_interval", "1 or more");
        else
            qw_dims_alternate(d, interval);
        return f->status;
    }
    if (!cJSON_IsArray(types) || cJSON_GetArraySize(types) != d->layers)
        return qw_fail(f->error, QWEN36_ERROR_CONFIG,
                       "%s: layer_types has %d entries, expected num_hidden_layers %d", f->file,
                       cJSON_GetArraySize(types), d->layers);
    for (const cJSON *type = types->child; type != NULL; type = type->next) {
        const char *name = qw_json_string(type);
        bool full = name != NULL && strcmp(name, "full_attention") == 0;
        if (!full && (name == NULL || strcmp(name, "linear_attention") != 0))
            return qw_fail(f->error, QWEN36_ERROR_CONFIG,
                           "%s: layer_types[%d] is \"%.80s\", expected linear_attention or full_attention",
                           f->file, count, name != NULL ? name : "(no string)");
        d->layer_kind[count++] = full ? QW_LAYER_FULL : QW_LAYER_LINEAR;
    }
    return QWEN36_OK;
}

/* The flag stands at the root, in text_config, or in both. */
static qwen36_status read_tie(source *s, qw_dims *d)
{
    int32_t outer = -1, inner = -1;
    qw_fields_bool(&s->root, "tie_word_embeddings", &outer);
    qw_fields_bool(&s->text, "tie_word_embeddings", &inner);
    if (s->root.status != QWEN36_OK || s->text.status != QWEN36_OK)
        return QW_MIN(s->root.status, s->text.status);
    if (outer >= 0 && inner >= 0 && outer != inner)
        return qw_fail(s->root.error, QWEN36_ERROR_TIED_HEAD,
                       "%s: tie_word_embeddings is %s at the root and %s in text_config", s->root.file,
                       outer ? "true" : "false", inner ? "true" : "false");
    d->tied_head = outer == 1 || inner == 1;
    return QWEN36_OK;
}

/* --- The rotation --------------------------------------------------------------------------------- */

/* Rope keys stand in the rope object, or flattened among the text fields. */
static void read_rope_double(source *s, const char *key, double *out)
{
    qw_fields_double(&s->text, key, out);
    qw_fields_double(&s->rope, key, out);
}

static qwen36_status read_rope_kind(source *s, qw_dims *d)
{
    const char *kind = "default";
    qw_fields_text(&s->text, "rope_type", &kind);
    qw_fields_text(&s->rope, "type", &kind);
    qw_fields_text(&s->rope, "rope_type", &kind);
    if (s->text.status != QWEN36_OK || s->rope.status != QWEN36_OK)
        return QW_MIN(s->text.status, s->rope.status);
    d->rope_kind = strcmp(kind, "yarn") == 0 ? QW_ROPE_YARN : QW_ROPE_DEFAULT;
    if (d->rope_kind == QW_ROPE_DEFAULT && strcmp(kind, "default") != 0)
        return qw_fail(s->rope.error, QWEN36_ERROR_ROPE_TYPE,
                       "%s: rope_type is \"%.80s\", expected default or yarn", s->rope.file, kind);
    return QWEN36_OK;
}

/* Absent: the published [11, 11, 10], cut to the rotary dimension as the interleaving itself would. */
static qwen36_status read_sections(source *s, qw_dims *d)
{
    const cJSON *item = qw_fields_find(&s->rope, "mrope_section");
    if (item == NULL)
        item = qw_fields_find(&s->text, "mrope_section");
    if (item == NULL) {
        const int32_t half = d->rotary_dim / 2;
        d->mrope_section[1] = QW_MIN(11, (half + 1) / 3);
        d->mrope_section[2] = QW_MIN(10, half / 3);
        d->mrope_section[0] = half - d->mrope_section[1] - d->mrope_section[2];
        return QWEN36_OK;
    }
    for (int i = 0; i < 3; i++) {
        int64_t value = 0;
        if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) != 3 ||
            !qw_json_int64(cJSON_GetArrayItem(item, i), 0, INT32_MAX, &value))
            return qw_fail(s->rope.error, QWEN36_ERROR_CONFIG, "%s: mrope_section: expected three integers",
                           s->rope.file);
        d->mrope_section[i] = (int32_t)value;
    }
    return QWEN36_OK;
}

static qwen36_status read_yarn(source *s, qw_dims *d)
{
    double original = d->max_positions, factor = 0.0;
    int32_t truncate = 1;
    read_rope_double(s, "original_max_position_embeddings", &original);
    read_rope_double(s, "factor", &factor);
    if (factor == 0.0 && original > 0.0)
        factor = d->max_positions / original;
    read_rope_double(s, "beta_fast", &d->yarn_beta_fast);
    read_rope_double(s, "beta_slow", &d->yarn_beta_slow);
    read_rope_double(s, "attention_factor", &d->yarn_attention_factor);
    read_rope_double(s, "mscale", &d->yarn_mscale);
    read_rope_double(s, "mscale_all_dim", &d->yarn_mscale_all_dim);
    qw_fields_bool(&s->rope, "truncate", &truncate);
    if (!(original >= 1.0 && original <= (double)INT32_MAX))
        qw_fields_fail(&s->rope, QWEN36_ERROR_CONFIG, "original_max_position_embeddings", "1 to 2^31 - 1");
    else
        d->original_max_positions = (int32_t)original;
    d->yarn_factor = factor;
    d->yarn_truncate = truncate;
    return QWEN36_OK;
}

static qwen36_status read_rope(source *s, qw_dims *d)
{
    double fraction = 0.25;
    qwen36_status status = read_rope_kind(s, d);
    if (status != QWEN36_OK)
        return status;
    expect_bool(&s->rope, "mrope_interleaved", 1);
    read_rope_double(s, "rope_theta", &d->rope_theta);
    read_rope_double(s, "partial_rotary_factor", &fraction);
    if (!(fraction > 0.0 && fraction <= 1.0))
        qw_fields_fail(&s->rope, QWEN36_ERROR_CONFIG, "partial_rotary_factor", "a number above 0, at most 1");
    else
        d->rotary_dim = (int32_t)(d->head_dim * fraction);
    if (d->rope_kind == QW_ROPE_YARN)
        status = read_yarn(s, d);
    if (status == QWEN36_OK)
        status = s->text.status != QWEN36_OK ? s->text.status : s->rope.status;
    return status == QWEN36_OK ? read_sections(s, d) : status;
}

/* --- All together --------------------------------------------------------------------------------- */

static qwen36_status read_dims(source *s, qw_dims *d)
{
    set_defaults(d, s->moe);
    read_sizes(s, d);
    if (s->text.status != QWEN36_OK)
        return s->text.status;
    if (d->layers < 1 || d->layers > QW_MAX_LAYERS) /* before the list of layers is filled */
        return qw_fail(s->text.error, QWEN36_ERROR_CONFIG, "%s: num_hidden_layers is %d, expected 1 to %d",
                       s->text.file, d->layers, QW_MAX_LAYERS);
    qwen36_status status = read_layer_kinds(s, d);
    if (status == QWEN36_OK)
        status = read_tie(s, d);
    if (status == QWEN36_OK)
        status = read_rope(s, d);
    return status == QWEN36_OK ? qw_dims_check(d, s->text.file, s->text.error) : status;
}

static qwen36_status read_tokens(source *s, const qw_dims *d, qw_generation *g)
{
    qwen36_status status =
        qw_generation_read_tokens(s->text.object, s->text.file, d->vocab_size, g, s->text.error);
    if (status == QWEN36_OK && s->root.object != s->text.object)
        status = qw_generation_read_tokens(s->root.object, s->root.file, d->vocab_size, g, s->root.error);
    return status;
}

qwen36_status qw_config_parse(const char *text, size_t length, const char *file, qw_dims *dims,
                              qw_generation *generation, qwen36_error *error)
{
    source s = {.moe = false};
    cJSON *root = qw_json_parse(text, length, file, error);
    if (root == NULL)
        return error->status;
    qwen36_status status = find_parts(&s, root, file, error);
    if (status == QWEN36_OK)
        status = refuse_quantization(&s.root);
    if (status == QWEN36_OK)
        status = refuse_quantization(&s.text);
    if (status == QWEN36_OK)
        status = refuse_variants(&s);
    if (status == QWEN36_OK)
        status = read_dims(&s, dims);
    if (status == QWEN36_OK)
        status = read_tokens(&s, dims, generation);
    qw_json_delete(root);
    return status;
}
