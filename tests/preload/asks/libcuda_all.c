/*
 * libcuda_all.c - a libcuda.so.1 that has every function that the preload stands in for, and finds
 * all that is asked for. None of them is ever called but those that find.
 */
#include "allocator/dropin/preload.h"

#if defined(__x86_64__)
#define JUMP "jmp "
#else
#define JUMP "b "
#endif

cu_result answer(const char *symbol, void **address, int version, unsigned long long flags,
                 unsigned int *found);

/* cuGetProcAddress_v2(), and under each other name too. */
cu_result answer(const char *symbol, void **address, int version, unsigned long long flags,
                 unsigned int *found) {
    static char of_the_driver;
    (void)symbol;
    (void)version;
    (void)flags;
    *found = 0;
    *address = &of_the_driver;
    return CU_SUCCESS;
}

#define X(name, symbol, version, is_ptsz, params, args)                \
    __asm__(".text\n"                                                  \
            ".globl " #name "\n"                                       \
            ".type " #name ", %function\n" #name ":\n" JUMP "answer\n" \
            ".size " #name ", . - " #name);
ASHLAR_PRELOAD_MAP(X)
#undef X
