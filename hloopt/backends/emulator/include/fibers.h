// Switching between stacks: by hand on x86-64 and AArch64, by ucontext elsewhere.
#pragma once
#include "worker.h"

namespace hloopt {

#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(HLOOPT_UCONTEXT)

#ifdef __APPLE__
#define HLOOPT_SYMBOL "_hloopt_switch"
#define HLOOPT_BEGIN ".text\n.p2align 4\n.globl " HLOOPT_SYMBOL "\n" HLOOPT_SYMBOL ":\n"
#else
#define HLOOPT_SYMBOL "hloopt_switch"
#define HLOOPT_BEGIN                                                                       \
  ".text\n.p2align 4\n.globl " HLOOPT_SYMBOL "\n.hidden " HLOOPT_SYMBOL "\n.type " HLOOPT_SYMBOL \
  ",%function\n" HLOOPT_SYMBOL ":\n"
#endif

// Saves the registers a call keeps, stores the stack pointer in *save and goes on at `to`.
extern "C" void hloopt_switch(void** save, void* to);

#ifdef __x86_64__
asm(HLOOPT_BEGIN
    "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
    "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
constexpr int kSavedWords = 8, kReturnWord = 6;
#else
asm(HLOOPT_BEGIN
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n"
    "stp x25, x26, [sp, #48]\n stp x27, x28, [sp, #64]\n stp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n stp d12, d13, [sp, #128]\n"
    "stp d14, d15, [sp, #144]\n"
    "mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
    "ldp x19, x20, [sp]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n"
    "ldp x25, x26, [sp, #48]\n ldp x27, x28, [sp, #64]\n ldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\n ldp d10, d11, [sp, #112]\n ldp d12, d13, [sp, #128]\n"
    "ldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\n ret\n");
constexpr int kSavedWords = 20, kReturnWord = 11;
#endif

// Prepares a stack that ends at `top`, so that a switch to the fiber calls `begin`.
inline void prepare(Fiber& fiber, char* top, size_t, void (*begin)()) {
  void** words = (void**)((uintptr_t)top & ~(uintptr_t)15) - kSavedWords;
  memset(words, 0, kSavedWords * sizeof(void*));
  words[kReturnWord] = (void*)begin;
  fiber.stack_pointer = words;
}

inline void switch_fiber(Fiber& from, Fiber& to) {
  hloopt_switch(&from.stack_pointer, to.stack_pointer);
}

#else

}  // namespace hloopt
#define _XOPEN_SOURCE 700
#include <stdlib.h>
#include <ucontext.h>
namespace hloopt {

inline ucontext_t* context_of(Fiber& fiber) {
  if (!fiber.context) fiber.context = calloc(1, sizeof(ucontext_t));
  return (ucontext_t*)fiber.context;
}

inline void prepare(Fiber& fiber, char* top, size_t size, void (*begin)()) {
  ucontext_t* const context = context_of(fiber);
  getcontext(context);
  context->uc_stack.ss_sp = top - size;
  context->uc_stack.ss_size = size;
  context->uc_link = nullptr;
  makecontext(context, begin, 0);
}

inline void switch_fiber(Fiber& from, Fiber& to) {
  swapcontext(context_of(from), context_of(to));
}

#endif

}  // namespace hloopt
