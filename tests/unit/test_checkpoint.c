/* Opening a directory: one file or an index with shards, and every way in which the files can be wrong. */
#include "lib/weights/checkpoint.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

static const char *const prefix = "model.language_model.";

static void path_in(char path[512], const fixture *f, const char *file)
{
    snprintf(path, 512, "%s/%s", f->directory, file);
}

static qw_checkpoint *opened(const fixture *f)
{
    const qw_allocator allocator = qw_allocator_default();
    qw_checkpoint *checkpoint = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_status status = qw_checkpoint_open(&allocator, f->directory, &checkpoint, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    CHECK(error.status == QWEN36_OK && error.message[0] == '\0');
    return checkpoint;
}

/* A dense checkpoint over three shards. */
static void begin(fixture *f)
{
    fixture_begin(f, fixture_dense, prefix, true);
    fixture_spread(f, 3);
}

/* --- What is accepted ----------------------------------------------------------------------------- */

TEST(checkpoint, one_file)
{
    fixture f;
    fixture_begin(&f, fixture_moe, prefix, true);
    fixture_write(&f);
    qw_checkpoint *c = opened(&f);
    CHECK(c->shard_count == 1 && !c->indexed && c->fused_experts && c->tensors.count == f.count);
    CHECK_TEXT(c->prefix, prefix);
    const qw_tensor *t = qw_checkpoint_find(c, "model.language_model.layers.3.self_attn.k_proj.weight");
    CHECK(t != NULL && t->rank == 2 && t->bytes == 2 * 32 * 20 && t->role == QW_ROLE_BOUND);
    CHECK(qw_checkpoint_find(c, "model.language_model.layers.2.self_attn.k_proj.weight") == NULL);
    CHECK(c->generation.end_count == 2 && c->generation.end_tokens[1] == 9 && !c->generation.do_sample);
    qw_checkpoint_close(c);
    fixture_end(&f);
}

TEST(checkpoint, shards)
{
    fixture f;
    begin(&f);
    fixture_write(&f);
    qw_checkpoint *c = opened(&f);
    CHECK(c->shard_count == 3 && c->indexed && c->tensors.count == f.count);
    for (size_t i = 0; i < f.count; i++) {
        const qw_tensor *t = qw_checkpoint_find(c, f.items[i].name);
        CHECK(t != NULL);
        CHECK_TEXT(c->shards[t->shard].file, fixture_shard_name(f.items[i].shard));
    }
    qw_checkpoint_close(c);
    fixture_end(&f);
}

TEST(checkpoint, text_only_names_and_experts_apart)
{
    fixture f;
    fixture_begin(&f, fixture_moe, "model.", false);
    fixture_write(&f);
    qw_checkpoint *c = opened(&f);
    CHECK(!c->fused_experts && c->role_count[QW_ROLE_BOUND] == f.count);
    CHECK_TEXT(c->prefix, "model.");
    qw_checkpoint_close(c);
    fixture_end(&f);
}

/* A tensor that lies in two shards is taken from the one that the index names; what the index does not list
 * is not read. */
TEST(checkpoint, index_decides)
{
    const int64_t shape[2] = {28, 20};
    const char *name = "model.language_model.layers.1.mlp.up_proj.weight";
    fixture f;
    begin(&f);
    const int32_t place = fixture_find(&f, name)->named;
    fixture_tensor *copy = fixture_add(&f, name, "U8", 2, shape);
    copy->shard = (place + 1) % 3;
    copy->named = -1;
    fixture_add(&f, "unlisted", "BF16", 2, shape)->named = -1;
    fixture_write(&f);
    qw_checkpoint *c = opened(&f);
    CHECK_INT(c->tensors.count, f.count - 2);
    CHECK_TEXT(c->shards[qw_checkpoint_find(c, name)->shard].file, fixture_shard_name(place));
    CHECK(qw_checkpoint_find(c, "unlisted") == NULL);
    qw_checkpoint_close(c);
    fixture_end(&f);
}

TEST(checkpoint, symbolic_links)
{
    fixture f;
    char path[512], target[600];
    begin(&f);
    fixture_write(&f);
    path_in(path, &f, fixture_shard_name(1));
    snprintf(target, sizeof target, "%s/blob", f.directory);
    CHECK_INT(rename(path, target), 0);
    CHECK_INT(symlink("blob", path), 0);
    qw_checkpoint_close(opened(&f));
    fixture_end(&f);
}

TEST(checkpoint, generation_file)
{
    fixture f;
    begin(&f);
    fixture_write(&f);
    fixture_put(&f, "generation_config.json",
                "{\"eos_token_id\":[46,44],\"bos_token_id\":1,\"do_sample\":true,"
                "\"temperature\":0.5,\"top_k\":20,\"top_p\":0.95}");
    qw_checkpoint *c = opened(&f);
    CHECK(c->generation.do_sample && c->generation.temperature == 0.5f && c->generation.top_k == 20);
    CHECK(c->generation.end_count == 2 && c->generation.end_tokens[0] == 46 && c->dims.bos_token == 1);
    qw_checkpoint_close(c);
    fixture_put(&f, "generation_config.json", "{\"eos_token_id\":[48]}");
    CHECK_REFUSED(&f, QWEN36_ERROR_CONFIG, "generation_config.json", "eos_token_id");
    fixture_put(&f, "generation_config.json", "{");
    CHECK_REFUSED(&f, QWEN36_ERROR_JSON, "generation_config.json");
    fixture_end(&f);
}

/* --- Files that are not there, or cannot be read ---------------------------------------------------- */

TEST(checkpoint, files_not_found)
{
    fixture f;
    begin(&f);
    CHECK_REFUSED(&f, QWEN36_ERROR_FILE_NOT_FOUND, f.directory, "model.safetensors.index.json",
                  "model.safetensors");
    fixture_write(&f);
    char path[512];
    path_in(path, &f, fixture_shard_name(2));
    CHECK_INT(unlink(path), 0);
    CHECK_REFUSED(&f, QWEN36_ERROR_MISSING_SHARD, path, "model.safetensors.index.json");
    CHECK_INT(symlink("nowhere", path), 0);
    CHECK_REFUSED(&f, QWEN36_ERROR_MISSING_SHARD, path);
    path_in(path, &f, "config.json");
    CHECK_INT(unlink(path), 0);
    CHECK_REFUSED(&f, QWEN36_ERROR_FILE_NOT_FOUND, path);
    snprintf(f.directory + strlen(f.directory), 16, "/absent");
    CHECK_REFUSED(&f, QWEN36_ERROR_FILE_NOT_FOUND, "/absent/config.json");
    fixture_end(&f);
}

TEST(checkpoint, files_unreadable)
{
    fixture f;
    char path[512];
    begin(&f);
    fixture_write(&f);
    path_in(path, &f, fixture_shard_name(1));
    CHECK_INT(unlink(path), 0);
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK_REFUSED(&f, QWEN36_ERROR_FILE_READ, path, "not a regular file");
    CHECK_INT(rmdir(path), 0);
    CHECK_INT(mkfifo(path, 0600), 0); /* must not wait for a writer */
    CHECK_REFUSED(&f, QWEN36_ERROR_FILE_READ, path, "not a regular file");
    CHECK_INT(unlink(path), 0);
    CHECK_INT(symlink(fixture_shard_name(1), path), 0);
    CHECK_REFUSED(&f, QWEN36_ERROR_FILE_READ, path, "cannot open it");
    path_in(path, &f, "config.json");
    CHECK_INT(unlink(path), 0);
    CHECK_INT(symlink("/dev/zero", path), 0);
    CHECK_REFUSED(&f, QWEN36_ERROR_FILE_READ, path, "not a regular file");
    fixture_end(&f);
}

/* Root reads everything, so this one needs another user. */
TEST(checkpoint, file_without_permission)
{
    fixture f;
    char path[512];
    begin(&f);
    fixture_write(&f);
    path_in(path, &f, fixture_shard_name(0));
    CHECK_INT(chmod(path, 0), 0);
    if (geteuid() == 0) { /* root may read every file: be somebody else meanwhile */
        CHECK_INT(chmod(f.directory, 0755), 0);
        CHECK_INT(seteuid(65534), 0);
    }
    CHECK_REFUSED(&f, QWEN36_ERROR_FILE_READ, path, "cannot open it");
    if (getuid() == 0)
        CHECK_INT(seteuid(0), 0);
    fixture_end(&f);
}

TEST(checkpoint, oversized_config)
{
    fixture f;
    char path[512];
    begin(&f);
    fixture_write(&f);
    path_in(path, &f, "config.json");
    CHECK_INT(truncate(path, (4 << 20) + 1), 0);
    CHECK_REFUSED(&f, QWEN36_ERROR_FILE_READ, path, "4194305 bytes");
    CHECK_INT(truncate(path, 4 << 20), 0); /* the zeros behind the text */
    CHECK_REFUSED(&f, QWEN36_ERROR_JSON, "config.json", "text after the value");
    fixture_end(&f);
}

/* --- The index -------------------------------------------------------------------------------------- */

TEST(checkpoint, shard_lacks_tensor)
{
    const char *name = "model.language_model.layers.1.mlp.up_proj.weight";
    fixture f;
    begin(&f);
    const int32_t place = fixture_find(&f, name)->named;
    fixture_find(&f, name)->shard = (place + 1) % 3; /* it lies elsewhere: still refused */
    fixture_write(&f);
    CHECK_REFUSED(&f, QWEN36_ERROR_INDEX_MISMATCH, fixture_shard_name(place), name,
                  "model.safetensors.index.json");
    fixture_end(&f);
}

TEST(checkpoint, index_path_tricks)
{
    static const char *const names[] = {
        "../x.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", "", "./x"};
    fixture f;
    begin(&f);
    fixture_write(&f);
    for (size_t i = 0; i < QW_COUNT_OF(names); i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"weight_map\":{\"some.weight\":\"%s\"}}", names[i]);
        fixture_put(&f, "model.safetensors.index.json", text);
        snprintf(text, sizeof text, "\"%s\"", names[i]);
        CHECK_REFUSED(&f, QWEN36_ERROR_INDEX_MISMATCH, "model.safetensors.index.json", "some.weight", text);
    }
    char text[400] = "{\"weight_map\":{\"w\":\"";
    memset(text + strlen(text), 'x', 256);
    strcat(text, "\"}}");
    fixture_put(&f, "model.safetensors.index.json", text);
    CHECK_REFUSED(&f, QWEN36_ERROR_INDEX_MISMATCH, "plain name");
    fixture_end(&f);
}

