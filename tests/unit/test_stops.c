/* Stop strings: whatever the cuts, the text ends exactly where the first stop begins. */
#include "lib/text/stops.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"

typedef struct outcome {
    char text[256];
    int32_t matched;
    size_t shown_early; /* bytes that came out before finish */
} outcome;

/* Pushes `text` in pieces of `piece` bytes. */
static outcome run(const char *const *stops, size_t count, const char *text, size_t piece)
{
    outcome o = {.text = ""};
    qw_allocator a = qw_allocator_default();
    qw_stops s;
    const char *out;
    size_t length;
    CHECK_INT(qw_stops_create(&s, &a, stops, NULL, count, NULL), QWEN36_OK);
    for (size_t at = 0; at < strlen(text); at += piece) {
        size_t size = strlen(text) - at < piece ? strlen(text) - at : piece;
        char part[256];
        snprintf(part, sizeof part, "%.*s", (int)size, text + at);
        CHECK(qw_stops_push(&s, &a, part, size, &out, &length));
        CHECK_INT(strlen(out), length);
        strcat(o.text, out);
    }
    o.shown_early = strlen(o.text);
    qw_stops_finish(&s, &out, &length);
    strcat(o.text, out);
    o.matched = s.matched;
    qw_stops_destroy(&s, &a);
    return o;
}

static void expect(const char *const *stops, size_t count, const char *text, const char *shown,
                   int32_t matched)
{
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        outcome o = run(stops, count, text, piece);
        CHECK_TEXT(o.text, shown);
        CHECK_INT(o.matched, matched);
    }
}

TEST(stops, end_the_text)
{
    const char *const end[] = {"END"}, *const two[] = {"abc", "b"}, *const same[] = {"lo", "hello"};
    const char *const repeat[] = {"aab"}, *const nested[] = {"\n\nUser:", "\n\n"};
    expect(end, 1, "one END two", "one ", 0);
    expect(end, 1, "ENEND", "EN", 0);
    expect(end, 1, "one EN", "one EN", -1);
    expect(end, 1, "END", "", 0);
    expect(two, 2, "xabc", "xa", 1);       /* "b" ends first */
    expect(same, 2, "oh hello", "oh ", 1); /* both end together: the longer begins first */
    expect(repeat, 1, "aaaab.", "aa", 0);
    expect(nested, 2, "a\n\nUser: b", "a", 1);
    expect(NULL, 0, "anything END", "anything END", -1);
}

TEST(stops, hold_back_only_what_may_become_a_stop)
{
    const char *const stops[] = {"<stop>"};
    CHECK_INT(run(stops, 1, "abc", 3).shown_early, 3);
    CHECK_INT(run(stops, 1, "abc<st", 6).shown_early, 3);
    CHECK_INT(run(stops, 1, "abc<stx", 7).shown_early, 7);
}

TEST(stops, bad_ones_are_refused)
{
    qw_allocator a = qw_allocator_default();
    qw_stops s;
    char long_one[1026];
    memset(long_one, 'x', 1025);
    long_one[1025] = '\0';
    const char *many[65];
    for (size_t i = 0; i < 65; i++)
        many[i] = "x";
    const char *const empty[] = {"a", ""}, *const broken[] = {"\xff"}, *const big[] = {long_one},
                      *const none[] = {NULL};
    CHECK_INT(qw_stops_create(&s, &a, empty, NULL, 2, NULL), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qw_stops_create(&s, &a, broken, NULL, 1, NULL), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qw_stops_create(&s, &a, big, NULL, 1, NULL), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qw_stops_create(&s, &a, none, NULL, 1, NULL), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qw_stops_create(&s, &a, many, NULL, 65, NULL), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qw_stops_create(&s, &a, NULL, NULL, 1, NULL), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qw_stops_create(&s, &a, many, NULL, 64, NULL), QWEN36_OK);
    qw_stops_destroy(&s, &a);
}

