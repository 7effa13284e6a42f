#include "lib/text/chat_render.h"

#include "lib/text/chat_python.h"

#include <stdio.h>
#include <string.h>

typedef struct renderer {
    const qw_chat_dialect *dialect;
    const qwen36_chat_options *options;
    qw_values values;
    const qw_value *messages, *tools;
    qw_chat_text *out;
    qw_chat_text content;   /* of the message at work */
    qw_chat_text reasoning; /* its reasoning_content */
    size_t images, videos;  /* seen so far */
    const char *effort;     /* the sentence about the reasoning effort; NULL: none */
    qwen36_status status;
    qwen36_error *error;
} renderer;

/* --- Errors ------------------------------------------------------------------------------------------ */

/* What raise_exception does. */
static bool refuse(renderer *r, const char *text)
{
    r->status = qw_fail(r->error, QWEN36_ERROR_CHAT_MESSAGES, "%s", text);
    return false;
}

/* What jinja says of an attribute that is not there, when it is used. */
static bool refuse_undefined(renderer *r, const qw_value *owner, const char *name)
{
    bool none = owner->kind == QW_VALUE_NONE;
    r->status = qw_fail(r->error, QWEN36_ERROR_CHAT_MESSAGES, "'%s%s' has no attribute '%s'",
                        none ? "None" : qw_value_type(owner), none ? "" : " object", name);
    return false;
}

static bool when(qw_chat_when condition, int32_t option)
{
    return condition == QW_CHAT_IF_ASKED ? option == 1 : condition == QW_CHAT_UNLESS_REFUSED && option != 0;
}

/* --- Content: the macro render_content ----------------------------------------------------------------- */

/* What "name in item" is in Python. */
static bool is_in(renderer *r, const char *name, const qw_value *item, bool *yes)
{
    size_t length = strlen(name);
    *yes = false;
    switch (item->kind) {
    case QW_VALUE_DICT:
        *yes = qw_value_get(item, name) != NULL;
        return true;
    case QW_VALUE_STR:
        for (size_t i = 0; i + length <= item->text.length && !*yes; i++)
            *yes = memcmp(item->text.text + i, name, length) == 0;
        return true;
    case QW_VALUE_LIST:
        for (const qw_value *child = item->first; child != NULL && !*yes; child = child->next)
            *yes = qw_value_equals(child, name);
        return true;
    default:
        r->status = qw_fail(r->error, QWEN36_ERROR_CHAT_MESSAGES, "argument of type '%s' is not iterable",
                            qw_value_type(item));
        return false;
    }
}

/* "Picture 1: " and the tokens that stand for the picture. */
static void render_vision(renderer *r, bool picture, size_t number)
{
    char label[40];
    if (r->options->add_vision_id) {
        snprintf(label, sizeof label, "%s %zu: ", picture ? "Picture" : "Video", number);
        qw_chat_text_say(&r->content, label);
    }
    qw_chat_text_say(&r->content, picture ? "<|vision_start|><|image_pad|><|vision_end|>"
                                          : "<|vision_start|><|video_pad|><|vision_end|>");
}

static bool render_item(renderer *r, const qw_value *item, bool count, bool system)
{
    bool image, url, video, text;
    const qw_value *type = qw_value_get(item, "type");
    if (!is_in(r, "image", item, &image) || !is_in(r, "image_url", item, &url))
        return false;
    if (image || url || qw_value_equals(type, "image")) {
        if (system)
            return refuse(r, "System message cannot contain images.");
        r->images += count;
        render_vision(r, true, r->images);
        return true;
    }
    if (!is_in(r, "video", item, &video) || !is_in(r, "text", item, &text))
        return false;
    if (video || qw_value_equals(type, "video")) {
        if (system)
            return refuse(r, "System message cannot contain videos.");
        r->videos += count;
        render_vision(r, false, r->videos);
        return true;
    }
    if (!text)
        return refuse(r, "Unexpected item type in content.");
    const qw_value *value = qw_value_get(item, "text");
    if (value != NULL)
        qw_python_str(&r->content, value);
    return true;
}

/* render_content(...)|trim into r->content. */
static bool render_content(renderer *r, const qw_value *content, bool count, bool system, qw_chat_slice *out)
{
    qw_chat_text_clear(&r->content);
    if (qw_value_is(content, QW_VALUE_STR)) {
        qw_chat_text_add(&r->content, content->text.text, content->text.length);
    } else if (qw_value_is(content, QW_VALUE_LIST)) {
        for (const qw_value *item = content->first; item != NULL; item = item->next)
            if (!render_item(r, item, count, system))
                return false;
    } else if (content != NULL && content->kind != QW_VALUE_NONE) {
        return refuse(r, "Unexpected content type.");
    }
    *out = qw_python_strip((qw_chat_slice){&r->content, 0, r->content.length});
    return true;
}

