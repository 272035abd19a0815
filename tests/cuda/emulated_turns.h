/*
 * emulated_turns.h - the threads of a block take turns on the launching thread, each on a stack of
 * its own (cuda_emulation.h). A turn goes from one __syncthreads() to the next.
 */
#ifndef ASHLAR_EMULATED_TURNS_H
#define ASHLAR_EMULATED_TURNS_H

#include <ucontext.h>

enum { EMULATED_THREADS_MAX = 1024, EMULATED_STACK_BYTES = 64 << 10 };

static struct {
    ucontext_t launcher;
    ucontext_t threads[EMULATED_THREADS_MAX];
    char *stacks; /* one after the other; NULL: not made yet */
    unsigned ended_count;
    void (*kernel)(const void *param);
    const void *param;
} emulated;

static inline void emulated_require(bool is_good, const char *what) {
    if (!is_good) {
        (void)fprintf(stderr, "cuda_emulation: %s\n", what);
        abort();
    }
}

static inline void __syncthreads(void) {
    (void)swapcontext(&emulated.threads[threadIdx.x], &emulated.launcher);
}

static inline void emulated_run(void) {
    emulated.kernel(emulated.param);
    emulated.ended_count++;
}

static inline void emulated_make_stacks(void) {
    emulated.stacks = calloc(EMULATED_THREADS_MAX, EMULATED_STACK_BYTES);
    emulated_require(emulated.stacks != NULL, "no stacks");
    for (unsigned i = 0; i < EMULATED_THREADS_MAX; i++) {
        (void)getcontext(&emulated.threads[i]);
        emulated.threads[i].uc_stack.ss_sp = emulated.stacks + (size_t)i * EMULATED_STACK_BYTES;
        emulated.threads[i].uc_stack.ss_size = EMULATED_STACK_BYTES;
        emulated.threads[i].uc_link = &emulated.launcher;
    }
}

/* All threads must come to the same number of barriers. */
static inline void emulated_block(unsigned threads) {
    for (unsigned i = 0; i < threads; i++) {
        makecontext(&emulated.threads[i], emulated_run, 0);
    }
    emulated.ended_count = 0;
    while (emulated.ended_count == 0) {
        for (unsigned i = 0; i < threads; i++) {
            threadIdx.x = i;
            (void)swapcontext(&emulated.launcher, &emulated.threads[i]);
        }
    }
    emulated_require(emulated.ended_count == threads, "some threads wait for ones that ended");
}

static inline void emulated_launch(void (*kernel)(const void *param), const void *param,
                                   unsigned blocks, unsigned threads) {
    emulated_require(threads <= EMULATED_THREADS_MAX, "too many threads in a block");
    if (emulated.stacks == NULL) {
        emulated_make_stacks();
    }
    emulated.kernel = kernel;
    emulated.param = param;
    for (unsigned block = 0; block < blocks; block++) {
        blockIdx.x = block;
        emulated_block(threads);
    }
}

#endif /* ASHLAR_EMULATED_TURNS_H */
