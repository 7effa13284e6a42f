#include "tests/unit/checkpoint_fixture.h"

#include "lib/model/weights.h"
#include "lib/weights/config.h"

#include <stdarg.h>

const char *const fixture_dense =
    "{\"architectures\":[\"Qwen3_5ForConditionalGeneration\"],\"model_type\":\"qwen3_5\",\"text_config\":{"
    "\"model_type\":\"qwen3_5_text\",\"vocab_size\":48,\"hidden_size\":20,\"num_hidden_layers\":4,"
    "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":16,\"intermediate_size\":28,"
    "\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,\"linear_key_head_dim\":6,"
    "\"linear_value_head_dim\":10,\"linear_conv_kernel_dim\":4,\"max_position_embeddings\":1024,"
    "\"eos_token_id\":7,\"rms_norm_eps\":1e-06,\"rope_parameters\":{\"mrope_interleaved\":true,"
    "\"mrope_section\":[1,1,0],\"partial_rotary_factor\":0.25,\"rope_theta\":10000000,"
    "\"rope_type\":\"default\"}},\"tie_word_embeddings\":false}";

const char *const fixture_moe =
    "{\"architectures\":[\"Qwen3_5MoeForConditionalGeneration\"],\"model_type\":\"qwen3_5_moe\","
    "\"text_config\":{\"model_type\":\"qwen3_5_moe_text\",\"vocab_size\":48,\"hidden_size\":20,"
    "\"num_hidden_layers\":4,\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":16,"
    "\"num_experts\":5,\"num_experts_per_tok\":2,\"moe_intermediate_size\":12,"
    "\"shared_expert_intermediate_size\":14,\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"
    "\"linear_key_head_dim\":6,\"linear_value_head_dim\":10,\"max_position_embeddings\":1024,"
    "\"eos_token_id\":[7,9],\"rope_parameters\":{\"mrope_section\":[1,1,0],\"partial_rotary_factor\":0.25,"
    "\"rope_theta\":10000000,\"rope_type\":\"default\"}},\"tie_word_embeddings\":true}";

fixture_tensor *fixture_add(fixture *f, const char *name, const char *dtype, int32_t rank,
                            const int64_t *shape)
{
    if (f->count == f->capacity) {
        f->capacity = f->capacity == 0 ? 64 : f->capacity * 2;
        f->items = realloc(f->items, f->capacity * sizeof *f->items);
        CHECK(f->items != NULL);
    }
    fixture_tensor *t = &f->items[f->count++];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    t->rank = rank;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    return t;
}

static qwen36_status add_spec(void *user, const qw_weight_spec *spec)
{
    fixture_add(user, spec->name, "BF16", spec->rank, spec->shape);
    return QWEN36_OK;
}

void fixture_begin(fixture *f, const char *config, const char *prefix, bool fused_experts)
{
    qw_dims dims;
    qw_generation generation;
    qwen36_error error = QWEN36_ERROR_INIT;
    memset(f, 0, sizeof *f);
    snprintf(f->directory, sizeof f->directory, "%s", test_directory());
    qw_generation_init(&generation);
    qwen36_status status = qw_config_parse(config, strlen(config), "config.json", &dims, &generation, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    CHECK_INT(qw_weights_visit(&dims, prefix, fused_experts, add_spec, f), QWEN36_OK);
    fixture_put(f, "config.json", config);
}

fixture_tensor *fixture_find(fixture *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->items[i].name, name) == 0)
            return &f->items[i];
    CHECK_MSG(false, "no tensor %s", name);
    return NULL;
}

void fixture_remove(fixture *f, const char *name)
{
    fixture_tensor *t = fixture_find(f, name);
    *t = f->items[--f->count];
}

void fixture_spread(fixture *f, int32_t shards)
{
    f->shards = shards;
    for (size_t i = 0; i < f->count; i++)
        f->items[i].named = f->items[i].shard = (int32_t)(i % (size_t)shards);
}

const char *fixture_shard_name(int32_t shard)
{
    static char name[64];
    snprintf(name, sizeof name, "model-%05d.safetensors", shard);
    return name;
}

uint8_t fixture_byte(const char *name, size_t index)
{
    uint64_t h = (qw_hash(name, strlen(name)) + index) * 0x9e3779b97f4a7c15u;
    return (uint8_t)(h >> 56);
}

void fixture_put(const fixture *f, const char *file, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", f->directory, file);
    test_write_file(path, text, strlen(text));
}

