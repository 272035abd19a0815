/*
 * ranks_fixture.h - ranks for tests: processes that join by the engine of engine.h, each with a
 * software device, and memory that they share.
 */
#ifndef ASHLAR_RANKS_FIXTURE_H
#define ASHLAR_RANKS_FIXTURE_H

#include "tests/check.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ashlar/ashlar.h>

#include "allocator/base/host.h"
#include "arena/compute/convert.h"
#include "arena/reduce/ranks_impl.h"
#include "tests/arena/reduce/engine.h"

#define ENGINE_LIBRARY "libashlar-mpi.so" /* found in LD_LIBRARY_PATH */

enum { ENGINE_PATIENCE_S = 60, DATA_BYTES = 4 << 20 };

static engine_world *world;
static engine_self *own; /* of the engine in this process */
static ashlar_ranks *ranks;
static size_t rank; /* of this process */
static ashlar_device *device;
static ashlar_stream stream;
static const ashlar_collectives *table;
static void *locked; /* [DATA_BYTES] page-locked memory, what collectives work on */

/* Wait for all other ranks. */
static inline void meet(void) {
    const unsigned int count = (unsigned int)world->count;
    const unsigned int before = atomic_fetch_add(&world->arrived, 1);
    while (atomic_load(&world->arrived) < (before / count + 1) * count) {
        (void)sched_yield();
    }
}

static inline void tear_down_world(void) {
    check_forget(tear_down_world);
    (void)munmap(world, sizeof *world);
    world = NULL;
    own->world = NULL;
}

/* A world of so many ranks, in which nothing goes wrong. */
static inline bool set_up_world(size_t count) {
    engine_self_fn *entry;
    void *library = dlopen(ENGINE_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    void *symbol = library == NULL ? NULL : dlsym(library, ENGINE_SELF);
    world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (symbol == NULL || world == MAP_FAILED) {
        printf("# %s\n", symbol == NULL ? dlerror() : "no memory");
        return false;
    }
    memcpy(&entry, &symbol, sizeof entry);
    own = entry();
    *own = (engine_self){.world = world};
    world->count = count;
    world->version = ASHLAR_ENGINE_VERSION;
    world->deaf_kind = -1;
    return check_at_end(tear_down_world);
}

static inline void fail_on(size_t which, engine_act act, int nth) {
    world->failing_rank = which;
    world->fails_at[act] = nth;
}

static inline void open_soft(uint32_t timeout_ms) {
    CHECK(ashlar_ranks_open(ENGINE_LIBRARY, timeout_ms, &ranks) == ASHLAR_OK);
    CHECK(ashlar_device_open("soft", &device) == ASHLAR_OK);
    CHECK(ashlar_stream_create(device, &stream) == ASHLAR_OK);
    CHECK(ashlar_device_host_alloc(device, DATA_BYTES, &locked) == ASHLAR_OK);
}

static inline void close_soft(bool has_failed) {
    ashlar_ranks_drop_collectives(ranks, has_failed);
    ashlar_device_host_free(device, locked);
    ashlar_stream_destroy(device, stream);
    ashlar_device_close(device);
    ashlar_ranks_close(ranks, has_failed);
    ranks = NULL;
}

/* Run an act in a process for each rank of the world. */
static inline void run_ranks(void (*act)(void)) {
    pid_t children[ENGINE_RANKS];
    fflush(stdout);
    for (size_t i = 0; i < world->count; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            (void)alarm(ENGINE_PATIENCE_S); /* a rank that waits for ever ends, too */
            own->rank = rank = i;
            check_failed = 0;
            check_ran = 0;
            act();
            fflush(stdout);
            _exit(check_failed == 0 && check_ran > 0 ? 0 : 1);
        }
    }
    for (size_t i = 0; i < world->count; i++) {
        int status = -1;
        CHECK(waitpid(children[i], &status, 0) == children[i]);
        CHECK(status == 0);
    }
}

/* ---- numbers ---- */

/* Small whole ones, whose sums are exact in every type; never 0. */
static inline double number_of(size_t of, size_t i) {
    return (double)((of + 1) * (1 + i % 7));
}

static inline void fill(void *data, ashlar_dtype dtype, size_t count, size_t of) {
    for (size_t i = 0; i < count; i++) {
        const double value = number_of(of, i);
        ashlar__convert(dtype, (char *)data + i * ashlar_dtype_bytes(dtype), ASHLAR_F64, &value, 1);
    }
}

static inline double element(const void *data, ashlar_dtype dtype, size_t i) {
    double value = 0;
    ashlar__convert(ASHLAR_F64, &value, dtype, (const char *)data + i * ashlar_dtype_bytes(dtype),
                    1);
    return value;
}

static inline double sum_of(size_t i) {
    double sum = 0;
    for (size_t of = 0; of < world->count; of++) {
        sum += number_of(of, i);
    }
    return sum;
}

#endif /* ASHLAR_RANKS_FIXTURE_H */
