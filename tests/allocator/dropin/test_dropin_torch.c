/* test_dropin_torch.c - what PyTorch calls, beside CuPy in threads and in a forked child. */
#include "tests/allocator/dropin/dropin_fixture.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 60, LIVE = 12 };

/* ---- PyTorch ---- */

CASE(blocks_come_from_the_device_that_is_named) {
    for (int i = 0; i < DEVICES; i++) {
        const uint64_t before = bytes_of(i).live;
        void *block = ashlar_torch_alloc(5000, i, NULL);
        CHECK(block != NULL);
        CHECK(ashlar__dropin_owner(block) == ashlar__dropin_peek(i));
        CHECK(bytes_of(i).live == before + 5000);
        CHECK(bytes_of(i).live_peak >= before + 5000);
        CHECK(bytes_of(i).reserved >= before + 5000);
        CHECK(bytes_of(i).reserved_peak >= bytes_of(i).reserved);
        ashlar_torch_free(block, 5000, i, NULL);
        CHECK(bytes_of(i).live == before);
    }
}

CASE(what_fails_is_null_and_says_why) {
    CHECK(ashlar_torch_alloc(2 * MEMORY, 0, NULL) == NULL);
    CHECK_HAS(ashlar_torch_error(), "134217728");
    if (dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD) == NULL) { /* sanitizers bring it */
        CHECK(ashlar_torch_alloc_or_throw(2 * MEMORY, 1, NULL) == NULL);
        ashlar_torch_refuse_graph();
        CHECK_HAS(ashlar_torch_error(), "MemPool");
    }
    CHECK(ashlar_torch_alloc(100, 99, NULL) == NULL);
    CHECK_HAS(ashlar_torch_error(), "device 99");
    CHECK(ashlar_torch_alloc(100, -1, NULL) == NULL);
    CHECK(ashlar_torch_alloc(100, 2, NULL) == NULL);
    CHECK(ashlar_cupy_malloc(NULL, 2 * MEMORY, 0) == NULL);
    CHECK(ashlar_cupy_malloc(NULL, 100, 99) == NULL);
    CHECK(ashlar_cupy_malloc((void *)1, 2 * MEMORY, 1) == NULL);
}

CASE(a_foreign_pointer_is_refused_and_changes_nothing) {
    int foreign;
    size_t bytes = 7;
    const uint64_t before = bytes_of(0).live;
    ashlar_torch_free(&foreign, 4, 0, NULL);
    CHECK_HAS(ashlar_torch_error(), "not");
    ashlar_torch_free(&foreign, 4, 5, NULL);
    CHECK_HAS(ashlar_torch_error(), "device 5");
    ashlar_cupy_free(NULL, &foreign, 0);
    ashlar_cupy_free(NULL, &foreign, 5);
    CHECK_HAS(ashlar_torch_error(), "device 5");
    ashlar_torch_record_stream(&foreign, streams[0]);
    CHECK(ashlar_torch_base_alloc(&foreign, &bytes) == &foreign);
    CHECK_ZU(bytes, 0);
    CHECK(bytes_of(0).live == before);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
}

/* Without the recording stream 1 would write behind the new owner's back. */
CASE(a_recorded_stream_is_waited_for) {
    for (int i = 0; i < 2; i++) {
        leave(BIG);
        atomic_store(&payload_bad_count, 0);
        unsigned char *block = ashlar_torch_alloc(BIG, 0, streams[0]);
        REQUIRE(block != NULL);
        ashlar_torch_record_stream(block, streams[1]);
        queue_write(streams[1], block, BIG, 1);
        ashlar_torch_free(block, BIG, 0, streams[0]);
        unsigned char *again = ashlar_torch_alloc(BIG, 0, streams[0]);
        REQUIRE(again == block);
        queue_write(streams[0], again, BIG, 2);
        wait_for(streams[0]);
        wait_for(streams[1]);
        queue_verify(streams[0], again, BIG, 2);
        wait_for(streams[0]);
        ashlar_torch_free(again, BIG, 0, streams[0]);
        CHECK(atomic_load(&payload_bad_count) == 0);
        leave(MEMORY);
    }
}

CASE(emptying_the_cache_gives_every_device_its_memory_back) {
    void *kept = ashlar_torch_alloc(1000, 1, NULL);
    for (int i = 0; i < DEVICES; i++) {
        void *block = ashlar_torch_alloc(BIG, i, NULL);
        ashlar_torch_free(block, BIG, i, NULL);
        CHECK(bytes_of(i).reserved >= BIG);
    }
    ashlar_torch_reset();
    CHECK(bytes_of(0).reserved == 0);
    CHECK(bytes_of(1).reserved == 2 * MIB);
    ashlar_torch_free(kept, 1000, 1, NULL);
}

