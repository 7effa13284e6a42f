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

static int32_t quota_of(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return INT32_MAX;
    long long whole = (quota + period - 1) / period;
    return whole > INT32_MAX ? INT32_MAX : (int32_t)whole;
}

/* The quota of one cgroup v2 directory, "max 100000" or "200000 100000"; INT32_MAX when unlimited. */
static int32_t cgroup_quota(const char *directory)
{
    char path[4200], text[64];
    size_t length = strlen(directory);
    if (length > 4000)
        return INT32_MAX;
    memcpy(path, directory, length);
    memcpy(path + length, "/cpu.max", sizeof "/cpu.max");
    if (read_small(path, text, sizeof text) <= 0)
        return INT32_MAX;
    char *rest = NULL;
    long long quota = strtoll(text, &rest, 10);
    return rest == text ? INT32_MAX : quota_of(quota, strtoll(rest, NULL, 10));
}

/* The smallest quota from this process's cgroup up to the root. */
static int32_t cgroup2_processors(void)
{
    static const char mount[] = "/sys/fs/cgroup";
    char membership[4096], path[4200];
    int32_t limit = cgroup_quota(mount);
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
        limit = QW_MIN(limit, cgroup_quota(path));
        *strrchr(path, '/') = '\0';
    }
    return limit;
}

static int32_t cgroup1_processors(void)
{
    char quota[32], period[32];
    if (read_small("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, sizeof quota) <= 0 ||
        read_small("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof period) <= 0)
        return INT32_MAX;
    return quota_of(strtoll(quota, NULL, 10), strtoll(period, NULL, 10));
}

int32_t qw_processor_count(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int32_t count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    count = QW_MIN(count, cgroup2_processors());
    count = QW_MIN(count, cgroup1_processors());
    return QW_MAX(count, 1);
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
