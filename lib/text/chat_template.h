/* The chat templates of the family, and which of them a checkpoint has.
 *
 * A template is a program in jinja. The published ones differ in few points, so each is a row of one table
 * (lib/text/chat_template.c), found by the SHA-256 of its text, and lib/text/chat_render.c does what it does.
 */
#ifndef QW_TEXT_CHAT_TEMPLATE_H
#define QW_TEXT_CHAT_TEMPLATE_H

#include "lib/base/base.h"

#include <sha2.h>

/* When a template does what an option asks for; the option itself may be unset. */
typedef enum qw_chat_when {
    QW_CHAT_NEVER,
    QW_CHAT_IF_ASKED,      /* the option is 1 */
    QW_CHAT_UNLESS_REFUSED /* the option is not 0 */
} qw_chat_when;

typedef struct qw_chat_dialect {
    const char *name;
    uint8_t digest[SHA256_DIGEST_LENGTH]; /* of its text, without a line break at the end */
    qw_chat_when thinks;                  /* the answer begins inside <think>: enable_thinking */
    qw_chat_when preserves_thinking;      /* of turns before the last query: preserve_thinking */
    bool splits_thinking;  /* looks for </think> in the content of an answer without reasoning_content */
    bool scalars_by_str;   /* an argument that is true, null or a number is written as str() writes it */
    bool reasoning_effort; /* begins the system turn with a sentence about it, unless thinking is refused */
    bool drops_empty;      /* an empty system message gives no turn; arguments "" are none */
} qw_chat_dialect;

struct qwen36_chat_template {
    qw_allocator allocator;
    int64_t process;                /* that made it */
    bool known;                     /* the text is that of the dialect, not only near to it */
    const qw_chat_dialect *dialect; /* static */
};

/* These are the exported functions without their checks of arguments. */
qwen36_status qw_chat_template_load(const qw_allocator *allocator, const char *directory,
                                    qwen36_chat_template **out, qwen36_error *error);
qwen36_status qw_chat_template_parse(const qw_allocator *allocator, const char *text, size_t length,
                                     qwen36_chat_template **out, qwen36_error *error);
void qw_chat_template_destroy(qwen36_chat_template *chat);

/* False in a child process of the one that made the template. */
bool qw_chat_template_is_ours(const qwen36_chat_template *chat);

#endif
