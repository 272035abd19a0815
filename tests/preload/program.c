/* program.c - what the programs of the preload's tests do, by the name of their first argument. */
#include "program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { BLOCKS = 6, ROUNDS = 24, THREADS = 8, FITTING_MAX = 100 };

static const gpu *g;
static int failures;

unsigned long long memory_calls(void) {
    unsigned long long (*calls)(void) = NULL;
    void *address = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "ashlar_fake_memory_calls");
    memcpy(&calls, &address, sizeof calls);
    return calls == NULL ? 0 : calls();
}

void print_calls(unsigned long long after_first) {
    printf("driver allocations: %llu at first, %llu later\n", after_first,
           memory_calls() - after_first);
}

static bool holds_only(const unsigned char *bytes, size_t count, unsigned char value) {
    size_t i = 0;
    while (i < count && bytes[i] == value) {
        i++;
    }
    return i == count;
}

static bool device_holds(const void *ptr, size_t bytes, unsigned char value, void *stream) {
    unsigned char *copy = malloc(bytes);
    const bool holds =
        copy != NULL && g->read(copy, ptr, bytes, stream) == 0 && holds_only(copy, bytes, value);
    free(copy);
    return holds;
}

/* ---- a loop of steps ---- */

static void step(void *stream, bool is_async) {
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        const size_t bytes = (100 + 77 * (size_t)i) * KIB;
        EXPECT((is_async ? g->alloc_on(&blocks[i], bytes, stream) : g->alloc(&blocks[i], bytes)) ==
               0);
        EXPECT(g->fill(blocks[i], i, bytes, stream) == 0);
    }
    for (int i = 0; i < BLOCKS; i++) {
        EXPECT(device_holds(blocks[i], 100 * KIB, (unsigned char)i, stream));
    }
    for (int i = 0; i < BLOCKS; i++) {
        EXPECT((is_async ? g->give_on(blocks[i], stream) : g->give(blocks[i])) == 0);
    }
}

static void loop(void) {
    void *stream = NULL;
    EXPECT(g->make_stream(&stream, false) == 0);
    unsigned long long after_first = 0;
    for (int i = 0; i < ROUNDS; i++) {
        step(stream, false);
        step(stream, true);
        after_first = i == 0 ? memory_calls() : after_first;
    }
    print_calls(after_first);
    EXPECT(g->end_stream(stream) == 0);
}

static void train_at_once(void) {
    EXPECT(train(g, TRAIN_AT_ONCE) == 0);
}

static void train_on_streams(void) {
    EXPECT(train(g, TRAIN_ON_STREAMS) == 0);
}

static void train_mixed(void) {
    EXPECT(train(g, TRAIN_MIXED) == 0);
}

/* ---- a free while another stream still writes ---- */

/* So large that a device of 128 MiB has room for two or three, and what is freed is wanted. */
#define RACE_BYTES (40 * MIB)

/* Whose work is late: a stream of its own, of either kind, or gone by then; or a default one. */
typedef enum other_stream {
    UNORDERED,
    BLOCKING,
    DESTROYED,
    LEGACY,
    PER_THREAD,
    KINDS
} other_stream;

static void *make_other(other_stream kind) {
    void *stream = kind == PER_THREAD ? (void *)2 : NULL;
    EXPECT(kind == PER_THREAD || kind == LEGACY || g->make_stream(&stream, kind == BLOCKING) == 0);
    return stream;
}

/* How often memory that was taken anew was then written by a stream of before. */
static int count_races(other_stream kind) {
    int races = 0;
    void *mine = NULL;
    EXPECT(g->make_stream(&mine, false) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        void *before = NULL, *after = NULL, *other = make_other(kind);
        EXPECT(g->alloc(&before, RACE_BYTES) == 0);
        EXPECT(g->fill(before, 1, 64 * KIB, other) == 0);
        EXPECT(kind != DESTROYED || g->end_stream(other) == 0);
        EXPECT(g->give(before) == 0);
        EXPECT(g->alloc(&after, RACE_BYTES) == 0);
        EXPECT(g->fill(after, 2, 64 * KIB, mine) == 0);
        EXPECT(g->wait_all() == 0); /* what is left runs at some time */
        EXPECT(kind > BLOCKING || g->end_stream(other) == 0);
        races += !device_holds(after, 64 * KIB, 2, mine);
        EXPECT(g->give(after) == 0);
    }
    EXPECT(g->end_stream(mine) == 0);
    return races;
}

static void race(void) {
    int races = 0;
    for (other_stream kind = UNORDERED; kind < KINDS; kind++) {
        const int of_kind = count_races(kind);
        printf("kind %d: %d\n", (int)kind, of_kind);
        races += of_kind;
    }
    printf("overwritten: %d\n", races);
    EXPECT(races == 0);
}

/* ---- threads ---- */

