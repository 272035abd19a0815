/*
 * test_snapshot.c - that a snapshot is the allocator's memory and agrees with its statistics, and
 * what comes into its file or not. The file itself is shell_snapshot.sh's.
 */

#include "tests/allocator/core/allocator_fixture.h"
#include "allocator/core/core.h"
#include "allocator/base/random.h"
#include "tests/allocator/base/file_fixture.h"
#include "tests/allocator/trace/trace_fixture.h"

#define DEVICE "memory=64MiB,mode=adversarial"

/* ---- of an allocator ---- */

/* Take a snapshot and hold it against the statistics. */
static ashlar_snapshot *take_snapshot(void) {
    ashlar_snapshot *snapshot = NULL;
    CHECK(ashlar_allocator_take_snapshot(allocator, &snapshot) == ASHLAR_OK);
    if (snapshot == NULL) {
        return NULL;
    }
    const ashlar_stats stats = stats_now();
    const char *difference = snapshot_difference(snapshot, &stats);
    CHECK(difference == NULL);
    if (difference != NULL) {
        printf("# statistics and snapshot disagree: %s\n", difference);
    }
    return snapshot;
}

static const ashlar_snapshot_block *block_at(const ashlar_snapshot *snapshot, const void *ptr) {
    static const ashlar_snapshot_block none = {.state = ASHLAR_SNAPSHOT_STATE_COUNT};
    for (size_t i = 0; i < snapshot->block_count; i++) {
        if (snapshot->blocks[i].address == (uintptr_t)ptr) {
            return &snapshot->blocks[i];
        }
    }
    return &none;
}

CASE_WITH(each_block_is_there_in_its_state, set_up(DEVICE)) {
    void *tagged = NULL;
    unsigned char *live = take(1000, streams[0]);
    unsigned char *pending = take(2000, streams[1]);
    REQUIRE(ashlar_alloc_tagged(allocator, 5 * MIB, ASHLAR_TAG_WEIGHTS, streams[2], &tagged) ==
            ASHLAR_OK);
    queue_write(streams[1], pending, 2000, 1);
    give(pending);
    ashlar_snapshot *snapshot = take_snapshot();
    REQUIRE(snapshot != NULL);
    const ashlar_snapshot_block *b = block_at(snapshot, live);
    CHECK(b->state == ASHLAR_SNAPSHOT_LIVE && b->requested_bytes == 1000 && b->bytes == 1024);
    CHECK(b->stream == streams[0] && b->tag == ASHLAR_TAG_USER);
    b = block_at(snapshot, tagged);
    CHECK(b->state == ASHLAR_SNAPSHOT_LIVE && b->bytes == 5 * MIB && b->tag == ASHLAR_TAG_WEIGHTS);
    CHECK(b->stream == streams[2]);
    b = block_at(snapshot, pending);
    CHECK(b->state == ASHLAR_SNAPSHOT_PENDING && b->requested_bytes == 0 &&
          b->stream == streams[1]);
    CHECK(b->tag == ASHLAR_TAG_USER);
    b = &snapshot->blocks[snapshot->block_count - 1]; /* the rest of what was mapped */
    CHECK(b->state == ASHLAR_SNAPSHOT_IDLE && b->stream == NULL && b->requested_bytes == 0);
    CHECK(snapshot->device_ordinal == 0);
    ashlar_snapshot_free(snapshot);
    wait_for(streams[1]);
    give(live);
    give(tagged);
}

/* The first call records the event that the second one finds completed. */
static void trim_all(void) {
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    wait_for(NULL);
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
}

/* What a trim returned is in no segment. */
CASE_WITH(each_run_of_mapped_memory_is_a_segment, set_up(DEVICE)) {
    unsigned char *below = take(2 * MIB, NULL);
    unsigned char *middle = take(4 * MIB, NULL);
    unsigned char *above = take(6 * MIB - 1, NULL);
    give(middle);
    trim_all();
    CHECK_ZU(stats_now().reserved_bytes, 8 * MIB);
    ashlar_snapshot *snapshot = take_snapshot();
    REQUIRE(snapshot != NULL);
    REQUIRE(snapshot->segment_count == 2 && snapshot->block_count == 2);
    CHECK(snapshot->segments[0].address == (uintptr_t)below);
    CHECK_ZU(snapshot->segments[0].bytes, 2 * MIB);
    CHECK(snapshot->segments[1].address == (uintptr_t)above);
    CHECK_ZU(snapshot->segments[1].bytes, 6 * MIB);
    CHECK(block_at(snapshot, middle)->state == ASHLAR_SNAPSHOT_STATE_COUNT);
    CHECK_ZU(block_at(snapshot, above)->requested_bytes, 6 * MIB - 1);
    ashlar_snapshot_free(snapshot);
    give(below); /* and now the lowest one */
    trim_all();
    snapshot = take_snapshot();
    REQUIRE(snapshot != NULL);
    CHECK(snapshot->segment_count == 1 && snapshot->block_count == 1);
    CHECK(snapshot->segments[0].address == (uintptr_t)above);
    ashlar_snapshot_free(snapshot);
    give(above);
}

