/* Any bytes as messages and tools, of every template: the text comes out as valid UTF-8, or an error with a
 * text; and its spans cover it. */
#include "lib/text/chat_render.h"
#include "lib/text/utf8.h"

#include <stdlib.h>
#include <string.h>

static const char *const TEMPLATES[] = {"args_value is mapping",
                                        "args_value is mapping enable_thinking is true", "preserve_thinking",
                                        "reasoning_effort"};

static void check_spans(const qw_chat_text *text)
{
    size_t at = 0;
    for (size_t i = 0; i < text->span_count; i++) {
        if (text->spans[i].end <= at || (i > 0 && text->spans[i].special == text->spans[i - 1].special))
            abort();
        at = text->spans[i].end;
    }
    if (at != text->length || qw_utf8_valid_prefix(text->bytes, text->length) != text->length)
        abort();
}

/* The first byte chooses the template and the options; a byte 0xff ends the messages and begins the tools. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *messages = (const char *)data + 1, *template = TEMPLATES[data[0] & 3];
    const char *tools = memchr(messages, 0xff, size - 1);
    size_t length = tools != NULL ? (size_t)(tools - messages) : size - 1;
    qwen36_chat_options options = {.add_generation_prompt = 1,
                                   .enable_thinking = (data[0] >> 2 & 1) - 1,
                                   .preserve_thinking = data[0] >> 3 & 1,
                                   .add_vision_id = data[0] >> 4 & 1,
                                   .allow_nearest = 1,
                                   .tools = tools != NULL ? tools + 1 : NULL,
                                   .tools_length = tools != NULL ? size - 2 - length : 0};
    const qw_allocator allocator = qw_allocator_default();
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_chat_template *chat = NULL;
    qw_chat_text text = {.allocator = &allocator};
    if (qw_chat_template_parse(&allocator, template, strlen(template), &chat, &error) != QWEN36_OK)
        abort();
    qwen36_status status = qw_chat_render(chat, messages, length, &options, &text, &error);
    if (status == QWEN36_OK)
        check_spans(&text);
    else if (status != QWEN36_ERROR_CHAT_MESSAGES || error.status != status || error.message[0] == '\0')
        abort();
    qw_chat_text_release(&text);
    qw_chat_template_destroy(chat);
    return 0;
}
