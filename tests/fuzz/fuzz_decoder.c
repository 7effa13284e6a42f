/* Tokens, stop strings and ends of text through the streaming decoder, against a plain reference: the whole
 * text decoded at once, and a search over it for the stop that ends first.
 *
 * The first byte chooses the tokenizer (1), whether special tokens are skipped (2), how many stop strings
 * there are (4, 8), and whether they come with their lengths (16). Each of these has a byte whose low half is
 * its length, and its bytes. The rest are tokens: a byte is that byte's token, 255 and a byte one of the
 * others, two of which do not exist, and 254 ends the text. */
#include "lib/text/tokenizer.h"
#include "tests/fuzz/tokenizer_file.h"

#include <stdlib.h>

enum { BYTES = 256, STOPS_MAX = 3, STOP_ROOM = 64, TOKENS_MAX = 256, TEXT_MAX = 32 * TOKENS_MAX };

/* Behind the bytes: texts that begin stops, and parts of characters. */
static const char *const SETTINGS[2] = {
    "{\"added_tokens\":[{\"id\":263,\"content\":\"<|x|>\",\"special\":true},{\"id\":264,\"content\":\"<|x\"}]"
    "," TOKENIZER_FILE_MIDDLE
    "\"model\":{\"type\":\"BPE\",\"merges\":[\"a b\",\"ab c\",\"a a\",\"aa aa\",\"Ġ a\",\"l l\",\"Ã ©\"],"
    "\"vocab\":{\"ab\":256,\"abc\":257,\"aa\":258,\"aaaa\":259,\"Ġa\":260,\"ll\":261,\"Ã©\":262",
    "{\"added_tokens\":[{\"id\":261,\"content\":\"\\u00e9\\ud83d\\ude00\",\"special\":true},{\"id\":262,"
    "\"content\":\"</stop></stop>\"}]," TOKENIZER_FILE_MIDDLE
    "\"model\":{\"type\":\"BPE\",\"merges\":[\"ä ½\",\"½ ł\",\"ï ¿\",\"© a\",\"ð Ł\"],"
    "\"vocab\":{\"ä½\":256,\"½ł\":257,\"ï¿\":258,\"©a\":259,\"ðŁ\":260"};

typedef struct input {
    const uint8_t *data;
    size_t size;
} input;

/* The stop strings of a request. */
typedef struct request {
    char bytes[STOPS_MAX][STOP_ROOM];
    const char *stops[STOPS_MAX];
    size_t lengths[STOPS_MAX];
    qwen36_decoder_options options;
    int refused; /* one of them is empty */
} request;

/* The text since the last end. */
typedef struct segment {
    int32_t ids[TOKENS_MAX];
    size_t count;
    char shown[3 * TEXT_MAX];
    size_t shown_length;
    int32_t stopped_before; /* what the last text left in the decoder, which holds until a push */
} segment;

static void require(int promise)
{
    if (!promise)
        abort();
}

static uint8_t take(input *in)
{
    if (in->size == 0)
        return 0;
    in->size--;
    return *in->data++;
}

static qwen36_tokenizer *make_tokenizer(const char *settings)
{
    static char file[1 << 14];
    const qw_tokenizer_source json = {"fuzz", file, tokenizer_file(settings, file)}, none = {NULL, NULL, 0};
    const qw_allocator allocator = qw_allocator_default();
    qwen36_tokenizer *t = NULL;
    require(qw_tokenizer_parse(&allocator, &json, &none, &t, NULL) == QWEN36_OK);
    return t;
}

static void take_stops(input *in, uint8_t choice, request *r)
{
    qwen36_decoder_options_init(&r->options, sizeof r->options);
    r->options.flags = choice >> 1 & 1;
    r->options.stop_count = choice >> 2 & 3;
    r->options.stops = r->stops;
    r->options.stop_lengths = (choice & 16) != 0 ? r->lengths : NULL;
    r->refused = 0;
    for (size_t i = 0; i < r->options.stop_count; i++) {
        char raw[16];
        size_t length = take(in) & 15;
        for (size_t j = 0; j < length; j++)
            raw[j] = (char)take(in);
        length = qw_utf8_repair(raw, length, r->bytes[i], NULL);
        r->bytes[i][length] = '\0';
        r->stops[i] = r->bytes[i];
        r->lengths[i] = r->options.stop_lengths != NULL ? length : strlen(r->bytes[i]);
        r->refused = r->refused || r->lengths[i] == 0;
    }
}

/* ---- the reference ------------------------------------------------------------------------------------- */

/* Where the text ends for the stops: the stop that ends first, of those the one that begins first. Its index
 * goes into *stop, -1 if there is none; the return value is where the text ends. */
static size_t search(const request *r, const char *text, size_t length, int32_t *stop)
{
    *stop = -1;
    for (size_t end = 1; end <= length; end++) {
        size_t begin = end;
        for (size_t i = 0; i < r->options.stop_count; i++) {
            size_t size = r->lengths[i];
            if (size <= end && end - size < begin && memcmp(text + end - size, r->stops[i], size) == 0) {
                begin = end - size;
                *stop = (int32_t)i;
            }
        }
        if (*stop >= 0)
            return begin;
    }
    return length;
}

/* Whether a text is empty or begins a stop, so that it may be held back. */
static int may_become_stop(const request *r, const char *text, size_t length)
{
    int may = length == 0;
    for (size_t i = 0; i < r->options.stop_count; i++)
        may = may || (length < r->lengths[i] && memcmp(text, r->stops[i], length) == 0);
    return may;
}

/* ---- the promises -------------------------------------------------------------------------------------- */

