/* The prefix index alone: finding, namespaces, snapshots, and the order in which things are forgotten. */
#include "lib/session/prefix.h"
#include "tests/harness.h"

enum { BLOCKS = 64, SLOTS = 12 };

static struct {
    qw_allocator allocator;
    qw_index_pool blocks, slots;
    qw_prefix prefix;
} w;

static void begin_sized(int32_t blocks, bool enabled)
{
    memset(&w, 0, sizeof w);
    w.allocator = qw_allocator_default();
    CHECK_INT(qw_index_pool_create(&w.blocks, &w.allocator, blocks), QWEN36_OK);
    CHECK_INT(qw_index_pool_create(&w.slots, &w.allocator, SLOTS), QWEN36_OK);
    CHECK_INT(qw_prefix_create(&w.prefix, &w.allocator, &w.blocks, &w.slots, enabled), QWEN36_OK);
}

static void begin(void)
{
    begin_sized(BLOCKS, true);
}

static void check(void)
{
    CHECK(qw_prefix_check(&w.prefix));
    CHECK(qw_index_pool_check(&w.blocks) && qw_index_pool_check(&w.slots));
}

/* Nobody may hold anything any more. */
static void end(void)
{
    check();
    qw_prefix_clear(&w.prefix);
    check();
    CHECK_INT(w.prefix.nodes, 0);
    CHECK_INT(w.blocks.free_count, w.blocks.capacity);
    CHECK_INT(w.slots.free_count, w.slots.capacity);
    qw_prefix_destroy(&w.prefix, &w.allocator);
    qw_index_pool_destroy(&w.blocks, &w.allocator);
    qw_index_pool_destroy(&w.slots, &w.allocator);
}

/* Sixty-four tokens that only the last one tells from others. */
static const int32_t *tokens_of(int32_t name)
{
    static int32_t tokens[QW_KV_BLOCK];
    tokens[QW_KV_BLOCK - 1] = name;
    return tokens;
}

/* A timeline computes a block and holds it. */
static int32_t add(uint64_t space, int32_t parent, int32_t name)
{
    int32_t block = qw_index_pool_acquire(&w.blocks);
    CHECK(block >= 0);
    CHECK_INT(qw_prefix_insert(&w.prefix, space, parent, tokens_of(name), block), block);
    check();
    return block;
}

static void hold(int32_t block)
{
    qw_index_pool_retain(&w.blocks, block);
    qw_prefix_block_held(&w.prefix, block);
    check();
}

static void drop(int32_t block)
{
    qw_index_pool_release(&w.blocks, block);
    qw_prefix_block_dropped(&w.prefix, block);
    check();
}

/* A snapshot that only the index holds. */
static int32_t snapshot(int32_t node)
{
    int32_t slot = qw_index_pool_acquire(&w.slots);
    CHECK(slot >= 0);
    qw_prefix_set_snapshot(&w.prefix, node, slot, false);
    check();
    return slot;
}

static int32_t find(uint64_t space, int32_t parent, int32_t name)
{
    return qw_prefix_find(&w.prefix, space, parent, tokens_of(name));
}

TEST(prefix, a_node_is_its_tokens_and_all_before)
{
    begin();
    int32_t a = add(0, -1, 1), b = add(0, a, 2), other = add(0, -1, 2), c = add(0, other, 2);
    CHECK_INT(find(0, -1, 1), a);
    CHECK_INT(find(0, a, 2), b);
    CHECK_INT(find(0, -1, 2), other);
    CHECK_INT(find(0, other, 2), c);
    CHECK_INT(find(0, b, 2), -1);
    CHECK_INT(find(0, -1, 3), -1);
    /* the same tokens once more: the first node stays, and the block is the caller's still */
    int32_t again = qw_index_pool_acquire(&w.blocks);
    CHECK_INT(qw_prefix_insert(&w.prefix, 0, a, tokens_of(2), again), b);
    CHECK_INT(w.blocks.count[again], 1);
    qw_index_pool_release(&w.blocks, again);
    CHECK_INT(w.prefix.nodes, 4);
    CHECK_INT(w.prefix.idle, 0);
    drop(b), drop(a), drop(c), drop(other);
    CHECK_INT(w.prefix.idle, 4);
    end();
}