CASE(a_fraction_bounds_what_is_taken) {
    ashlar_torch_reset();
    ashlar_torch_memory_fraction(0.5, 1);
    CHECK(ashlar_torch_alloc(MEMORY / 2 + 1, 1, NULL) == NULL);
    void *block = ashlar_torch_alloc(MEMORY / 2, 1, NULL);
    CHECK(block != NULL);
    ashlar_torch_free(block, MEMORY / 2, 1, NULL);
    ashlar_torch_reset();
    ashlar_torch_memory_fraction(0, 1);
    CHECK(ashlar_torch_alloc(1, 1, NULL) == NULL);
    ashlar_torch_memory_fraction(1, 1);
    block = ashlar_torch_alloc(MEMORY, 1, NULL);
    CHECK(block != NULL);
    ashlar_torch_free(block, MEMORY, 1, NULL);
    ashlar_torch_memory_fraction(1.5, 1);
    CHECK_HAS(ashlar_torch_error(), "1.5");
    ashlar_torch_memory_fraction(-1, 1);
    CHECK_HAS(ashlar_torch_error(), "-1");
    ashlar_torch_memory_fraction(0.5, 99);
    CHECK_HAS(ashlar_torch_error(), "device 99");
}

/* ---- both ---- */

typedef struct worker {
    int number;
    int bad_count;
} worker;

/* Blocks of both devices and both libraries, each filled with what only its owner knows. */
static void *work(void *arg) {
    worker *me = arg;
    unsigned char *live[LIVE] = {NULL};
    uint32_t random = (uint32_t)me->number + 1;
    for (int round = 0; round < ROUNDS * LIVE; round++) {
        random = random * 1664525u + 1013904223u;
        const int slot = (int)(random >> 8) % LIVE, ordinal = slot % DEVICES;
        const size_t bytes = 512 + (size_t)(slot * 700 + me->number);
        const unsigned char value = (unsigned char)(me->number * LIVE + slot + 1);
        const bool is_cupy = slot % 3 == 0;
        unsigned char *block = live[slot];
        if (block == NULL) {
            block = is_cupy ? ashlar_cupy_malloc(NULL, bytes, ordinal)
                            : ashlar_torch_alloc(bytes, ordinal, NULL);
            me->bad_count += block == NULL;
            if (block != NULL) {
                memset(block, value, bytes);
            }
            live[slot] = block;
            continue;
        }
        for (size_t i = 0; i < bytes; i++) {
            me->bad_count += block[i] != value;
        }
        is_cupy ? ashlar_cupy_free(NULL, block, ordinal)
                : ashlar_torch_free(block, bytes, ordinal, NULL);
        live[slot] = NULL;
    }
    for (int slot = 0; slot < LIVE; slot++) {
        slot % 3 == 0 ? ashlar_cupy_free(NULL, live[slot], slot % DEVICES)
                      : ashlar_torch_free(live[slot], 1, slot % DEVICES, NULL);
    }
    return NULL;
}

CASE(eight_threads_on_two_devices_do_not_get_each_others_memory) {
    pthread_t threads[THREADS];
    worker workers[THREADS];
    const uint64_t before[DEVICES] = {bytes_of(0).live, bytes_of(1).live};
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.number = i};
        REQUIRE(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
        CHECK(workers[i].bad_count == 0);
    }
    for (int i = 0; i < DEVICES; i++) {
        CHECK(bytes_of(i).live == before[i]);
        CHECK(ashlar_allocator_check(ashlar__dropin_peek(i)) == ASHLAR_OK);
    }
}

/* What a child does with what its parent had; nothing of it may be said on stderr. 0: as wanted. */
static int use_inherited(void *block, void *other) {
    struct stat said;
    FILE *file = tmpfile();
    (void)alarm(20);
    setenv("ASHLAR_REPORT", "on", 1);
    if (file == NULL || dup2(fileno(file), STDERR_FILENO) < 0) {
        return 1;
    }
    ashlar_torch_free(block, 1000, 0, NULL);
    ashlar_torch_record_stream(block, streams[0]);
    ashlar_cupy_free(NULL, other, 0);
    ashlar_torch_reset();
    if (fstat(STDERR_FILENO, &said) != 0 || said.st_size != 0) {
        return 2;
    }
    const bool was_refused = ashlar_torch_alloc(1, 0, NULL) == NULL &&
                             strstr(ashlar_torch_error(), "forked") != NULL &&
                             ashlar_cupy_malloc(NULL, 1, 1) == NULL;
    return was_refused && fstat(STDERR_FILENO, &said) == 0 && said.st_size > 0 ? 0 : 3;
}

/* As a worker process of a data loader: it has the parent's tensors, and drops them at its end. */
CASE(a_forked_child_gets_nothing_and_frees_nothing) {
    int status = -1;
    void *block = ashlar_torch_alloc(1000, 0, NULL), *other = ashlar_cupy_malloc(NULL, 1000, 0);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        _exit(use_inherited(block, other));
    }
    REQUIRE(child > 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(ashlar__dropin_owner(block) == allocator);
    ashlar_torch_free(block, 1000, 0, NULL);
    ashlar_cupy_free(NULL, other, 0);
}

int main(void) {
    return run_on_devices(open_devices());
}
