#define _GNU_SOURCE
#include "lib/os/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

qwen36_status qw_thread_start(qw_thread *thread, void *(*body)(void *), void *argument)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < QW_COUNT_OF(faults); i++)
        sigdelset(&all, faults[i]);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return QWEN36_ERROR_SYSTEM;
    int failure = pthread_create(thread, NULL, body, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure == 0 ? QWEN36_OK : QWEN36_ERROR_SYSTEM;
}

void qw_thread_join(qw_thread thread)
{
    pthread_join(thread, NULL);
}

qw_thread qw_thread_current(void)
{
    return pthread_self();
}

bool qw_thread_is_current(qw_thread thread)
{
    return pthread_equal(thread, pthread_self()) != 0;
}

qwen36_status qw_mutex_init(qw_mutex *mutex)
{
    return pthread_mutex_init(mutex, NULL) == 0 ? QWEN36_OK : QWEN36_ERROR_SYSTEM;
}

void qw_mutex_destroy(qw_mutex *mutex)
{
    pthread_mutex_destroy(mutex);
}

void qw_mutex_lock(qw_mutex *mutex)
{
    pthread_mutex_lock(mutex);
}

void qw_mutex_unlock(qw_mutex *mutex)
{
    pthread_mutex_unlock(mutex);
}

qwen36_status qw_cond_init(qw_cond *cond)
{
    return pthread_cond_init(cond, NULL) == 0 ? QWEN36_OK : QWEN36_ERROR_SYSTEM;
}

void qw_cond_destroy(qw_cond *cond)
{
    pthread_cond_destroy(cond);
}

void qw_cond_wait(qw_cond *cond, qw_mutex *mutex)
{
    pthread_cond_wait(cond, mutex);
}

void qw_cond_signal(qw_cond *cond)
{
    pthread_cond_signal(cond);
}

void qw_cond_broadcast(qw_cond *cond)
{
    pthread_cond_broadcast(cond);
}

/* ---- how many processors -------------------------------------------------------------------------- */

/* Reads a small text file; returns its length, or -1. */
static ssize_t read_small(const char *path, char *text, size_t capacity)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t length = 0;
    do {
        length = read(file, text, capacity - 1);
    } while (length < 0 && errno == EINTR);
    close(file);
    if (length >= 0)
        text[length] = '\0';
    return length;
}

static int64_t quota_of(long long quota, long long period)
{
    return quota <= 0 || period <= 0 ? INT64_MAX : (quota + period - 1) / period;
}

/* A limit in the file `name` of one cgroup v2 directory: "max 100000" or "200000 100000" of cpu.max in
 * processors, "max" or "1073741824" of memory.max in bytes. INT64_MAX when unlimited. */
static int64_t cgroup2_value(const char *directory, const char *name)
{
    char path[4200], text[64];
    size_t length = strlen(directory);
    if (length > 4000)
        return INT64_MAX;
    memcpy(path, directory, length);
    memcpy(path + length, name, strlen(name) + 1);
    if (read_small(path, text, sizeof text) <= 0)
        return INT64_MAX;
    char *rest = NULL;
    long long value = strtoll(text, &rest, 10);
    if (rest == text)
        return INT64_MAX;
    return *rest == ' ' ? quota_of(value, strtoll(rest, NULL, 10)) : value;
}

/* The smallest limit from this process's cgroup up to the root. */
static int64_t cgroup2_limit(const char *name)
{
    static const char mount[] = "/sys/fs/cgroup";
    char membership[4096], path[4200];
    int64_t limit = cgroup2_value(mount, name);
    if (read_small("/proc/self/cgroup", membership, sizeof membership) <= 0)
        return limit;
    const char *entry = strstr(membership, "0::");
    if (entry == NULL)
        return limit;
    size_t length = strcspn(entry + 3, "\n");
    memcpy(path, mount, sizeof mount - 1);
    memcpy(path + sizeof mount - 1, entry + 3, length);
    path[sizeof mount - 1 + length] = '\0';
    while (strlen(path) > sizeof mount) {
        limit = QW_MIN(limit, cgroup2_value(path, name));
        *strrchr(path, '/') = '\0';
    }
    return limit;
}

static int64_t cgroup1_processors(void)
{
    char quota[32], period[32];
    if (read_small("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, sizeof quota) <= 0 ||
        read_small("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof period) <= 0)
        return INT64_MAX;
    return quota_of(strtoll(quota, NULL, 10), strtoll(period, NULL, 10));
}

int32_t qw_processor_count(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int64_t count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    count = QW_MIN(count, cgroup2_limit("/cpu.max"));
    count = QW_MIN(count, cgroup1_processors());
    return (int32_t)QW_MAX(count, 1);
}

uint64_t qw_memory_bytes(void)
{
    char text[32];
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    int64_t bytes = pages > 0 && page > 0 ? (int64_t)pages * page : 0;
    bytes = QW_MIN(bytes, cgroup2_limit("/memory.max"));
    if (read_small("/sys/fs/cgroup/memory/memory.limit_in_bytes", text, sizeof text) > 0)
        bytes = QW_MIN(bytes, strtoll(text, NULL, 10));
    return (uint64_t)QW_MAX(bytes, 0);
}

/* ---- floating-point environment -------------------------------------------------------------------- */

#if defined(__x86_64__)
#include <immintrin.h>

qw_fp_environment qw_fp_enter(void)
{
    qw_fp_environment saved = {_mm_getcsr()};
    _mm_setcsr(0x1f80);
    return saved;
}

void qw_fp_leave(qw_fp_environment saved)
{
    _mm_setcsr((unsigned)saved.control);
}

#elif defined(__aarch64__)

static void set_fpcr(uint64_t control)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(control));
}

qw_fp_environment qw_fp_enter(void)
{
    qw_fp_environment saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved.control));
    set_fpcr(0);
    return saved;
}

void qw_fp_leave(qw_fp_environment saved)
{
    set_fpcr(saved.control);
}

#else
#include <fenv.h>

qw_fp_environment qw_fp_enter(void)
{
    qw_fp_environment saved = {(uint64_t)fegetround()};
    fesetround(FE_TONEAREST);
    return saved;
}

void qw_fp_leave(qw_fp_environment saved)
{
    fesetround((int)saved.control);
}
#endif
