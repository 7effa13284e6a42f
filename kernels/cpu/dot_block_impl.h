/* From register tiles to blocks. The including file defines TILE_W (4), TILE_X (at most 6) and
 *     dot_tile(dtype, columns, rows, ahead, w, x, next, k, sum)
 * which leaves the partial sums of columns x rows dot products in sum[column][row], and on the way fetches
 * the rows next[0 .. ahead) into the cache. */

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

QW_INLINE const char *x_row(const qw_dot_block *b, int64_t r)
{
    return b->x + (b->x_row != NULL ? b->x_row[r] : r) * b->x_stride;
}

/* One row of x: twice the rows of w, for enough independent sums and loads under way. */
QW_INLINE void dot_one_row(int dtype, const qw_dot_block *b)
{
    enum { COLUMNS = 2 * TILE_W };
    const char *x[1] = {x_row(b, 0)};
    for (int64_t n = 0; n < b->columns; n += COLUMNS) {
        const int64_t live = QW_MIN(b->columns - n, COLUMNS), left = b->columns - n - 1;
        const char *w[COLUMNS], *next[COLUMNS];
        QW_UNROLL
        for (int c = 0; c < COLUMNS; c++) {
            w[c] = b->w + (n + QW_MIN(c, live - 1)) * b->w_stride;
            next[c] = b->w + (n + QW_MIN(c + COLUMNS, left)) * b->w_stride;
        }
        vf sum[COLUMNS][TILE_X];
        dot_tile(dtype, COLUMNS, 1, COLUMNS, w, x, next, b->k, sum);
        store_tile(COLUMNS, 1, sum, live, b->y + n, b->y_stride);
    }
}

QW_INLINE void dot_tile_rows(int dtype, int rows, const qw_dot_block *b, int64_t n, int64_t r,
                             const char *const *w, const char *const *next)
{
    const char *x[TILE_X];
    QW_UNROLL
    for (int j = 0; j < rows; j++)
        x[j] = x_row(b, r + j);
    vf sum[TILE_W][TILE_X];
    dot_tile(dtype, TILE_W, rows, 2, w, x, next, b->k, sum);
    store_tile(TILE_W, rows, sum, QW_MIN(b->columns - n, TILE_W), b->y + r * b->y_stride + n, b->y_stride);
}

QW_INLINE void dot_block(int dtype, const qw_dot_block *b)
{
    if (b->rows == 1) {
        dot_one_row(dtype, b);
        return;
    }
    const int64_t tiles = QW_MIN((b->rows + TILE_X - 1) / TILE_X, TILE_W);
    for (int64_t n = 0; n < b->columns; n += TILE_W) {
        const int64_t last = b->columns - n - 1;
        const char *w[TILE_W];
        QW_UNROLL
        for (int c = 0; c < TILE_W; c++)
            w[c] = b->w + (n + QW_MIN(c, last)) * b->w_stride;
        for (int64_t r = 0, t = 0; r < b->rows; r += TILE_X, t++) {
            const int64_t c0 = QW_MIN(t, tiles) * TILE_W / tiles;
            const int64_t c1 = QW_MAX(QW_MIN((t + 1), tiles) * TILE_W / tiles - 1, c0);
            const char *next[2] = {b->w + (n + QW_MIN(c0 + (t < tiles ? TILE_W : 0), last)) * b->w_stride,
                                   b->w + (n + QW_MIN(c1 + (t < tiles ? TILE_W : 0), last)) * b->w_stride};
            switch (b->rows - r) {
            case 1:
                dot_tile_rows(dtype, 1, b, n, r, w, next);
                break;
            case 2:
                dot_tile_rows(dtype, QW_MIN(2, TILE_X), b, n, r, w, next);
                break;
            case 3:
                dot_tile_rows(dtype, QW_MIN(3, TILE_X), b, n, r, w, next);
                break;
            case 4:
                dot_tile_rows(dtype, QW_MIN(4, TILE_X), b, n, r, w, next);
                break;
            case 5:
                dot_tile_rows(dtype, QW_MIN(5, TILE_X), b, n, r, w, next);
                break;
            default:
                dot_tile_rows(dtype, TILE_X, b, n, r, w, next);
                break;
            }
        }
    }
}
