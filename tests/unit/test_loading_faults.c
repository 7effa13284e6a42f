/* Every allocation of a load fails once, and from there on: ours through the allocator, cJSON's through its
 * hooks (this program is their owner, as a host would be). Each time: out of memory, and nothing is left. */
#include "lib/base/json.h"
#include "lib/model/weights.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint_fixture.h"

static test_allocator parser;

static void *parser_malloc(size_t size)
{
    return test_allocate(&parser, size, 16);
}

static void parser_free(void *memory)
{
    if (memory != NULL)
        test_release(&parser, memory);
}

/* Opens and binds; whatever happens, all memory is back. */
static qwen36_status load(const fixture *f, int32_t access, test_allocator *ours, qwen36_error *error)
{
    const qw_allocator allocator = {test_allocate, test_release, ours};
    qw_checkpoint *checkpoint = NULL;
    qw_weights weights = {0};
    *error = (qwen36_error)QWEN36_ERROR_INIT;
    qwen36_status status = qw_checkpoint_open(&allocator, f->directory, &checkpoint, error);
    CHECK((checkpoint != NULL) == (status == QWEN36_OK));
    if (status == QWEN36_OK)
        status = qw_weights_bind(&allocator, checkpoint, access, NULL, NULL, &weights, error);
    qw_weights_release(&weights);
    qw_checkpoint_close(checkpoint);
    CHECK_INT(ours->outstanding, 0);
    CHECK_INT(parser.outstanding, 0);
    return status;
}

static void fail_each(const fixture *f, int32_t access, bool in_parser, bool forever)
{
    for (long k = 1;; k++) {
        test_allocator ours = {0};
        qwen36_error error;
        parser = (test_allocator){0};
        test_allocator *failing = in_parser ? &parser : &ours;
        failing->fail_at = k;
        failing->forever = forever;
        qwen36_status status = load(f, access, &ours, &error);
        if (failing->allocations < k) { /* the k-th was not needed */
            CHECK_INT(status, QWEN36_OK);
            CHECK(k > 20);
            return;
        }
        CHECK_MSG(status == QWEN36_ERROR_OUT_OF_MEMORY && error.status == status, "allocation %ld: %d %s", k,
                  status, error.message);
        CHECK(strstr(error.message, "memory") != NULL);
    }
}

static void fail_all(const char *config, bool fused, int32_t shards, int32_t pad)
{
    cJSON_Hooks hooks = {parser_malloc, parser_free};
    fixture f;
    fixture_begin(&f, config, "model.", fused);
    if (shards > 0)
        fixture_spread(&f, shards);
    f.pad = pad;
    fixture_write(&f);
    fixture_put(&f, "generation_config.json", "{\"eos_token_id\":[1,2],\"do_sample\":true}");
    cJSON_InitHooks(&hooks);
    for (int way = 0; way < 4; way++)
        fail_each(&f, way & 1 ? QWEN36_WEIGHTS_READ : QWEN36_WEIGHTS_MAP, way & 2, way & 1);
    cJSON_InitHooks(NULL);
    fixture_end(&f);
}

TEST(loading_faults, one_file)
{
    fail_all(fixture_dense, true, 0, 1);
}

TEST(loading_faults, shards)
{
    fail_all(fixture_moe, false, 3, 0);
}

/* The table of a large object's keys, and a name with escapes. */
TEST(loading_faults, json)
{
    char text[1024] = "{\"a\":\"\\u00e9\"";
    cJSON_Hooks hooks = {parser_malloc, parser_free};
    for (int i = 0; i < 20; i++)
        snprintf(text + strlen(text), 32, ",\"k%d\":%d", i, i);
    strcat(text, "}");
    cJSON_InitHooks(&hooks);
    for (long k = 1;; k++) {
        qwen36_error error = QWEN36_ERROR_INIT;
        parser = (test_allocator){.fail_at = k};
        cJSON *tree = qw_json_parse(text, strlen(text), "x.json", &error);
        CHECK(tree != NULL || error.status == QWEN36_ERROR_OUT_OF_MEMORY);
        qw_json_delete(tree);
        CHECK_INT(parser.outstanding, 0);
        if (tree != NULL)
            break;
    }
    cJSON_InitHooks(NULL);
    CHECK(parser.allocations > 40);
}
