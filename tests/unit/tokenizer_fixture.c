#include "tests/unit/tokenizer_fixture.h"

#include "lib/text/utf8.h"
#include "tests/harness.h"

#include <unistd.h>
#include <utf8proc.h>

const fixture_merge fixture_merges[] = {
    {"h", "e"},       {"l", "l"},           {"he", "ll"},     {"hell", "o"},    {" ", "w"},
    {"o", "r"},       {" w", "or"},         {"l", "d"},       {" wor", "ld"},   {" ", " "},
    {"  ", "  "},     {"a", "a"},           {"aa", "aa"},     {"aa", "a"},      {"\xc3", "\xa9"},
    {"\xe4", "\xbd"}, {"\xe4\xbd", "\xa0"}, {"\n", "\n"},     {"a", "b"},       {"b", "c"},
    {"ab", "c"},      {"t", "h"},           {"th", "e"},      {"\xcc", "\x81"}, {"e", "\xcc\x81"},
    {"=", "="},       {"==", "=="},         {"====", "===="}, {"i", "n"},       {"in", "g"},
    {NULL, NULL}};

size_t fixture_merge_count(void)
{
    return QW_COUNT_OF(fixture_merges) - 1;
}

static const char settings[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": ["
    "{\"id\": %zu, \"content\": \"<|end|>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false,"
    " \"normalized\": false, \"special\": true},"
    "{\"id\": %zu, \"content\": \"<|end|>>\", \"special\": true},"
    "{\"id\": %zu, \"content\": \"<think>\", \"special\": false}],\n"
    "\"normalizer\": {\"type\": \"NFC\"},\n"
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
    "{\"Regex\": \"%s\"}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", "
    "\"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}]},\n"
    "\"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false},\n"
    "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},\n"
    "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": "
    "\"\","
    " \"end_of_word_suffix\": \"\", \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": "
    "false,\n";

/* Appends bytes as the characters of a byte-level vocabulary, escaped for JSON. */
static char *put_bytes(char *o, const char *bytes, size_t length)
{
    static const char printable[] = "\xa1\xac\xae\xff";
    const unsigned char *p = (const unsigned char *)printable;
    for (size_t i = 0; i < length; i++) {
        int byte = (unsigned char)bytes[i], code = 0x100;
        if ((byte >= '!' && byte <= '~') || (byte >= p[0] && byte <= p[1]) || byte >= p[2]) {
            code = byte;
        } else {
            for (int b = 0; b < byte; b++)
                code += !((b >= '!' && b <= '~') || (b >= p[0] && b <= p[1]) || b >= p[2]);
        }
        if (code == '"' || code == '\\')
            *o++ = '\\';
        o += qw_utf8_write(code, o);
    }
    return o;
}

static char *put_text(char *o, const char *text)
{
    return put_bytes(o, text, strlen(text));
}

/* A text as a JSON string's contents. */
static void escape(const char *text, char *o)
{
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            *o++ = '\\';
        *o++ = *text;
    }
    *o = '\0';
}

char *fixture_json(const char *pattern)
{
    char *text = malloc(FIXTURE_TEXT_MAX), *o = text, escaped[4096];
    size_t merges = fixture_merge_count();
    CHECK(text != NULL);
    escape(pattern == NULL ? qw_pattern_words_marks : pattern, escaped);
    o += sprintf(o, settings, 256 + merges, 257 + merges, 258 + merges, escaped);
    o += sprintf(o, "\"vocab\": {");
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        o += sprintf(o, "%s\"", byte == 0 ? "" : ", ");
        o = put_bytes(o, &c, 1);
        o += sprintf(o, "\": %d", byte);
    }
    for (size_t i = 0; i < merges; i++) {
        o += sprintf(o, ", \"");
        o = put_text(put_text(o, fixture_merges[i].left), fixture_merges[i].right);
        o += sprintf(o, "\": %zu", 256 + i);
    }
    o += sprintf(o, "},\n\"merges\": [");
    for (size_t i = 0; i < merges; i++) {
        o += sprintf(o, "%s\"", i == 0 ? "" : ", ");
        o = put_text(o, fixture_merges[i].left);
        *o++ = ' ';
        o = put_text(o, fixture_merges[i].right);
        *o++ = '"';
    }
    sprintf(o, "]}}\n");
    return text;
}

char *fixture_replace(char *text, const char *from, const char *to)
{
    char *place = strstr(text, from), *copy = malloc(strlen(text) + strlen(to) + 1);
    CHECK_MSG(place != NULL && copy != NULL, "%s is not there", from);
    size_t before = (size_t)(place - text);
    memcpy(copy, text, before);
    strcpy(stpcpy(copy + before, to), place + strlen(from));
    free(text);
    return copy;
}

