/* Fibers: stacks of their own and a switch between them. On x86-64 and AArch64 the switch is a few
 * instructions, elsewhere swapcontext. A fiber is abandoned by never switching to it again. */
#ifndef QW_TESTS_SIMT_FIBER_H
#define QW_TESTS_SIMT_FIBER_H

#include <cstddef>

#if defined(__x86_64__) || defined(__aarch64__)
#define QW_FIBER_SWITCH 1
#else
#define QW_FIBER_SWITCH 0
#include <ucontext.h>
#endif

namespace simt
{

struct fiber {
#if QW_FIBER_SWITCH
    void *stack_pointer;
#else
    ucontext_t context;
#endif
};

/* Address space for this many stacks, once; false: there is none. */
bool fiber_reserve(unsigned stacks);
/* Makes `out` begin with entry() on the stack of this number when it is switched to; entry never returns. */
void fiber_prepare(fiber *out, unsigned stack, void (*entry)());

#if QW_FIBER_SWITCH
extern "C" void simt_switch_stacks(void **from, void *to);
#endif

inline void fiber_switch(fiber *from, fiber *to)
{
#if QW_FIBER_SWITCH
    simt_switch_stacks(&from->stack_pointer, to->stack_pointer);
#else
    swapcontext(&from->context, &to->context);
#endif
}

} // namespace simt

#endif
