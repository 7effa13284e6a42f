#include "tests/cuda/device.h"

device_host device_host_memory;

/* ---- the host's memory ------------------------------------------------------------------------------------
 */

/* Before each piece stands where its memory begins, and its size. */
typedef struct piece_head {
    void *memory;
    size_t size;
} piece_head;

static void *host_allocate(void *user, size_t size, size_t alignment)
{
    device_host *h = user;
    char *memory = malloc(size + alignment + sizeof(piece_head));
    if (memory == NULL)
        return NULL;
    uintptr_t begin = ((uintptr_t)memory + sizeof(piece_head) + alignment - 1) / alignment * alignment;
    char *piece = memory + (begin - (uintptr_t)memory);
    const piece_head head = {memory, size};
    memcpy(piece - sizeof head, &head, sizeof head);
    h->pieces++;
    int64_t now = h->bytes += (int64_t)size;
    int64_t most = h->most_bytes;
    while (now > most && !atomic_compare_exchange_weak(&h->most_bytes, &most, now))
        ;
    return piece;
}

static void host_release(void *user, void *piece)
{
    device_host *h = user;
    piece_head head;
    memcpy(&head, (char *)piece - sizeof head, sizeof head);
    h->pieces--;
    h->bytes -= (int64_t)head.size;
    free(head.memory);
}

const qwen36_allocator device_hooks = {sizeof device_hooks, 0, host_allocate, host_release,
                                       &device_host_memory};

/* ---- begin and end of a test ------------------------------------------------------------------------------
 */

void device_begin(void)
{
    simt_revive_device();
    simt_clear_fault();
    simt_fail_allocation(0);
    simt_refuse_launch(0);
    simt_refuse_library(0);
    simt_library(0);
    simt_no_device(0);
    simt_set_free_memory(0);
    simt_set_profile(NULL);
    simt_set_current_device(0);
    CHECK_INT(simt_memory_outstanding(), 0);
}

void device_check_nothing_left(void)
{
    CHECK_INT(simt_memory_outstanding(), 0);
    CHECK_INT(simt_memory_broken(), 0);
    CHECK_INT(device_host_memory.pieces, 0);
    CHECK_INT(device_host_memory.bytes, 0);
    CHECK_TEXT(simt_fault(), "");
}

/* ---- models and sessions ----------------------------------------------------------------------------------
 */

qwen36_model_options device_options(void)
{
    qwen36_model_options options;
    qwen36_model_options_init(&options, sizeof options);
    options.allocator = &device_hooks;
    options.threads = 1;
    options.max_sessions = 4;
    options.context_length = 320;
    options.max_batch_tokens = 96;
    return options;
}

const int32_t *device_tokens(size_t begin)
{
    static int32_t text[DEVICE_TEXT];
    for (int32_t i = 0; i < DEVICE_TEXT; i++)
        text[i] = (i * 37 + i / 7 * 11 + 5) % 500;
    return text + begin;
}

void device_append(qwen36_session *session, size_t begin, size_t count)
{
    CHECK_INT(qwen36_session_append(session, device_tokens(begin), count, QWEN36_LOGITS_LAST, NULL),
              QWEN36_OK);
}

int32_t device_vocabulary(const qwen36_model *model)
{
    qwen36_model_info info = {.struct_size = sizeof info};
    CHECK_INT(qwen36_model_get_info(model, &info, NULL), QWEN36_OK);
    return info.vocab_size;
}

float *device_logits(const qwen36_session *session)
{
    const float *logits = NULL;
    int32_t count = 0;
    CHECK_INT(qwen36_session_logits(session, &logits, &count, NULL), QWEN36_OK);
    float *copy = malloc((size_t)count * sizeof *copy);
    CHECK(copy != NULL);
    memcpy(copy, logits, (size_t)count * sizeof *copy);
    return copy;
}

qwen36_session *device_prefilled(qwen36_model *model, size_t count)
{
    qwen36_session *session = test_session(model);
    device_append(session, 0, count);
    test_compute(session);
    return session;
}
