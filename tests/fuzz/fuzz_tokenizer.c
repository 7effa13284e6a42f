/* A tokenizer.json and a text: the file is refused with a message, or text comes back from its ids.
 *
 * Random bytes would never make a file with its 256 tokens, so the input edits one that is valid: a count of
 * edits; for each of them where (two bytes), how many bytes go, how many come, and these; the rest is the
 * text. With a count of 255 the rest is the whole file. */
#include "lib/text/tokenizer.h"
#include "tests/fuzz/tokenizer_file.h"

#include <stdlib.h>

enum { FILE_MAX = 1 << 16, TEXT_MAX = 1 << 12 };

static const char settings[] =
    "{\"added_tokens\":[{\"id\":264,\"content\":\"<|x|>\",\"special\":true},{\"id\":265,\"content\":\"<|x\"}]"
    "," TOKENIZER_FILE_MIDDLE
    "\"model\":{\"type\":\"BPE\",\"merges\":[\"a b\",\"ab c\",[\"a\",\"a\"],\"aa aa\",\"Ġ a\",\"l l\",\"e "
    "ll\",\"Ã ©\"],"
    "\"vocab\":{\"ab\":256,\"abc\":257,\"aa\":258,\"aaaa\":259,\"Ġa\":260,\"ll\":261,\"ell\":262,\"Ã©\":263";

/* One edit; returns how much of the input it took, 0 when there is too little. */
static size_t edit(char *file, size_t *length, const uint8_t *data, size_t size)
{
    if (size < 4 || size < 4u + data[3] || *length + data[3] > FILE_MAX)
        return 0;
    size_t at = ((size_t)data[0] << 8 | data[1]) % (*length + 1), gone = QW_MIN(data[2], *length - at);
    memmove(file + at + data[3], file + at + gone, *length - at - gone);
    memcpy(file + at, data + 4, data[3]);
    *length += data[3] - gone;
    return 4u + data[3];
}

/* The bytes of the ids are the text, repaired and normalised: encoding them again gives the same ids. */
static void check_text(const qwen36_tokenizer *t, const char *text, size_t length, uint32_t flags)
{
    static int32_t ids[3 * TEXT_MAX + 8], again[12 * TEXT_MAX + 8];
    static char back[64 * TEXT_MAX];
    size_t count = 0, back_length = 0, again_count = 0;
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_status status = qwen36_tokenizer_encode(t, text, QW_MIN(length, TEXT_MAX), flags, ids,
                                                   QW_COUNT_OF(ids), &count, &error);
    if (status == QWEN36_ERROR_TOKENIZER) /* the regular expression gave up */
        return;
    if (status != QWEN36_OK)
        abort();
    if (flags != 0 || qwen36_tokenizer_decode(t, ids, count, 0, back, sizeof back, &back_length, &error) != 0)
        return;
    if (qw_utf8_valid_prefix(back, back_length) != back_length)
        abort();
    status =
        qwen36_tokenizer_encode(t, back, back_length, 0, again, QW_COUNT_OF(again), &again_count, &error);
    if (status == QWEN36_OK && (again_count != count || memcmp(ids, again, count * sizeof *ids) != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char file[FILE_MAX];
    size_t length = tokenizer_file(settings, file), edits = size > 0 ? data[0] : 0, at = 1, taken = 1;
    const qw_tokenizer_source none = {NULL, NULL, 0};
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_tokenizer *t = NULL;
    if (size == 0)
        return 0;
    if (edits == 255) {
        length = QW_MIN(size - 1, FILE_MAX);
        memcpy(file, data + 1, length);
        at = size;
    }
    for (; edits < 255 && edits > 0 && taken > 0; edits--, at += taken)
        taken = edit(file, &length, data + at, size - at);
    char *exact = malloc(length + 1); /* so that a read behind the end is seen */
    if (exact == NULL)
        return 0;
    memcpy(exact, file, length);
    exact[length] = '\0';
    const qw_allocator allocator = qw_allocator_default();
    const qw_tokenizer_source json = {"fuzz", exact, length};
    qwen36_status status = qw_tokenizer_parse(&allocator, &json, &none, &t, &error);
    if (status != error.status || (t != NULL) != (status == QWEN36_OK))
        abort();
    for (uint32_t flags = 0; t != NULL && flags < 2; flags++)
        check_text(t, (const char *)data + at, size - at, flags);
    qwen36_tokenizer_destroy(t);
    free(exact);
    return 0;
}