/* Against a search over the whole text, on random texts of few letters. */
TEST(stops, equal_a_search_over_the_whole)
{
    uint32_t seed = 1;
    for (int32_t round = 0; round < 3000; round++) {
        char text[40], stop[3][5], shown[40];
        const char *stops[3] = {stop[0], stop[1], stop[2]};
        size_t length = 1 + (seed = seed * 1664525u + 1013904223u) % 38, best_end = SIZE_MAX,
               best_begin = length;
        for (size_t i = 0; i < length; i++)
            text[i] = (char)('a' + (((seed = seed * 1664525u + 1013904223u) >> 16) % 3));
        text[length] = '\0';
        for (size_t i = 0; i < 3; i++) {
            size_t size = 1 + ((seed = seed * 1664525u + 1013904223u) >> 16) % 4;
            for (size_t j = 0; j < size; j++)
                stop[i][j] = (char)('a' + (((seed = seed * 1664525u + 1013904223u) >> 16) % 3));
            stop[i][size] = '\0';
            const char *found = strstr(text, stop[i]);
            size_t begin = found != NULL ? (size_t)(found - text) : 0, end = begin + size;
            if (found != NULL && (end < best_end || (end == best_end && begin < best_begin))) {
                best_end = end;
                best_begin = begin;
            }
        }
        snprintf(shown, sizeof shown, "%.*s", (int)best_begin, text);
        for (size_t piece = 1; piece <= 4; piece++)
            CHECK_TEXT(run(stops, 3, text, piece).text, shown);
    }
}

/* ---- through the model --------------------------------------------------------------------------------- */

static int32_t gather(void *user, int32_t token, const char *text, size_t length)
{
    (void)token;
    (void)length;
    strcat(user, text);
    return 0;
}

/* A text that the demo model generates, stopped within itself: across tokens, exact, and said why. */
TEST(stops, in_generate)
{
    static char whole[4096], stopped[4096];
    int32_t ids[16];
    size_t count = 0;
    qwen36_model_options model_options = test_model_options();
    qwen36_model *model = test_model("examples/demo-model", &model_options);
    qwen36_generate_options options;
    qwen36_generate_result result = {.struct_size = sizeof result};
    qwen36_generate_options_init(&options, sizeof options);
    options.on_text = gather;
    options.max_tokens = 40;
    options.ignore_end_tokens = 1;
    CHECK_INT(qwen36_tokenizer_encode(qwen36_model_tokenizer(model), "It was a", 8, 0, ids, 16, &count, NULL),
              QWEN36_OK);
    for (int pass = 0; pass < 2; pass++) {
        char piece[8] = "";
        const char *stops[2] = {"never in the text", piece};
        qwen36_session *session = test_session(model);
        CHECK_INT(qwen36_session_append(session, ids, count, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
        options.user = pass == 0 ? whole : stopped;
        if (pass == 1) { /* six bytes out of the middle of what came */
            CHECK(strlen(whole) > 60);
            memcpy(piece, whole + 30, 6);
            options.stops = stops;
            options.stop_count = 2;
        }
        CHECK_INT(qwen36_generate(session, &options, &result, NULL), QWEN36_OK);
        CHECK_INT(result.finish, pass == 0 ? QWEN36_FINISH_LENGTH : QWEN36_FINISH_STOP);
        CHECK_INT(result.stop, pass == 0 ? -1 : 1);
        if (pass == 1) {
            size_t expected = (size_t)(strstr(whole, piece) - whole);
            CHECK_INT(strlen(stopped), expected);
            CHECK(memcmp(whole, stopped, expected) == 0);
        }
        qwen36_session_destroy(session);
    }
    qwen36_model_release(model);
}

/* Other end tokens than the model's. */
TEST(stops, end_tokens_may_be_replaced)
{
    static char text[4096];
    int32_t first = -1, id = 5;
    qwen36_model_options model_options = test_model_options();
    qwen36_model *model = test_model("examples/demo-model", &model_options);
    qwen36_generate_options options;
    qwen36_generate_result result = {.struct_size = sizeof result};
    qwen36_generate_options_init(&options, sizeof options);
    options.on_text = gather;
    options.user = text;
    options.max_tokens = 1;
    for (int pass = 0; pass < 2; pass++) {
        qwen36_session *session = test_session(model);
        CHECK_INT(qwen36_session_append(session, &id, 1, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
        if (pass == 1) {
            options.max_tokens = 10;
            options.end_tokens = &first;
            options.end_token_count = 1;
        }
        CHECK_INT(qwen36_generate(session, &options, &result, NULL), QWEN36_OK);
        CHECK_INT(result.output_tokens, 1);
        CHECK_INT(qwen36_session_tokens(session, 1, 1, &first, NULL), QWEN36_OK);
        CHECK_INT(result.finish, pass == 0 ? QWEN36_FINISH_LENGTH : QWEN36_FINISH_END_TOKEN);
        CHECK_INT(result.end_token, pass == 0 ? -1 : first);
        qwen36_session_destroy(session);
    }
    qwen36_model_release(model);
}