TEST(prefix, namespaces_do_not_meet)
{
    begin();
    int32_t a = add(1, -1, 1), b = add(2, -1, 1), last;
    CHECK(a != b);
    CHECK_INT(find(1, -1, 1), a);
    CHECK_INT(find(2, -1, 1), b);
    CHECK_INT(find(0, -1, 1), -1);
    CHECK_INT(find(UINT64_MAX, -1, 1), -1);
    CHECK_INT(find(2, a, 1), -1);
    snapshot(a);
    CHECK_INT(qw_prefix_match(&w.prefix, 1, -1, 0, tokens_of(1), 64, &last), 1);
    CHECK_INT(last, a);
    CHECK_INT(qw_prefix_match(&w.prefix, 2, -1, 0, tokens_of(1), 64, &last), 0);
    CHECK_INT(last, -1);
    drop(a), drop(b);
    end();
}

/* Names 1, 2, 3 ... in a row. */
static void fill(int32_t *tokens, int32_t blocks)
{
    for (int32_t i = 0; i < blocks; i++)
        memcpy(tokens + (int64_t)i * QW_KV_BLOCK, tokens_of(i + 1), QW_KV_BLOCK * sizeof *tokens);
}

TEST(prefix, a_match_ends_in_a_snapshot)
{
    int32_t tokens[5 * QW_KV_BLOCK], node[4], last = 7;
    begin();
    fill(tokens, 5);
    for (int32_t i = 0; i < 4; i++)
        node[i] = add(0, i > 0 ? node[i - 1] : -1, i + 1);
    CHECK_INT(qw_prefix_match(&w.prefix, 0, -1, 0, tokens, 320, &last), 0);
    CHECK_INT(last, -1);
    snapshot(node[0]), snapshot(node[2]);
    static const struct {
        int32_t count, depth;
    } cases[] = {{320, 3}, {256, 3}, {192, 3}, {191, 1}, {128, 1}, {64, 1}, {63, 0}, {0, 0}, {-1, 0}};
    for (size_t i = 0; i < QW_COUNT_OF(cases); i++) {
        CHECK_INT(qw_prefix_match(&w.prefix, 0, -1, 0, tokens, cases[i].count, &last), cases[i].depth);
        CHECK_INT(last, cases[i].depth > 0 ? node[cases[i].depth - 1] : -1);
    }
    /* from a node on */
    CHECK_INT(qw_prefix_match(&w.prefix, 0, node[0], 1, tokens, 320, &last), 3);
    CHECK_INT(qw_prefix_match(&w.prefix, 0, node[1], 2, tokens, 320, &last), 3);
    CHECK_INT(qw_prefix_match(&w.prefix, 0, node[2], 3, tokens, 320, &last), 0);
    CHECK_INT(last, -1);
    /* a token that differs */
    tokens[100]++;
    CHECK_INT(qw_prefix_match(&w.prefix, 0, -1, 0, tokens, 320, &last), 1);
    for (int32_t i = 3; i >= 0; i--)
        drop(node[i]);
    end();
}

/* Every node is found while its neighbours in the bucket go, from whatever place. */
TEST(prefix, buckets_hold_many)
{
    int32_t node[64], together = 0;
    begin_sized(64, true);
    for (int32_t i = 0; i < 64; i++)
        node[i] = add(0, -1, i);
    for (uint32_t bucket = 0; bucket <= w.prefix.bucket_mask; bucket++) {
        int32_t length = 0;
        for (int32_t i = w.prefix.bucket[bucket]; i >= 0; i = w.prefix.node[i].next)
            length++;
        together = QW_MAX(together, length);
    }
    CHECK(together > 2);
    for (int32_t i = 0; i < 64; i++)
        drop(node[(i * 7) % 64]);
    for (int32_t gone = 0; gone < 64; gone++) {
        for (int32_t i = 0; i < 64; i++)
            CHECK_INT(find(0, -1, (i * 7) % 64), i < gone ? -1 : node[(i * 7) % 64]);
        CHECK(qw_prefix_evict_block(&w.prefix));
        check();
    }
    CHECK(!qw_prefix_evict_block(&w.prefix));
    CHECK_INT(w.prefix.block_evictions, 64);
    end();
}

