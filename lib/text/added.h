/* The added tokens: texts like <|im_end|> that become one token before anything else looks at the text. They
 * lie in a trie, so that the longest one at a place is found in one walk. */
#ifndef QW_TEXT_ADDED_H
#define QW_TEXT_ADDED_H

#include "lib/base/base.h"

typedef struct qw_added_node {
    uint32_t child, sibling; /* 0: none */
    int32_t id;              /* the token that ends here, or -1 */
    unsigned char byte;
} qw_added_node;

/* Begins zeroed. */
typedef struct qw_added {
    qw_added_node *nodes; /* [0] is the root */
    size_t count, capacity;
    bool starts[256]; /* bytes that a token begins with */
} qw_added;

typedef struct qw_added_match {
    size_t begin, length; /* length 0: none, and begin is the end of the text */
    int32_t id;
} qw_added_match;

/* false: out of memory. `length` >= 1; a text added before gets the new id. */
bool qw_added_add(qw_added *added, const qw_allocator *allocator, const char *text, size_t length,
                  int32_t id);
void qw_added_release(qw_added *added, const qw_allocator *allocator);

/* The leftmost token at or after `at`, the longest of those that begin there. */
qw_added_match qw_added_find(const qw_added *added, const char *text, size_t length, size_t at);
/* The token with exactly this text, or -1. */
int32_t qw_added_id(const qw_added *added, const char *text, size_t length);

#endif
