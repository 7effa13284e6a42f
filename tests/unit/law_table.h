/* The table of docs/numerics.md as tests read it: by how much two ways of computing the same tokens may
 * differ on the backend of this build. */
#ifndef QW_TESTS_LAW_TABLE_H
#define QW_TESTS_LAW_TABLE_H

#include "qwen36.h"

#include <stdbool.h>

enum { LAW_CPU, LAW_CUDA, LAW_CUDA_INVARIANT, LAW_COLUMNS };

/* The cell of a law, as max |a - b| / max |b| for REFERENCE and for FAST; zeros for `equal bits`. False:
 * there is no such law, or the cell says neither. */
bool law_table_read(const char *text, const char *law, int column, double bound[2]);
/* The bound for a model with these options, 0: equal bits. Fails the test where law_table_read does. */
double law_bound(const char *law, const qwen36_model_options *options);

/* Whether two rows are as close as a bound says. */
bool law_rows_agree(const float *a, const float *b, int64_t count, double bound);

#endif
