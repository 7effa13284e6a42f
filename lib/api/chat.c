#include "lib/api/api.h"
#include "lib/text/chat_render.h"

#include <string.h>

static qwen36_status enter(const qwen36_chat_template *chat, qwen36_error *error)
{
    qw_error_clear(error);
    if (chat == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the chat template is NULL");
    if (!qw_chat_template_is_ours(chat))
        return qw_fail(error, QWEN36_ERROR_FORKED, "the chat template was made by a parent process");
    return QWEN36_OK;
}

/* What loading and parsing check; `text` is the directory or the template's text. */
static qwen36_status enter_making(const char *text, const char *name, const qwen36_allocator *allocator,
                                  qwen36_chat_template **chat, qw_allocator *own, qwen36_error *error)
{
    qw_error_clear(error);
    if (chat == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the chat template is NULL");
    *chat = NULL;
    if (text == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the %s is NULL", name);
    return qw_allocator_adopt(allocator, own, error);
}

qwen36_status qwen36_chat_template_load(const char *directory, const qwen36_allocator *allocator,
                                        qwen36_chat_template **chat, qwen36_error *error)
{
    qw_allocator own;
    qwen36_status status = enter_making(directory, "directory", allocator, chat, &own, error);
    return status != QWEN36_OK ? status : qw_chat_template_load(&own, directory, chat, error);
}

qwen36_status qwen36_chat_template_parse(const char *text, size_t length, const qwen36_allocator *allocator,
                                         qwen36_chat_template **chat, qwen36_error *error)
{
    qw_allocator own;
    qwen36_status status = enter_making(text, "template's text", allocator, chat, &own, error);
    return status != QWEN36_OK ? status : qw_chat_template_parse(&own, text, length, chat, error);
}

void qwen36_chat_template_destroy(qwen36_chat_template *chat)
{
    qw_chat_template_destroy(chat);
}

const char *qwen36_chat_template_name(const qwen36_chat_template *chat)
{
    return chat != NULL && chat->known ? chat->dialect->name : "unknown";
}

/* --- Options ---------------------------------------------------------------------------------------- */

static const qwen36_chat_options DEFAULTS = {.struct_size = sizeof DEFAULTS,
                                             .add_generation_prompt = 1,
                                             .enable_thinking = -1,
                                             .preserve_thinking = -1};

void qwen36_chat_options_init(qwen36_chat_options *options, size_t size)
{
    qw_defaults_write(options, size, &DEFAULTS, sizeof DEFAULTS);
}

static qwen36_status adopt_options(qwen36_chat_options *ours, const qwen36_chat_options *given,
                                   qwen36_error *error)
{
    *ours = DEFAULTS;
    if (given == NULL)
        return QWEN36_OK;
    qwen36_status status = qw_options_adopt(ours, sizeof *ours, given, sizeof *ours, error);
    if (status != QWEN36_OK)
        return status;
    const struct {
        const char *name;
        int32_t value, lowest, highest;
    } fields[] = {
        {"add_generation_prompt", ours->add_generation_prompt, 0, 1},
        {"enable_thinking", ours->enable_thinking, -1, 1},
        {"preserve_thinking", ours->preserve_thinking, -1, 1},
        {"add_vision_id", ours->add_vision_id, 0, 1},
        {"allow_nearest", ours->allow_nearest, 0, 1},
        {"parse_special_in_content", ours->parse_special_in_content, 0, 1},
        {"reserved", ours->reserved, 0, 0},
    };
    for (size_t i = 0; i < QW_COUNT_OF(fields); i++)
        if (fields[i].value < fields[i].lowest || fields[i].value > fields[i].highest)
            return qw_fail(error, QWEN36_ERROR_ARGUMENT, "%s is %d, expected %d to %d", fields[i].name,
                           fields[i].value, fields[i].lowest, fields[i].highest);
    if (ours->tools == NULL && ours->tools_length > 0)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the tools are NULL");
    return QWEN36_OK;
}

/* --- Rendering --------------------------------------------------------------------------------------- */

/* `out` is for qw_chat_text_release, whatever the status. */
static qwen36_status render(const qwen36_chat_template *chat, const char *messages, size_t length,
                            const qwen36_chat_options *options, qw_chat_text *out, qwen36_error *error)
{
    *out = (qw_chat_text){.allocator = &chat->allocator};
    if (messages == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the messages are NULL");
    return qw_chat_render(chat, messages, length, options, out, error);
}

qwen36_status qwen36_chat_render(const qwen36_chat_template *chat, const char *messages, size_t length,
                                 const qwen36_chat_options *options, char *text, size_t capacity,
                                 size_t *text_length, qwen36_error *error)
{
    qwen36_chat_options own;
    qw_chat_text out;
    qwen36_status status = enter(chat, error);
    if (status != QWEN36_OK)
        return status;
    if ((text == NULL && capacity > 0) || text_length == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the %s is NULL",
                       text_length == NULL ? "length" : "text");
    status = adopt_options(&own, options, error);
    if (status != QWEN36_OK)
        return status;
    status = render(chat, messages, length, &own, &out, error);
    if (status == QWEN36_OK) {
        *text_length = out.length;
        if (out.length > capacity)
            status = qw_fail(error, QWEN36_ERROR_BUFFER_TOO_SMALL,
                             "room for %zu bytes of text, %zu are needed", capacity, out.length);
        else if (out.length > 0)
            memcpy(text, out.bytes, out.length);
    }
    qw_chat_text_release(&out);
    return status;
}

qwen36_status qwen36_chat_encode(const qwen36_chat_template *chat, const qwen36_tokenizer *tokenizer,
                                 const char *messages, size_t length, const qwen36_chat_options *options,
                                 int32_t *ids, size_t capacity, size_t *count, qwen36_error *error)
{
    qwen36_chat_options own;
    qw_chat_text out;
    qwen36_status status = enter(chat, error);
    if (status != QWEN36_OK)
        return status;
    if (tokenizer == NULL || (ids == NULL && capacity > 0) || count == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the %s is NULL",
                       tokenizer == NULL ? "tokenizer"
                       : count == NULL   ? "place for the count"
                                         : "place for the ids");
    if (!qw_tokenizer_is_ours(tokenizer))
        return qw_tokenizer_fail_forked(error);
    status = adopt_options(&own, options, error);
    if (status != QWEN36_OK)
        return status;
    status = render(chat, messages, length, &own, &out, error);
    const qw_tokenizer_span whole = {out.length, true};
    if (status == QWEN36_OK)
        status = qw_tokenizer_encode_spans(
            tokenizer, out.bytes, own.parse_special_in_content ? &whole : out.spans,
            own.parse_special_in_content ? 1 : out.span_count, ids, capacity, count, error);
    qw_chat_text_release(&out);
    return status;
}
