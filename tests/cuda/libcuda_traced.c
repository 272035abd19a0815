/*
 * libcuda_traced.c - calls that are told of: as in the driver, a library named by
 * CUDA_INJECTION64_PATH is loaded by cuInit, and may ask CUPTI (fake_cupti.c) for each call.
 *
 * Where that variable is set, cuGetProcAddress gives a stub for each function, which tells its name
 * and then jumps: so nothing has to be known of its parameters. Calls by the names that cuda.h
 * gives the functions are not told of.
 */
#include "libcuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the stubs ---- */

enum { STUBS = 256, STUB_BYTES = 16 };

static struct {
    const char *name;
    void *address;
} traced[STUBS];
static size_t traced_count;
static pthread_mutex_t traced_lock = PTHREAD_MUTEX_INITIALIZER;

static ashlar_fake_call_fn *_Atomic on_call;

void ashlar_fake_on_call(ashlar_fake_call_fn *fn) {
    atomic_store(&on_call, fn);
}

extern char ashlar_fake_stubs[] __attribute__((visibility("hidden")));

/* What a stub calls: tells of its function, and returns where to go on. */
void *ashlar_fake_call(const char *inside_stub) __attribute__((visibility("hidden")));

void *ashlar_fake_call(const char *inside_stub) {
    const size_t i = (size_t)(inside_stub - ashlar_fake_stubs) / STUB_BYTES;
    ashlar_fake_call_fn *fn = atomic_load(&on_call);
    if (fn != NULL) {
        fn((unsigned int)i, traced[i].name);
    }
    return traced[i].address;
}

#if defined(__x86_64__)
/* Which stub it is shows in the address that it calls from. All arguments in registers are kept;
 * those on the stack lie where the function looks for them when it is jumped to. */
__asm__(".text\n"
        ".globl ashlar_fake_stubs\n"
        ".hidden ashlar_fake_stubs\n"
        ".balign 16\n"
        "ashlar_fake_stubs:\n"
        ".rept 256\n" /* STUBS */
        ".balign 16\n"
        "call ashlar_fake_stub_body\n"
        ".endr\n"
        ".balign 16\n"
        "ashlar_fake_stub_body:\n"
        "pushq %rdi\n"
        "pushq %rsi\n"
        "pushq %rdx\n"
        "pushq %rcx\n"
        "pushq %r8\n"
        "pushq %r9\n"
        "movq 48(%rsp), %rdi\n"
        "call ashlar_fake_call\n"
        "movq %rax, %r11\n"
        "popq %r9\n"
        "popq %r8\n"
        "popq %rcx\n"
        "popq %rdx\n"
        "popq %rsi\n"
        "popq %rdi\n"
        "addq $8, %rsp\n"
        "jmp *%r11\n");
static const bool has_stubs = true;
#else
char ashlar_fake_stubs[1];
static const bool has_stubs = false;
#endif

bool ashlar_fake_traces(void) {
    return has_stubs;
}

void *ashlar_fake_traced(const char *name, void *address) {
    if (!has_stubs || address == NULL || getenv("CUDA_INJECTION64_PATH") == NULL) {
        return address;
    }
    pthread_mutex_lock(&traced_lock);
    size_t i = 0;
    while (i < traced_count && traced[i].address != address) {
        i++;
    }
    if (i == traced_count && i < STUBS) {
        traced[i].name = strdup(name);
        traced[i].address = address;
        traced_count++;
    }
    pthread_mutex_unlock(&traced_lock);
    return i < STUBS ? ashlar_fake_stubs + STUB_BYTES * i : address;
}

/* ---- the library ---- */

void ashlar_fake_inject(void) {
    static atomic_flag was_here = ATOMIC_FLAG_INIT;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (path == NULL || atomic_flag_test_and_set(&was_here)) {
        return;
    }
    void *library = dlopen(path, RTLD_NOW);
    void *symbol = library != NULL ? dlsym(library, "InitializeInjection") : NULL;
    int (*initialize)(void) = NULL;
    memcpy(&initialize, &symbol, sizeof initialize);
    if (initialize == NULL || initialize() != 1) {
        (void)fprintf(stderr, "libcuda: %s was not injected\n", path);
    }
}