/* ---- with a trace ---- */

static uint64_t test_clock(void) {
    return UINT64_C(5000000000);
}

/* Of six events the allocator's trace keeps four: three frees without a block, and a live block. */
static bool set_up_with_events(void) {
    static const ashlar_trace_event events[] = {TRACE_FREE(0x200, 512, 1, 0),
                                                TRACE_ALLOC(0x400, 512, 2, 0)};
    if (!set_up_traced(DEVICE, 0, 4)) {
        return false;
    }
    ashlar_trace *const ring = allocator->client.trace;
    ring->now_ns = test_clock;
    for (int i = 0; i < 5; i++) {
        ashlar__trace_put(ring, &events[0]);
    }
    ashlar__trace_put(ring, &events[1]);
    return true;
}

CASE_WITH(a_trace_is_written_as_a_log_of_rmm, set_up_with_events()) {
    unsigned char bytes[FILE_MAX_BYTES] = {0};
    uint64_t missing = 0;
    CHECK(ashlar_allocator_write_trace(allocator, path, &missing) == ASHLAR_OK);
    CHECK(read_bytes(bytes) > 0);
    CHECK_HAS((const char *)bytes, "Stream\n0,00:00:05.000000,allocate,0x400,2,0x0\n");
    CHECK_ZU(missing, 2 + 3); /* two are overwritten, three of those left have no ALLOC */
}

CASE_WITH(without_a_trace_nothing_is_written, set_up(DEVICE)) {
    uint64_t missing = 77;
    write_bytes("old", 3);
    CHECK_FAILS(ashlar_allocator_write_trace(allocator, path, &missing), ASHLAR_EINVAL, "trace=N");
    unsigned char bytes[FILE_MAX_BYTES];
    CHECK(read_bytes(bytes) == 3 && missing == 77);
}

CASE_WITH(a_path_that_cannot_be_written_is_one_clear_line, set_up_with_events()) {
    CHECK_FAILS(ashlar_allocator_write_snapshot(allocator, "/nowhere/at/all"), ASHLAR_EIO,
                "/nowhere/at/all");
    CHECK(strchr(ashlar_error_detail(), '\n') == NULL);
    CHECK_FAILS(ashlar_allocator_write_trace(allocator, folder, NULL), ASHLAR_EINVAL,
                "not a regular file");
}

/* ---- without host memory ---- */

typedef ashlar_status (*attempt)(void);

static ashlar_status try_take(void) {
    ashlar_snapshot *snapshot = NULL;
    const ashlar_status status = ashlar_allocator_take_snapshot(allocator, &snapshot);
    CHECK((status == ASHLAR_OK) == (snapshot != NULL));
    ashlar_snapshot_free(snapshot);
    return status;
}

static ashlar_status try_write_snapshot(void) {
    return ashlar_allocator_write_snapshot(allocator, path);
}

static ashlar_status try_write_trace(void) {
    return ashlar_allocator_write_trace(allocator, path, NULL);
}

CASE(no_host_memory_at_any_call_leaves_the_old_file) {
    static const struct {
        attempt act;
        unsigned long calls;
    } attempts[] = {
        {try_take, 3}, {try_write_snapshot, 1 + 3 + 5 + 1}, {try_write_trace, 1 + 2 + 1}};
    REQUIRE(set_up_with_events());
    unsigned char *live = take(1000, streams[0]);
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++) {
        unsigned long n = 0;
        ashlar_status status = ASHLAR_EHOSTMEM;
        while (status == ASHLAR_EHOSTMEM && n < 100) {
            unsigned char bytes[FILE_MAX_BYTES];
            write_bytes("old", 3);
            HOST_FAILS_AT(++n, status = attempts[i].act());
            CHECK(status == ASHLAR_OK || ashlar_error_detail()[0] != '\0');
            CHECK(status == ASHLAR_OK || read_bytes(bytes) == 3);
            CHECK(names_in_folder() == 1);
            CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK); /* takes the lock */
        }
        CHECK(status == ASHLAR_OK);
        CHECK_ZU(n, attempts[i].calls + 1);
    }
    give(live);
}

RUN_CASES_IN_FOLDER()
