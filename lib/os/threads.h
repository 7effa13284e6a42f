/* Threads, locks and what belongs to them: the only place that knows pthreads. */
#ifndef QW_OS_THREADS_H
#define QW_OS_THREADS_H

#include "lib/base/base.h"

#include <pthread.h>

typedef pthread_t qw_thread;
typedef pthread_mutex_t qw_mutex;
typedef pthread_cond_t qw_cond;

/* A thread with all signals blocked, so that the host's handlers never run on it; but for faults that it
 * commits itself, which the host may want to see. */
qwen36_status qw_thread_start(qw_thread *thread, void *(*body)(void *), void *argument);
void qw_thread_join(qw_thread thread);
bool qw_thread_is_current(qw_thread thread);
qw_thread qw_thread_current(void);

qwen36_status qw_mutex_init(qw_mutex *mutex);
void qw_mutex_destroy(qw_mutex *mutex);
void qw_mutex_lock(qw_mutex *mutex);
void qw_mutex_unlock(qw_mutex *mutex);
qwen36_status qw_cond_init(qw_cond *cond);
void qw_cond_destroy(qw_cond *cond);
void qw_cond_wait(qw_cond *cond, qw_mutex *mutex);
void qw_cond_signal(qw_cond *cond);
void qw_cond_broadcast(qw_cond *cond);

/* Processors that this process may use: affinity, capped by the cgroup's CPU quota; at least 1. */
int32_t qw_processor_count(void);
/* Memory that this process may use: the machine's, capped by the cgroup's limit. */
uint64_t qw_memory_bytes(void);

/* Puts the floating-point environment into the state all kernels assume (round to nearest, no
 * flush-to-zero, exceptions masked) and gives back what it was; leave restores it. */
typedef struct qw_fp_environment {
    uint64_t control;
} qw_fp_environment;
qw_fp_environment qw_fp_enter(void);
void qw_fp_leave(qw_fp_environment saved);

#endif
