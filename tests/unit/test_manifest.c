/* The manifest: the two official checkpoints in full (sparse files behind the real headers), and each fault
 * of a small one with its status and text. */
#define _GNU_SOURCE
#include "lib/model/weights.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint_fixture.h"

#include <sys/resource.h>
#include <unistd.h>

static qw_allocator allocator_of(test_allocator *state)
{
    return (qw_allocator){test_allocate, test_release, state};
}

/* --- The official checkpoints --------------------------------------------------------------------- */

static void copy_asset(const char *asset, const char *directory, const char *file)
{
    char path[512];
    size_t size = 0;
    const char *source = test_asset(asset);
    if (source == NULL)
        SKIP("the official configurations are not there");
    char *data = test_read_file(source, &size);
    CHECK(data != NULL);
    snprintf(path, sizeof path, "%s/%s", directory, file);
    test_write_file(path, data, size);
    free(data);
}

/* A file with `header` at its front and zeros, that take no room, up to `size`. */
static void write_sparse(const char *path, const void *header, uint64_t length, uint64_t size)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(&length, 8, 1, file) == 1 && fwrite(header, 1, length, file) == length);
    CHECK(fclose(file) == 0);
    CHECK_INT(truncate(path, (off_t)size), 0);
}

static void write_shards_35b(const char *directory)
{
    const char *sizes_path = test_asset("configs/Qwen3.6-35B-A3B/safetensors_headers/SIZES.tsv");
    if (sizes_path == NULL)
        SKIP("the official headers are not there");
    char *sizes = test_read_file(sizes_path, NULL), *rest = NULL;
    CHECK(sizes != NULL);
    int shards = 0;
    strtok_r(sizes, "\n", &rest); /* the heading */
    for (char *line; (line = strtok_r(NULL, "\n", &rest)) != NULL; shards++) {
        int number = 0;
        unsigned long long length = 0, size = 0;
        char name[256], path[512];
        if (sscanf(line, "%d %llu %*d %llu", &number, &length, &size) != 3)
            break;
        snprintf(name, sizeof name,
                 "configs/Qwen3.6-35B-A3B/safetensors_headers/model-%05d-of-00026.header.json", number);
        size_t read = 0;
        char *header = test_read_file(test_asset(name), &read);
        CHECK(header != NULL && read == length);
        snprintf(path, sizeof path, "%s/model-%05d-of-00026.safetensors", directory, number);
        write_sparse(path, header, length, size);
        free(header);
    }
    free(sizes);
    CHECK_INT(shards, 26);
}