TEST(prefix, the_longest_idle_goes_first_and_children_before_parents)
{
    begin();
    int32_t a = add(0, -1, 1), b = add(0, a, 2), c = add(0, b, 3), other = add(0, a, 4);
    hold(a); /* a second timeline: a, other */
    drop(c), drop(b), drop(a);
    CHECK_INT(w.prefix.idle, 2);
    CHECK(qw_prefix_evict_block(&w.prefix));
    CHECK(!w.prefix.node[c].present && w.prefix.node[b].present);
    drop(other), drop(a);
    /* b is looked at again: a and b are young, other is the oldest */
    hold(a), hold(b);
    drop(b), drop(a);
    CHECK(qw_prefix_evict_block(&w.prefix));
    CHECK(!w.prefix.node[other].present);
    CHECK(qw_prefix_evict_block(&w.prefix));
    CHECK(!w.prefix.node[b].present && w.prefix.node[a].present);
    CHECK(qw_prefix_evict_block(&w.prefix));
    CHECK_INT(w.prefix.nodes, 0);
    end();
}

TEST(prefix, what_is_held_is_never_evicted)
{
    begin();
    int32_t a = add(0, -1, 1), b = add(0, a, 2);
    CHECK(!qw_prefix_evict_block(&w.prefix));
    drop(b);
    CHECK(qw_prefix_evict_block(&w.prefix));
    CHECK(!qw_prefix_evict_block(&w.prefix));
    check();
    CHECK_INT(find(0, -1, 1), a);
    qw_prefix_clear(&w.prefix);
    check();
    CHECK_INT(find(0, -1, 1), a);
    drop(a);
    end();
}

TEST(prefix, snapshots_go_by_last_use)
{
    int32_t node[4];
    begin();
    for (int32_t i = 0; i < 4; i++) {
        node[i] = add(0, -1, i);
        snapshot(node[i]);
    }
    uint64_t version = w.prefix.version;
    qw_prefix_touch_snapshot(&w.prefix, node[0]);
    check();
    CHECK_INT(w.prefix.version, version);
    static const int32_t order[] = {1, 2, 3, 0};
    for (int32_t i = 0; i < 4; i++) {
        CHECK(w.prefix.node[node[order[i]]].slot >= 0);
        CHECK(qw_prefix_evict_slot(&w.prefix));
        check();
        CHECK_INT(w.prefix.node[node[order[i]]].slot, -1);
    }
    CHECK(!qw_prefix_evict_slot(&w.prefix));
    CHECK_INT(w.prefix.snapshot_evictions, 4);
    CHECK_INT(w.prefix.nodes, 4); /* the blocks stay */
    for (int32_t i = 0; i < 4; i++)
        drop(node[i]);
    end();
}

/* To forget a snapshot that a session stands on would free nothing. */
TEST(prefix, a_shared_slot_is_passed_over)
{
    begin();
    int32_t a = add(0, -1, 1), b = add(0, -1, 2), shared = snapshot(a), free_count;
    snapshot(b);
    qw_index_pool_retain(&w.slots, shared);
    free_count = w.slots.free_count;
    CHECK(qw_prefix_evict_slot(&w.prefix));
    check();
    CHECK_INT(w.slots.free_count, free_count + 1);
    CHECK_INT(w.prefix.node[a].slot, shared);
    CHECK_INT(w.prefix.node[b].slot, -1);
    CHECK(!qw_prefix_evict_slot(&w.prefix));
    qw_index_pool_release(&w.slots, shared);
    CHECK(qw_prefix_evict_slot(&w.prefix));
    drop(a), drop(b);
    end();
}

TEST(prefix, one_snapshot_per_node)
{
    begin();
    int32_t a = add(0, -1, 1), first = qw_index_pool_acquire(&w.slots),
            second = qw_index_pool_acquire(&w.slots);
    qw_prefix_set_snapshot(&w.prefix, a, first, true);
    CHECK(w.prefix.node[a].passing);
    uint64_t version = w.prefix.version;
    int32_t free_count = w.slots.free_count;
    qw_prefix_set_snapshot(&w.prefix, a, second, true);
    check();
    CHECK(w.prefix.node[a].passing && w.prefix.node[a].slot == first);
    CHECK_INT(w.slots.free_count, free_count + 1);
    CHECK_INT(w.prefix.version, version);
    second = qw_index_pool_acquire(&w.slots);
    qw_prefix_set_snapshot(&w.prefix, a, second, false); /* worth keeping from now on */
    CHECK(!w.prefix.node[a].passing);
    second = qw_index_pool_acquire(&w.slots);
    qw_prefix_set_snapshot(&w.prefix, a, second, true);
    CHECK(!w.prefix.node[a].passing);
    qw_prefix_drop_snapshot(&w.prefix, a);
    qw_prefix_drop_snapshot(&w.prefix, a);
    check();
    CHECK_INT(w.prefix.snapshots, 0);
    CHECK_INT(w.slots.free_count, SLOTS);
    drop(a);
    end();
}

