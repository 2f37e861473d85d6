// Fibers: stacks that take turns on one thread of the operating system.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace weft::sim {

#if defined(__x86_64__)
// The stack pointer is all there is to a suspended fiber: what a call must keep lies on its stack.
struct Context {
    void* stack_pointer = nullptr;
};

extern "C" void weft_switch(void** from, void* to);
asm(R"(
.text
.globl weft_switch
.type weft_switch, @function
weft_switch:
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
.size weft_switch, .-weft_switch
)");

inline void prepare(Context& context, void* stack, size_t bytes, void (*start)()) {
    auto top = (reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t(15);
    auto* words = reinterpret_cast<uintptr_t*>(top);
    *--words = 0;  // where `start` would return to: it never does; keeps the stack aligned as after a call
    *--words = reinterpret_cast<uintptr_t>(start);
    for (int k = 0; k < 6; ++k) *--words = 0;
    context.stack_pointer = words;
}
inline void switch_to(Context& from, Context& to) { weft_switch(&from.stack_pointer, to.stack_pointer); }
#else
struct Context {
    ucontext_t context;
};
inline void prepare(Context& context, void* stack, size_t bytes, void (*start)()) {
    getcontext(&context.context);
    context.context.uc_stack.ss_sp = stack;
    context.context.uc_stack.ss_size = bytes;
    context.context.uc_link = nullptr;
    makecontext(&context.context, start, 0);
}
inline void switch_to(Context& from, Context& to) { swapcontext(&from.context, &to.context); }
#endif

// The stacks of a block's threads, each above a page that may not be touched.
class Stacks {
public:
    static constexpr size_t bytes = 1 << 20, guard = 4096;
    explicit Stacks(uint32_t count) : count_(count) {
        slab_ = static_cast<char*>(mmap(nullptr, count * bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        for (uint32_t k = 0; k < count; ++k) mprotect(slab_ + k * bytes, guard, PROT_NONE);
    }
    ~Stacks() { munmap(slab_, count_ * bytes); }
    Stacks(const Stacks&) = delete;
    Stacks& operator=(const Stacks&) = delete;
    char* low(uint32_t k) const { return slab_ + k * bytes + guard; }
    static constexpr size_t usable() { return bytes - guard; }

private:
    char* slab_;
    uint32_t count_;
};

}  // namespace weft::sim
