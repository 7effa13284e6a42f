#include "tests/simt/fiber.h"

#include <cstdint>

namespace simt
{

#if defined(__x86_64__)

/* Callee-saved registers go on the stack of the one that leaves, those of the one that comes are taken from
 * its. */
extern "C" void simt_switch_stacks(void **from, void *to);
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
    ret
    .size simt_switch_stacks, .-simt_switch_stacks
)");

void fiber_prepare(fiber *out, void *stack, size_t bytes, void (*entry)())
{
    uintptr_t top = (reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t{15};
    void **words = reinterpret_cast<void **>(top);
    /* After `ret` the stack pointer must be 8 below a multiple of 16, as after a call. */
    words[-2] = reinterpret_cast<void *>(entry);
    for (int i = 3; i <= 8; i++)
        words[-i] = nullptr;
    out->stack_pointer = words - 8;
}

void fiber_switch(fiber *from, fiber *to)
{
    simt_switch_stacks(&from->stack_pointer, to->stack_pointer);
}

#else

void fiber_prepare(fiber *out, void *stack, size_t bytes, void (*entry)())
{
    getcontext(&out->context);
    out->context.uc_stack.ss_sp = stack;
    out->context.uc_stack.ss_size = bytes;
    out->context.uc_link = nullptr;
    makecontext(&out->context, entry, 0);
}

void fiber_switch(fiber *from, fiber *to)
{
    swapcontext(&from->context, &to->context);
}

#endif

} // namespace simt
