/* The safetensors reader: the verdict on every collected file, and what those leave open. */
#include "lib/weights/dtype.h"
#include "lib/weights/safetensors.h"
#include "tests/harness.h"

/* Reads the header out of a file in memory, as opening a checkpoint does. */
static qwen36_status parse(const char *data, size_t size, qw_tensors *list, char **header,
                           qwen36_error *error)
{
    size_t length = 0;
    unsigned char first[8] = {0};
    memcpy(first, data, QW_MIN(size, sizeof first));
    *error = (qwen36_error)QWEN36_ERROR_INIT;
    *header = NULL;
    qwen36_status status = qw_safetensors_header_length(first, size, "x.safetensors", &length, error);
    if (status != QWEN36_OK)
        return status;
    *header = malloc(length + 1);
    CHECK(*header != NULL);
    memcpy(*header, data + 8, length);
    (*header)[length] = '\0';
    return qw_safetensors_parse(list, 3, *header, length, size, "x.safetensors", error);
}

static qwen36_status verdict(const char *data, size_t size, qwen36_error *error)
{
    test_allocator state = {0, 0, 0, false};
    const qw_allocator allocator = {test_allocate, test_release, &state};
    qw_tensors list = {.allocator = &allocator};
    char *header = NULL;
    qwen36_status status = parse(data, size, &list, &header, error);
    CHECK(status == QWEN36_OK || status == QWEN36_ERROR_SAFETENSORS);
    CHECK_INT(error->status, status);
    qw_tensors_release(&list);
    free(header);
    CHECK_INT(state.outstanding, 0);
    return status;
}

/* "accept" and "reject" stand in the third column; the files named dup_* depend on the reader, and this one
 * is strict. */
TEST(safetensors, collected_files)
{
    const char *path = test_asset("safetensors_cases/EXPECT.tsv");
    if (path == NULL)
        SKIP("the collected files are not there");
    char *table = test_read_file(path, NULL), *rest = NULL;
    CHECK(table != NULL);
    int count = 0;
    strtok_r(table, "\n", &rest);
    for (char *line; (line = strtok_r(NULL, "\n", &rest)) != NULL; count++) {
        char name[100], file[200], expected[20];
        CHECK(sscanf(line, "%99s %*d %19s", name, expected) == 2);
        snprintf(file, sizeof file, "safetensors_cases/%s.safetensors", name);
        size_t size = 0;
        char *data = test_read_file(test_asset(file), &size);
        CHECK_MSG(data != NULL, "%s", file);
        bool accept = strcmp(expected, "accept") == 0 && strncmp(name, "dup_", 4) != 0;
        qwen36_error error;
        qwen36_status status = verdict(data, size, &error);
        CHECK_MSG((status == QWEN36_OK) == accept, "%s: %s", name, error.message);
        free(data);
    }
    free(table);
    CHECK_INT(count, 62);
}

/* A file with this header (padded by spaces to `pad` bytes) and `data` bytes behind it. */
static qwen36_status verdict_of(const char *header, uint64_t data, qwen36_error *error)
{
    const uint64_t length = strlen(header);
    char *file = calloc(1, 8 + length + data);
    CHECK(file != NULL);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    qwen36_status status = verdict(file, 8 + length + data, error);
    free(file);
    return status;
}

#define REFUSED(header, data, reason)                                                                        \
    do {                                                                                                     \
        qwen36_error error_;                                                                                 \
        CHECK_INT(verdict_of(header, data, &error_), QWEN36_ERROR_SAFETENSORS);                              \
        CHECK_MSG(strstr(error_.message, "x.safetensors: ") == error_.message &&                             \
                      strstr(error_.message, reason) != NULL,                                                \
                  "\"%s\" lacks \"%s\"", error_.message, reason);                                            \
    } while (0)

TEST(safetensors, refused)
{
    REFUSED("[]", 0, "not an object");
    REFUSED("{\"a\":1}", 0, "tensor a: its entry is not an object");
    REFUSED("{\"a\":{}}", 0, "tensor a: dtype, shape or data_offsets is missing");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "is missing");
    REFUSED("{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
            "dtype \"(no string)\" is unknown");
    REFUSED("{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
            "dtype \"F31\" is unknown");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, "must be arrays");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]}}", 1, "must hold integers");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1, "must hold integers");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}", 1, "must hold integers");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[[1]],\"data_offsets\":[0,1]}}", 1, "must hold integers");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551616],\"data_offsets\":[0,0]}}", 0,
            "must hold integers");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "two numbers");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1, "two numbers");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{\"0\":1}}}", 1, "must be arrays");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1,
            "make 2 bytes, data_offsets 1");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 1, "[0, 2] in 1 bytes");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2,
            "begins at 1, the one before it ends at 0");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 2,
            "2 bytes of data, its tensors take 1");
    REFUSED("{\"__metadata__\":{\"a\":\"b\",\"\\u0061\":\"c\"}}", 0, "a key stands twice");
    REFUSED("{\"__metadata__\":{},\"__metad\\u0061ta__\":{}}", 0, "stands twice");
    REFUSED("{\"__metadata__\":[]}", 0, "is not an object");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":{\"y\":1,\"y\":2}}}", 0,
            "a key stands twice");
}

