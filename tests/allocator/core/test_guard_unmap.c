/*
 * test_guard_unmap.c - guard=unmap: pages of one block alone, unmapped once its last use is over
 * and not before; late accesses fault; addresses come back late; the quarantine is bounded.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/guard_fixture.h"
#include "allocator/base/random.h"

#include <ashlar/trace.h>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE (2 * MIB)
#define EAGER "memory=16MiB"
#define LATE "memory=16MiB,mode=adversarial,seed=11"

/* Whether touching the byte ends a process. A child's memory is this one's, mapped the same way. */
static bool faults(volatile unsigned char *at) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        (void)freopen("/dev/null", "w", stderr); /* a sanitizer's report of what is meant to be */
        *at = *at;
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

CASE_WITH(a_freed_block_faults_and_a_live_one_does_not, set_up_guarded(EAGER, ASHLAR_GUARD_UNMAP)) {
    unsigned char *low = take(1000, streams[0]), *ptr = take(1000, streams[0]);
    CHECK(!faults(ptr) && !faults(ptr + 999));
    give(ptr);
    CHECK(faults(ptr) && faults(ptr + 999));
    CHECK(!faults(low));
    CHECK(ashlar_fill(device, ptr, 0, 1000, streams[0]) == ASHLAR_EDRIVER);
    give(low);
}

CASE_WITH(an_access_behind_the_end_faults, set_up_guarded(EAGER, ASHLAR_GUARD_UNMAP)) {
    static const size_t sizes[] = {1, 512, 513, PAGE - 1, PAGE, PAGE + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *ptr = take(sizes[i], streams[0]);
        const size_t end = (sizes[i] + 511) / 512 * 512;
        CHECK_ZU((uintptr_t)ptr % 512, 0);
        CHECK(!faults(ptr + end - 1) && faults(ptr + end) && faults(ptr + end + PAGE - 1));
    }
}

CASE_WITH(queued_work_may_still_use_a_freed_block, set_up_guarded(LATE, ASHLAR_GUARD_UNMAP)) {
    atomic_store(&payload_bad_count, 0);
    unsigned char *ptr = take(1000, streams[0]), *other = take(1, streams[1]);
    queue_write(streams[0], ptr, 1000, 0x21);
    queue_verify(streams[0], ptr, 1000, 0x21);
    give(ptr);
    CHECK_ZU(stats_now().reserved_bytes, 2 * PAGE);
    wait_for(streams[0]);
    CHECK(atomic_load(&payload_bad_count) == 0);
    CHECK_ZU(stats_now().reserved_bytes, 2 * PAGE); /* only asked for at later calls */
    for (int i = 0; i < 2 && stats_now().reserved_bytes != PAGE; i++) {
        give(take(1, streams[1]));
        wait_for(streams[1]);
    }
    CHECK(faults(ptr));
    give(other);
}

CASE(the_last_use_is_that_of_the_stream_named_at_the_free) {
    REQUIRE(set_up_guarded(LATE, ASHLAR_GUARD_UNMAP));
    atomic_store(&payload_bad_count, 0);
    unsigned char *ptr = take(1000, streams[0]);
    wait_for(streams[0]);
    queue_write(streams[1], ptr, 1000, 0x21);
    queue_verify(streams[1], ptr, 1000, 0x22);
    give_on(ptr, streams[1]);
    wait_for(streams[0]);
    CHECK_ZU(stats_now().reserved_bytes, PAGE);
    wait_for(streams[1]);
    CHECK(atomic_load(&payload_bad_count) == 1);
}

CASE_WITH(a_block_outlives_its_stream, set_up_guarded(LATE, ASHLAR_GUARD_UNMAP)) {
    ashlar_stream doomed = NULL;
    CHECK(ashlar_stream_create(device, &doomed) == ASHLAR_OK);
    unsigned char *ptr = take(5000, doomed);
    queue_write(doomed, ptr, 5000, 1);
    ashlar_stream_destroy(device, doomed);
    for (int i = 0; i < 40; i++) { /* so many that records of ended streams are deleted */
        CHECK(ashlar_stream_create(device, &doomed) == ASHLAR_OK);
        give(take(100, doomed));
        ashlar_stream_destroy(device, doomed);
    }
    give(ptr); /* under the work of a stream that is no more */
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    wait_for(NULL);
    give(take(100, streams[0]));
    CHECK(faults(ptr));
}

