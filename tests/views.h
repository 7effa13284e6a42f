/* Views over arrays of a test. A view needs a qw_buffer that outlives it: each function takes one. */
#ifndef QW_TESTS_VIEWS_H
#define QW_TESTS_VIEWS_H

#include "lib/backend.h"
#include "lib/weights/dtype.h"

/* [rows, columns] of `dtype`; rows 0: a vector of rank 1. */
static inline qw_view test_view_of(qw_buffer *buffer, void *data, int32_t dtype, int64_t rows,
                                   int64_t columns)
{
    const int64_t count = (rows > 0 ? rows : 1) * columns;
    *buffer = (qw_buffer){data, (uint64_t)(count * qw_dtype_size(dtype)), QW_SPACE_HOST, 0};
    if (rows == 0)
        return (qw_view){buffer, 0, dtype, 1, {columns}, {1}};
    return (qw_view){buffer, 0, dtype, 2, {rows, columns}, {columns, 1}};
}

static inline qw_view test_view(qw_buffer *buffer, float *data, int64_t rows, int64_t columns)
{
    return test_view_of(buffer, data, QW_F32, rows, columns);
}

#endif
