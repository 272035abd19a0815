/*
 * test_guard.c - guard=fill: what is written outside live blocks is found and told, once, and
 * nothing else is; no host wait; the quarantine and its bounds.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/guard_fixture.h"

#include <ashlar/allocator.h>

#include <unistd.h>

#define EAGER "memory=16MiB"
#define LATE "memory=16MiB,mode=adversarial,seed=11"

static void expect_damage(ashlar_status status, const char *part) {
    CHECK_FAILS(status, ASHLAR_EDAMAGE, part);
    CHECK(report_count > 0 && strcmp(reports[report_count - 1], ashlar_error_detail()) == 0);
}

/* Free so many blocks that every older one leaves the quarantine. */
static ashlar_status push_out_quarantine(void) {
    ashlar_status status = ASHLAR_OK;
    for (int i = 0; i < ASHLAR_QUARANTINE_BLOCKS; i++) {
        void *ptr = NULL;
        CHECK(ashlar_alloc(allocator, 1, streams[3], &ptr) == ASHLAR_OK);
        const ashlar_status freed = ashlar_free(allocator, ptr);
        status = freed != ASHLAR_OK ? freed : status;
    }
    return status;
}

CASE_WITH(a_write_behind_the_end_is_told_with_its_place, set_up_guarded(EAGER, ASHLAR_GUARD_FILL)) {
    static const size_t offsets[] = {0, 1, 511, 535};
    char text[256];
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        void *ptr = NULL;
        CHECK(ashlar_alloc_tagged(allocator, 1000, ASHLAR_TAG_BATCH, streams[2], &ptr) ==
              ASHLAR_OK);
        poke(streams[2], (unsigned char *)ptr + 1000 + offsets[i], 0);
        (void)snprintf(text, sizeof text,
                       "%p: written to behind its end, first at offset %zu; a block of 1000 bytes "
                       "(batch, stream %p)",
                       ptr, 1000 + offsets[i], (void *)streams[2]);
        expect_damage(ashlar_free(allocator, ptr), text);
        CHECK(stats_now().live_blocks == 0);                   /* it is freed all the same */
        CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK); /* told once */
    }
    CHECK(report_count == 4);
    tear_down();
    CHECK(report_count == 4);
}

CASE_WITH(the_host_never_waits, set_up_guarded(LATE, ASHLAR_GUARD_FILL)) {
    const size_t waits =
        CALLS(stream_synchronize) + CALLS(ctx_synchronize) + CALLS(event_synchronize);
    unsigned char *ptr = take(600, streams[0]);
    queue_write(streams[0], ptr, 600, 0x22);
    queue_verify(streams[0], ptr, 600, 0x33);
    atomic_store(&payload_bad_count, 0);
    give(ptr);
    CHECK(atomic_load(&payload_bad_count) == 0); /* its work has not even run yet */
    CHECK(push_out_quarantine() == ASHLAR_OK);
    CHECK(CALLS(stream_synchronize) + CALLS(ctx_synchronize) + CALLS(event_synchronize) == waits);
    wait_for(streams[0]);
    CHECK(atomic_load(&payload_bad_count) == 1);
}

CASE(a_write_after_the_free_is_told_with_the_place_of_the_free) {
    char text[256];
    REQUIRE(set_up_guarded(EAGER, ASHLAR_GUARD_FILL));
    void *ptr = NULL;
    CHECK(ashlar_alloc_tagged(allocator, 600, ASHLAR_TAG_WORKSPACE, streams[0], &ptr) == ASHLAR_OK);
    give(ptr);
    poke(streams[0], (unsigned char *)ptr + 100, 0);
    (void)snprintf(text, sizeof text,
                   "%p: written to after it was freed, first at offset 100; a block of 600 bytes "
                   "(workspace, stream %p), freed by thread ",
                   ptr, (void *)streams[0]);
    expect_damage(push_out_quarantine(), text);
    CHECK_HAS(ashlar_error_detail(), "in test_guard+0x");
    CHECK(report_count == 1);
}

/* The red zone's bytes too, and pieces behind the first. */
CASE(every_byte_of_freed_memory_is_compared) {
    static const size_t offsets[] = {0, 299999, 300000, 300543, 262143, 262144};
    REQUIRE(set_up_guarded("memory=64MiB", ASHLAR_GUARD_FILL));
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        char text[64];
        unsigned char *ptr = take(300000, streams[0]);
        give(ptr);
        poke(streams[0], ptr + offsets[i], 0);
        (void)snprintf(text, sizeof text, "freed, first at offset %zu;", offsets[i]);
        expect_damage(push_out_quarantine(), text);
    }
    unsigned char *ptr = take(300000, streams[0]);
    give(ptr);
    poke(streams[0], ptr + 1000, 0); /* in both pieces: the first is told, once */
    poke(streams[0], ptr + 290000, 0);
    expect_damage(push_out_quarantine(), "first at offset 1000;");
    CHECK(report_count == 7);
}