TEST(checkpoint, malformed_index)
{
    static const struct {
        const char *text;
        qwen36_status status;
    } cases[] = {
        {"", QWEN36_ERROR_JSON},
        {"{\"weight_map\":{}", QWEN36_ERROR_JSON},
        {"{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", QWEN36_ERROR_JSON},
        {"[]", QWEN36_ERROR_INDEX_MISMATCH},
        {"{}", QWEN36_ERROR_INDEX_MISMATCH},
        {"{\"weight_map\":{}}", QWEN36_ERROR_INDEX_MISMATCH},
        {"{\"weight_map\":[\"x\"]}", QWEN36_ERROR_INDEX_MISMATCH},
        {"{\"weight_map\":{\"a\":1}}", QWEN36_ERROR_INDEX_MISMATCH},
        {"{\"weight_map\":{\"a\":null}}", QWEN36_ERROR_INDEX_MISMATCH},
    };
    fixture f;
    begin(&f);
    fixture_write(&f);
    for (size_t i = 0; i < QW_COUNT_OF(cases); i++) {
        fixture_put(&f, "model.safetensors.index.json", cases[i].text);
        CHECK_REFUSED(&f, cases[i].status, "model.safetensors.index.json");
    }
    fixture_end(&f);
}

/* --- Damaged shards --------------------------------------------------------------------------------- */

