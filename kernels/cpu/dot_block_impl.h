/* From register tiles to blocks. The including file defines TILE_W (4), TILE_X (at most 6) and
 *     dot_tile(dtype, columns, rows, w, x, k, sum)
 * which leaves the partial sums of columns x rows dot products in sum[column][row]. */

/* The sums of one tile into y; `live` of the columns exist. */
QW_INLINE void store_tile(int columns, int rows, vf (*sum)[TILE_X], int64_t live, float *y, int64_t y_stride)
{
    QW_UNROLL
    for (int r = 0; r < rows; r++) {
        float out[2 * TILE_W];
        QW_UNROLL
        for (int c = 0; c < columns; c += 4)
            vf_sum4(sum[c][r], sum[c + 1][r], sum[c + 2][r], sum[c + 3][r], out + c);
        memcpy(y + r * y_stride, out, (size_t)live * sizeof out[0]);
    }
}

/* A few rows of x against all rows of w. A tile that is not full repeats its last row of w and drops what
 * comes of it. */
QW_INLINE void dot_rows(int dtype, int columns, int rows, const qw_dot_block *b, const char *const *x, float *y)
{
    for (int64_t n = 0; n < b->columns; n += columns) {
        const int64_t live = QW_MIN(b->columns - n, columns);
        const char *w[2 * TILE_W];
        QW_UNROLL
        for (int c = 0; c < columns; c++)
            w[c] = b->w + (n + QW_MIN(c, live - 1)) * b->w_stride;
        vf sum[2 * TILE_W][TILE_X];
        dot_tile(dtype, columns, rows, w, x, b->k, sum);
        store_tile(columns, rows, sum, live, y + n, b->y_stride);
    }
}

QW_INLINE void dot_block(int dtype, const qw_dot_block *b)
{
    for (int64_t r = 0; r < b->rows; r += TILE_X) {
        const int64_t live = QW_MIN(b->rows - r, TILE_X);
        float *y = b->y + r * b->y_stride;
        const char *x[TILE_X];
        for (int64_t j = 0; j < live; j++)
            x[j] = b->x + (b->x_row != NULL ? b->x_row[r + j] : r + j) * b->x_stride;
        switch (live) {
        case 1:
            dot_rows(dtype, 2 * TILE_W, 1, b, x, y);
            break;
        case 2:
            dot_rows(dtype, TILE_W, QW_MIN(2, TILE_X), b, x, y);
            break;
        case 3:
            dot_rows(dtype, TILE_W, QW_MIN(3, TILE_X), b, x, y);
            break;
        case 4:
            dot_rows(dtype, TILE_W, QW_MIN(4, TILE_X), b, x, y);
            break;
        case 5:
            dot_rows(dtype, TILE_W, QW_MIN(5, TILE_X), b, x, y);
            break;
        default:
            dot_rows(dtype, TILE_W, TILE_X, b, x, y);
            break;
        }
    }
}