CASE_WITH(work_that_comes_too_late_is_the_devices_error,
          set_up_guarded(LATE "," STRICT_NOT_HERE, ASHLAR_GUARD_UNMAP)) {
    unsigned char *ptr = take(1000, streams[0]);
    CHECK(ashlar_fill(device, ptr, 1, 1000, streams[1]) == ASHLAR_OK); /* on no proven order */
    give(ptr);
    wait_for(streams[0]);
    give(take(1, streams[0])); /* by now the pages are gone */
    CHECK_FAILS(ashlar_stream_synchronize(device, streams[1]), ASHLAR_EDRIVER,
                "CUDA_ERROR_ILLEGAL_ADDRESS");
    ashlar_allocator_destroy(allocator);
    ashlar_device_close(device);
    check_forget(tear_down_device);
}

CASE(addresses_are_used_again_after_the_whole_range_only) {
    enum { LAP = 16 * 16 / 4, LAPS = 3 }; /* MiB reserved, over a block's page and the one behind */
    unsigned char *seen[LAP * LAPS];
    REQUIRE(set_up_guarded(EAGER, ASHLAR_GUARD_UNMAP));
    unsigned char *live = take(1, streams[0]);
    for (int i = 0; i < LAP * LAPS; i++) {
        seen[i] = take(1, streams[0]);
        size_t age = 1;
        while (i >= (int)age && seen[i - (int)age] != seen[i]) {
            age++;
        }
        CHECK(i < (int)age || age >= LAP - 1);
        CHECK(i < LAP || i >= (int)age); /* it does come back */
        CHECK(seen[i] != live);
        give(seen[i]);
    }
    give(live);
}

CASE(blocks_of_any_size_never_overlap) {
    enum { SLOTS = 6 };
    unsigned char *slots[SLOTS] = {NULL};
    size_t bytes[SLOTS] = {0};
    uint64_t random = 3;
    REQUIRE(set_up_guarded("memory=32MiB", ASHLAR_GUARD_UNMAP));
    for (int op = 0; op < CHECK_SHARE(2000, 500); op++) {
        const size_t i = (size_t)ashlar__random_step_below(&random, SLOTS);
        if (slots[i] != NULL) {
            for (size_t at = 0; at < bytes[i]; at += 4096) {
                CHECK(slots[i][at] == (unsigned char)i);
            }
            CHECK(ashlar_free(allocator, slots[i]) == ASHLAR_OK);
            slots[i] = NULL;
            continue;
        }
        void *ptr = NULL;
        bytes[i] = 1 + (size_t)(random >> 40) % (7 * MIB);
        allocator->guards.unmap->next_offset *= op % 3 == 0; /* as after a lap: into the holes */
        if (ashlar_alloc(allocator, bytes[i], streams[i % STREAMS], &ptr) == ASHLAR_OK) {
            slots[i] = ptr;
            for (size_t at = 0; at < bytes[i]; at += 4096) {
                slots[i][at] = (unsigned char)i;
            }
        }
        CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    }
}

CASE_WITH(the_quarantine_is_bounded_in_bytes, set_up_guarded(LATE, ASHLAR_GUARD_UNMAP)) {
    unsigned char *blocks[4];
    for (int i = 0; i < 4; i++) {
        blocks[i] = take(1, streams[i]);
        queue_write(streams[i], blocks[i], 1, 1);
    }
    const size_t waits = CALLS(event_synchronize);
    allocator->device->info.total_bytes *= 4; /* now the bound is 16 MiB */
    for (int i = 0; i < 4; i++) {
        CHECK(ashlar_free(allocator, blocks[i]) == ASHLAR_OK);
    }
    CHECK(CALLS(event_synchronize) == waits); /* the free never waits */
    unsigned char *more = take(1, streams[0]);
    CHECK(CALLS(event_synchronize) == waits);
    allocator->device->info.total_bytes /= 4; /* and 4 MiB again */
    unsigned char *last = take(1, streams[0]);
    CHECK(stats_now().reserved_bytes <= 4 * MIB + 2 * PAGE);
    give(more);
    give(last);
}

static cu_result never_ready(cu_event event) {
    (void)event;
    return CU_NOT_READY;
}