/* Text that came out is UTF-8, ends with a NUL, and goes on where the last one ended. */
static void show(segment *s, const char *text, size_t length)
{
    require(text != NULL && text[length] == '\0' && qw_utf8_valid_prefix(text, length) == length);
    require(s->shown_length + length <= sizeof s->shown);
    memcpy(s->shown + s->shown_length, text, length);
    s->shown_length += length;
}

/* The text of the segment so far as one decode gives it; `whole`: with what a character lacks its end. */
static size_t decode(const qwen36_tokenizer *t, const request *r, const segment *s, int whole, char *text)
{
    static char raw[TEXT_MAX];
    size_t length = 0, held = 0;
    require(qwen36_tokenizer_decode(t, s->ids, s->count, r->options.flags, raw, sizeof raw, &length, NULL) ==
            QWEN36_OK);
    return qw_utf8_repair(raw, length, text, whole ? NULL : &held);
}

/* What was shown is the text up to its stop; before the end of the text, but for what may become one. */
static void compare(const qwen36_tokenizer *t, const request *r, const segment *s,
                    const qwen36_decoder *decoder, int ended)
{
    static char text[3 * TEXT_MAX];
    int32_t stop;
    size_t length = search(r, text, decode(t, r, s, ended, text), &stop);
    require(qwen36_decoder_stopped(decoder) == stop);
    require(s->shown_length <= length && memcmp(text, s->shown, s->shown_length) == 0);
    if (ended || stop >= 0)
        require(s->shown_length == length);
    else
        require(may_become_stop(r, text + s->shown_length, length - s->shown_length));
}

static void push(const qwen36_tokenizer *t, const request *r, segment *s, qwen36_decoder *decoder, int32_t id)
{
    const char *text = NULL;
    size_t length = 0;
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_status status = qwen36_decoder_push(decoder, id, &text, &length, &error);
    require(error.status == status && (status == QWEN36_OK) == (id >= 0 && id < qwen36_tokenizer_size(t)));
    if (status != QWEN36_OK) {
        require(status == QWEN36_ERROR_TOKEN_ID);
        if (s->count == 0)
            require(qwen36_decoder_stopped(decoder) == s->stopped_before);
        return;
    }
    s->ids[s->count++] = id;
    show(s, text, length);
    compare(t, r, s, decoder, 0);
}

/* The same bytes one by one, which are the first tokens, give the same text. */
static void push_bytes(const qwen36_tokenizer *t, const request *r, const segment *s)
{
    static segment bytes;
    static char raw[TEXT_MAX];
    qwen36_decoder *decoder = NULL;
    const char *text = NULL;
    size_t count = 0, length = 0;
    bytes.shown_length = 0;
    require(qwen36_tokenizer_decode(t, s->ids, s->count, r->options.flags, raw, sizeof raw, &count, NULL) ==
            QWEN36_OK);
    require(qwen36_decoder_create(t, &r->options, &decoder, NULL) == QWEN36_OK);
    for (size_t i = 0; i < count; i++) {
        require(qwen36_decoder_push(decoder, (uint8_t)raw[i], &text, &length, NULL) == QWEN36_OK);
        show(&bytes, text, length);
    }
    require(qwen36_decoder_finish(decoder, &text, &length, NULL) == QWEN36_OK);
    show(&bytes, text, length);
    require(bytes.shown_length == s->shown_length && memcmp(bytes.shown, s->shown, s->shown_length) == 0);
    qwen36_decoder_destroy(decoder);
}

/* The end of the text; the decoder is then as new, but for the stop that it remembers. */
static void finish(const qwen36_tokenizer *t, const request *r, segment *s, qwen36_decoder *decoder)
{
    const char *text = NULL;
    size_t length = 0;
    int32_t stopped = s->count > 0 ? qwen36_decoder_stopped(decoder) : s->stopped_before;
    require(qwen36_decoder_finish(decoder, &text, &length, NULL) == QWEN36_OK);
    show(s, text, length);
    if (s->count > 0) {
        compare(t, r, s, decoder, 1);
        push_bytes(t, r, s);
        require(stopped < 0 || qwen36_decoder_stopped(decoder) == stopped);
    } else {
        require(length == 0 && qwen36_decoder_stopped(decoder) == stopped);
    }
    s->stopped_before = qwen36_decoder_stopped(decoder);
    require(qwen36_decoder_finish(decoder, &text, &length, NULL) == QWEN36_OK && length == 0);
    require(qwen36_decoder_stopped(decoder) == s->stopped_before);
    s->count = s->shown_length = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static qwen36_tokenizer *tokenizers[2];
    static request r;
    static segment s;
    input in = {data, size};
    uint8_t choice = take(&in);
    qwen36_decoder *decoder = NULL;
    if (tokenizers[choice & 1] == NULL)
        tokenizers[choice & 1] = make_tokenizer(SETTINGS[choice & 1]);
    const qwen36_tokenizer *t = tokenizers[choice & 1];
    take_stops(&in, choice, &r);
    qwen36_status status = qwen36_decoder_create(t, &r.options, &decoder, NULL);
    require(status == (r.refused ? QWEN36_ERROR_ARGUMENT : QWEN36_OK) && (decoder == NULL) == r.refused);
    s.count = s.shown_length = 0;
    s.stopped_before = -1;
    while (decoder != NULL && in.size > 0) {
        int32_t id = take(&in), others = qwen36_tokenizer_size(t) - BYTES;
        if (id == 254 || s.count == TOKENS_MAX)
            finish(t, &r, &s, decoder);
        else
            push(t, &r, &s, decoder, id < 255 ? id : BYTES + take(&in) % (others + 2));
    }
    if (decoder != NULL)
        finish(t, &r, &s, decoder);
    qwen36_decoder_destroy(decoder);
    return 0;
}
