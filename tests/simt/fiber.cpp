#include "tests/simt/fiber.h"

#include <cstdint>
#include <sys/mman.h>

namespace simt
{

/* The distance is no multiple of a page but an odd number of cache lines: the upper ends of the stacks, which
 * are what threads use most, do not meet in the same sets of a cache. */
enum { STACK_BYTES = 128 * 1024, STACK_DISTANCE = STACK_BYTES + 13 * 64 };

static char *stacks;

bool fiber_reserve(unsigned count)
{
    if (stacks != nullptr)
        return true;
    void *memory = mmap(nullptr, size_t{count} * STACK_DISTANCE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    stacks = static_cast<char *>(memory);
    return true;
}

#if QW_FIBER_SWITCH

/* The upper end, a multiple of 16. */
static void **stack_top(unsigned number)
{
    return reinterpret_cast<void **>(stacks + size_t{number} * STACK_DISTANCE + STACK_BYTES);
}

#endif

/* Callee-saved registers go on the stack of the one that leaves, those of the one that comes are taken from
 * its. */
#if defined(__x86_64__)

asm(R"(
    .text
    .globl simt_switch_stacks
    .hidden simt_switch_stacks
    .type simt_switch_stacks, @function
simt_switch_stacks:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmpq *%rcx
    .size simt_switch_stacks, .-simt_switch_stacks
)");

void fiber_prepare(fiber *out, unsigned stack, void (*entry)())
{
    void **words = stack_top(stack);
    /* After `ret` the stack pointer must be 8 below a multiple of 16, as after a call. */
    words[-2] = reinterpret_cast<void *>(entry);
    for (int i = 3; i <= 8; i++)
        words[-i] = nullptr;
    out->stack_pointer = words - 8;
}

#elif defined(__aarch64__)

asm(R"(
    .text
    .globl simt_switch_stacks
    .hidden simt_switch_stacks
    .type simt_switch_stacks, %function
simt_switch_stacks:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size simt_switch_stacks, .-simt_switch_stacks
)");

void fiber_prepare(fiber *out, unsigned stack, void (*entry)())
{
    enum { SAVED = 20, LINK = 11 }; /* words; which of them is x30 */
    void **words = stack_top(stack) - SAVED;
    for (int i = 0; i < SAVED; i++)
        words[i] = nullptr;
    words[LINK] = reinterpret_cast<void *>(entry);
    out->stack_pointer = words;
}

#else

void fiber_prepare(fiber *out, unsigned stack, void (*entry)())
{
    getcontext(&out->context);
    out->context.uc_stack.ss_sp = stacks + size_t{stack} * STACK_DISTANCE;
    out->context.uc_stack.ss_size = STACK_BYTES;
    out->context.uc_link = nullptr;
    makecontext(&out->context, entry, 0);
}

#endif

} // namespace simt