CASE(the_quarantine_is_bounded_in_blocks) {
    enum { BLOCKS = ASHLAR_UNMAP_QUARANTINE_BLOCKS + 2 };
    static void *blocks[BLOCKS];
    void *out = NULL;
    REQUIRE(set_up_guarded("memory=4GiB", ASHLAR_GUARD_UNMAP));
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(ashlar_alloc(allocator, 1, streams[0], &blocks[i]) == ASHLAR_OK);
    }
    cu_result (*const query)(cu_event) = driver->table.event_query;
    driver->table.event_query = never_ready;
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(ashlar_free(allocator, blocks[i]) == ASHLAR_OK);
    }
    CHECK_ZU(allocator->guards.unmap->quarantine_count, BLOCKS);
    CHECK(ashlar_alloc(allocator, 1, streams[1], &out) == ASHLAR_OK);
    CHECK_ZU(allocator->guards.unmap->quarantine_count, ASHLAR_UNMAP_QUARANTINE_BLOCKS);
    driver->table.event_query = query;
}

CASE_WITH(memory_that_is_out_is_waited_for, set_up_guarded(LATE, ASHLAR_GUARD_UNMAP)) {
    unsigned char *blocks[8];
    void *out = NULL;
    for (int i = 0; i < 8; i++) {
        blocks[i] = take(PAGE - 100, streams[i % STREAMS]);
        queue_write(streams[i % STREAMS], blocks[i], 100, 1);
    }
    CHECK_FAILS(ashlar_alloc(allocator, 1, streams[0], &out), ASHLAR_ENOMEM,
                "16776416 live in 8 blocks");
    CHECK_HAS(ashlar_error_detail(), "16777216 reserved of the device's 16777216");
    CHECK_HAS(ashlar_error_detail(), "cuMemCreate");
    CHECK(ashlar_alloc(allocator, SIZE_MAX, streams[0], &out) == ASHLAR_ENOMEM);
    const size_t waits = CALLS(event_synchronize);
    for (int i = 0; i < 2; i++) {
        give(blocks[i]);
    }
    blocks[0] = take(2 * PAGE, streams[3]);
    CHECK(CALLS(event_synchronize) > waits || stats_now().reserved_bytes == 16 * MIB);
    for (int i = 2; i < 8; i++) {
        give(blocks[i]);
    }
    give(blocks[0]);
    give(take(16 * MIB, streams[0])); /* the whole device can be had */
}

CASE_WITH(a_wrong_pointer_is_told_from_a_freed_one, set_up_guarded(EAGER, ASHLAR_GUARD_UNMAP)) {
    static unsigned char elsewhere[16];
    unsigned char *ptr = take(1000, streams[0]);
    CHECK_FAILS(ashlar_free(allocator, elsewhere), ASHLAR_EPOINTER,
                "not a block of this allocator");
    CHECK_FAILS(ashlar_free(allocator, ptr + 512), ASHLAR_EPOINTER, ": 512 bytes inside a block");
    CHECK_FAILS(ashlar_free(allocator, ptr - 512), ASHLAR_EPOINTER,
                "not a block of this allocator");
    CHECK(ashlar_free(allocator, ptr + 1024) == ASHLAR_EPOINTER); /* the page behind */
    CHECK_HAS(ashlar_error_detail(), "not a block of this allocator");
    size_t bytes = 7;
    CHECK(ashlar_allocator_usable_bytes(allocator, ptr + 1, &bytes) == ASHLAR_EPOINTER &&
          bytes == 7);
    CHECK(ashlar_allocator_usable_bytes(allocator, ptr, &bytes) == ASHLAR_OK);
    CHECK_ZU(bytes, 1000);
    CHECK(stats_now().live_blocks == 1);
    give(ptr);
    CHECK_FAILS(ashlar_free(allocator, ptr), ASHLAR_EPOINTER, "freed before; this free: thread ");
    CHECK_HAS(ashlar_error_detail(), "; the one before: thread ");
}

CASE_WITH(a_block_in_quarantine_is_known_as_freed, set_up_guarded(LATE, ASHLAR_GUARD_UNMAP)) {
    unsigned char *ptr = take(1000, streams[0]);
    queue_write(streams[0], ptr, 1000, 1);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_query, 1, CU_NOT_READY);
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
    CHECK_ZU(allocator->guards.unmap->quarantine_count, 1);
    CHECK_FAILS(ashlar_free(allocator, ptr), ASHLAR_EPOINTER, ": freed before; this free");
}