CASE_WITH(the_quarantine_is_bounded_in_blocks_and_bytes, set_up_guarded(EAGER, ASHLAR_GUARD_FILL)) {
    unsigned char *blocks[ASHLAR_QUARANTINE_BLOCKS + 1];
    for (int i = 0; i <= ASHLAR_QUARANTINE_BLOCKS; i++) {
        blocks[i] = take(512, streams[0]);
    }
    for (int i = 0; i <= ASHLAR_QUARANTINE_BLOCKS; i++) {
        give(blocks[i]);
    }
    CHECK_ZU(stats_now().cached_bytes, ASHLAR_QUARANTINE_BLOCKS * 1024);
    CHECK(take(512, streams[0]) == blocks[0]); /* the only one that may be used again */
    for (int i = 0; i < 3; i++) {
        blocks[i] = take(MIB / 2 - 512, streams[0]);
    }
    for (int i = 0; i < 3; i++) {
        give(blocks[i]);
    }
    CHECK_ZU(stats_now().cached_bytes, MIB); /* 1/16 of the device */
    give(take(2 * MIB, streams[0]));
    CHECK_ZU(stats_now().cached_bytes, MIB); /* too large to be kept, and none left for it */
}

CASE(the_end_compares_live_blocks_and_the_quarantine) {
    REQUIRE(set_up_guarded(LATE, ASHLAR_GUARD_FILL));
    unsigned char *live = take(600, streams[0]), *freed = take(700, streams[1]);
    poke(streams[0], live + 611, 0);
    give(freed);
    poke(streams[1], freed + 7, 0);
    ashlar_allocator_destroy(allocator);
    CHECK(report_count == 2);
    const bool live_first = strstr(reports[0], "behind its end") != NULL;
    CHECK_HAS(reports[!live_first], "behind its end, first at offset 611;");
    CHECK_HAS(reports[live_first], "after it was freed, first at offset 7;");
    tear_down_device();
}

CASE(without_a_callback_findings_are_returned_all_the_same) {
    REQUIRE(set_up_guarded(EAGER, ASHLAR_GUARD_FILL));
    ashlar_allocator_set_report(allocator, NULL, NULL);
    unsigned char *ptr = take(600, streams[0]);
    poke(streams[0], ptr + 600, 0);
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_EDAMAGE);
    CHECK(report_count == 0);
}

CASE_WITH(the_walker_knows_the_quarantine, set_up_guarded(EAGER, ASHLAR_GUARD_FILL)) {
    give(take(600, streams[0]));
    unsigned char *live = take(600, streams[0]);
    CHECK(take(600, streams[0]) != NULL);
    size_t *const fields[] = {&allocator->guard_fill->bytes, &allocator->guard_fill->limit_bytes};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const size_t right = *fields[i];
        *fields[i] = i; /* no bytes in quarantine, and one allowed */
        CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "in quarantine, at most");
        *fields[i] = right;
    }
    ashlar_guard_fill *fill = allocator->guard_fill;
    const size_t first = fill->first, count = fill->count;
    fill->first = ASHLAR_QUARANTINE_BLOCKS;
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "in quarantine, at most");
    fill->first = first;
    for (size_t wrong = 0; wrong <= ASHLAR_QUARANTINE_BLOCKS + 1;
         wrong += ASHLAR_QUARANTINE_BLOCKS + 1) {
        fill->count = wrong;
        CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "in quarantine, at most");
        fill->count = count;
    }
    fill->bytes += 512;
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "in quarantine, counted");
    fill->bytes -= 512;
    ashlar_block *freed = fill->quarantine[0].block;
    freed->state = ASHLAR_BLOCK_PLAN_MEMORY;
    CHECK(ashlar__guard_fill_check_locked(fill) == ASHLAR_EFORMAT);
    freed->state = ASHLAR_BLOCK_USED;
    allocator->guard_fill->quarantine[0].block = freed->next;
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT,
                "a block in quarantine is in use");
    allocator->guard_fill->quarantine[0].block = freed;
    give(live);
}

CASE(a_place_is_written_as_far_as_it_is_known) {
    char text[ASHLAR_CALL_SITE_BYTES];
    ashlar__call_site_write((ashlar_call_site){(const void *)(uintptr_t)16, 7}, text);
    CHECK(strcmp(text, "thread 7 at 0x10") == 0);
    void *in_library = NULL;
    pid_t (*const function)(void) = getppid; /* exported by its library, in every build */
    memcpy(&in_library, &function, sizeof in_library);
    ashlar__call_site_write((ashlar_call_site){in_library, 8}, text);
    CHECK_HAS(text, "thread 8 at 0x");
    CHECK_HAS(text, "+0x");
    CHECK_HAS(text, "+0x0)");
    CHECK(strchr(text, '/') == NULL); /* of the file, its name alone */
}

/* ---- with streams that are lost, captures, watched streams ---- */

/* Its last work has no event, so nothing can come behind it. */
CASE_WITH(a_block_marked_for_a_stream_without_a_last_event_can_be_freed,
          set_up_guarded(LATE, ASHLAR_GUARD_FILL)) {
    ashlar_stream doomed = NULL;
    CHECK(ashlar_stream_create(device, &doomed) == ASHLAR_OK);
    unsigned char *ptr = take(3000, streams[0]);
    CHECK(ashlar_record_stream(allocator, ptr, doomed) == ASHLAR_OK);
    queue_write(doomed, ptr, 3000, 0x21);
    DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_event_record, 1, CU_UNKNOWN,
                    ashlar_stream_destroy(device, doomed));
    give(ptr);
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_EPOINTER);
    CHECK(stats_now().live_blocks == 0);
    for (int i = 0; i < 100; i++) {
        give(take(5000, streams[i % STREAMS]));
    }
    tear_down();
    CHECK(report_count == 0);
}

RUN_CASES()
