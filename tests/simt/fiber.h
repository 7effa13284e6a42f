/* Fibers: stacks of their own and a switch between them. On x86-64 the switch is a few instructions,
 * elsewhere swapcontext. A fiber is abandoned by never switching to it again. */
#ifndef QW_TESTS_SIMT_FIBER_H
#define QW_TESTS_SIMT_FIBER_H

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace simt
{

struct fiber {
#if defined(__x86_64__)
    void *stack_pointer;
#else
    ucontext_t context;
#endif
};

/* Makes `out` begin with entry() on the given stack when it is switched to; entry never returns. */
void fiber_prepare(fiber *out, void *stack, size_t bytes, void (*entry)());
void fiber_switch(fiber *from, fiber *to);

} // namespace simt

#endif
