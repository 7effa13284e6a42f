/* The strict JSON layer: what it accepts, what it refuses and why, and the values it gives. */
#include "lib/base/json.h"
#include "tests/harness.h"

#include <locale.h>
#include <pthread.h>

static cJSON *parse(const char *text, size_t length, qwen36_error *error)
{
    *error = (qwen36_error)QWEN36_ERROR_INIT;
    char *exact = malloc(length > 0 ? length : 1); /* no terminator: the sanitizer sees a byte too far */
    CHECK(exact != NULL);
    memcpy(exact, text, length);
    cJSON *tree = qw_json_parse(exact, length, "test.json", error);
    free(exact);
    return tree;
}

#define ACCEPTED(text) check_accepted(text, sizeof(text) - 1, __LINE__)
#define REFUSED(text, reason) check_refused(text, sizeof(text) - 1, reason, __LINE__)

static void check_accepted(const char *text, size_t length, int line)
{
    qwen36_error error;
    cJSON *tree = parse(text, length, &error);
    CHECK_MSG(tree != NULL && error.status == QWEN36_OK, "line %d: %s", line, error.message);
    qw_json_delete(tree);
}

static void check_refused(const char *text, size_t length, const char *reason, int line)
{
    qwen36_error error;
    cJSON *tree = parse(text, length, &error);
    CHECK_MSG(tree == NULL, "line %d: accepted", line);
    CHECK_INT(error.status, QWEN36_ERROR_JSON);
    CHECK_MSG(strstr(error.message, "test.json") != NULL && strstr(error.message, reason) != NULL,
              "line %d: \"%s\" lacks \"%s\"", line, error.message, reason);
}

TEST(json, accepted)
{
    ACCEPTED("{}");
    ACCEPTED(" \t\r\n[] \t\r\n");
    ACCEPTED("0");
    ACCEPTED("-0.5e+10");
    ACCEPTED("1E-2");
    ACCEPTED("true");
    ACCEPTED("null");
    ACCEPTED("\"\"");
    ACCEPTED("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\ud83d\\ude00\"");
    ACCEPTED("\"\xc2\x80\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\x7f\"");
    ACCEPTED("{\"a\":[1,{\"a\":2},\"]}\\\"\"],\"A\":false}");
    ACCEPTED("{\"a\":1,\"\":2,\"a \":3}");
    ACCEPTED("123456789012345678901234567890123456789012345678901234567890123");
}

TEST(json, refused_structure)
{
    REFUSED("", "the text ends");
    REFUSED("  ", "the text ends");
    REFUSED("\xef\xbb\xbf{}", "byte order mark");
    REFUSED("{} x", "text after the value");
    REFUSED("{}\0", "text after the value");
    REFUSED("{}{}", "text after the value");
    REFUSED("{\"a\"}", "a colon");
    REFUSED("{\"a\":}", "a value");
    REFUSED("{\"a\":1,}", "a member name");
    REFUSED("{a:1}", "a member name");
    REFUSED("{1:1}", "a member name");
    REFUSED("{\"a\":1 \"b\":2}", "a comma or }");
    REFUSED("[1,]", "a value");
    REFUSED("[,1]", "a value");
    REFUSED("[1 2]", "a comma or ]");
    REFUSED("[1}", "a comma or ]");
    REFUSED("{\"a\":1]", "a comma or }");
    REFUSED("[", "the text ends");
    REFUSED("[1", "a comma or ]");
    REFUSED("{", "a member name");
    REFUSED("]", "a value");
    REFUSED("// c\n{}", "a value");
    REFUSED("tru", "a value");
    REFUSED("True", "a value");
    REFUSED("truex", "text after the value");
    REFUSED("NaN", "a value");
    REFUSED("'a'", "a value");
}

TEST(json, refused_numbers)
{
    REFUSED("01", "leading zero");
    REFUSED("-01", "leading zero");
    REFUSED("+1", "a value");
    REFUSED("-", "a digit");
    REFUSED(".5", "a value");
    REFUSED("1.", "a digit");
    REFUSED("1.e5", "a digit");
    REFUSED("1e", "a digit");
    REFUSED("1e+", "a digit");
    REFUSED("0x10", "text after the value");
    REFUSED("1,5", "text after the value");
    REFUSED("-Infinity", "a digit");
    REFUSED("1234567890123456789012345678901234567890123456789012345678901234", "63 characters");
}