/* --- The system turn ------------------------------------------------------------------------------------ */

static bool choose_effort(renderer *r)
{
    const char *effort = r->options->reasoning_effort != NULL ? r->options->reasoning_effort : "xhigh";
    r->effort = NULL;
    if (!r->dialect->reasoning_effort || r->options->enable_thinking == 0)
        return true;
    if (strcmp(effort, "xhigh") == 0)
        r->effort = "Reasoning effort is set to xhigh. Please think carefully through the task, validate key "
                    "assumptions, consider plausible alternatives, and prioritize correctness, consistency, "
                    "and clarity in the final answer.";
    else if (strcmp(effort, "low") == 0)
        r->effort =
            "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to "
            "the conclusion without unnecessary elaboration.";
    else if (strcmp(effort, "medium") != 0) {
        r->status =
            qw_fail(r->error, QWEN36_ERROR_CHAT_MESSAGES,
                    "Unexpected reasoning effort %s. Supported types are xhigh (default), medium, and "
                    "low.",
                    effort);
        return false;
    }
    return true;
}

static const char TOOLS_HEAD[] = "# Tools\n\nYou have access to the following functions:\n\n<tools>";
static const char TOOLS_TAIL[] =
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple "
    "lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n- Function calls MUST follow "
    "the specified format: an inner <function=...></function> block must be nested within "
    "<tool_call></tool_call> XML tags\n- Required parameters MUST be specified\n- You may provide optional "
    "reasoning for your function call in natural language BEFORE the function call, but NOT after\n- If "
    "there "
    "is no function call available, answer the question like normal with your current knowledge and do not "
    "tell the user about function calls\n</IMPORTANT>";

/* What "x and x is iterable and x is not mapping" is. */
static bool is_sequence(const qw_value *value)
{
    return qw_value_truth(value) && (value->kind == QW_VALUE_LIST || value->kind == QW_VALUE_STR);
}

static bool is_system(const qw_value *message)
{
    return qw_value_equals(qw_value_get(message, "role"), "system");
}

static bool render_tools(renderer *r)
{
    qw_chat_slice content;
    const qw_value *first = r->messages->first;
    qw_value_walk walk = {.container = r->tools};
    qw_chat_text_say(r->out, "<|im_start|>system\n");
    if (r->effort != NULL) {
        qw_chat_text_say(r->out, r->effort);
        qw_chat_text_say(r->out, "\n\n");
    }
    qw_chat_text_say(r->out, TOOLS_HEAD);
    for (const qw_value *tool; (tool = qw_value_next(&walk)) != NULL;) {
        qw_chat_text_say(r->out, "\n");
        qw_python_dumps(r->out, tool);
    }
    qw_chat_text_say(r->out, TOOLS_TAIL);
    if (is_system(first)) {
        if (!render_content(r, qw_value_get(first, "content"), false, true, &content))
            return false;
        if (content.end > content.begin)
            qw_chat_text_say(r->out, "\n\n");
        qw_chat_text_add_slice(r->out, content);
    }
    qw_chat_text_say(r->out, "<|im_end|>\n");
    return true;
}

static bool render_system(renderer *r)
{
    qw_chat_slice content = {&r->content, 0, 0};
    const qw_value *first = r->messages->first;
    bool system = is_system(first);
    if (is_sequence(r->tools))
        return render_tools(r);
    if (system && !render_content(r, qw_value_get(first, "content"), false, true, &content))
        return false;
    bool empty = content.end == content.begin;
    if (r->effort == NULL && (!system || (empty && r->dialect->drops_empty)))
        return true;
    qw_chat_text_say(r->out, "<|im_start|>system\n");
    if (r->effort != NULL) {
        qw_chat_text_say(r->out, r->effort);
        qw_chat_text_say(r->out, empty ? "" : "\n\n");
    }
    qw_chat_text_add_slice(r->out, content);
    qw_chat_text_say(r->out, "<|im_end|>\n");
    return true;
}

/* --- Answers ---------------------------------------------------------------------------------------------
 */

/* The first (or last) place of `word` in a slice; its end when there is none. */
static size_t find(qw_chat_slice slice, const char *word, bool last)
{
    size_t length = strlen(word), found = slice.end;
    for (size_t i = slice.begin; i + length <= slice.end && (last || found == slice.end); i++)
        if (memcmp(slice.text->bytes + i, word, length) == 0)
            found = i;
    return found;
}

static void skip_newlines(qw_chat_slice *slice)
{
    while (slice->begin < slice->end && slice->text->bytes[slice->begin] == '\n')
        slice->begin++;
}

/* Takes the reasoning out of a content that has </think>: what stands before the first one, behind the last
 * <think>; and leaves of the content what stands behind the last one. */
