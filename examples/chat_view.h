/* An answer as it streams, for chat.c: what is thought, said and called told apart, kept, and shown. */
#ifndef EXAMPLES_CHAT_VIEW_H
#define EXAMPLES_CHAT_VIEW_H

#include "chat_messages.h"

typedef enum part { NOTHING, THOUGHT, SAID, CALL } part;

typedef struct view {
    buffer thought, said; /* the answer so far; calls of tools are said */
    part now, shown;      /* the part that comes in; that of what was written last */
    size_t breaks;        /* line breaks that were not written yet: those at the end of a part never are */
    int colours, hidden;  /* hidden: thoughts are not shown */
    int32_t think, end_think, call, end_call; /* the tokens that mark parts; -1: the tokenizer has none */
} view;

static inline int32_t token_of(const qwen36_tokenizer *tokenizer, const char *mark)
{
    return qwen36_tokenizer_id(tokenizer, mark, strlen(mark));
}

static inline void view_init(view *v, const qwen36_tokenizer *tokenizer)
{
    v->think = token_of(tokenizer, "<think>");
    v->end_think = token_of(tokenizer, "</think>");
    v->call = token_of(tokenizer, "<tool_call>");
    v->end_call = token_of(tokenizer, "</tool_call>");
}

/* Whether a prompt ends inside a thought, which is the template's choice. */
static inline int ends_in_thought(const view *v, const int32_t *prompt, size_t count)
{
    while (count > 0 && prompt[count - 1] != v->think && prompt[count - 1] != v->end_think)
        count--;
    return count > 0 && prompt[count - 1] == v->think;
}

/* ---- showing ------------------------------------------------------------------------------------------- */

/* Colours tell the parts apart; without them marks do. */
static inline void leave(const view *v)
{
    static const char *const plain[] = {"", "\n</think>\n\n", "", ""};
    static const char *const coloured[] = {"", "\033[0m\n\n", "", "\033[0m"};
    if (v->hidden && v->shown == THOUGHT)
        fputs(v->colours ? "\r\033[K" : "", stdout);
    else
        fputs((v->colours ? coloured : plain)[v->shown], stdout);
}

static inline void enter(const view *v)
{
    static const char *const plain[] = {"", "<think>\n", "", ""};
    static const char *const coloured[] = {"", "\033[2m", "", "\033[36m"};
    if (v->hidden && v->now == THOUGHT)
        fputs(v->colours ? "\033[2m(thinking)\033[0m" : "", stdout);
    else
        fputs((v->colours ? coloured : plain)[v->now], stdout);
}

static inline void show(view *v, const char *bytes, size_t length)
{
    int begins = v->shown == NOTHING || v->shown == THOUGHT; /* breaks before what is said are none of it */
    size_t skipped = 0, end = length;
    while (begins && v->shown != v->now && skipped < length && bytes[skipped] == '\n')
        skipped++;
    while (end > skipped && bytes[end - 1] == '\n')
        end--;
    if (end > skipped && v->shown != v->now) {
        v->breaks = begins ? 0 : v->breaks;
        leave(v);
        enter(v);
        v->shown = v->now;
    }
    if (end > skipped && !(v->hidden && v->now == THOUGHT)) {
        for (; v->breaks > 0; v->breaks--)
            putchar('\n');
        fwrite(bytes + skipped, 1, end - skipped, stdout);
    }
    v->breaks += length - end;
}

/* ---- the stream ---------------------------------------------------------------------------------------- */

static inline void view_begin(view *v, int in_thought, int hidden)
{
    v->hidden = hidden;
    buffer_clear(&v->thought);
    buffer_clear(&v->said);
    v->now = in_thought ? THOUGHT : SAID;
    v->shown = NOTHING;
    v->breaks = 0;
}

/* Keeps and shows. A NUL would end a string of C: it is kept as U+FFFD. */
static inline void take_text(view *v, const char *bytes, size_t length)
{
    buffer *kept = v->now == THOUGHT ? &v->thought : &v->said;
    for (size_t i = 0; i < length; i++)
        buffer_add(kept, bytes[i] != '\0' ? bytes + i : "\xEF\xBF\xBD", bytes[i] != '\0' ? 1 : 3);
    show(v, bytes, length);
}

/* A qwen36_text_fn. A mark is a token, and its text comes with it, at the end of what came before. */
static inline int32_t view_text(void *user, int32_t token, const char *bytes, size_t length)
{
    view *v = user;
    if (token >= 0 && token == v->end_think && v->now == THOUGHT) {
        size_t mark = strlen("</think>");
        take_text(v, bytes, length > mark ? length - mark : 0);
        v->now = SAID;
    } else if (token >= 0 && token == v->think && v->now == SAID && is_blank(v->said.bytes)) {
        v->now = THOUGHT;
    } else {
        if (token >= 0 && token == v->call && v->now == SAID)
            v->now = CALL;
        take_text(v, bytes, length);
        if (token >= 0 && token == v->end_call && v->now == CALL)
            v->now = SAID;
    }
    return fflush(stdout) != 0 || ferror(stdout) != 0;
}

/* Ends the last line, and leaves an empty one; a thought that was shown has done so. */
static inline void view_end(view *v)
{
    v->now = NOTHING;
    leave(v);
    if (v->shown == SAID || v->shown == CALL)
        fputs("\n\n", stdout);
    else if (v->shown == NOTHING || v->hidden)
        putchar('\n');
    fflush(stdout);
}

#endif
