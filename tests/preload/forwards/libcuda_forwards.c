/*
 * libcuda_forwards.c - a libcuda.so.1 that has no functions of its own: each jumps to that of the
 * library FORWARDS_TO, found by dlsym() when this one is loaded. WSL's is such a library.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "allocator/dropin/preload.h"

/* What the tests' programs call besides. */
#define MORE_MAP(X)         \
    X(cuInit)               \
    X(cuCtxSetCurrent)      \
    X(cuMemPoolCreate)      \
    X(cuMemcpyDtoHAsync_v2) \
    X(cuMemsetD8Async)      \
    X(cuStreamSynchronize)  \
    X(ashlar_fake_memory_calls)

#if defined(__x86_64__)
#define JUMP(slot) "    jmp *" slot "(%rip)\n"
#else
#define JUMP(slot)                          \
    "    adrp x16, " slot "\n"              \
    "    ldr x16, [x16, #:lo12:" slot "]\n" \
    "    br x16\n"
#endif

#define FORWARD(name)                                                                        \
    extern void *slot_of_##name __attribute__((visibility("hidden")));                       \
    void *slot_of_##name;                                                                    \
    __asm__(".text\n"                                                                        \
            ".globl " #name "\n"                                                             \
            ".type " #name ", %function\n" #name ":\n" JUMP("slot_of_" #name) ".size " #name \
                                                                              ", . - " #name);
#define X(name, symbol, version, is_ptsz, params, args) FORWARD(name)
ASHLAR_PRELOAD_MAP(X)
#undef X
#define X(name, params, args) FORWARD(name)
ASHLAR_PRELOAD_NEEDED_MAP(X)
#undef X
MORE_MAP(FORWARD)

static cu_result not_supported(void) {
    return CU_NOT_SUPPORTED;
}

static void *find(void *library, const char *name) {
    cu_result (*const none)(void) = not_supported;
    void *address = dlsym(library, name);
    return address != NULL ? address : *(void *const *)(const void *)&none;
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FORWARDS_TO");
    void *library = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        abort();
    }
#define FIND(name) slot_of_##name = find(library, #name);
#define X(name, symbol, version, is_ptsz, params, args) FIND(name)
    ASHLAR_PRELOAD_MAP(X)
#undef X
#define X(name, params, args) FIND(name)
    ASHLAR_PRELOAD_NEEDED_MAP(X)
#undef X
    MORE_MAP(FIND)
}