/* A block that goes takes its snapshot along; a slot that somebody stands on lives on. */
TEST(prefix, evicting_a_block_drops_its_snapshot)
{
    begin();
    int32_t a = add(0, -1, 1), slot = snapshot(a);
    qw_index_pool_retain(&w.slots, slot);
    drop(a);
    CHECK(qw_prefix_evict_block(&w.prefix));
    check();
    CHECK_INT(w.prefix.snapshots, 0);
    CHECK_INT(w.slots.count[slot], 1);
    CHECK_INT(w.prefix.snapshot_evictions, 1);
    qw_index_pool_release(&w.slots, slot);
    end();
}

TEST(prefix, a_disabled_index_knows_nothing)
{
    int32_t last = 5;
    begin_sized(BLOCKS, false);
    CHECK_INT(find(0, -1, 1), -1);
    CHECK_INT(qw_prefix_match(&w.prefix, 0, -1, 0, tokens_of(1), 64, &last), 0);
    int32_t block = qw_index_pool_acquire(&w.blocks);
    hold(block);
    drop(block), drop(block);
    CHECK_INT(w.blocks.free_count, BLOCKS);
    CHECK(!qw_prefix_evict_block(&w.prefix) && !qw_prefix_evict_slot(&w.prefix));
    end();
}

TEST(prefix, each_allocation_of_create_fails)
{
    for (long k = 1; k <= 4; k++) {
        test_allocator memory = {.fail_at = k};
        qw_allocator allocator = {test_allocate, test_release, &memory};
        qw_index_pool pool = {.capacity = 10};
        qw_prefix prefix;
        qwen36_status status = qw_prefix_create(&prefix, &allocator, &pool, &pool, true);
        CHECK_INT(status, k <= 3 ? QWEN36_ERROR_OUT_OF_MEMORY : QWEN36_OK);
        qw_prefix_destroy(&prefix, &allocator);
        CHECK_INT(memory.outstanding, 0);
    }
}

/* ---- timelines at random ------------------------------------------------------------------------------- */

enum { TIMELINES = 6, DEPTH = 6 };

typedef struct timeline {
    int32_t count, block[DEPTH];
} timeline;

static uint64_t random_state = 3;

static int32_t draw(int32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((random_state >> 33) % (uint64_t)below);
}

static int32_t take_block(void)
{
    int32_t block = qw_index_pool_acquire(&w.blocks);
    if (block < 0 && qw_prefix_evict_block(&w.prefix))
        block = qw_index_pool_acquire(&w.blocks);
    return block;
}

/* Goes on by a block of one of three kinds: a node that is there, or a new one. */
static void extend(timeline *t)
{
    int32_t parent = t->count > 0 ? t->block[t->count - 1] : -1, name = draw(3);
    int32_t node = find(0, parent, name);
    if (t->count == DEPTH)
        return;
    if (node >= 0) {
        hold(node);
    } else {
        node = take_block();
        if (node < 0)
            return;
        CHECK_INT(qw_prefix_insert(&w.prefix, 0, parent, tokens_of(name), node), node);
    }
    t->block[t->count++] = node;
    int32_t slot = draw(3) == 0 ? qw_index_pool_acquire(&w.slots) : -1;
    if (slot < 0 && draw(3) == 0 && qw_prefix_evict_slot(&w.prefix))
        slot = qw_index_pool_acquire(&w.slots);
    if (slot >= 0)
        qw_prefix_set_snapshot(&w.prefix, node, slot, draw(2) == 0);
}

TEST(prefix, timelines_come_and_go)
{
    timeline all[TIMELINES] = {{0}};
    begin_sized(TIMELINES * DEPTH - 6, true);
    for (int32_t i = 0; i < 20000; i++) {
        timeline *t = &all[draw(TIMELINES)];
        for (int32_t many = draw(10) == 0 ? DEPTH : 1; many > 0 && t->count > 0 && i % 3 == 0; many--)
            drop(t->block[--t->count]);
        if (i % 3 != 0)
            extend(t);
        check();
        int32_t held = 0;
        for (int32_t b = 0; b < w.blocks.capacity; b++)
            held += w.blocks.count[b] > 0;
        CHECK_INT(held, w.prefix.nodes);
    }
    CHECK(w.prefix.block_evictions > 100 && w.prefix.snapshot_evictions > 100);
    for (int32_t i = 0; i < TIMELINES; i++)
        while (all[i].count > 0)
            drop(all[i].block[--all[i].count]);
    end();
}