CASE_WITH(statistics_are_the_sum_over_the_snapshot, set_up_guarded(LATE, ASHLAR_GUARD_UNMAP)) {
    unsigned char *a = take(1000, streams[0]), *b = take(3 * MIB, streams[1]);
    queue_write(streams[0], a, 1, 1);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_query, 1, CU_NOT_READY);
    CHECK(ashlar_free(allocator, a) == ASHLAR_OK);
    const ashlar_stats s = stats_now();
    CHECK_ZU(s.live_bytes, 3 * MIB);
    CHECK_ZU(s.block_bytes, 2 * PAGE);
    CHECK_ZU(s.reserved_bytes, 3 * PAGE);
    CHECK_ZU(s.reserved_peak_bytes, 3 * PAGE);
    CHECK(s.cached_bytes == 0 && s.served_mapped == 2 && s.served_cached == 0);
    ashlar_snapshot *snapshot = NULL;
    REQUIRE(ashlar_allocator_take_snapshot(allocator, &snapshot) == ASHLAR_OK);
    CHECK(snapshot->segment_count == 2 && snapshot->block_count == 2);
    uint64_t live = 0, reserved = 0, blocks = 0;
    for (size_t i = 0; i < snapshot->block_count; i++) {
        live += snapshot->blocks[i].requested_bytes;
        reserved += snapshot->segments[i].bytes;
        blocks += snapshot->blocks[i].state == ASHLAR_SNAPSHOT_LIVE ? snapshot->blocks[i].bytes : 0;
    }
    CHECK(live == s.live_bytes && reserved == s.reserved_bytes && blocks == s.block_bytes);
    ashlar_snapshot_free(snapshot);
    CHECK(ashlar_allocator_write_snapshot(allocator, "/dev/full") != ASHLAR_OK);
    give(b);
}

CASE_WITH(the_walker_knows_the_pages, set_up_guarded(EAGER, ASHLAR_GUARD_UNMAP)) {
    unsigned char *a = take(1, streams[0]), *b = take(1, streams[0]);
    ashlar_guard_unmap *unmap = allocator->guards.unmap;
    size_t *const counts[] = {&unmap->mapped_bytes,      &unmap->live_bytes,
                              &unmap->quarantine_count,  &unmap->kept_bytes,
                              &unmap->blocks[1]->offset, &unmap->blocks[0]->bytes};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        *counts[i] -= i == 2 ? (size_t)-1 : 1;
        CHECK(ashlar_allocator_check(allocator) == ASHLAR_EFORMAT);
        *counts[i] += i == 2 ? (size_t)-1 : 1;
        CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    }
    unmap->blocks[0]->is_live = false;
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "guard check");
    unmap->blocks[0]->is_live = true;
    unmap->blocks[0]->is_kept = true;
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "out of order");
    unmap->blocks[0]->is_kept = false;
    unmap->newest = unmap->blocks[0];
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "guard check");
    unmap->newest = NULL;
    unmap->oldest = unmap->blocks[0]; /* a queue of one, which is not counted */
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "guard check");
    unmap->oldest = NULL;
    const size_t capacity = unmap->capacity;
    unmap->capacity = 1;
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "guard check");
    unmap->capacity = capacity;
    unmap->blocks[0]->requested++;
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_EFORMAT);
    unmap->blocks[0]->requested--;
    give(a);
    give(b);
}

/* Broken as a whole, so that each sum alone is right. */
CASE_WITH(the_walker_compares_the_sums_of_pages, set_up_guarded(LATE, ASHLAR_GUARD_UNMAP)) {
    unsigned char *a = take(1, streams[0]), *b = take(1, streams[0]);
    ashlar_guard_unmap *unmap = allocator->guards.unmap;
    ashlar_guarded_block *low = unmap->blocks[0];
    give(a); /* in quarantine from now on */
    REQUIRE(unmap->quarantine_count == 1 && unmap->oldest == low && unmap->newest == low);
    unmap->newest = NULL;
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "guard check");
    unmap->newest = low;
    unmap->quarantine_count = 3; /* more than there are */
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "guard check");
    unmap->quarantine_count = 1;
    low->newer = unmap->blocks[1]; /* a live one in the queue */
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "guard check");
    low->newer = NULL;
    unmap->kept_bytes++; /* what agrees with itself, but not with the blocks */
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "counted as");
    unmap->kept_bytes--;
    unmap->live_bytes--;
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "counted as");
    unmap->live_bytes++;
    unmap->mapped_bytes++;
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "counted as");
    unmap->mapped_bytes--;
    unmap->quarantine_count++;
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "counted as");
    unmap->quarantine_count--;
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    give(b);
}

