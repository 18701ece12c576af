// Switch between stacks: saves the registers that a called function must preserve, and restores the other stack's.
#pragma once
#include <stdint.h>
#include <string.h>

#ifdef __APPLE__
#define MSL_SYMBOL(name) "_" #name
#else
#define MSL_SYMBOL(name) #name
#endif

extern "C" void msl_switch(void** from, void* to);

#if defined(__x86_64__)
asm(".text\n.globl " MSL_SYMBOL(msl_switch) "\n" MSL_SYMBOL(msl_switch) R"(:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
)");
inline void* new_stack(char* top, void (*function)()) {
    void** at = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15});
    *--at = nullptr;  // its return address, which also aligns the stack as a call would
    *--at = reinterpret_cast<void*>(function);
    for (int i = 0; i < 6; i++) *--at = nullptr;
    return at;
}
#elif defined(__aarch64__)
asm(".text\n.globl " MSL_SYMBOL(msl_switch) "\n" MSL_SYMBOL(msl_switch) R"(:
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
)");
inline void* new_stack(char* top, void (*function)()) {
    char* at = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15}) - 160;
    memset(at, 0, 160);
    *reinterpret_cast<void**>(at + 88) = reinterpret_cast<void*>(function);  // x30, the link register
    return at;
}
#else
#error "metal_host runs on x86-64 and arm64"
#endif
