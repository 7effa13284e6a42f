/* What chat.c keeps of a conversation: growing texts, messages as JSON in OpenAI's form, calls of tools. */
#ifndef EXAMPLES_CHAT_MESSAGES_H
#define EXAMPLES_CHAT_MESSAGES_H

#include "common.h"

#include <cjson/cJSON.h>

/* What an allocation made; there is no chat without memory. */
static inline void *must(void *made)
{
    if (made == NULL)
        fail_text("chat", "out of memory");
    return made;
}

/* ---- texts --------------------------------------------------------------------------------------------- */

/* Grows; NUL-terminated from the first buffer_add on. A text begins as {0}. */
typedef struct buffer {
    char *bytes;
    size_t length, capacity;
} buffer;

static inline void buffer_add(buffer *t, const char *bytes, size_t length)
{
    if (t->capacity - t->length < length + 1) {
        t->capacity = 2 * t->capacity + length + 64;
        t->bytes = must(realloc(t->bytes, t->capacity));
    }
    memcpy(t->bytes + t->length, bytes, length);
    t->length += length;
    t->bytes[t->length] = '\0';
}

static inline void buffer_clear(buffer *t)
{
    t->length = 0;
    buffer_add(t, "", 0);
}

static inline int is_blank(const char *bytes)
{
    return bytes[strspn(bytes, " \t\r\n")] == '\0';
}

/* Any bytes as the text that the model reads of them (free it): valid UTF-8, in NFC. The tokenizer is the
 * judge of both. A NUL, which would end a string of C, becomes U+FFFD like an invalid byte. */
static inline char *readable(const qwen36_tokenizer *tokenizer, char *bytes, size_t length)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    size_t count = 0, size = 0;
    for (size_t i = 0; i < length; i++)
        if (bytes[i] == '\0')
            bytes[i] = (char)0xFF;
    int32_t *ids = encode("chat", tokenizer, bytes, length, 0, &count);
    qwen36_tokenizer_decode(tokenizer, ids, count, 0, NULL, 0, &size, NULL);
    char *result = must(malloc(size + 1));
    check("chat", qwen36_tokenizer_decode(tokenizer, ids, count, 0, result, size, &size, &error), &error);
    result[size] = '\0';
    free(ids);
    return result;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

static inline cJSON *make_message(const char *role, const char *content)
{
    cJSON *message = must(cJSON_CreateObject());
    must(cJSON_AddStringToObject(message, "role", role));
    must(cJSON_AddStringToObject(message, "content", content));
    return message;
}

static inline void add_message(cJSON *messages, const char *role, const char *content)
{
    cJSON_AddItemToArray(messages, make_message(role, content));
}

static inline int has_role(const cJSON *message, const char *role)
{
    const char *its = cJSON_GetStringValue(cJSON_GetObjectItem(message, "role"));
    return its != NULL && strcmp(its, role) == 0;
}

/* Takes the last question back, and what followed it. */
static inline void take_back(cJSON *messages)
{
    int question = 0;
    for (int last = cJSON_GetArraySize(messages) - 1; last >= 0 && !question; last--) {
        question = has_role(cJSON_GetArrayItem(messages, last), "user");
        cJSON_DeleteItemFromArray(messages, last);
    }
}

/* The system message becomes this one; an empty text: there is none. */
static inline void set_system(cJSON *messages, const char *content)
{
    if (has_role(cJSON_GetArrayItem(messages, 0), "system"))
        cJSON_DeleteItemFromArray(messages, 0);
    if (!is_blank(content))
        cJSON_InsertItemInArray(messages, 0, make_message("system", content));
}

/* Leaves the system message alone. */
static inline void forget(cJSON *messages)
{
    int keep = has_role(cJSON_GetArrayItem(messages, 0), "system");
    while (cJSON_GetArraySize(messages) > keep)
        cJSON_DeleteItemFromArray(messages, keep);
}

/* ---- calls of tools ------------------------------------------------------------------------------------ */

/* The text between two marks (free it), white space before the first one skipped; *at is then behind the
 * second. NULL where they are not. */
static inline char *take_between(const char **at, const char *open, const char *close)
{
    const char *begin = *at + strspn(*at, " \t\r\n");
    if (strncmp(begin, open, strlen(open)) != 0)
        return NULL;
    begin += strlen(open);
    const char *end = strstr(begin, close);
    if (end == NULL)
        return NULL;
    *at = end + strlen(close);
    return must(strndup(begin, (size_t)(end - begin)));
}

