/* preload_find.c - the ways in which a program finds a driver function, which are linking, dlsym()
 * and cuGetProcAddress(); and our way to the driver's own functions. */
#include "allocator/dropin/preload.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include <ashlar/plan.h>

/* A flag of cuGetProcAddress(): stream NULL means the per-thread default stream. */
enum { PER_THREAD_STREAM = 2 };

/* ashlar__preload_dlsym() returns a function, or one of these. */
#define AS_THE_C_LIBRARY_SAYS NULL
#define THERE_IS_NONE ((void *)1)

typedef struct stand_in {
    const char *name;   /* exported */
    const char *symbol; /* the name for cuGetProcAddress() */
    int version;
    bool is_per_thread;
    const void *function; /* where the address of our function is stored */
} stand_in;

/* ISO C has no cast from a function to void *: hence pointers to pointers to functions. */
#define X(name, symbol, version, is_ptsz, params, args) \
    static cu_result(*const ours_##name) params = name;
ASHLAR_PRELOAD_MAP(X)
#undef X

static const stand_in stand_ins[] = {
#define X(name, symbol, version, is_ptsz, params, args) \
    {#name, #symbol, version, is_ptsz, &ours_##name},
    ASHLAR_PRELOAD_MAP(X)
#undef X
};
enum { STAND_INS = sizeof stand_ins / sizeof stand_ins[0] };

static void *function_of(const stand_in *s) {
    void *address;
    memcpy(&address, s->function, sizeof address);
    ASHLAR_CHECK2(address != NULL);
    return address;
}

/* ---- dlsym() behind ours ---- */

typedef void *(*dlsym_fn)(void *handle, const char *name);
_Static_assert(sizeof(void *) == sizeof(dlsym_fn), "POSIX: an address may be a function's");

/* The dlsym() of the next library that has one, to which the assembly below jumps. Set before its
 * first use, perhaps by several threads, but always to the same value. */
extern void *ashlar__preload_next_dlsym;
void *ashlar__preload_next_dlsym;

/* The C library's dlsym(), by its version: that of glibc's first release for the processor, or of
 * 2.34, when libdl became part of libc. */
static dlsym_fn c_dlsym(void) {
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    static _Atomic(void *) found;
    dlsym_fn function;
    void *address = atomic_load(&found);
    for (size_t i = 0; address == NULL && i < sizeof versions / sizeof versions[0]; i++) {
        address = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    }
    ASHLAR_CHECK2(address != NULL);
    memcpy(&function, &address, sizeof function);
    if (__atomic_load_n(&ashlar__preload_next_dlsym, __ATOMIC_ACQUIRE) == NULL) {
        __atomic_store_n(&ashlar__preload_next_dlsym, function(RTLD_NEXT, "dlsym"),
                         __ATOMIC_RELEASE);
        atomic_store(&found, address);
    }
    return function;
}

static dlsym_fn next_dlsym(void) {
    dlsym_fn function;
    (void)c_dlsym();
    void *address = __atomic_load_n(&ashlar__preload_next_dlsym, __ATOMIC_ACQUIRE);
    memcpy(&function, &address, sizeof function);
    return function;
}

/* The library that has an address, as a handle; NULL: none. */
static void *library_of(const void *address) {
    Dl_info unused;
    void *handle = NULL; /* glibc's handles are its link maps */
    return dladdr1(address, &unused, &handle, RTLD_DL_LINKMAP) != 0 ? handle : NULL;
}

/* Find a driver function in the libcuda that the program or its runtime has loaded. The next
 * library's dlsym() may return one of its own instead, for example to hold the process to a quota.
 * Where it refers to that by name, the linker has bound the name to our function, which comes
 * first; so if we get our own, take the next function of that name. */
static void *find_in_driver(const char *name) {
    static _Atomic(void *) library;
    void *handle = atomic_load(&library);
    if (handle == NULL) {
        handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        atomic_store(&library, handle);
    }
    void *found = handle == NULL ? NULL : next_dlsym()(handle, name);
    if (found != NULL && library_of(found) == library_of(stand_ins)) {
        found = c_dlsym()(RTLD_NEXT, name);
    }
    return found;
}

/* ---- functions of ashlar, for programs that have steps ---- */

/* ashlar_cuda_allocator() of ashlar/cuda_dropin.h. */
static ashlar_allocator *cuda_allocator(int device) {
    ashlar_frees *frees = NULL;
    const bool is_begun = ashlar__preload_begin();
    const bool is_found = ashlar__frees_of(device, &frees) == ASHLAR_OK &&
                          ashlar__frees_tell_ends(frees) == ASHLAR_OK;
    if (is_begun) {
        ashlar__preload_end();
    }
    return is_found ? frees->allocator : NULL;
}

/* Define a function that calls ashlar's `public`, whose driver calls are then known as ours. */
#define OURS(name, public, params, args)               \
    static ashlar_status name params {                 \
        const bool is_begun = ashlar__preload_begin(); \
        const ashlar_status status = public args;      \
        if (is_begun) {                                \
            ashlar__preload_end();                     \
        }                                              \
        return status;                                 \
    }

OURS(step_begin, ashlar_step_begin, (ashlar_allocator * a, ashlar_stream stream, uint64_t key),
     (a, stream, key))
OURS(step_end, ashlar_step_end, (ashlar_allocator * a), (a))
OURS(plan_build, ashlar_plan_build, (ashlar_allocator * a), (a))
OURS(trim, ashlar_allocator_trim, (ashlar_allocator * a, size_t bytes), (a, bytes))

/* ISO C has no cast from a function to void *. */
#define FUNCTION(name) (void (*)(void))(name)

static const struct {
    const char *name;
    void (*function)(void);
} step_functions[] = {
    {"ashlar_cuda_allocator", FUNCTION(cuda_allocator)},
    {"ashlar_step_begin", FUNCTION(step_begin)},
    {"ashlar_step_end", FUNCTION(step_end)},
    {"ashlar_plan_build", FUNCTION(plan_build)},
    {"ashlar_plan_set_options", FUNCTION(ashlar_plan_set_options)},
    {"ashlar_plan_get_stats", FUNCTION(ashlar_plan_get_stats)},
    {"ashlar_allocator_trim", FUNCTION(trim)},
    {"ashlar_allocator_seal", FUNCTION(ashlar_allocator_seal)},
    {"ashlar_allocator_get_stats", FUNCTION(ashlar_allocator_get_stats)},
    {"ashlar_error_detail", FUNCTION(ashlar_error_detail)},
};

/* The function of that name; NULL: none. */
static void *step_function(const char *name) {
    void *address = NULL;
    for (size_t i = 0; i < sizeof step_functions / sizeof step_functions[0]; i++) {
        if (strcmp(step_functions[i].name, name) == 0) {
            memcpy(&address, &step_functions[i].function, sizeof address);
        }
    }
    return address;
}

/* ---- dlsym() ---- */

/* The address that dlsym() should return. The assembly below calls this with dlsym()'s arguments
 * and the return address. */
void *ashlar__preload_dlsym(void *handle, const char *name, const void *caller);

/* A function of ashlar for a program that looks for it in the global scope, or in this library. A
 * program that is linked with ashlar itself gets its own copy's, which the C library finds. */
static void *find_step_function(dlsym_fn find, void *handle, const char *name) {
    void *ours = step_function(name);
    if (ours == NULL || ashlar__preload_options_get()->is_off ||
        (handle != RTLD_DEFAULT && handle != library_of(stand_ins)) ||
        find(RTLD_DEFAULT, name) != NULL) {
        return AS_THE_C_LIBRARY_SAYS;
    }
    (void)dlerror(); /* forget the error of the search above */
    return ours;
}

void *ashlar__preload_dlsym(void *handle, const char *name, const void *caller) {
    const dlsym_fn find = c_dlsym();
    size_t i = 0;
    if (name != NULL && strncmp(name, "ashlar_", 7) == 0) {
        return find_step_function(find, handle, name);
    }
    if (name == NULL || strncmp(name, "cu", 2) != 0) {
        return AS_THE_C_LIBRARY_SAYS;
    }
    while (i < STAND_INS && strcmp(stand_ins[i].name, name) != 0) {
        i++;
    }
    if (i == STAND_INS) {
        return AS_THE_C_LIBRARY_SAYS;
    }
    void *ours = function_of(&stand_ins[i]), *library = library_of(caller);
    /* For RTLD_NEXT the C library would take us for the caller, and search behind us. Search the
     * caller's library and those that it depends on instead. */
    const bool is_next = handle == RTLD_NEXT;
    const void *found = is_next && library == NULL ? NULL : find(is_next ? library : handle, name);
    if (found == NULL) {
        return AS_THE_C_LIBRARY_SAYS;
    }
    /* Our function was found in the global scope: would the search find one without us? */
    if (found == ours && find(RTLD_NEXT, name) == NULL) {
        return THERE_IS_NONE;
    }
    if (!ashlar__preload_begin()) {
        return AS_THE_C_LIBRARY_SAYS;
    }
    const void *called = find_in_driver(name);
    ashlar__preload_end();
    /* The caller may be the library that our function calls: a libcuda.so.1 that forwards to
     * another, as WSL's does, or the next library. If it got our function, the two would call each
     * other without end. */
    const bool is_behind_us = library != NULL && library == library_of(called);
    return called == NULL || is_behind_us ? AS_THE_C_LIBRARY_SAYS : ours;
}

/* dlsym() itself. It calls ashlar__preload_dlsym() and returns the result. If that is NULL, it
 * jumps to the next library's dlsym(), which thus sees the program's return address. */
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "    endbr64\n"
        "    pushq %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    movq 24(%rsp), %rdx\n" /* the return address */
        "    call ashlar__preload_dlsym\n"
        "    addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "    cmpq $1, %rax\n"
        "    ja 1f\n"
        "    je 2f\n"
        "    jmp *ashlar__preload_next_dlsym(%rip)\n"
        "2:  xorl %eax, %eax\n"
        "1:  ret\n"
        ".cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, %function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "    stp x29, x30, [sp, #-32]!\n"
        ".cfi_def_cfa_offset 32\n"
        ".cfi_offset 29, -32\n"
        ".cfi_offset 30, -24\n"
        "    stp x0, x1, [sp, #16]\n"
        "    mov x2, x30\n" /* the return address */
        "    bl ashlar__preload_dlsym\n"
        "    mov x9, x0\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x29, x30, [sp], #32\n"
        ".cfi_restore 30\n"
        ".cfi_restore 29\n"
        ".cfi_def_cfa_offset 0\n"
        "    cmp x9, #1\n"
        "    b.hi 1f\n"
        "    b.eq 2f\n"
        "    adrp x9, ashlar__preload_next_dlsym\n"
        "    ldr x9, [x9, #:lo12:ashlar__preload_next_dlsym]\n"
        "    br x9\n"
        "2:  mov x9, #0\n"
        "1:  mov x0, x9\n"
        "    ret\n"
        ".cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#else
#error "preload_find.c: write the jump for this processor here"
#endif

/* ---- cuGetProcAddress ---- */

/* Replace the function that the driver found by ours, if we have one for the requested version. */
static void stand_in_for(const char *symbol, void **address, int version,
                         unsigned long long flags) {
    const stand_in *best = NULL;
    if (*address == NULL) {
        return;
    }
    for (size_t i = 0; i < STAND_INS; i++) {
        const stand_in *s = &stand_ins[i];
        if (strcmp(s->symbol, symbol) != 0 || version < s->version ||
            (s->is_per_thread && (flags & PER_THREAD_STREAM) == 0) ||
            find_in_driver(s->name) == NULL /* an older driver */) {
            continue;
        }
        const bool is_better =
            best == NULL || s->is_per_thread > best->is_per_thread || s->version > best->version;
        best = is_better ? s : best;
    }
    if (best != NULL) {
        ASHLAR_CHECK2(best->version <= version);
        *address = function_of(best);
    }
}

cu_result cuGetProcAddress_v2(const char *symbol, void **address, int version,
                              unsigned long long flags, unsigned int *found) {
    const cu_result result =
        ashlar__real_cuGetProcAddress_v2(symbol, address, version, flags, found);
    if (result == CU_SUCCESS && ashlar__preload_begin()) {
        ashlar__preload_end();
        stand_in_for(symbol, address, version, flags);
    }
    return result;
}

cu_result cuGetProcAddress(const char *symbol, void **address, int version,
                           unsigned long long flags) {
    const cu_result result = ashlar__real_cuGetProcAddress(symbol, address, version, flags);
    if (result == CU_SUCCESS && ashlar__preload_begin()) {
        ashlar__preload_end();
        stand_in_for(symbol, address, version, flags);
    }
    return result;
}

/* ---- the driver's own, called ---- */

#define REAL(name, params, args)                                              \
    cu_result ashlar__real_##name params {                                    \
        static _Atomic(void *) found_;                                        \
        cu_result(*function_) params;                                         \
        void *address_ = atomic_load_explicit(&found_, memory_order_acquire); \
        if (address_ == NULL) {                                               \
            address_ = find_in_driver(#name);                                 \
            atomic_store_explicit(&found_, address_, memory_order_release);   \
        }                                                                     \
        memcpy(&function_, &address_, sizeof function_);                      \
        return function_ == NULL ? CU_NOT_SUPPORTED : function_ args;         \
    }

#define X(name, symbol, version, is_ptsz, params, args) REAL(name, params, args)
ASHLAR_PRELOAD_MAP(X)
#undef X
ASHLAR_PRELOAD_NEEDED_MAP(REAL)

/* ---- which calls to serve ---- */

static _Thread_local int depth;

bool ashlar__preload_begin(void) {
    if (depth > 0 || ashlar__preload_options_get()->is_off || ashlar__dropin_is_forked()) {
        return false;
    }
    depth++;
    ASHLAR_CHECK2(depth == 1);
    return true;
}

void ashlar__preload_end(void) {
    ASHLAR_CHECK2(depth == 1); /* begin and end are paired */
    depth--;
}

static atomic_bool has_missed_stream;

void ashlar__preload_note_missed_stream(void) {
    atomic_store(&has_missed_stream, true);
}

/* The ashlar_frees of the current context, if the program made that; else of its device's primary
 * context. */
static ashlar_status find_here(cu_context current, cu_device ordinal, ashlar_frees **out) {
    const int place = ashlar__dropin_find_context(current);
    return place >= 0 ? ashlar__frees_at(place, 0, out) : ashlar__frees_of(ordinal, out);
}

ashlar_frees *ashlar__preload_here(void) {
    cu_context current = NULL;
    cu_device ordinal = -1;
    ashlar_frees *frees = NULL;
    ASHLAR_CHECK2(depth > 0); /* calls made from here on are our own */
    if (ashlar__real_cuCtxGetCurrent(&current) != CU_SUCCESS || current == NULL ||
        ashlar__real_cuCtxGetDevice(&ordinal) != CU_SUCCESS) {
        return NULL;
    }
    if (find_here(current, ordinal, &frees) != ASHLAR_OK) {
        ashlar__preload_note_refusal();
        return NULL;
    }
    if (frees->device->info.kind != ASHLAR_DEVICE_CUDA) {
        return NULL; /* a software device, unknown to the program's driver */
    }
    if (atomic_load(&has_missed_stream)) {
        ashlar__frees_distrust_streams(frees);
    }
    return frees->device->context == current ? frees : NULL;
}
