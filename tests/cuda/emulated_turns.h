/*
 * emulated_turns.h - the threads of a block take turns on the launching thread (cuda_emulation.h).
 * A turn goes from one __syncthreads() to the next.
 *
 * A fiber is a stack that lives on from launch to launch. It runs one thread of the block after the
 * other until one waits, which keeps the fiber; a kernel without __syncthreads() needs only one. A
 * change of fibers is a jump: swapcontext() asks the kernel for signal masks each time.
 */
#ifndef ASHLAR_EMULATED_TURNS_H
#define ASHLAR_EMULATED_TURNS_H

#include <ucontext.h>

enum { EMULATED_THREADS_MAX = 1024, EMULATED_STACK_BYTES = 64 << 10, EMULATED_PLACE_WORDS = 5 };

/* A compiler that looks into a function that jumps away may take it to change few registers, and no
 * memory. */
#if __has_attribute(noipa)
#define EMULATED_OPAQUE noipa
#else
#define EMULATED_OPAQUE noinline, optnone
#endif

typedef void *emulated_place[EMULATED_PLACE_WORDS]; /* as __builtin_setjmp() wants it */

static struct {
    emulated_place launcher;
    emulated_place fibers[EMULATED_THREADS_MAX]; /* where each waits */
    char *stacks;                                /* of all fibers; NULL: not made yet */
    unsigned fiber_count;                        /* that have begun */
    unsigned running;                            /* a fiber */
    unsigned threads, begun, ended;              /* of the block */
    void (*kernel)(const void *param);
    const void *param;
} emulated;

static inline void emulated_require(bool is_good, const char *what) {
    if (!is_good) {
        (void)fprintf(stderr, "cuda_emulation: %s\n", what);
        abort();
    }
}

/* No frame with variables that AddressSanitizer watches is left by this. */
__attribute__((EMULATED_OPAQUE, noreturn, no_sanitize_address)) static void
emulated_jump(emulated_place to) {
    __builtin_longjmp(to, 1);
}

__attribute__((EMULATED_OPAQUE)) static void emulated_switch(emulated_place from,
                                                             emulated_place to) {
    if (__builtin_setjmp(from) == 0) {
        emulated_jump(to);
    }
}

static inline void __syncthreads(void) {
    const unsigned me = threadIdx.x;
    emulated_switch(emulated.fibers[emulated.running], emulated.launcher);
    threadIdx.x = me;
}

/* Not inlined into the fiber, which may go on on another thread of the program, with another
 * threadIdx. */
__attribute__((EMULATED_OPAQUE)) static void emulated_run_next(void) {
    threadIdx.x = emulated.begun++;
    emulated.kernel(emulated.param);
    emulated.ended++;
}

static void emulated_fiber(void) {
    for (;;) {
        while (emulated.begun < emulated.threads) {
            emulated_run_next();
        }
        emulated_switch(emulated.fibers[emulated.running], emulated.launcher);
    }
}

__attribute__((EMULATED_OPAQUE, noreturn)) static void emulated_begin_fiber(void) {
    static ucontext_t context; /* the launcher leaves this frame by a jump */
    if (emulated.stacks == NULL) {
        emulated.stacks = calloc(EMULATED_THREADS_MAX, EMULATED_STACK_BYTES);
        emulated_require(emulated.stacks != NULL, "no stacks");
    }
    (void)getcontext(&context);
    context.uc_stack.ss_sp = emulated.stacks + (size_t)emulated.fiber_count * EMULATED_STACK_BYTES;
    context.uc_stack.ss_size = EMULATED_STACK_BYTES;
    emulated.fiber_count++;
    makecontext(&context, emulated_fiber, 0);
    (void)setcontext(&context);
    abort();
}

/* Run a fiber until its thread waits, or no thread is left. */
__attribute__((EMULATED_OPAQUE)) static void emulated_turn(unsigned fiber) {
    emulated.running = fiber;
    if (fiber < emulated.fiber_count) {
        emulated_switch(emulated.launcher, emulated.fibers[fiber]);
    } else if (__builtin_setjmp(emulated.launcher) == 0) {
        emulated_begin_fiber();
    }
}

/* All threads must come to the same number of barriers. */
static inline void emulated_block(unsigned threads) {
    unsigned fibers = 0;
    emulated.threads = threads;
    emulated.begun = emulated.ended = 0;
    while (emulated.begun < threads) {
        emulated_turn(fibers++);
    }
    while (emulated.ended == 0) {
        for (unsigned i = 0; i < fibers; i++) {
            emulated_turn(i);
        }
    }
    emulated_require(emulated.ended == threads, "some threads wait for ones that ended");
}

static inline void emulated_launch(void (*kernel)(const void *param), const void *param,
                                   unsigned blocks, unsigned threads) {
    emulated_require(threads <= EMULATED_THREADS_MAX, "too many threads in a block");
    emulated.kernel = kernel;
    emulated.param = param;
    for (unsigned block = 0; block < blocks; block++) {
        blockIdx.x = block;
        emulated_block(threads);
    }
}

#endif /* ASHLAR_EMULATED_TURNS_H */
