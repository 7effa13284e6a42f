/* Who takes how many rows of a step.
 *
 * In this order: sessions that waited for OVERDUE steps or more, sessions with one pending token (they wait
 * for every token), then prompts; among equals who waited longest, then the order of the array. A prompt gets
 * an equal share of the rows, at least a block; what is left over goes round once more. So a session
 * that asks in every step waits at most OVERDUE + ceil(64 x sessions / rows) steps, whatever the others do,
 * but for two cases: while a neighbour computes a prefix that both need, the other waits for it to be known;
 * and where the block tables of a step reach their limit, it is OVERDUE + sessions.
 */
#include "lib/session/session.h"

enum { OVERDUE = 8, MOST_LEADERS = 128 };

typedef struct scheduler {
    qwen36_model *model;
    qwen36_session *const *sessions;
    int32_t rows, segments; /* left */
    int64_t entries;        /* of block tables, left */
} scheduler;

static int32_t pending(const qwen36_session *s)
{
    return s->length - s->computed;
}

static bool is_prompt(const qwen36_session *s)
{
    return pending(s) > 1;
}

/* ---- order ------------------------------------------------------------------------------------------ */

/* Smaller is earlier: class, then longest wait, then place in the array. */
static uint64_t key_of(const qwen36_session *s, size_t index)
{
    uint64_t class = s->waited >= OVERDUE ? 0 : is_prompt(s) ? 2 : 1;
    return class << 60 | (uint64_t)(INT32_MAX - s->waited) << 20 | (uint64_t)index;
}

static void sift(uint64_t *keys, size_t count, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && keys[child + 1] > keys[child])
            child++;
        if (keys[at] >= keys[child])
            return;
        uint64_t key = keys[at];
        keys[at] = keys[child];
        keys[child] = key;
    }
}

/* A heap sort: qsort may allocate. */
static void sort(uint64_t *keys, size_t count)
{
    for (size_t i = count / 2; i-- > 0;)
        sift(keys, count, i);
    for (size_t end = count; end-- > 1;) {
        uint64_t key = keys[0];
        keys[0] = keys[end];
        keys[end] = key;
        sift(keys, end, 0);
    }
}

static qwen36_session *session_at(const scheduler *sch, size_t order)
{
    return sch->sessions[sch->model->order[order] & ((1 << 20) - 1)];
}

/* ---- shared prefixes -------------------------------------------------------------------------------- */

/* Tokens that `s` and `leader` have in common, both standing on the same blocks up to where s stands. */
static int32_t common_length(const qwen36_session *s, const qwen36_session *leader)
{
    int32_t at = s->computed, end = QW_MIN(qw_session_skippable(s), leader->length);
    if (s->space != leader->space || leader->computed < at ||
        (at > 0 && s->blocks[at / QW_KV_BLOCK - 1] != leader->blocks[at / QW_KV_BLOCK - 1]))
        return 0;
    while (at < end && s->tokens[at] == leader->tokens[at])
        at++;
    return at;
}

/* Whether `leader` is on the way to a block boundary that s can go on from; it then keeps its state there. */
static bool follows(const qwen36_session *s, qwen36_session *leader)
{
    int32_t boundary = common_length(s, leader) / QW_KV_BLOCK * QW_KV_BLOCK;
    if (boundary <= s->computed || boundary <= leader->computed)
        return false;
    leader->marks[QW_MARK_SIBLING] = QW_MAX(leader->marks[QW_MARK_SIBLING], boundary);
    return true;
}

/* Of two that stand at the same place, the earlier one leads. Nobody is led by one that does not go on. */
static bool waits_for_sibling(const scheduler *sch, size_t order, size_t count)
{
    const qwen36_session *s = session_at(sch, order);
    if (!sch->model->cache.prefix.enabled || s->computed % QW_KV_BLOCK != 0 || pending(s) <= QW_KV_BLOCK)
        return false;
    int32_t leaders = 0;
    for (size_t i = 0; i < count && leaders < MOST_LEADERS; i++) {
        qwen36_session *other = session_at(sch, i);
        if (!is_prompt(other) || other->stalled || i == order || other->computed < s->computed ||
            (other->computed == s->computed && i > order))
            continue;
        leaders++;
        if (follows(s, other))
            return true;
    }
    return false;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

/* A cut inside a prompt falls on a block boundary where one is in reach. */
static int32_t cut(const qwen36_session *s, int32_t room)
{
    int32_t rows = pending(s);
    if (rows <= room)
        return rows;
    int32_t end = (s->computed + room) / QW_KV_BLOCK * QW_KV_BLOCK;
    return end > s->computed ? end - s->computed : room;
}

static int64_t table_entries(const qwen36_session *s, int32_t rows)
{
    return (s->computed + rows + QW_KV_BLOCK - 1) / QW_KV_BLOCK;
}

static void give(scheduler *sch, qwen36_session *s, int32_t room)
{
    int32_t rows = cut(s, room), before = s->step.rows;
    int64_t entries = table_entries(s, rows) - (before > 0 ? table_entries(s, before) : 0);
    if (rows <= before || entries > sch->entries || (before == 0 && sch->segments == 0))
        return;
    sch->entries -= entries;
    sch->segments -= before == 0;
    sch->rows -= rows - before;
    s->step.rows = rows;
}

static int32_t share_of(const scheduler *sch, size_t count)
{
    int32_t prompts = 0;
    for (size_t i = 0; i < count; i++)
        prompts += is_prompt(session_at(sch, i));
    int32_t share = sch->rows / QW_MAX(prompts, 1) / QW_KV_BLOCK * QW_KV_BLOCK;
    return QW_MAX(share, QW_KV_BLOCK);
}

static void count_waiting(qwen36_session *const *sessions, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        qwen36_session *s = sessions[i];
        bool waits = s->step.rows == 0 && pending(s) > 0 && s->step.status == QWEN36_OK;
        s->waited = waits ? QW_MIN(s->waited + 1, INT32_MAX - 1) : 0;
    }
}

void qw_schedule(qwen36_model *m, qwen36_session *const *sessions, size_t count, int32_t budget)
{
    scheduler sch = {m, sessions, budget, m->max_segments, m->batch.limits.blocks};
    size_t wanting = 0, prompts = 0;
    for (size_t i = 0; i < count; i++) {
        qwen36_session *s = sessions[i];
        if (pending(s) == 0 || s->step.status != QWEN36_OK)
            continue;
        qw_session_adopt_pending(s);
        prompts += is_prompt(s);
        m->order[wanting++] = key_of(s, i);
    }
    sort(m->order, wanting);
    int32_t share = share_of(&sch, wanting);
    for (size_t i = 0; i < wanting && sch.rows > 0; i++) {
        qwen36_session *s = session_at(&sch, i);
        if (prompts > 1 && is_prompt(s) && waits_for_sibling(&sch, i, wanting)) {
            s->step.deferred = true;
            continue;
        }
        give(&sch, s, QW_MIN(is_prompt(s) ? share : 1, sch.rows));
    }
    for (size_t i = 0; i < wanting && sch.rows > 0; i++) {
        qwen36_session *s = session_at(&sch, i);
        if (!s->step.deferred && s->step.rows > 0)
            give(&sch, s, s->step.rows + sch.rows);
    }
    count_waiting(sessions, count);
}
