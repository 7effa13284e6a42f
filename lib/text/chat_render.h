/* Renders a chat request as a checkpoint's template would.
 *
 * The functions of chat_render.c follow the templates statement by statement, for the order of their errors
 * is part of what a caller sees. docs/chat.md tells where a request is read otherwise than by jinja.
 */
#ifndef QW_TEXT_CHAT_RENDER_H
#define QW_TEXT_CHAT_RENDER_H

#include "lib/text/chat_template.h"
#include "lib/text/chat_text.h"

/* `out` begins empty; on failure what it holds is of no use. QWEN36_ERROR_CHAT_TEMPLATE for an unknown
 * template without allow_nearest, QWEN36_ERROR_CHAT_MESSAGES for a bad request. */
qwen36_status qw_chat_render(const qwen36_chat_template *chat, const char *messages, size_t length,
                             const qwen36_chat_options *options, qw_chat_text *out, qwen36_error *error);

#endif