static void split_thinking(qw_chat_slice *content, qw_chat_slice *reasoning)
{
    size_t end = find(*content, "</think>", false);
    if (end == content->end)
        return;
    *reasoning = (qw_chat_slice){content->text, content->begin, end};
    while (reasoning->end > reasoning->begin && reasoning->text->bytes[reasoning->end - 1] == '\n')
        reasoning->end--;
    size_t begin = find(*reasoning, "<think>", true);
    if (begin < reasoning->end)
        reasoning->begin = begin + strlen("<think>");
    skip_newlines(reasoning);
    content->begin = find(*content, "</think>", true) + strlen("</think>");
    skip_newlines(content);
}

/* Arguments as a mapping. Those given as a JSON text, as OpenAI's interface gives them, are read first. */
static bool read_arguments(renderer *r, const qw_value **arguments)
{
    const qw_value *value = *arguments;
    if (value->kind == QW_VALUE_STR) {
        r->status = qw_value_parse(&r->values, value->text.text, value->text.length,
                                   "the arguments of a tool call", arguments, r->error);
        if (r->status != QWEN36_OK)
            return false;
    }
    return (*arguments)->kind == QW_VALUE_DICT || refuse(r, "Can only get item pairs from a mapping.");
}

static void render_argument(renderer *r, const qw_value *value)
{
    bool container = value->kind == QW_VALUE_LIST || value->kind == QW_VALUE_DICT;
    qw_chat_text_say(r->out, "<parameter=");
    qw_chat_text_add(r->out, value->key.text, value->key.length);
    qw_chat_text_say(r->out, ">\n");
    if (value->kind == QW_VALUE_STR || (r->dialect->scalars_by_str && !container))
        qw_python_str(r->out, value);
    else
        qw_python_dumps(r->out, value);
    qw_chat_text_say(r->out, "\n</parameter>\n");
}

static bool render_call(renderer *r, const qw_value *call, const char *before)
{
    const qw_value *function = qw_value_get(call, "function");
    call = function != NULL ? function : call;
    const qw_value *name = qw_value_get(call, "name"), *arguments = qw_value_get(call, "arguments");
    if (name == NULL)
        return refuse_undefined(r, call, "name");
    if (name->kind != QW_VALUE_STR) {
        r->status = qw_fail(r->error, QWEN36_ERROR_CHAT_MESSAGES,
                            "can only concatenate str (not \"%s\") to str", qw_value_type(name));
        return false;
    }
    qw_chat_text_say(r->out, before);
    qw_chat_text_say(r->out, "<tool_call>\n<function=");
    qw_chat_text_add(r->out, name->text.text, name->text.length);
    qw_chat_text_say(r->out, ">\n");
    if (r->dialect->drops_empty && qw_value_equals(arguments, ""))
        arguments = NULL;
    if (arguments != NULL) {
        if (!read_arguments(r, &arguments))
            return false;
        for (const qw_value *value = arguments->first; value != NULL; value = value->next)
            render_argument(r, value);
    }
    qw_chat_text_say(r->out, "</function>\n</tool_call>");
    return true;
}

static bool render_calls(renderer *r, const qw_value *calls, bool after_content)
{
    qw_value_walk walk = {.container = calls};
    const char *before = after_content ? "\n\n" : "";
    if (!is_sequence(calls))
        return true;
    for (const qw_value *call; (call = qw_value_next(&walk)) != NULL; before = "\n")
        if (!render_call(r, call, before))
            return false;
    return true;
}

static bool render_answer(renderer *r, const qw_value *message, qw_chat_slice content, bool thinking)
{
    const qw_value *given = qw_value_get(message, "reasoning_content");
    qw_chat_text_clear(&r->reasoning);
    qw_chat_slice reasoning = {&r->reasoning, 0, 0};
    if (qw_value_is(given, QW_VALUE_STR)) {
        qw_chat_text_add(&r->reasoning, given->text.text, given->text.length);
        reasoning.end = r->reasoning.length;
    } else if (r->dialect->splits_thinking) {
        split_thinking(&content, &reasoning);
    }
    qw_chat_text_say(r->out, "<|im_start|>assistant\n");
    if (thinking) {
        qw_chat_text_say(r->out, "<think>\n");
        qw_chat_text_add_slice(r->out, qw_python_strip(reasoning));
        qw_chat_text_say(r->out, "\n</think>\n\n");
    }
    qw_chat_text_add_slice(r->out, content);
    qw_chat_slice blank = qw_python_strip(content);
    if (!render_calls(r, qw_value_get(message, "tool_calls"), blank.end > blank.begin))
        return false;
    qw_chat_text_say(r->out, "<|im_end|>\n");
    return true;
}

/* --- Messages --------------------------------------------------------------------------------------------
 */