static size_t bytes_of(const fixture_tensor *t)
{
    size_t bits = strcmp(t->dtype, "F32") == 0 ? 32 : strcmp(t->dtype, "U8") == 0 ? 8 : 16;
    for (int32_t i = 0; i < t->rank; i++)
        bits *= (size_t)t->shape[i];
    return bits / 8;
}

typedef struct buffer {
    char *text;
    size_t used, room;
} buffer;

__attribute__((format(printf, 2, 3))) static void append(buffer *b, const char *format, ...)
{
    va_list arguments;
    if (b->room - b->used < 1024) {
        b->room = b->room * 2 + 4096;
        b->text = realloc(b->text, b->room);
        CHECK(b->text != NULL);
    }
    va_start(arguments, format);
    b->used += (size_t)vsnprintf(b->text + b->used, b->room - b->used, format, arguments);
    va_end(arguments);
}

static void write_shard(const fixture *f, int32_t shard, const char *file)
{
    buffer header = {NULL, 0, 0};
    size_t offset = 0;
    append(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < f->count; i++) {
        const fixture_tensor *t = &f->items[i];
        if (t->shard != shard)
            continue;
        append(&header, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, t->dtype);
        for (int32_t k = 0; k < t->rank; k++)
            append(&header, "%s%lld", k > 0 ? "," : "", (long long)t->shape[k]);
        append(&header, "],\"data_offsets\":[%zu,%zu]}", offset, offset + bytes_of(t));
        offset += bytes_of(t);
    }
    append(&header, "}");
    while ((header.used + 8) % 8 != 0)
        append(&header, " ");
    for (int32_t i = 0; i < f->pad; i++)
        append(&header, " ");
    char path[512];
    snprintf(path, sizeof path, "%s/%s", f->directory, file);
    FILE *out = fopen(path, "wb");
    CHECK_MSG(out != NULL, "%s", path);
    const uint64_t length = header.used;
    CHECK(fwrite(&length, 8, 1, out) == 1 && fwrite(header.text, 1, header.used, out) == header.used);
    for (size_t i = 0; i < f->count; i++)
        for (size_t k = 0; f->items[i].shard == shard && k < bytes_of(&f->items[i]); k++)
            CHECK(fputc(fixture_byte(f->items[i].name, k), out) != EOF);
    CHECK(fclose(out) == 0);
    free(header.text);
}

static void write_index(const fixture *f)
{
    buffer index = {NULL, 0, 0};
    const char *comma = "";
    append(&index, "{\"metadata\":{\"total_size\":71903645408.0},\"weight_map\":{");
    for (size_t i = 0; i < f->count; i++) {
        const fixture_tensor *t = &f->items[i];
        if (t->named < 0)
            continue;
        append(&index, "%s\"%s\":\"%s\"", comma, t->name, fixture_shard_name(t->named));
        comma = ",";
    }
    append(&index, "}}");
    fixture_put(f, "model.safetensors.index.json", index.text);
    free(index.text);
}

void fixture_write(fixture *f)
{
    if (f->shards == 0) {
        write_shard(f, 0, "model.safetensors");
        return;
    }
    for (int32_t i = 0; i < f->shards; i++)
        write_shard(f, i, fixture_shard_name(i));
    write_index(f);
}

void fixture_end(fixture *f)
{
    free(f->items);
    f->items = NULL;
    f->count = f->capacity = 0;
}

const char *fixture_config_with(const char *text, const char *from, const char *to)
{
    static char result[16384];
    const char *at = strstr(text, from);
    CHECK_MSG(at != NULL, "%s", from);
    snprintf(result, sizeof result, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return result;
}

void fixture_check_refused(const char *directory, qwen36_status status, const char *const *parts, int line)
{
    test_allocator state = {0, 0, 0, false};
    const qw_allocator allocator = {test_allocate, test_release, &state};
    qw_checkpoint *checkpoint = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_status got = qw_checkpoint_open(&allocator, directory, &checkpoint, &error);
    CHECK_MSG(got == status, "line %d: status %d, expected %d: %s", line, got, status, error.message);
    CHECK(checkpoint == NULL && error.status == status);
    for (; *parts != NULL; parts++)
        CHECK_MSG(strstr(error.message, *parts) != NULL, "line %d: \"%s\" lacks \"%s\"", line, error.message,
                  *parts);
    CHECK_INT(state.outstanding, 0);
}