/* 16 times the device's memory is reserved, less where the driver has no such range. */
CASE(fewer_addresses_do_where_they_are_scarce) {
    REQUIRE(set_up_device(EAGER));
    driver = device->driver;
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_mem_address_reserve, 2, CU_OUT_OF_MEMORY);
    CHECK(make_guarded(ASHLAR_GUARD_UNMAP, false) == ASHLAR_OK);
    ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);
    CHECK_ZU(allocator->guards.unmap->range_bytes, 8 * 16 * MIB);
    CHECK(check_at_end(tear_down));
    give(take(PAGE, streams[0]));
}

CASE_WITH(a_range_without_room_for_a_block_is_refused_until_there_is_some,
          set_up_guarded(EAGER, ASHLAR_GUARD_UNMAP)) {
    ashlar_guard_unmap *unmap = allocator->guards.unmap;
    const size_t range_bytes = unmap->range_bytes;
    void *ptr = NULL;
    unmap->range_bytes = 4 * PAGE; /* as if the driver had given no more */
    unsigned char *low = take(PAGE, streams[0]);
    CHECK_FAILS(ashlar_alloc(allocator, 2 * PAGE, streams[0], &ptr), ASHLAR_ENOMEM,
                "no addresses left for 4194304 bytes in a range of 8388608");
    unsigned char *high = take(PAGE, streams[0]);
    CHECK(high == low + 2 * PAGE);
    CHECK_FAILS(ashlar_alloc(allocator, 1, streams[0], &ptr), ASHLAR_ENOMEM, "no addresses left");
    give(low);
    CHECK(take(PAGE, streams[0]) == low); /* behind the end comes the beginning */
    give(high);
    unmap->range_bytes = range_bytes;
}

/* Pages that cannot be unmapped at the end keep their addresses. */
CASE(addresses_of_pages_that_stay_mapped_are_not_given_back) {
    REQUIRE(set_up_device(EAGER));
    driver = device->driver;
    for (int kept = 1; kept >= 0; kept--) {
        CHECK(make_guarded(ASHLAR_GUARD_UNMAP, false) == ASHLAR_OK);
        CHECK(take(1, streams[0]) != NULL && take(1, streams[0]) != NULL);
        const uint64_t freed = atomic_load(&driver->calls[ASHLAR_DRIVER_FN_mem_address_free]);
        const cu_ptr first =
            allocator->guards.unmap->base + allocator->guards.unmap->blocks[0]->offset;
        if (kept != 0) {
            ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_mem_unmap, 1, CU_UNKNOWN);
        }
        ashlar_allocator_destroy(allocator);
        CHECK(kept == 0 || driver->table.mem_unmap(first, PAGE) == CU_SUCCESS);
        const uint64_t now = atomic_load(&driver->calls[ASHLAR_DRIVER_FN_mem_address_free]);
        CHECK_ZU(now - freed, kept != 0 ? 1 : 2); /* the heap's, and the guard's */
    }
}

static void *take_and_give(void *stream) {
    for (int i = 0; i < 150; i++) {
        void *ptr = NULL;
        if (ashlar_alloc(allocator, PAGE + 1, stream, &ptr) == ASHLAR_OK) {
            memset(ptr, i, 100);
            const payload p = {ptr, 100, (unsigned char)i};
            if (ashlar_launch(device, stream, payload_verify, &p, sizeof p) != ASHLAR_OK ||
                ashlar_free(allocator, ptr) != ASHLAR_OK) {
                return stream;
            }
        } else {
            return stream; /* three threads have 12 of 16 MiB at most: the fourth waits for them */
        }
    }
    return NULL;
}

CASE_WITH(threads_wait_for_each_others_memory, set_up_guarded(LATE, ASHLAR_GUARD_UNMAP)) {
    pthread_t threads[3];
    atomic_store(&payload_bad_count, 0);
    for (int i = 0; i < 3; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, take_and_give, streams[i]) == 0);
    }
    for (int i = 0; i < 3; i++) {
        void *failed = streams[0];
        CHECK(pthread_join(threads[i], &failed) == 0 && failed == NULL);
        wait_for(streams[i]);
    }
    CHECK(atomic_load(&payload_bad_count) == 0);
    CHECK(stats_now().alloc_count == 450 && stats_now().live_blocks == 0);
}

RUN_CASES()