TEST(json, refused_strings)
{
    REFUSED("\"", "ends inside a string");
    REFUSED("\"\\", "ends inside a string");
    REFUSED("\"\\\"", "ends inside a string");
    REFUSED("\"a\nb\"", "control character");
    REFUSED("\"a\0b\"", "control character");
    REFUSED("\"\\u0000\"", "NUL");
    REFUSED("{\"a\\u0000b\":1}", "NUL");
    REFUSED("\"\\x41\"", "unknown escape");
    REFUSED("\"\\\0\"", "unknown escape");
    REFUSED("\"\\u12\"", "four hexadecimal digits");
    REFUSED("\"\\u12g4\"", "four hexadecimal digits");
    REFUSED("\"\\ud800\"", "lone surrogate");
    REFUSED("\"\\udc00\"", "lone surrogate");
    REFUSED("\"\\ud800\\u0041\"", "lone surrogate");
    REFUSED("\"\\ud800\\ud800\"", "lone surrogate");
    REFUSED("\"\x80\"", "invalid UTF-8");
    REFUSED("\"\xc0\x80\"", "invalid UTF-8");
    REFUSED("\"\xc1\xbf\"", "invalid UTF-8");
    REFUSED("\"\xe0\x9f\xbf\"", "invalid UTF-8");
    REFUSED("\"\xed\xa0\x80\"", "invalid UTF-8");
    REFUSED("\"\xf0\x8f\xbf\xbf\"", "invalid UTF-8");
    REFUSED("\"\xf4\x90\x80\x80\"", "invalid UTF-8");
    REFUSED("\"\xf5\x80\x80\x80\"", "invalid UTF-8");
    REFUSED("\"\xe2\x82\"", "invalid UTF-8");
    REFUSED("\"\xe2\x82", "invalid UTF-8");
    REFUSED("\"\xff\"", "invalid UTF-8");
}

TEST(json, duplicate_keys)
{
    REFUSED("{\"a\":1,\"a\":1}", "\"a\" stands twice");
    REFUSED("{\"a\":1,\"\\u0061\":1}", "\"a\" stands twice");
    REFUSED("[{\"x\":{\"b\":1,\"c\":2,\"b\":3}}]", "\"b\" stands twice");
    REFUSED("{\"\":1,\"\":1}", "stands twice");
}

/* More members than are compared one by one. */
TEST(json, duplicate_keys_of_a_large_object)
{
    char *text = malloc(1 << 20);
    qwen36_error error;
    CHECK(text != NULL);
    for (int duplicate = 0; duplicate <= 1; duplicate++) {
        size_t used = (size_t)sprintf(text, "{\"k0\":0");
        for (int i = 1; i < 20000; i++)
            used += (size_t)sprintf(text + used, ",\"k%d\":%d", i, i);
        used += (size_t)sprintf(text + used, ",\"k%d\":0}", duplicate ? 12345 : 20000);
        cJSON *tree = parse(text, used, &error);
        CHECK((tree == NULL) == duplicate);
        CHECK(!duplicate || strstr(error.message, "\"k12345\" stands twice") != NULL);
        qw_json_delete(tree);
    }
    free(text);
}

TEST(json, depth)
{
    char text[2 * 65 + 1];
    qwen36_error error;
    for (int depth = 63; depth <= 65; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        cJSON *tree = parse(text, 2 * (size_t)depth, &error);
        CHECK((tree != NULL) == (depth <= 64));
        CHECK(tree != NULL || strstr(error.message, "64 deep") != NULL);
        qw_json_delete(tree);
    }
}

/* Every prefix of a text is refused (or, where it is a whole value, accepted) without reading behind it. */
TEST(json, truncated)
{
    const char text[] = "{\"a\":[1.5e-3,true,null,\"\\ud83d\\ude00\xe2\x82\xac\"],\"b\":{}}";
    for (size_t length = 0; length < sizeof text - 1; length++) {
        qwen36_error error;
        CHECK(parse(text, length, &error) == NULL);
        CHECK_INT(error.status, QWEN36_ERROR_JSON);
    }
    ACCEPTED("{\"a\":[1.5e-3,true,null,\"\\ud83d\\ude00\xe2\x82\xac\"],\"b\":{}}");
}

TEST(json, values)
{
    qwen36_error error;
    const char text[] = "{\"i\":-7,\"f\":4.0,\"h\":0.5,\"big\":9007199254740992,\"huge\":9007199254740994,"
                        "\"inf\":1e999,\"t\":true,\"s\":\"x\\u00e9\",\"n\":null,\"N\":1}";
    cJSON *tree = parse(text, sizeof text - 1, &error);
    CHECK(tree != NULL);
    int64_t integer = 1;
    double number = 1;
    bool flag = false;
    CHECK(qw_json_int64(qw_json_member(tree, "i"), -7, 7, &integer) && integer == -7);
    CHECK(!qw_json_int64(qw_json_member(tree, "i"), -6, 7, &integer));
    CHECK(qw_json_int64(qw_json_member(tree, "f"), 0, 4, &integer) && integer == 4);
    CHECK(!qw_json_int64(qw_json_member(tree, "h"), 0, 4, &integer));
    CHECK(qw_json_int64(qw_json_member(tree, "big"), 0, INT64_MAX, &integer) && integer == 9007199254740992);
    CHECK(!qw_json_int64(qw_json_member(tree, "huge"), 0, INT64_MAX, &integer));
    CHECK(!qw_json_int64(qw_json_member(tree, "t"), 0, 4, &integer));
    CHECK(!qw_json_int64(NULL, 0, 4, &integer) && integer == 9007199254740992);
    CHECK(qw_json_double(qw_json_member(tree, "h"), &number) && number == 0.5);
    CHECK(!qw_json_double(qw_json_member(tree, "inf"), &number));
    CHECK(!qw_json_double(qw_json_member(tree, "s"), &number) && number == 0.5);
    CHECK(qw_json_bool(qw_json_member(tree, "t"), &flag) && flag);
    CHECK(!qw_json_bool(qw_json_member(tree, "n"), &flag));
    CHECK_TEXT(qw_json_string(qw_json_member(tree, "s")), "x\xc3\xa9");
    CHECK(qw_json_string(qw_json_member(tree, "n")) == NULL && qw_json_string(NULL) == NULL);
    CHECK(qw_json_member(tree, "S") == NULL && qw_json_member(tree, "N") != qw_json_member(tree, "n"));
    CHECK(qw_json_member(qw_json_member(tree, "s"), "x") == NULL && qw_json_member(NULL, "x") == NULL);
    qw_json_delete(tree);
}

