/* A judge of logits: a model that reuses nothing. What stands after a list of tokens it learns by computing
 * the list from its begin, in one step of a fresh session; of every row that it has seen it remembers a
 * digest of 128 bits, so that asking often is cheap. Where cuts change bits (docs/numerics.md) it remembers
 * the row itself, and rows agree within the bound of that law.
 */
#ifndef QW_TESTS_ROW_JUDGE_H
#define QW_TESTS_ROW_JUDGE_H

#include "lib/base/hash.h"
#include "lib/model/model.h"

typedef struct row_judge {
    qwen36_model *model;
    int32_t vocab_size, context;
    qw_hash128 *list, *row; /* by open addressing: a list of tokens, and the logits after it */
    float **logits;         /* with a bound: the row itself, in place of its digest */
    double bound;           /* 0: equal bits */
    int32_t known;
    long computed; /* lists */
} row_judge;

/* With these options, but for one session without reuse and steps of a whole context. */
void row_judge_open(row_judge *judge, const char *directory, const qwen36_model_options *options);
void row_judge_close(row_judge *judge);

/* Whether `logits` are those after tokens[0, count). */
bool row_judge_agrees(row_judge *judge, const int32_t *tokens, int32_t count, const float *logits);
/* Whether scores[0, count - begin) are those of tokens[begin, count) after what stands before them. */
bool row_judge_agrees_on_scores(row_judge *judge, const int32_t *tokens, int32_t begin, int32_t count,
                                const float *scores);

#endif