TEST(safetensors, header_length)
{
    const unsigned char most[8] = {0x00, 0xe1, 0xf5, 0x05}, more[8] = {0x01, 0xe1, 0xf5, 0x05};
    const unsigned char huge[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    size_t length = 0;
    CHECK_INT(qw_safetensors_header_length(most, 100000008, "x", &length, NULL), QWEN36_OK);
    CHECK_INT(length, 100000000);
    CHECK_INT(qw_safetensors_header_length(most, 100000007, "x", &length, NULL), QWEN36_ERROR_SAFETENSORS);
    CHECK_INT(qw_safetensors_header_length(more, 200000000, "x", &length, NULL), QWEN36_ERROR_SAFETENSORS);
    CHECK_INT(qw_safetensors_header_length(huge, UINT64_MAX, "x", &length, NULL), QWEN36_ERROR_SAFETENSORS);
    CHECK_INT(qw_safetensors_header_length(most, 7, "x", &length, NULL), QWEN36_ERROR_SAFETENSORS);
}

/* Offsets above 2^53, where doubles have holes: 9007199254740993 is odd. */
TEST(safetensors, offsets_are_exact)
{
    char header[] =
        "{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[9007199254740993,9007199254740995]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[9007199254740993],\"data_offsets\":[0,9007199254740993]}}";
    const size_t length = sizeof header - 1;
    const qw_allocator allocator = qw_allocator_default();
    qw_tensors list = {.allocator = &allocator};
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_status status =
        qw_safetensors_parse(&list, 0, header, length, 8 + length + 9007199254740995u, "x", &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    CHECK(list.count == 2 && list.items[1].name[0] == 'b');
    CHECK(list.items[1].offset == 8 + length + 9007199254740993u && list.items[1].bytes == 2);
    CHECK(list.dims[list.items[0].dims_at] == 9007199254740993u);
    qw_tensors_release(&list);
}

/* Names are unescaped in place; tensors come in the order of their data. */
TEST(safetensors, tensors)
{
    char header[] =
        " {\"\\u0062\\n\\ud83d\\ude00\" : {\"shape\":[2,1,3],\"data_offsets\":[4,16],\"dtype\":\"BF16\"},"
        "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]} }";
    const size_t length = sizeof header - 1;
    const qw_allocator allocator = qw_allocator_default();
    qw_tensors list = {.allocator = &allocator};
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_status status = qw_safetensors_parse(&list, 5, header, length, 8 + length + 16, "x", &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    CHECK_INT(list.count, 2);
    const qw_tensor *s = &list.items[0], *b = &list.items[1];
    CHECK(s->name_length == 1 && s->rank == 0 && s->dtype == QW_F32 && s->bytes == 4 &&
          s->offset == 8 + length);
    CHECK(b->name_length == 6 && memcmp(b->name, "b\n\xf0\x9f\x98\x80", 6) == 0);
    CHECK(b->rank == 3 && b->dtype == QW_BF16 && b->shard == 5 && b->offset == s->offset + 4);
    CHECK(list.dims[b->dims_at] == 2 && list.dims[b->dims_at + 1] == 1 && list.dims[b->dims_at + 2] == 3);
    qw_tensors_release(&list);
}

/* Many tensors in an order that is not that of their data. */
TEST(safetensors, sorted_by_offset)
{
    enum { COUNT = 1000 };
    char *header = malloc(COUNT * 100);
    CHECK(header != NULL);
    size_t length = 0;
    for (int i = 0; i < COUNT; i++) {
        int at = i * 387 % COUNT;
        length += (size_t)sprintf(header + length,
                                  "%s\"t%d\":{\"dtype\":\"U16\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                                  i > 0 ? "," : "{", at, 2 * at, 2 * at + 2);
    }
    header[length++] = '}';
    const qw_allocator allocator = qw_allocator_default();
    qw_tensors list = {.allocator = &allocator};
    CHECK_INT(qw_safetensors_parse(&list, 0, header, length, 8 + length + 2 * COUNT, "x", NULL), QWEN36_OK);
    for (uint64_t i = 0; i < COUNT; i++)
        CHECK(list.items[i].offset == 8 + length + 2 * i);
    qw_tensors_release(&list);
    free(header);
}

TEST(safetensors, dtypes)
{
    for (int32_t i = 0; i < QW_DTYPE_COUNT; i++) {
        CHECK_INT(qw_dtype_parse(qw_dtype_name(i)), i);
        CHECK(qw_dtype_bits(i) >= 4 && (!qw_dtype_is_weight(i) || qw_dtype_bits(i) == 8 * qw_dtype_size(i)));
    }
    CHECK_INT(qw_dtype_parse("bf16"), -1);
    CHECK_TEXT(qw_dtype_name(-1), "unknown");
}
