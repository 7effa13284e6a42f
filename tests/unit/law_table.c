#include "tests/unit/law_table.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"

static const char *cell_of(const char *text, const char *law, int column)
{
    char start[64];
    snprintf(start, sizeof start, "\n| %s:", law);
    const char *row = strstr(text, start);
    if (row == NULL)
        return NULL;
    const char *end = strchr(row + 1, '\n'), *cell = row + 2;
    for (int i = 0; i <= column && cell != NULL; i++)
        cell = strchr(cell + 1, '|');
    return cell != NULL && (end == NULL || cell < end) ? cell + 1 : NULL;
}

bool law_table_read(const char *text, const char *law, int column, double bound[2])
{
    char cell[64] = "", more;
    const char *begin = cell_of(text, law, column);
    bound[0] = bound[1] = 0;
    if (begin == NULL || sscanf(begin, " %63[^|\n]", cell) != 1)
        return false;
    if (strcmp(cell, "equal bits ") == 0)
        return true;
    return sscanf(cell, "%lf / %lf %c", &bound[0], &bound[1], &more) == 2 && bound[0] > 0 &&
           bound[0] <= bound[1] && bound[1] < 1;
}

double law_bound(const char *law, const qwen36_model_options *options)
{
    double bound[2];
    int column = strcmp(qwen36_backend_name(), "cpu") == 0 ? LAW_CPU
                 : options->batch_invariant != 0           ? LAW_CUDA_INVARIANT
                                                           : LAW_CUDA;
    char *text = test_read_file("docs/numerics.md", NULL);
    CHECK(text != NULL);
    CHECK_MSG(law_table_read(text, law, column, bound), "docs/numerics.md, law '%s', column %d", law, column);
    free(text);
    return bound[options->numerics == QWEN36_NUMERICS_FAST];
}

bool law_rows_agree(const float *a, const float *b, int64_t count, double bound)
{
    if (bound == 0)
        return memcmp(a, b, sizeof *a * (size_t)count) == 0;
    return test_deviation(a, b, count) <= bound; /* false for a NaN */
}
