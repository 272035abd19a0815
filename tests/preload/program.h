/*
 * program.h - what the programs of the preload's tests have in common: the calls they make, by
 * whichever way they come to them, and the things they do with them.
 *
 * They know nothing of ashlar. Each prints what it finds and ends with 0 if all was as CUDA
 * promises; shell_preload.sh runs them with and without libashlar-preload.so.
 */
#ifndef ASHLAR_TESTS_PRELOAD_PROGRAM_H
#define ASHLAR_TESTS_PRELOAD_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* What one process gives another to find its memory by. */
typedef struct ipc_handle {
    char bytes[64];
} ipc_handle;

/* CUDA's calls; each returns CUDA's code, 0 for success. A stream is CUDA's handle. */
typedef struct gpu {
    int (*alloc)(void **ptr, size_t bytes);
    int (*give)(void *ptr);
    int (*alloc_on)(void **ptr, size_t bytes, void *stream);
    int (*give_on)(void *ptr, void *stream);
    int (*alloc_rows)(void **ptr, size_t *pitch, size_t width, size_t height);
    int (*fill)(void *ptr, int value, size_t bytes, void *stream);
    int (*read)(void *dst, const void *src, size_t bytes, void *stream); /* there on return */
    int (*info)(size_t *free_bytes, size_t *total_bytes);
    int (*make_stream)(void **stream, bool is_blocking);
    int (*end_stream)(void *stream);
    int (*wait)(void *stream);
    int (*wait_all)(void);
    int (*begin_capture)(void *stream, int mode); /* one of those below */
    int (*end_capture)(void *stream);   /* and drop the graph */
    int (*use)(int device);             /* make it the calling thread's */
    int (*owner)(void *ptr, int *device);
    int (*own_pool)(void); /* make a pool that allocations on streams come from */
    int (*own_pool_bytes)(unsigned long long *bytes); /* in use */
    int (*reset)(void);
    int (*export_block)(ipc_handle *handle, void *ptr);
    int (*take_physical)(size_t bytes); /* for good; NULL: there is no such call */
    int (*use_default_pool)(void);      /* and look at its figures; NULL: likewise */
} gpu;

enum { GLOBAL_CAPTURE = 0, RELAXED_CAPTURE = 2 };
enum { OUT_OF_MEMORY = 2, INVALID_VALUE = 1, NOT_SUPPORTED = 801 };

/* How often the driver was asked for memory, as the tests' libcuda.so.1 counts. */
unsigned long long memory_calls(void);
/* "driver allocations: ..." up to then, and since. */
void print_calls(unsigned long long after_first);

/* By which calls a program takes and frees memory. */
typedef enum train_way { TRAIN_AT_ONCE, TRAIN_ON_STREAMS, TRAIN_MIXED } train_way;

/* Steps of a training (program_train.c). Returns how many went wrong. */
int train(const gpu *calls, train_way way);

/* Do what argv[1] names; the status of main(). */
/* All calls but the last two, of a program whose functions have their names. */
#define GPU_CALLS                                                                         \
    .alloc = alloc, .give = give, .alloc_on = alloc_on, .give_on = give_on,               \
    .alloc_rows = alloc_rows, .fill = fill, .read = read_back, .info = info,              \
    .make_stream = make_stream, .end_stream = end_stream, .wait = wait_for,               \
    .wait_all = wait_for_all, .begin_capture = begin_capture, .end_capture = end_capture, \
    .use = use, .owner = owner, .own_pool = own_pool, .own_pool_bytes = own_pool_bytes,   \
    .reset = reset, .export_block = export_block

int run_program(const gpu *calls, int argc, char **argv);

/* Complain, count it in the file's `failures`, and go on. */
#define EXPECT(expr)                                            \
    do {                                                        \
        if (!(expr)) {                                          \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #expr);   \
            __atomic_fetch_add(&failures, 1, __ATOMIC_SEQ_CST); \
        }                                                       \
    } while (0)

#endif /* ASHLAR_TESTS_PRELOAD_PROGRAM_H */