static void *work(void *arg) {
    const int seed = *(const int *)arg;
    void *stream = NULL;
    EXPECT(g->use(0) == 0);
    EXPECT(g->make_stream(&stream, seed % 2 == 0) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        const unsigned char value = (unsigned char)(seed * ROUNDS + i);
        const size_t bytes = (size_t)(1 + (seed * 31 + i * 17) % 64) * KIB;
        void *a = NULL, *b = NULL;
        EXPECT(g->alloc(&a, bytes) == 0 && g->alloc_on(&b, bytes, stream) == 0);
        EXPECT(g->fill(a, value, bytes, stream) == 0 && g->fill(b, value, bytes, stream) == 0);
        EXPECT(i % 2 != 0 || device_holds(a, bytes, value, stream));
        EXPECT(device_holds(b, bytes, value, stream));
        EXPECT(g->give(a) == 0);
        EXPECT((i % 3 == 0 ? g->give(b) : g->give_on(b, stream)) == 0);
    }
    EXPECT(g->end_stream(stream) == 0);
    return NULL;
}

static void threads(void) {
    pthread_t workers[THREADS];
    int seeds[THREADS];
    for (int i = 0; i < THREADS; i++) {
        seeds[i] = i;
        EXPECT(pthread_create(&workers[i], NULL, work, &seeds[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i], NULL);
    }
}

/* ---- memory runs out ---- */

static void full(void) {
    void *stream = NULL, *most = NULL, *again = NULL, *more = NULL;
    EXPECT(g->make_stream(&stream, false) == 0);
    EXPECT(g->alloc(&most, 40 * MIB) == 0);
    EXPECT(g->fill(most, 3, 40 * MIB, stream) == 0);
    EXPECT(g->give(most) == 0);
    EXPECT(g->alloc(&again, 40 * MIB) == 0);
    EXPECT(g->fill(again, 4, MIB, NULL) == 0);
    EXPECT(device_holds(again, MIB, 4, NULL));
    EXPECT(g->alloc(&more, 40 * MIB) == OUT_OF_MEMORY && more == NULL);
    EXPECT(g->alloc_on(&more, 40 * MIB, stream) == OUT_OF_MEMORY && more == NULL);
    EXPECT(g->give(again) == 0);
    EXPECT(g->end_stream(stream) == 0);
}

/* ---- what is free, and what is no allocation ---- */

static void info(void) {
    size_t before = 0, while_used = 0, after = 0, total = 0, pitch = 0;
    void *ptr = NULL, *rows = NULL, *gone = NULL;
    EXPECT(g->info(&before, &total) == 0 && before <= total);
    EXPECT(g->alloc(&ptr, 8 * MIB) == 0);
    EXPECT(g->info(&while_used, &total) == 0);
    EXPECT(before - while_used >= 8 * MIB && before - while_used <= 10 * MIB);
    EXPECT(g->alloc_rows(&rows, &pitch, 1000, 8) == 0 && pitch >= 1000 && pitch % 512 == 0);
    EXPECT(g->fill(rows, 5, pitch * 8, NULL) == 0);
    EXPECT(g->give(rows) == 0);
    EXPECT(g->give(ptr) == 0);
    EXPECT(g->info(&after, &total) == 0 && after == before);
    EXPECT(g->give(ptr) == INVALID_VALUE);
    EXPECT(g->give(&ptr) == INVALID_VALUE);
    EXPECT(g->alloc(&ptr, 1) == 0 && g->give((char *)ptr + 1) == INVALID_VALUE);
    EXPECT(g->give(ptr) == 0);
    EXPECT(g->alloc_on(&ptr, 100, NULL) == 0 && g->give(ptr) == 0);
    EXPECT(g->make_stream(&gone, false) == 0 && g->end_stream(gone) == 0);
    EXPECT(g->alloc_on(&ptr, 100, gone) != 0);
}

/* How many blocks of 2 MiB can be had at once, and are given back. */
static size_t count_fitting(bool is_async) {
    void *blocks[FITTING_MAX];
    size_t count = 0;
    while (count < FITTING_MAX && (is_async ? g->alloc_on(&blocks[count], 2 * MIB, NULL)
                                            : g->alloc(&blocks[count], 2 * MIB)) == 0) {
        count++;
    }
    for (size_t i = 0; i < count; i++) {
        EXPECT((is_async ? g->give_on(blocks[i], NULL) : g->give(blocks[i])) == 0);
    }
    EXPECT(g->wait_all() == 0);
    return count;
}

/* All that the environment's QUOTA allows can be had, and no more, whoever has it meanwhile. */
static void quota(void) {
    const char *bytes = getenv("QUOTA");
    const size_t allowed = bytes == NULL ? 0 : strtoul(bytes, NULL, 10) / (2 * MIB);
    for (int i = 0; i < 4; i++) {
        const size_t count = count_fitting(i % 2 != 0);
        printf("%zu of %zu\n", count, allowed);
        EXPECT(count == allowed);
    }
}

/* What the driver is asked for otherwise finds what was freed. */
static void share(void) {
    void *stream = NULL, *ptr = NULL;
    EXPECT(g->make_stream(&stream, false) == 0);
    EXPECT(g->alloc(&ptr, 40 * MIB) == 0);
    EXPECT(g->fill(ptr, 3, 40 * MIB, stream) == 0);
    EXPECT(g->give(ptr) == 0);
    EXPECT(g->take_physical == NULL || g->take_physical(50 * MIB) == 0);
    EXPECT(g->take_physical == NULL || g->take_physical(50 * MIB) == OUT_OF_MEMORY);
    EXPECT(g->end_stream(stream) == 0);
}

/* Memory of a pool that the program has made is of that pool. */
/* The program's own pool has its own figures, whatever else is live. */
static void pool(void) {
    unsigned long long used = 0;
    void *stream = NULL, *ptr = NULL, *other = NULL;
    EXPECT(g->alloc(&other, MIB) == 0);
    EXPECT(g->make_stream(&stream, false) == 0);
    EXPECT(g->alloc_on(&ptr, KIB, stream) == 0 && g->give_on(ptr, stream) == 0);
    EXPECT(g->own_pool() == 0);
    EXPECT(g->alloc_on(&ptr, MIB, stream) == 0);
    EXPECT(g->own_pool_bytes(&used) == 0 && used == MIB);
    EXPECT(g->give_on(ptr, stream) == 0);
    EXPECT(g->own_pool_bytes(&used) == 0 && used == 0);
    EXPECT(g->give(other) == 0);
    EXPECT(g->end_stream(stream) == 0);
}

static void default_pool(void) {
    EXPECT(g->use_default_pool == NULL || g->use_default_pool() == 0);
}

/* Memory is of the device that was current, and is freed wherever. */
static void devices(void) {
    for (int i = 0; i < ROUNDS; i++) {
        void *ptr[2] = {NULL, NULL};
        for (int d = 0; d < 2; d++) {
            int owner = -1;
            EXPECT(g->use(d) == 0 && g->alloc(&ptr[d], 3 * MIB) == 0);
            EXPECT(g->owner(ptr[d], &owner) == 0 && owner == d);
            EXPECT(g->fill(ptr[d], d, MIB, NULL) == 0 && device_holds(ptr[d], MIB, d != 0, NULL));
        }
        EXPECT(g->give(ptr[0]) == 0 && g->give(ptr[1]) == 0);
        EXPECT(g->give(ptr[1]) == INVALID_VALUE);
    }
}

/* ---- captures ---- */

/* Frees wait, memory is wanted, and the capture is none the worse. */
static void capture(void) {
    for (int is_blocking = 0; is_blocking < 2; is_blocking++) {
        void *stream = NULL, *ptr = NULL, *next = NULL;
        EXPECT(g->make_stream(&stream, is_blocking) == 0);
        EXPECT(g->alloc(&ptr, 3 * MIB) == 0);
        EXPECT(g->fill(ptr, 6, 3 * MIB, NULL) == 0);
        EXPECT(g->give(ptr) == 0);
        EXPECT(g->begin_capture(stream, RELAXED_CAPTURE) == 0);
        EXPECT(g->alloc(&next, 3 * MIB) == 0);
        EXPECT(g->fill(next, 7, MIB, stream) == 0);
        EXPECT(g->end_capture(stream) == 0);
        EXPECT(g->give(next) == 0);
        EXPECT(g->alloc(&ptr, 3 * MIB) == 0 && g->give(ptr) == 0);
        EXPECT(g->end_stream(stream) == 0);
    }
}

/* Memory that is not there yet, that waits for late work, and that is asked about. */
static void *allocate_beside(void *unused) {
    void *ptr = NULL, *stream = NULL;
    int owner = -1;
    EXPECT(g->use(0) == 0 && g->make_stream(&stream, false) == 0);
    for (size_t i = 1; i <= 3; i++) {
        EXPECT(g->alloc(&ptr, i * 7 * MIB) == 0 && g->owner(ptr, &owner) == 0 && owner == 0);
        EXPECT(g->fill(ptr, 6, KIB, stream) == 0 && g->give(ptr) == 0);
        EXPECT(g->alloc_on(&ptr, i * 5 * MIB, stream) == 0);
        EXPECT(g->fill(ptr, 6, KIB, stream) == 0 && g->give_on(ptr, stream) == 0);
    }
    EXPECT(g->end_stream(stream) == 0);
    return unused;
}

/* The mode that is CUDA's default, in which other threads' calls spoil a capture: not ours. */
static void capture_beside(void) {
    void *stream = NULL;
    pthread_t other;
    EXPECT(g->make_stream(&stream, false) == 0);
    EXPECT(g->begin_capture(stream, GLOBAL_CAPTURE) == 0);
    EXPECT(pthread_create(&other, NULL, allocate_beside, NULL) == 0);
    pthread_join(other, NULL);
    EXPECT(g->end_capture(stream) == 0);
    EXPECT(g->end_stream(stream) == 0);
}

/* ---- processes ---- */

static void in_child(void *of_parent) {
    void *ptr = NULL;
    EXPECT(g->alloc(&ptr, KIB) != 0 && ptr == NULL);
    EXPECT(g->give(of_parent) != 0);
    exit(failures != 0); /* with the handlers that the parent has registered */
}

static void fork_after(void) {
    void *ptr = NULL;
    int status = -1;
    EXPECT(g->alloc(&ptr, KIB) == 0);
    const pid_t child = fork();
    if (child == 0) {
        in_child(ptr);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(g->give(ptr) == 0);
    step(NULL, false);
}

/* Each of the two uses the device for the first time. */
static void fork_before(void) {
    int status = -1;
    const pid_t child = fork();
    EXPECT(g->use(0) == 0);
    step(NULL, false);
    if (child != 0) {
        EXPECT(waitpid(child, &status, 0) == child && status == 0);
    }
}

/* ---- memory for another process ---- */

static void export(void) {
    ipc_handle handles[2];
    void *blocks[2];
    for (int i = 0; i < 2; i++) {
        EXPECT(g->alloc(&blocks[i], 64 * KIB) == 0);
        EXPECT(g->export_block(&handles[i], blocks[i]) == 0);
    }
    EXPECT(memcmp(&handles[0], &handles[1], sizeof handles[0]) != 0);
    EXPECT(g->give(blocks[0]) == 0 && g->give(blocks[1]) == 0);
}

/* Nobody gets a handle that would open something else. */
static void refuse_export(void) {
    ipc_handle handle;
    void *ptr = NULL;
    EXPECT(g->alloc(&ptr, MIB) == 0);
    EXPECT(g->export_block(&handle, ptr) == NOT_SUPPORTED);
    EXPECT(g->give(ptr) == 0);
    EXPECT(g->export_block(&handle, ptr) == INVALID_VALUE);
}

static void *kept;

static void give_kept(void) {
    printf("at exit: %d\n", g->give(kept));
}

/* The process has no time to end. */
static void killed(void) {
    step(NULL, false);
    EXPECT(kill(getpid(), SIGKILL) == 0);
}

/* Memory that is never freed, and bytes written behind the end of other memory. */
static void mistakes(void) {
    void *lost = NULL, *small = NULL;
    EXPECT(g->alloc(&lost, 1234) == 0 && g->alloc(&small, 1000) == 0);
    EXPECT(g->fill(small, 1, 1004, NULL) == 0);
    EXPECT(g->give(small) == 0);
}

static void leave(void) {
    EXPECT(g->alloc(&kept, MIB) == 0);
    EXPECT(atexit(give_kept) == 0);
}

static void reset(void) {
    void *ptr = NULL;
    EXPECT(g->alloc(&ptr, MIB) == 0);
    EXPECT(g->reset() == 0);
    EXPECT(g->give(ptr) != 0);
    EXPECT(g->alloc(&ptr, MIB) == 0);
    EXPECT(g->fill(ptr, 1, MIB, NULL) == 0 && device_holds(ptr, MIB, 1, NULL));
    EXPECT(g->give(ptr) == 0);
}

int run_program(const gpu *calls, int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
        bool begins_without; /* a device */
    } programs[] = {
        {"loop", loop, false},
        {"race", race, false},
        {"threads", threads, false},
        {"full", full, false},
        {"info", info, false},
        {"capture", capture, false},
        {"capture-beside", capture_beside, false},
        {"fork", fork_after, false},
        {"fork-before", fork_before, true},
        {"export", export, false},
        {"refuse-export", refuse_export, false},
        {"leave", leave, false},
        {"killed", killed, false},
        {"mistakes", mistakes, false},
        {"quota", quota, false},
        {"share", share, false},
        {"reset", reset, false},
        {"pool", pool, false},
        {"default-pool", default_pool, false},
        {"devices", devices, false},
        {"train", train_at_once, false},
        {"train-on-streams", train_on_streams, false},
        {"train-mixed", train_mixed, false},
    };
    g = calls;
    for (size_t i = 0; argc == 2 && i < sizeof programs / sizeof programs[0]; i++) {
        if (strcmp(argv[1], programs[i].name) == 0) {
            EXPECT(programs[i].begins_without || g->use(0) == 0);
            programs[i].run();
            return failures != 0;
        }
    }
    printf("usage: %s WHAT\n", argv[0]);
    return 2;
}
