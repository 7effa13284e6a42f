/* What every module stands on: allocation through the caller's hooks, and error texts.
 *
 * Allocation: one qw_allocator per root object (model, tokenizer), passed by pointer; qw_alloc
 * zeroes, checks count x size for overflow, aligns to 64 bytes, and returns NULL on failure.
 * Errors: qw_fail fills the caller's qwen36_error (first error wins) and returns the status, so that
 * `return qw_fail(error, STATUS, "...", ...)` or `status = qw_fail(...); goto out;` is the idiom.
 */
#ifndef QW_BASE_H
#define QW_BASE_H

#include "qwen36.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__FAST_MATH__)
#error "libqwen36 must be built without -ffast-math: its results are defined bit by bit"
#endif
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || UINTPTR_MAX != UINT64_MAX
#error "libqwen36 needs a little-endian 64-bit machine"
#endif

#if defined(__GNUC__)
#define QW_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))
#else
#define QW_PRINTF(text, first)
#endif

#define QW_ALIGNMENT 64
#define QW_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define QW_MIN(a, b) ((a) < (b) ? (a) : (b))
#define QW_MAX(a, b) ((a) > (b) ? (a) : (b))

typedef struct qw_allocator {
    qwen36_allocate_fn allocate;
    qwen36_release_fn release;
    void *user;
} qw_allocator;

/* malloc and free, aligned. */
qw_allocator qw_allocator_default(void);
/* The caller's hooks, checked; NULL gives the default. */
qwen36_status qw_allocator_adopt(const qwen36_allocator *hooks, qw_allocator *out, qwen36_error *error);

/* `count` x `size` zeroed bytes, or NULL. A zero-sized request gives a valid pointer. */
void *qw_alloc(const qw_allocator *a, size_t count, size_t size);
/* The same without zeroing, for large buffers. */
void *qw_alloc_raw(const qw_allocator *a, size_t count, size_t size);
void qw_free(const qw_allocator *a, const void *memory);
/* Grows *array (of *capacity elements) to hold at least `need`, at least doubling; new elements are
 * zero. On failure nothing changes and false is returned. */
bool qw_grow(const qw_allocator *a, void **array, size_t *capacity, size_t need, size_t size);
/* A NUL-terminated copy of `length` bytes. */
char *qw_copy_text(const qw_allocator *a, const char *text, size_t length);

/* a x b and a + b; false on overflow. */
static inline bool qw_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool qw_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Writes status and text if `error` is not NULL and holds no error yet (status 0); returns status.
 * Control bytes and what is no UTF-8 become ?, so that names out of files cannot break the line. Integers and
 * strings only: floating-point conversions would follow the locale. */
qwen36_status qw_fail(qwen36_error *error, qwen36_status status, const char *format, ...) QW_PRINTF(3, 4);
/* Clears the caller's error at the start of an exported call. */
void qw_error_clear(qwen36_error *error);
qwen36_status qw_fail_memory(qwen36_error *error, uint64_t bytes);

/* One line into a log hook (NULL: nothing). */
typedef struct qw_log {
    qwen36_log_fn write;
    void *user;
} qw_log;
void qw_log_write(const qw_log *log, int32_t level, const char *format, ...) QW_PRINTF(3, 4);

/* 64-bit FNV-1a of bytes, for tables built at load. */
uint64_t qw_hash(const void *bytes, size_t length);

#endif
