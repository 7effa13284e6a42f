#include "lib/session/disk.h"

#include "lib/model/identity.h"
#include "lib/os/directory.h"
#include "lib/session/archive.h"
#include "lib/session/snapshot.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 2 * QW_HASH_BYTES + sizeof ".qw36" };

/* ---- names --------------------------------------------------------------------------------------------- */

static void hash_name(qw_hash128 hash, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%016llx%016llx.qw36", (unsigned long long)hash.high,
             (unsigned long long)hash.low);
}

static bool is_name(const char *name)
{
    size_t digits = strspn(name, "0123456789abcdef");
    return digits == 2 * QW_HASH_BYTES && strcmp(name + digits, ".qw36") == 0;
}

static char *path_of(const qwen36_model *m, const char *name)
{
    size_t directory = strlen(m->disk.directory), bytes = directory + strlen(name) + 2;
    char *path = qw_alloc(&m->allocator, bytes, 1);
    if (path != NULL)
        snprintf(path, bytes, "%s/%s", m->disk.directory, name);
    return path;
}

static char *path_of_hash(const qwen36_model *m, qw_hash128 hash)
{
    char name[NAME_BYTES];
    hash_name(hash, name);
    return path_of(m, name);
}

/* ---- opening ------------------------------------------------------------------------------------------- */

static void ignore(void *user, const qw_directory_entry *entry)
{
    (void)user;
    (void)entry;
}

qwen36_status qw_disk_open(qwen36_model *m, const char *directory, uint64_t limit, qwen36_error *error)
{
    qwen36_status status = qw_directory_visit(directory, ignore, NULL, error);
    if (status != QWEN36_OK)
        return status;
    m->disk.directory = qw_copy_text(&m->allocator, directory, strlen(directory));
    if (m->disk.directory == NULL)
        return qw_fail_memory(error, strlen(directory));
    m->disk.limit = limit;
    return QWEN36_OK;
}

void qw_disk_close(qwen36_model *m)
{
    qw_free(&m->allocator, m->disk.directory);
    m->disk.directory = NULL;
}

/* ---- the limit ----------------------------------------------------------------------------------------- */

enum { STALE_SECONDS = 86400 }; /* a temporary file that old belongs to nobody */

typedef struct survey {
    const qwen36_model *model;
    uint64_t bytes;
    char oldest[NAME_BYTES]; /* the file that has not been used for longest */
    int64_t oldest_used;
} survey;

static void remove_stale(const qwen36_model *m, const qw_directory_entry *entry)
{
    size_t length = strlen(entry->name);
    if (strncmp(entry->name, ".qwen36-", 8) != 0 || length < 4 ||
        strcmp(entry->name + length - 4, ".tmp") != 0 ||
        qw_time_now() - entry->changed < (int64_t)STALE_SECONDS * 1000000000)
        return;
    char *path = path_of(m, entry->name);
    if (path != NULL)
        qw_path_remove(path);
    qw_free(&m->allocator, path);
}

static void add_to_survey(void *user, const qw_directory_entry *entry)
{
    survey *s = user;
    if (!is_name(entry->name)) {
        remove_stale(s->model, entry);
        return;
    }
    int64_t used = QW_MAX(entry->used, entry->changed);
    s->bytes += entry->size;
    if (s->oldest[0] == '\0' || used < s->oldest_used) {
        memcpy(s->oldest, entry->name, NAME_BYTES);
        s->oldest_used = used;
    }
}

/* One file after the other: a directory holds dozens, not millions. */
static void trim(const qwen36_model *m)
{
    for (;;) {
        survey s = {.model = m};
        if (qw_directory_visit(m->disk.directory, add_to_survey, &s, NULL) != QWEN36_OK ||
            s.bytes <= m->disk.limit || s.oldest[0] == '\0')
            return;
        char *path = path_of(m, s.oldest);
        if (path == NULL)
            return;
        qw_path_remove(path);
        bool removed = !qw_path_is_file(path);
        qw_free(&m->allocator, path);
        if (!removed)
            return;
    }
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* Anything but OK and DEVICE_LOST: there is nothing, or nothing of use. */
static qwen36_status fetch(qwen36_model *m, qw_hash128 hash, uint64_t space, const int32_t *tokens,
                           int32_t count)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    char *path = path_of_hash(m, hash);
    if (path == NULL || !qw_path_is_file(path)) {
        qw_free(&m->allocator, path);
        return QWEN36_ERROR_FILE_NOT_FOUND;
    }
    qwen36_status status = qw_snapshot_import_prefix(m, path, space, tokens, count, &error);
    qw_mutex_lock(&m->lock);
    m->counters.disk_hits += status == QWEN36_OK;
    m->counters.disk_refusals += status != QWEN36_OK;
    qw_mutex_unlock(&m->lock);
    if (status == QWEN36_OK)
        qw_path_touch(path);
    else
        qw_log_write(&m->log, QWEN36_LOG_WARNING, "%s is of no use: %s", path, error.message);
    if (status == QWEN36_ERROR_SNAPSHOT || status == QWEN36_ERROR_SNAPSHOT_MISMATCH)
        qw_path_remove(path);
    qw_free(&m->allocator, path);
    return status;
}