/* Cut after every byte of the header, and at some places in the data. */
TEST(checkpoint, truncated)
{
    fixture f;
    char path[512];
    struct stat info;
    fixture_begin(&f, fixture_moe, prefix, true);
    fixture_write(&f);
    path_in(path, &f, "model.safetensors");
    CHECK_INT(stat(path, &info), 0);
    for (off_t size = info.st_size - 1; size >= 0; size -= size > 12000 ? 997 : 41) {
        CHECK_INT(truncate(path, size), 0);
        CHECK_REFUSED(&f, QWEN36_ERROR_SAFETENSORS, "model.safetensors: ");
    }
    fixture_end(&f);
}

TEST(checkpoint, trailing_bytes)
{
    fixture f;
    char path[512];
    struct stat info;
    begin(&f);
    fixture_write(&f);
    path_in(path, &f, fixture_shard_name(1));
    CHECK_INT(stat(path, &info), 0);
    CHECK_INT(truncate(path, info.st_size + 1), 0);
    CHECK_REFUSED(&f, QWEN36_ERROR_SAFETENSORS, fixture_shard_name(1));
    fixture_end(&f);
}

TEST(checkpoint, names_out_of_files_stay_in_line)
{
    fixture f;
    begin(&f);
    fixture_write(&f);
    fixture_put(&f, "model.safetensors.index.json", "{\"weight_map\":{\"a\\nb\":\"c\\u001b/\"}}");
    CHECK_REFUSED(&f, QWEN36_ERROR_INDEX_MISMATCH, "a?b", "c?/");
    fixture_end(&f);
}

/* No text wanted, or a struct of another version: the status alone. */
TEST(checkpoint, without_error)
{
    const qw_allocator allocator = qw_allocator_default();
    qw_checkpoint *checkpoint = NULL;
    qwen36_error other = {4, 0, {0}};
    CHECK_INT(qw_checkpoint_open(&allocator, "/nowhere", &checkpoint, NULL), QWEN36_ERROR_FILE_NOT_FOUND);
    CHECK_INT(qw_checkpoint_open(&allocator, "/nowhere", &checkpoint, &other), QWEN36_ERROR_FILE_NOT_FOUND);
    CHECK(checkpoint == NULL && other.status == 0);
    qw_checkpoint_close(NULL);
}