/* The template sets a value in lines of its own. */
static inline const char *without_frame(char *value)
{
    size_t length = strlen(value);
    if (length > 0 && value[length - 1] == '\n')
        value[length - 1] = '\0';
    return value + (value[0] == '\n');
}

/* <function=NAME> <parameter=KEY> VALUE </parameter> ... </function>; NULL for anything else. Values stay
 * texts, which the template writes back as they are. */
static inline cJSON *parse_function(const char *at)
{
    char *key, *value = NULL, *name = take_between(&at, "<function=", ">");
    if (name == NULL)
        return NULL;
    cJSON *call = must(cJSON_CreateObject());
    must(cJSON_AddStringToObject(call, "type", "function"));
    cJSON *function = must(cJSON_AddObjectToObject(call, "function"));
    must(cJSON_AddStringToObject(function, "name", name));
    cJSON *given = must(cJSON_AddObjectToObject(function, "arguments"));
    free(name);
    while ((key = take_between(&at, "<parameter=", ">")) != NULL &&
           (value = take_between(&at, "", "</parameter>")) != NULL) {
        must(cJSON_AddStringToObject(given, key, without_frame(value)));
        free(key);
        free(value);
    }
    int complete = key == NULL && strncmp(at + strspn(at, " \t\r\n"), "</function>", 11) == 0;
    free(key);
    if (complete)
        return call;
    cJSON_Delete(call);
    return NULL;
}

/* The calls that stand at the end of an answer, from *at on; NULL when there are none, or one is malformed.
 */
static inline cJSON *parse_calls(const char *at)
{
    char *inside;
    cJSON *calls = must(cJSON_CreateArray());
    while ((inside = take_between(&at, "<tool_call>", "</tool_call>")) != NULL) {
        cJSON *call = parse_function(inside);
        free(inside);
        if (call == NULL)
            break;
        cJSON_AddItemToArray(calls, call);
    }
    if (is_blank(at) && cJSON_GetArraySize(calls) > 0)
        return calls;
    cJSON_Delete(calls);
    return NULL;
}

/* Adds an answer, its thought aside. Where tools are at hand, its calls too become members of the message,
 * since the template then frames them by the tokens that the model wrote. Returns the calls, which the
 * message owns, or NULL. */
static inline const cJSON *add_answer(cJSON *messages, const buffer *thought, buffer *said, int tools)
{
    char *first = tools ? strstr(said->bytes, "<tool_call>") : NULL;
    cJSON *calls = first != NULL ? parse_calls(first) : NULL;
    if (calls != NULL)
        *first = '\0';
    cJSON *message = make_message("assistant", said->bytes);
    must(cJSON_AddStringToObject(message, "reasoning_content", thought->bytes));
    if (calls != NULL)
        cJSON_AddItemToObject(message, "tool_calls", calls);
    cJSON_AddItemToArray(messages, message);
    return calls;
}

/* ---- the tool of --weather ----------------------------------------------------------------------------- */

static const char WEATHER_TOOL[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": \"Get the weather "
    "in a "
    "city.\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}, "
    "\"required\": [\"city\"]}}}]";

/* A city always has the same weather, which comes from the letters of its name. */
static inline void add_weather(buffer *result, const char *city)
{
    static const char *const conditions[] = {"sunny", "cloudy", "rainy", "windy", "foggy"};
    uint32_t sum = 7;
    for (const char *c = city; *c != '\0'; c++)
        sum = 31 * sum + (unsigned char)*c;
    cJSON *name = must(cJSON_CreateString(city));
    char *quoted = must(cJSON_PrintUnformatted(name)), rest[80];
    snprintf(rest, sizeof rest, ", \"temperature\": %u, \"condition\": \"%s\"}", 3 + sum % 27,
             conditions[sum / 27 % 5]);
    buffer_add(result, "{\"city\": ", strlen("{\"city\": "));
    buffer_add(result, quoted, strlen(quoted));
    buffer_add(result, rest, strlen(rest));
    cJSON_free(quoted);
    cJSON_Delete(name);
}

/* What a call gives, as JSON; the model is told when it called something that is not there. */
static inline void call_weather(buffer *result, const cJSON *call)
{
    static const char none[] = "{\"error\": \"there is only get_weather, and it wants a city\"}";
    const cJSON *function = cJSON_GetObjectItem(call, "function");
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(function, "name"));
    const cJSON *given = cJSON_GetObjectItem(function, "arguments");
    const char *city = cJSON_GetStringValue(cJSON_GetObjectItem(given, "city"));
    buffer_clear(result);
    if (city != NULL && strcmp(name, "get_weather") == 0)
        add_weather(result, city);
    else
        buffer_add(result, none, strlen(none));
}

#endif
