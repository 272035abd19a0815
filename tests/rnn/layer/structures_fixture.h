/* structures_fixture.h - one of each thing that a function with a structure needs. */
#ifndef STRUCTURES_FIXTURE_H
#define STRUCTURES_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include <sys/mman.h>
#include <unistd.h>

#include <ashlar/ashlar.h>

#include "allocator/core/allocator_impl.h"

enum { WIDTH = 64 };

static char *fence; /* the first byte that may not be touched */
static size_t page_bytes;
static ashlar_arena *arena;
static ashlar_optimizer *optimizer;
static ashlar_rnn *rnn;
static void *memory; /* of the device */

static inline ashlar_status keep_status(void *context, void *data, size_t elements,
                                        ashlar_dtype dtype, ashlar_stream stream) {
    (void)context, (void)data, (void)elements, (void)dtype, (void)stream;
    return ASHLAR_OK;
}

static inline ashlar_status broadcast(void *context, void *data, size_t elements,
                                      ashlar_dtype dtype, size_t root, ashlar_stream stream) {
    (void)root;
    return keep_status(context, data, elements, dtype, stream);
}

static inline void close_all(void) {
    check_forget(close_all);
    ashlar_rnn_destroy(rnn);
    ashlar_optimizer_destroy(optimizer);
    ashlar_arena_destroy(arena);
    give(memory);
    munmap(fence - page_bytes, 2 * page_bytes);
    tear_down();
}

static const ashlar_optimizer_config ADAM = {.kind = ASHLAR_OPTIMIZER_ADAM, .loss_scale = 4};

static inline ashlar_arena *make_arena(unsigned regions) {
    const size_t shape[] = {WIDTH};
    ashlar_arena *made = NULL;
    CHECK(ashlar_arena_create(&made) == ASHLAR_OK);
    CHECK(ashlar_arena_add(made, "w", ASHLAR_F32, 1, shape, NULL) == ASHLAR_OK);
    CHECK(ashlar_arena_commit(made, allocator, streams[0], regions) == ASHLAR_OK);
    return made;
}

static inline bool set_up_all(void) {
    const ashlar_rnn_config config = {.input = 1, .hidden = 1, .layers = 1};
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    char *pages =
        mmap(NULL, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + page_bytes, page_bytes, PROT_NONE) != 0 ||
        !set_up_cached("memory=64MiB", MIB)) {
        return false;
    }
    fence = pages + page_bytes;
    memory = take(MIB, streams[0]);
    arena = make_arena(ASHLAR_REGIONS_ALL);
    CHECK(ashlar_optimizer_create(arena, &ADAM, streams[0], &optimizer) == ASHLAR_OK);
    CHECK(ashlar_rnn_create(device, &config, &rnn) == ASHLAR_OK);
    check_forget(tear_down);
    return check_at_end(close_all);
}

#endif /* STRUCTURES_FIXTURE_H */