static bool starts_and_ends(qw_chat_slice slice, const char *start, const char *end)
{
    size_t length = slice.end - slice.begin, first = strlen(start), last = strlen(end);
    return length >= first && length >= last && memcmp(slice.text->bytes + slice.begin, start, first) == 0 &&
           memcmp(slice.text->bytes + slice.end - last, end, last) == 0;
}

/* The last message of a user that is not the result of a tool: the query that the model is at work on. */
static bool find_query(renderer *r, const qw_value **query)
{
    qw_chat_slice content;
    for (*query = r->messages->last; *query != NULL; *query = (*query)->previous) {
        if (!qw_value_equals(qw_value_get(*query, "role"), "user"))
            continue;
        if (!render_content(r, qw_value_get(*query, "content"), false, false, &content))
            return false;
        if (!starts_and_ends(content, "<tool_response>", "</tool_response>"))
            return true;
    }
    return refuse(r, "No user query found in messages.");
}

static bool is_tool(const qw_value *message)
{
    return message != NULL && qw_value_equals(qw_value_get(message, "role"), "tool");
}

/* Results in a row share one turn of the user; it is not opened where the conversation begins with one. */
static void render_result(renderer *r, const qw_value *message, qw_chat_slice content)
{
    if (message->previous != NULL && !is_tool(message->previous))
        qw_chat_text_say(r->out, "<|im_start|>user");
    qw_chat_text_say(r->out, "\n<tool_response>\n");
    qw_chat_text_add_slice(r->out, content);
    qw_chat_text_say(r->out, "\n</tool_response>");
    if (!is_tool(message->next))
        qw_chat_text_say(r->out, "<|im_end|>\n");
}

static bool render_message(renderer *r, const qw_value *message, bool after_query)
{
    qw_chat_slice content;
    const qw_value *role = qw_value_get(message, "role");
    bool thinking = after_query || when(r->dialect->preserves_thinking, r->options->preserve_thinking);
    if (!render_content(r, qw_value_get(message, "content"), true, false, &content))
        return false;
    if (is_system(message))
        return message->previous == NULL || refuse(r, "System message must be at the beginning.");
    if (qw_value_equals(role, "assistant"))
        return render_answer(r, message, content, thinking);
    if (qw_value_equals(role, "user")) {
        qw_chat_text_say(r->out, "<|im_start|>user\n");
        qw_chat_text_add_slice(r->out, content);
        qw_chat_text_say(r->out, "<|im_end|>\n");
        return true;
    }
    if (!is_tool(message))
        return refuse(r, "Unexpected message role.");
    render_result(r, message, content);
    return true;
}

static bool render_request(renderer *r)
{
    const qw_value *query = NULL;
    bool after_query = false;
    if (!qw_value_truth(r->messages))
        return refuse(r, "No messages provided.");
    if (r->messages->kind != QW_VALUE_LIST)
        return refuse(r, "the messages are no array");
    if (!choose_effort(r) || !render_system(r) || !find_query(r, &query))
        return false;
    for (const qw_value *message = r->messages->first; message != NULL; message = message->next) {
        if (!render_message(r, message, after_query))
            return false;
        after_query = after_query || message == query;
    }
    if (!r->options->add_generation_prompt)
        return true;
    qw_chat_text_say(r->out, "<|im_start|>assistant\n");
    qw_chat_text_say(r->out, when(r->dialect->thinks, r->options->enable_thinking)
                                 ? "<think>\n"
                                 : "<think>\n\n</think>\n\n");
    return true;
}

/* --- The whole
 * ---------------------------------------------------------------------------------------------- */

qwen36_status qw_chat_render(const qwen36_chat_template *chat, const char *messages, size_t length,
                             const qwen36_chat_options *options, qw_chat_text *out, qwen36_error *error)
{
    const qw_allocator *allocator = &chat->allocator;
    renderer r = {.dialect = chat->dialect,
                  .options = options,
                  .values = {allocator, NULL},
                  .out = out,
                  .content = {.allocator = allocator},
                  .reasoning = {.allocator = allocator},
                  .error = error};
    if (!chat->known && !options->allow_nearest)
        return qw_fail(error, QWEN36_ERROR_CHAT_TEMPLATE,
                       "the chat template is none of the known ones (the nearest is %s)",
                       chat->dialect->name);
    r.status = qw_value_parse(&r.values, messages, length, "the messages", &r.messages, error);
    if (r.status == QWEN36_OK && options->tools_length > 0)
        r.status =
            qw_value_parse(&r.values, options->tools, options->tools_length, "the tools", &r.tools, error);
    bool done = r.status == QWEN36_OK && render_request(&r);
    if (done && (out->failed || r.content.failed || r.reasoning.failed))
        r.status = qw_fail_memory(error, out->length);
    qw_chat_text_release(&r.reasoning);
    qw_chat_text_release(&r.content);
    qw_values_release(&r.values);
    return r.status;
}
