/* test_dropin_torch.c - what PyTorch and CuPy call, and in a forked child. */
#include "tests/allocator/dropin/dropin_fixture.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* ---- CuPy, which tells no stream: memory for all of them ---- */

/* A stream that is ordered with no other, not even with the default stream. */
static ashlar_stream loner;

static bool open_loner(void) {
    if (ashlar__device_enter(device) != ASHLAR_OK) {
        return false;
    }
    const cu_result result = driver->table.stream_create(&loner, CU_STREAM_UNORDERED);
    ashlar__device_leave(device);
    return result == CU_SUCCESS;
}

/* A block in which the adversary still has to write for `stream`. */
static unsigned char *used_on(ashlar_stream stream) {
    unsigned char *block = ashlar_cupy_malloc(NULL, BIG, 0);
    CHECK(block != NULL);
    if (block != NULL) {
        queue_write(stream, block, BIG, 1);
    }
    return block;
}

/* It has a new owner, behind whose back `old` would write what it had queued. */
static void check_is_owned(unsigned char *block, ashlar_stream old, ashlar_stream own) {
    atomic_store(&payload_bad_count, 0);
    queue_write(own, block, BIG, 2);
    wait_for(own);
    wait_for(old);
    queue_verify(own, block, BIG, 2);
    wait_for(own);
    CHECK(atomic_load(&payload_bad_count) == 0);
}

/* Whoever used the block last, the next one comes after, also where no stream is ordered. */
CASE(memory_for_any_stream_is_free_of_every_ones_work) {
    const ashlar_stream users[] = {streams[0], streams[1], loner, NULL};
    for (size_t i = 0; i < sizeof users / sizeof *users; i++) {
        leave(BIG);
        unsigned char *block = used_on(users[i]);
        ashlar_cupy_free(NULL, block, 0);
        unsigned char *again = ashlar_cupy_malloc(NULL, BIG, 0);
        REQUIRE(again == block);
        check_is_owned(again, users[i], streams[2]);
        ashlar_cupy_free(NULL, again, 0);
        leave(MEMORY);
    }
}

CASE(pytorch_gets_what_cupy_has_freed_when_there_is_no_more) {
    leave(BIG);
    unsigned char *block = used_on(loner);
    ashlar_cupy_free(NULL, block, 0);
    unsigned char *again = ashlar_torch_alloc(BIG, 0, streams[1]);
    REQUIRE(again == block);
    check_is_owned(again, loner, streams[1]);
    ashlar_torch_free(again, BIG, 0, streams[1]);
    leave(MEMORY);
}

int main(void) {
    return run_on_devices(open_devices() && open_loner());
}