qwen36_status qw_disk_fetch(qwen36_model *m, uint64_t space, const int32_t *tokens, int32_t count,
                            int32_t beyond)
{
    int32_t depth = count / QW_KV_BLOCK, node;
    if (m->disk.directory == NULL || !m->cache.prefix.enabled || depth == 0)
        return QWEN36_OK;
    qw_mutex_lock(&m->lock);
    int32_t known = qw_prefix_match(&m->cache.prefix, space, -1, 0, tokens, count, &node);
    qw_mutex_unlock(&m->lock);
    known = QW_MAX(known, beyond / QW_KV_BLOCK);
    qw_hash128 *hashes = depth > known ? qw_alloc(&m->allocator, (size_t)depth, sizeof *hashes) : NULL;
    if (hashes == NULL)
        return QWEN36_OK;
    qw_hash128 hash = qw_hash_chain(m->cache.prefix.root, &space, sizeof space);
    for (int32_t i = 0; i < depth; i++)
        hashes[i] = hash =
            qw_hash_chain(hash, tokens + (int64_t)i * QW_KV_BLOCK, QW_KV_BLOCK * sizeof *tokens);
    qwen36_status status = QWEN36_ERROR_FILE_NOT_FOUND;
    for (; depth > known && status != QWEN36_OK && status != QWEN36_ERROR_DEVICE_LOST; depth--)
        status = fetch(m, hashes[depth - 1], space, tokens, depth * QW_KV_BLOCK);
    qw_free(&m->allocator, hashes);
    return status == QWEN36_ERROR_DEVICE_LOST ? status : QWEN36_OK;
}

/* ---- writing ------------------------------------------------------------------------------------------- */

/* A node's prefix, with everything it stands on held, so that it can be written without the lock. */
typedef struct held_prefix {
    qw_snapshot_prefix prefix;
    qw_hash128 hash;
    uint64_t space;
} held_prefix;

static void drop(qwen36_model *m, held_prefix *h)
{
    qw_mutex_lock(&m->lock);
    for (int32_t i = h->prefix.count; i-- > 0;)
        qw_cache_drop_block(&m->cache, h->prefix.blocks[i]);
    qw_cache_drop_slot(&m->cache, h->prefix.slot);
    qw_mutex_unlock(&m->lock);
    qw_free(&m->allocator, h->prefix.tokens);
    qw_free(&m->allocator, h->prefix.blocks);
}

static int32_t depth_of(const qw_prefix *p, int32_t node)
{
    int32_t depth = 0;
    for (; node >= 0; node = p->node[node].parent)
        depth++;
    return depth;
}

/* Under the lock. */
static bool hold(qwen36_model *m, int32_t node, held_prefix *h)
{
    const qw_prefix *p = &m->cache.prefix;
    int32_t depth = depth_of(p, node);
    *h = (held_prefix){{NULL, NULL, depth, p->node[node].slot}, p->node[node].hash, p->node[node].space};
    h->prefix.tokens = qw_alloc(&m->allocator, (size_t)depth * QW_KV_BLOCK, sizeof(int32_t));
    h->prefix.blocks = qw_alloc(&m->allocator, (size_t)depth, sizeof(int32_t));
    if (h->prefix.tokens == NULL || h->prefix.blocks == NULL) {
        qw_free(&m->allocator, h->prefix.tokens);
        qw_free(&m->allocator, h->prefix.blocks);
        return false;
    }
    for (int32_t i = depth; i-- > 0; node = p->node[node].parent) {
        h->prefix.blocks[i] = node;
        memcpy(h->prefix.tokens + (int64_t)i * QW_KV_BLOCK, p->tokens + (int64_t)node * QW_KV_BLOCK,
               QW_KV_BLOCK * sizeof(int32_t));
        qw_cache_hold_block(&m->cache, node);
    }
    qw_index_pool_retain(&m->cache.slots, h->prefix.slot);
    return true;
}

/* The most recently used snapshot that this flush has not looked at: `stamp` marks those it has. */
static int32_t next_snapshot(qw_prefix *p, uint64_t stamp)
{
    int32_t node = p->newest_snapshot;
    while (node >= 0 && (p->node[node].passing || p->node[node].flushed == stamp))
        node = p->node[node].before;
    if (node >= 0)
        p->node[node].flushed = stamp;
    return node;
}

static qwen36_status write_prefix(qwen36_model *m, const held_prefix *h, uint64_t *written,
                                  qwen36_error *error)
{
    char *path = path_of_hash(m, h->hash);
    if (path == NULL)
        return qw_fail_memory(error, NAME_BYTES);
    qwen36_status status = QWEN36_OK;
    uint64_t bytes = (uint64_t)h->prefix.count * m->cache.plan.block_bytes + m->cache.plan.slot_bytes;
    *written += bytes;
    if (*written <= m->disk.limit && !qw_path_is_file(path)) {
        status = qw_snapshot_export_prefix(m, path, h->space, &h->prefix, error);
        qw_mutex_lock(&m->lock);
        m->counters.disk_writes += status == QWEN36_OK;
        qw_mutex_unlock(&m->lock);
    }
    qw_free(&m->allocator, path);
    return status;
}

qwen36_status qw_disk_flush(qwen36_model *m, qwen36_error *error)
{
    qwen36_status first = QWEN36_OK;
    uint64_t written = 0;
    if (m->disk.directory == NULL || !m->cache.prefix.enabled)
        return QWEN36_OK;
    qw_mutex_lock(&m->lock);
    uint64_t stamp = ++m->disk.flushes;
    for (;;) {
        held_prefix h;
        int32_t node = next_snapshot(&m->cache.prefix, stamp);
        if (node < 0)
            break;
        if (!hold(m, node, &h)) {
            first = qw_fail_memory(error, QW_KV_BLOCK);
            break;
        }
        qw_mutex_unlock(&m->lock);
        qwen36_status status = write_prefix(m, &h, &written, error);
        first = first == QWEN36_OK ? status : first;
        drop(m, &h);
        qw_mutex_lock(&m->lock);
        if (status == QWEN36_ERROR_DEVICE_LOST) /* nothing else can be read from it either */
            break;
    }
    qw_mutex_unlock(&m->lock);
    trim(m);
    return first;
}
