#include "kernels/cuda/runtime.h"
#include <cstring>
extern "C" {
qwen36_status qw_runtime_profile(int32_t, qw_device_profile *out, qwen36_error *) { *out = {}; out->capability=80; out->multiprocessors=108; out->warp_width=QW_WARP_WIDTH; out->matrix_bf16=1; out->async_copy=1; out->shared_bytes=163*1024; out->l2_bytes=40<<20; out->bandwidth=1500000000000; return 0; }
qwen36_status qw_runtime_free_memory(int32_t, uint64_t *b, qwen36_error *) { *b = 8ull<<30; return 0; }
int32_t qw_runtime_enter(int32_t) { return 0; }
void qw_runtime_leave(int32_t) {}
qwen36_status qw_runtime_copy(qw_stream, void *to, const void *from, uint64_t bytes) { memcpy(to, from, bytes); return 0; }
qwen36_status qw_runtime_event_create(qw_event *out) { *out = nullptr; return 0; }
void qw_runtime_event_destroy(qw_event) {}
qwen36_status qw_runtime_event_record(qw_event, qw_stream) { return 0; }
qwen36_status qw_runtime_event_wait(qw_event) { return 0; }
}