TEST(json, walk)
{
    const char text[] = "{ \"a\" : [1, [2, \"]\\\"\"] ,{}] ,\"b\\\"\":-1.5e3,\"c\": {\"x\":[]} , \"d\":null}";
    const char *keys[] = {"a", "b\\\"", "c", "d"};
    const char *values[] = {"[1, [2, \"]\\\"\"] ,{}]", "-1.5e3", "{\"x\":[]}", "null"};
    CHECK(qw_json_check(text, sizeof text - 1, NULL) == NULL);
    qw_json_walk walk = {text};
    qw_json_span key, value, first = {NULL, 0};
    size_t count = 0;
    for (; qw_json_next(&walk, &key, &value); count++) {
        CHECK(key.length == strlen(keys[count]) && memcmp(key.text, keys[count], key.length) == 0);
        CHECK(value.length == strlen(values[count]) && memcmp(value.text, values[count], value.length) == 0);
        first = count == 0 ? value : first;
    }
    CHECK_INT(count, 4);
    walk.at = first.text;
    for (count = 0; qw_json_next(&walk, NULL, &value); count++)
        ;
    CHECK_INT(count, 3);
    walk.at = "[ ]";
    CHECK(!qw_json_next(&walk, NULL, &value));
}

static bool exact(const char *text, uint64_t *out)
{
    return qw_json_uint64((qw_json_span){text, strlen(text)}, out);
}

TEST(json, exact_integers)
{
    uint64_t value = 0;
    CHECK(exact("9007199254740993", &value) && value == 9007199254740993u);
    CHECK(exact("18446744073709551615", &value) && value == UINT64_MAX);
    CHECK(!exact("18446744073709551616", &value) && !exact("99999999999999999999", &value));
    CHECK(exact("0", &value) && value == 0);
    CHECK(!exact("-1", &value) && !exact("1.0", &value) && !exact("4e0", &value) && !exact("", &value));
}

/* Numbers do not follow the host's locale, whatever its decimal point. */
TEST(json, decimal_comma)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ps_AF.UTF-8",
                                        "fa_IR.UTF-8"};
    bool found = false;
    for (size_t i = 0; i < QW_COUNT_OF(names); i++) {
        if (setlocale(LC_ALL, names[i]) == NULL)
            continue;
        qwen36_error error;
        double eps = 0, quarter = 0;
        char point[8];
        found = true;
        snprintf(point, sizeof point, "%s", localeconv()->decimal_point);
        cJSON *tree = parse("[1e-06,0.25,1.5]", 16, &error);
        CHECK(tree != NULL);
        CHECK(qw_json_double(tree->child, &eps) && eps == 1e-06);
        CHECK(qw_json_double(tree->child->next, &quarter) && quarter == 0.25);
        qw_json_delete(tree);
        CHECK_TEXT(localeconv()->decimal_point, point);
    }
    setlocale(LC_ALL, "C");
    if (!found)
        SKIP("no locale with another decimal point is installed");
}

static void *parse_often(void *result)
{
    const char *text = "{\"a\":[1.5,{\"b\":\"c\"}]}", *twice = "{\"a\":1,\"a\":2}";
    bool *good = result;
    for (int i = 0; i < 500 && *good; i++) {
        qwen36_error error = QWEN36_ERROR_INIT;
        cJSON *tree = qw_json_parse(text, strlen(text), "x", &error);
        cJSON *none = qw_json_parse(twice, strlen(twice), "x", &error);
        double value = 0;
        *good = tree != NULL && none == NULL && qw_json_double(qw_json_member(tree, "a")->child, &value) &&
                value == 1.5;
        qw_json_delete(tree);
    }
    return NULL;
}

TEST(json, threads)
{
    pthread_t threads[4];
    bool good[4] = {true, true, true, true};
    for (int i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, parse_often, &good[i]), 0);
    for (int i = 0; i < 4; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK(good[0] && good[1] && good[2] && good[3]);
}