static void check_bound(const qw_checkpoint *checkpoint)
{
    test_allocator state = {0};
    const qw_allocator allocator = allocator_of(&state);
    qw_weights weights;
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_status status =
        qw_weights_bind(&allocator, checkpoint, QWEN36_WEIGHTS_MAP, NULL, NULL, &weights, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    uint64_t mapped = 0;
    for (size_t i = 0; i < weights.region_count; i++) {
        CHECK(weights.regions[i].mapped);
        mapped += weights.regions[i].size;
    }
    CHECK(mapped >= checkpoint->weight_bytes);
    CHECK(mapped <= checkpoint->weight_bytes + weights.region_count * 2 * qw_page_size());
    CHECK(weights.layers[3].q.data != NULL && weights.layers[0].in_qkv.data != NULL);
    CHECK_INT(*(const uint16_t *)weights.head.data, 0);
    qw_weights_release(&weights);
    CHECK_INT(state.outstanding, 0);
}

TEST(manifest, official_35b)
{
    char directory[256];
    snprintf(directory, sizeof directory, "%s", test_directory());
    copy_asset("configs/Qwen3.6-35B-A3B/config.json", directory, "config.json");
    copy_asset("configs/Qwen3.6-35B-A3B/model.safetensors.index.json", directory,
               "model.safetensors.index.json");
    copy_asset("configs/Qwen3.6/generation_config.json", directory, "generation_config.json");
    write_shards_35b(directory);
    test_allocator state = {0};
    const qw_allocator allocator = allocator_of(&state);
    qw_checkpoint *c = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    struct rusage before, after;
    CHECK_INT(getrusage(RUSAGE_SELF, &before), 0);
    qwen36_status status = qw_checkpoint_open(&allocator, directory, &c, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    CHECK_INT(c->tensors.count, 1045);
    CHECK_INT(c->role_count[QW_ROLE_BOUND], 693);
    CHECK_INT(c->role_count[QW_ROLE_MTP], 19);
    CHECK_INT(c->role_count[QW_ROLE_VISION], 333);
    CHECK_INT(c->role_count[QW_ROLE_OTHER], 0);
    CHECK(c->parameters == 34660610688u && c->weight_bytes == 2 * c->parameters);
    CHECK(c->fused_experts && c->generation.end_count == 2 && c->generation.end_tokens[0] == 248046);
    CHECK_INT(c->dims.pad_token, 248044);
    check_bound(c);
    qw_checkpoint_close(c);
    CHECK_INT(state.outstanding, 0);
    CHECK(getrusage(RUSAGE_SELF, &after) == 0 && after.ru_maxrss - before.ru_maxrss < 128 * 1024);
}

/* One file, whose header is made from the published list: there the shards are not known. */
static void write_single_27b(const char *directory)
{
    const char *asset = test_asset("configs/Qwen3.6-27B/tensors.tsv");
    if (asset == NULL)
        SKIP("the official list of tensors is not there");
    char *list = test_read_file(asset, NULL), *rest = NULL, *header = malloc(1 << 20), path[512];
    CHECK(list != NULL && header != NULL);
    size_t used = 0;
    uint64_t offset = 0;
    header[used++] = '{';
    strtok_r(list, "\n", &rest);
    for (char *line; (line = strtok_r(NULL, "\n", &rest)) != NULL;) {
        char name[200], dtype[16], shape[64], *dim = shape;
        CHECK(sscanf(line, "%199s %15s %63s", name, dtype, shape) == 3);
        uint64_t bytes = 2;
        for (char *end; (bytes *= strtoull(dim, &end, 10)) > 0 && *end == ','; dim = end + 1)
            ;
        used += (size_t)sprintf(header + used,
                                "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                                used > 1 ? "," : "", name, dtype, shape, (unsigned long long)offset,
                                (unsigned long long)(offset + bytes));
        offset += bytes;
    }
    header[used++] = '}';
    while (used % 8 != 0) /* data at an odd offset would have to be copied */
        header[used++] = ' ';
    CHECK(offset == 55562855904u);
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    write_sparse(path, header, used, 8 + used + offset);
    free(header);
    free(list);
}

TEST(manifest, official_27b)
{
    char directory[256];
    snprintf(directory, sizeof directory, "%s", test_directory());
    copy_asset("configs/Qwen3.6-27B/config.json", directory, "config.json");
    write_single_27b(directory);
    test_allocator state = {0};
    const qw_allocator allocator = allocator_of(&state);
    qw_checkpoint *c = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_status status = qw_checkpoint_open(&allocator, directory, &c, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    CHECK_INT(c->tensors.count, 1199);
    CHECK_INT(c->role_count[QW_ROLE_BOUND], 851);
    CHECK_INT(c->role_count[QW_ROLE_MTP], 15);
    CHECK_INT(c->role_count[QW_ROLE_VISION], 333);
    CHECK(c->parameters == 26895998464u);
    CHECK_INT(c->generation.end_tokens[0], 248044);
    check_bound(c);
    qw_checkpoint_close(c);
    CHECK_INT(state.outstanding, 0);
}

/* --- Faults --------------------------------------------------------------------------------------- */

TEST(manifest, missing_tensor)
{
    fixture f;
    fixture_begin(&f, fixture_dense, "model.language_model.", true);
    fixture_remove(&f, "model.language_model.layers.2.linear_attn.A_log");
    fixture_write(&f);
    CHECK_REFUSED(&f, QWEN36_ERROR_MISSING_TENSOR, "model.safetensors",
                  "model.language_model.layers.2.linear_attn.A_log");
    fixture_spread(&f, 2);
    fixture_write(&f);
    CHECK_REFUSED(&f, QWEN36_ERROR_MISSING_TENSOR, "model.safetensors.index.json",
                  "model.language_model.layers.2.linear_attn.A_log");
    fixture_end(&f);
}

TEST(manifest, every_tensor_is_needed_with_its_shape)
{
    for (int moe = 0; moe <= 2; moe++) {
        fixture f;
        fixture_begin(&f, moe ? fixture_moe : fixture_dense, "model.", moe != 2);
        for (size_t i = 0; i < f.count; i++) {
            fixture_tensor kept = f.items[i];
            char name[170];
            snprintf(name, sizeof name, "tensor %s ", kept.name);
            if (strcmp(kept.name, "model.embed_tokens.weight") == 0)
                continue; /* without it the prefix is another */
            for (int32_t k = 0; k < kept.rank; k++) {
                f.items[i].shape[k]++;
                fixture_write(&f);
                CHECK_REFUSED(&f, QWEN36_ERROR_TENSOR_SHAPE, "model.safetensors", name, "has shape [",
                              "expected [");
                f.items[i] = kept;
            }
            snprintf(f.items[i].name, sizeof f.items[i].name, "renamed");
            fixture_write(&f);
            bool head = strcmp(kept.name, "lm_head.weight") == 0;
            CHECK_REFUSED(&f, head ? QWEN36_ERROR_TIED_HEAD : QWEN36_ERROR_MISSING_TENSOR,
                          "model.safetensors", head ? "lm_head.weight" : "is missing");
            f.items[i] = kept;
        }
        fixture_end(&f);
    }
}

TEST(manifest, shape_text)
{
    fixture f;
    fixture_begin(&f, fixture_dense, "model.language_model.", true);
    fixture_tensor *t = fixture_find(&f, "model.language_model.layers.0.linear_attn.conv1d.weight");
    t->rank = 2;
    t->shape[1] = 4;
    fixture_write(&f);
    CHECK_REFUSED(
        &f, QWEN36_ERROR_TENSOR_SHAPE,
        "model.safetensors: tensor model.language_model.layers.0.linear_attn.conv1d.weight has shape "
        "[64,4], expected [64,1,4]");
    fixture_end(&f);
}

TEST(manifest, dtype)
{
    fixture f;
    fixture_begin(&f, fixture_dense, "model.language_model.", true);
    strcpy(fixture_find(&f, "model.language_model.layers.1.mlp.up_proj.weight")->dtype, "U8");
    fixture_write(&f);
    CHECK_REFUSED(&f, QWEN36_ERROR_TENSOR_DTYPE, "model.safetensors",
                  "model.language_model.layers.1.mlp.up_proj.weight has dtype U8",
                  "expected BF16, F16 or F32");
    fixture_end(&f);
}

TEST(manifest, tied_head)
{
    const int64_t shape[2] = {48, 20};
    fixture f;
    fixture_begin(&f, fixture_dense, "model.language_model.", true);
    fixture_remove(&f, "lm_head.weight");
    fixture_write(&f);
    CHECK_REFUSED(&f, QWEN36_ERROR_TIED_HEAD, "tie_word_embeddings is false", "model.safetensors",
                  "lm_head.weight");
    fixture_put(
        &f, "config.json",
        fixture_config_with(fixture_dense, "\"tie_word_embeddings\":false", "\"tie_word_embeddings\":true"));
    fixture_add(&f, "lm_head.weight", "BF16", 2, shape);
    fixture_write(&f);
    CHECK_REFUSED(&f, QWEN36_ERROR_TIED_HEAD, "tie_word_embeddings is true", "model.safetensors",
                  "lm_head.weight");
    fixture_end(&f);
}

TEST(manifest, roles)
{
    const int64_t shape[5] = {3, 2, 1, 2, 1};
    fixture f;
    fixture_begin(&f, fixture_moe, "model.language_model.", true);
    const size_t bound = f.count;
    fixture_add(&f, "mtp.fc.weight", "F32", 2, shape);
    fixture_add(&f, "model.visual.patch_embed.proj.weight", "BF16", 5, shape);
    fixture_add(&f, "model.visual.pos_embed.weight", "U8", 2, shape);
    fixture_add(&f, "something.else", "I16", 1, shape);
    fixture_write(&f);
    test_allocator state = {0};
    const qw_allocator allocator = allocator_of(&state);
    qw_checkpoint *c = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    CHECK_MSG(qw_checkpoint_open(&allocator, f.directory, &c, &error) == QWEN36_OK, "%s", error.message);
    CHECK_INT(c->role_count[QW_ROLE_BOUND], bound);
    CHECK_INT(c->role_count[QW_ROLE_MTP], 1);
    CHECK_INT(c->role_count[QW_ROLE_VISION], 2);
    CHECK_INT(c->role_count[QW_ROLE_OTHER], 1);
    qw_checkpoint_close(c);
    CHECK_INT(state.outstanding, 0);
    fixture_end(&f);
}