qwen36_status fixture_load(const char *json, const char *config, const qwen36_allocator *hooks,
                           qwen36_tokenizer **out, qwen36_error *error)
{
    static const char *directory; /* one for each test: gone when the test has ended */
    char path[512];
    if (directory == NULL || access(directory, F_OK) != 0)
        directory = test_directory();
    snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    test_write_file(path, json, strlen(json));
    snprintf(path, sizeof path, "%s/tokenizer_config.json", directory);
    if (config != NULL)
        test_write_file(path, config, strlen(config));
    else
        remove(path);
    return qwen36_tokenizer_load(directory, hooks, out, error);
}

qwen36_tokenizer *fixture_tokenizer(const char *pattern)
{
    qwen36_tokenizer *tokenizer = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    char *json = fixture_json(pattern);
    qwen36_status status = fixture_load(json, NULL, NULL, &tokenizer, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    free(json);
    return tokenizer;
}

const char *fixture_ids(const qwen36_tokenizer *tokenizer, const char *text, size_t length, uint32_t flags)
{
    static char shown[8192];
    int32_t ids[1024];
    size_t count = 0;
    char *o = shown;
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_status status = qwen36_tokenizer_encode(tokenizer, text, length, flags, ids, 1024, &count, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    *o = '\0';
    for (size_t i = 0; i < count; i++)
        o += sprintf(o, i == 0 ? "%d" : " %d", ids[i]);
    return shown;
}

uint32_t fixture_random(uint64_t *state, uint32_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) * limit >> 31);
}

/* Ranges to draw from: scripts with marks, what composes, white space, symbols. */
static const struct {
    int32_t first, last;
} ranges[] = {{'a', 'e'},         {' ', '~'},         {0xa0, 0x17f},      {0x300, 0x345},
              {0x370, 0x52f},     {0x591, 0x6ff},     {0x900, 0xe7f},     {0x1100, 0x11ff},
              {0x1d00, 0x1fff},   {0x2000, 0x206f},   {0x20d0, 0x20f0},   {0x2100, 0x2bff},
              {0x3000, 0x30ff},   {0x4e00, 0x4e40},   {0xac00, 0xac40},   {0xf900, 0xfa6d},
              {0xfb1d, 0xfb4e},   {0x10000, 0x10fff}, {0x11000, 0x1134f}, {0x1d100, 0x1d1ff},
              {0x1f300, 0x1f64f}, {0x20000, 0x20040}, {0x2f800, 0x2fa1d}, {0xe0100, 0xe01ef}};
static const int32_t odd[] = {' ',    ' ',    '\n',   '\r',   '\t',    '\'',   's',    'S',   0x17f,
                              0x85,   0xa0,   0x180e, 0x2028, 0x3000,  '\v',   0x1c,   0x301, 0x323,
                              0x1161, 0x11a8, '1',    0xb2,   0x1d7ce, 0x2160, 0x200d, '_',   0};

/* Assigned after Unicode 14, within the ranges above: classes differ between libraries. */
static bool is_new(int32_t code)
{
    static const int32_t later[] = {0xcf3,   0xece,   0x10efd, 0x10efe, 0x10eff, 0x11240, 0x11241,
                                    0x1123f, 0x1f6dc, 0x10ec2, 0x10ec3, 0x10ec4, 0x897};
    for (size_t i = 0; i < QW_COUNT_OF(later); i++)
        if (later[i] == code)
            return true;
    return false;
}

static int32_t random_code(uint64_t *state)
{
    int32_t code = 0;
    if (fixture_random(state, 3) == 0)
        return odd[fixture_random(state, QW_COUNT_OF(odd))];
    do {
        uint32_t i = fixture_random(state, QW_COUNT_OF(ranges));
        code = ranges[i].first +
               (int32_t)fixture_random(state, (uint32_t)(ranges[i].last - ranges[i].first + 1));
    } while (utf8proc_category(code) == UTF8PROC_CATEGORY_CN || is_new(code));
    return code;
}

size_t fixture_random_text(uint64_t *state, char *text, size_t room)
{
    size_t length = 0, wanted = fixture_random(state, (uint32_t)room);
    while (length + QW_UTF8_CODE_SIZE <= wanted) {
        int32_t code = random_code(state);
        for (uint32_t n = fixture_random(state, 8) == 0 ? fixture_random(state, 6) : 1;
             n > 0 && length + QW_UTF8_CODE_SIZE <= wanted; n--)
            length += qw_utf8_write(code, text + length);
    }
    return length;
}
