/* From register tiles to blocks. The including file defines TILE_W, TILE_X (at most 6), ONE_ROW_W and
 *     dot_tile(dtype, columns, rows, ahead, w, x, next, k, sum)
 * which leaves the partial sums of columns x rows dot products in sum[column][row], and on the way fetches
 * `ahead` x k elements from next, in order of address, into the second-level cache. (A fetch occupies a miss
 * buffer of the first level until memory answers, so the fetches of a tile are spread over its whole length.)
 *
 * A few rows of x, small enough for the first-level cache, meet all rows of w before the next few do. The
 * first of these passes reads w from memory and fetches a tile ahead; the others find it in the second-level
 * cache. A tile that is not full repeats its last row of w and drops what comes of it. */

enum { MOST_W = ONE_ROW_W > TILE_W ? ONE_ROW_W : TILE_W };

/* The sums of one tile into y; `live` of the columns exist. */
QW_INLINE void store_tile(int columns, int rows, vf (*sum)[TILE_X], int64_t live, float *y, int64_t y_stride)
{
    QW_UNROLL
    for (int r = 0; r < rows; r++) {
        float out[MOST_W];
        QW_UNROLL
        for (int c = 0; c < columns / 4 * 4; c += 4)
            vf_sum4(sum[c][r], sum[c + 1][r], sum[c + 2][r], sum[c + 3][r], out + c);
        QW_UNROLL
        for (int c = columns / 4 * 4; c < columns; c++)
            out[c] = vf_sum(sum[c][r]);
        float *to = y + r * y_stride;
        if (live == columns)
            memcpy(to, out, (size_t)columns * sizeof out[0]); /* of constant size */
        else
            for (int64_t c = 0; c < live; c++)
                to[c] = out[c];
    }
}

/* How many rows of w to fetch ahead: whole tiles, at least REACH_BYTES. */
enum { REACH_BYTES = 32 * 1024, GRID_TILES = 4 };
QW_INLINE int64_t reach(const qw_dot_block *b, int64_t columns)
{
    int64_t rows = columns;
    while (rows * b->w_stride < REACH_BYTES && rows < 64)
        rows += columns;
    return rows;
}

/* What stands `offset` bytes into w, or into w_next when that is beyond the block's end. */
QW_INLINE const char *bytes_ahead(const qw_dot_block *b, int64_t offset)
{
    const int64_t all = b->columns * b->w_stride;
    if (offset < all)
        return b->w + offset;
    return b->w_next != NULL ? b->w_next + (offset - all) : b->w;
}

/* One tile: rows r .. of x, rows n .. of w (`columns` pointers), fetching `ahead` rows. */
QW_INLINE void dot_at(int dtype, int columns, int rows, int ahead, const qw_dot_block *b, int64_t r,
                      int64_t n, const char *next)
{
    const int64_t last = b->columns - n - 1;
    const char *x[TILE_X], *w[MOST_W];
    QW_UNROLL
    for (int j = 0; j < rows; j++)
        x[j] = b->x + (b->x_row != NULL ? b->x_row[r + j] : r + j) * b->x_stride;
    QW_UNROLL
    for (int c = 0; c < columns; c++)
        w[c] = b->w + (n + QW_MIN(c, last)) * b->w_stride;
    vf sum[MOST_W][TILE_X];
    dot_tile(dtype, columns, rows, ahead, w, x, next, b->k, sum);
    store_tile(columns, rows, sum, QW_MIN(last + 1, columns), b->y + r * b->y_stride + n, b->y_stride);
}

/* Few rows of x at r against all rows of w. */
QW_INLINE void dot_pass(int dtype, int columns, int rows, bool first, const qw_dot_block *b, int64_t r)
{
    const int64_t distance = reach(b, columns);
    for (int64_t n = 0; n < b->columns; n += columns)
        dot_at(dtype, columns, rows, first ? columns : 0, b, r, n,
               bytes_ahead(b, (n + distance) * b->w_stride));
}

/* Calls form(rows) with a constant number of rows. */
#define DOT_BY_ROWS(rows, form)                                                                              \
    switch (rows) {                                                                                          \
    case 1:                                                                                                  \
        form(1);                                                                                             \
        break;                                                                                               \
    case 2:                                                                                                  \
        form(QW_MIN(2, TILE_X));                                                                             \
        break;                                                                                               \
    case 3:                                                                                                  \
        form(QW_MIN(3, TILE_X));                                                                             \
        break;                                                                                               \
    case 4:                                                                                                  \
        form(QW_MIN(4, TILE_X));                                                                             \
        break;                                                                                               \
    case 5:                                                                                                  \
        form(QW_MIN(5, TILE_X));                                                                             \
        break;                                                                                               \
    default:                                                                                                 \
        form(TILE_X);                                                                                        \
        break;                                                                                               \
    }

/* Some tiles of x: all of them meet a tile of w while that is in the first-level cache, and fetch the next
 * one together. */
QW_INLINE void dot_grid(int dtype, const qw_dot_block *b, int64_t tiles)
{
    const int64_t distance = reach(b, TILE_W);
    for (int64_t n = 0; n < b->columns; n += TILE_W) {
        for (int64_t t = 0; t < tiles; t++) {
            const int64_t part = t * TILE_W * b->w_stride / tiles;
            const char *next = bytes_ahead(b, (n + distance) * b->w_stride + part);
            const int64_t r = t * b->rows / tiles;
#define DOT_FORM(rows) dot_at(dtype, TILE_W, rows, (TILE_W + 1) / 2, b, r, n, next)
            DOT_BY_ROWS((t + 1) * b->rows / tiles - r, DOT_FORM)
#undef DOT_FORM
        }
    }
}

QW_INLINE void dot_some_rows(int dtype, bool first, const qw_dot_block *b, int64_t r, int64_t end){
/* One row: more rows of w, for enough independent sums and loads under way. */
#define DOT_FORM(rows) dot_pass(dtype, (rows) == 1 ? ONE_ROW_W : TILE_W, rows, first, b, r)
    DOT_BY_ROWS(end - r, DOT_FORM)
#undef DOT_FORM
}

/* The rows of x are shared out evenly among as few tiles as hold them. */
QW_INLINE void dot_block(int dtype, const qw_dot_block *b)
{
    const int64_t tiles = (b->rows + TILE_X - 1) / TILE_X;
    if (tiles > 1 && tiles <= GRID_TILES) {
        dot_grid(dtype, b, tiles);
        return;
    }
    dot_some_rows(dtype, true, b, 0, b->rows / tiles);
    for (int64_t t = 1; t < tiles; t++)
        dot_some_rows(dtype, false, b, t * b->rows / tiles, (t + 1) * b->rows / tiles);
}
#undef DOT_BY_ROWS
