/*
 * test_guard_fill.c - guard=fill: what is written outside live blocks is found and told, once, and
 * nothing else is; no host wait; the quarantine and its bounds.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/guard_fixture.h"

#include <unistd.h>

#include "allocator/base/random.h"

#define EAGER "memory=16MiB"
#define LATE "memory=16MiB,mode=adversarial,seed=11"

static void expect_damage(ashlar_status status, const char *part) {
    CHECK_FAILS(status, ASHLAR_EDAMAGE, part);
    CHECK(report_count > 0 && strcmp(reports[report_count - 1], ashlar_error_detail()) == 0);
}

static void run_all(void) {
    for (int i = 0; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
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

CASE_WITH(what_stays_inside_its_block_is_not_reported, set_up_guarded(EAGER, ASHLAR_GUARD_FILL)) {
    static const size_t sizes[] = {1, 511, 512, 513, 4096, 5000, 300000, 2 * MIB};
    for (int round = 0; round < 40; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            unsigned char *ptr = take(sizes[i], streams[i % STREAMS]);
            queue_write(streams[i % STREAMS], ptr, sizes[i], 0x11);
            give(ptr);
        }
    }
    CHECK(stats_now().served_cached == 0);
    tear_down();
    CHECK(report_count == 0);
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

CASE_WITH(blocks_outlive_their_stream, set_up_guarded(LATE, ASHLAR_GUARD_FILL)) {
    ashlar_stream doomed = NULL;
    CHECK(ashlar_stream_create(device, &doomed) == ASHLAR_OK);
    unsigned char *live = take(600, doomed), *last = take(700, doomed), *freed = take(800, doomed);
    queue_write(doomed, live, 600, 1);
    give(freed);
    poke(doomed, freed + 5, 0);
    poke(doomed, live + 600, 0);
    ashlar_stream_destroy(device, doomed);
    give(live); /* by the default stream, behind the work of a stream that is no more */
    wait_for(NULL);
    expect_damage(ashlar_allocator_check(allocator), "a block of 800 bytes");
    expect_damage(ashlar_allocator_check(allocator), "first at offset 600;");
    poke(NULL, last + 701, 0);
    wait_for(NULL);
    tear_down();
    CHECK(report_count == 3 && strstr(reports[2], "first at offset 701;") != NULL);
}

CASE_WITH(of_several_damaged_bytes_the_first_is_told, set_up_guarded(EAGER, ASHLAR_GUARD_FILL)) {
    unsigned char *ptr = take(600, streams[0]);
    poke(streams[0], ptr + 900, 0);
    poke(streams[0], ptr + 700, 0);
    expect_damage(ashlar_free(allocator, ptr), "first at offset 700;");
    CHECK(report_count == 1);
}

CASE_WITH(damage_is_told_when_the_streams_work_has_run, set_up_guarded(LATE, ASHLAR_GUARD_FILL)) {
    unsigned char *one = take(600, streams[0]), *two = take(700, streams[1]);
    unsigned char *three = take(1, streams[2]);
    poke(streams[0], one + 600, 0);
    poke(streams[1], two + 701, 0);
    give(one);
    give(two);
    wait_for(streams[1]);
    expect_damage(ashlar_allocator_check(allocator), "first at offset 701;");
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    wait_for(streams[0]);
    expect_damage(ashlar_free(allocator, three), "first at offset 600;");
    expect_damage(ASHLAR_EDAMAGE, "a block of 600 bytes");
    CHECK(report_count == 2);
}

CASE(several_findings_are_told_one_by_one_in_their_order) {
    unsigned char *blocks[3], *other;
    REQUIRE(set_up_guarded(LATE, ASHLAR_GUARD_FILL));
    other = take(1, streams[1]);
    for (size_t i = 0; i < 3; i++) {
        blocks[i] = take(100 + i, streams[0]);
        poke(streams[0], blocks[i] + 100 + i, 0);
    }
    for (int i = 0; i < 3; i++) {
        give(blocks[i]);
    }
    wait_for(streams[0]);
    expect_damage(ashlar_allocator_check(allocator), "a block of 100 bytes");
    expect_damage(ashlar_free_on(allocator, other, streams[1]), "of 101 bytes");
    CHECK(ashlar_free(allocator, blocks[2]) == ASHLAR_EPOINTER); /* a finding hides no mistake, */
    expect_damage(ashlar_allocator_check(allocator), "a block of 102 bytes"); /* nor a mistake it */
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
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

CASE(the_last_use_on_another_stream_is_waited_for_in_order) {
    REQUIRE(set_up_guarded(LATE, ASHLAR_GUARD_FILL));
    unsigned char *ptr = take(600, streams[0]);
    wait_for(streams[0]);
    poke(streams[1], ptr + 650, 0);
    give_on(ptr, streams[1]);
    wait_for(streams[0]);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    wait_for(streams[1]);
    expect_damage(ashlar_allocator_check(allocator), "first at offset 650;");
}

CASE(freed_memory_is_compared_on_the_stream_of_the_free) {
    REQUIRE(set_up_guarded(LATE, ASHLAR_GUARD_FILL));
    unsigned char *ptr = take(600, streams[0]);
    wait_for(streams[0]);
    give_on(ptr, streams[1]);
    CHECK(push_out_quarantine() == ASHLAR_OK);
    wait_for(streams[0]); /* with the fill still queued on the other */
    run_all();
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
}

CASE_WITH(freed_memory_is_filled_whole, set_up_guarded(EAGER, ASHLAR_GUARD_FILL)) {
    unsigned char *ptr = take(600, streams[0]);
    queue_write(streams[0], ptr, 600, 0x22);
    give(ptr);
    size_t wrong = 0;
    for (size_t i = 0; i < 1536; i++) {
        wrong += ptr[i] != ASHLAR_FREED_VALUE;
    }
    CHECK_ZU(wrong, 0);
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
    CHECK_HAS(ashlar_error_detail(), "in test_guard_fill+0x");
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

CASE_WITH(memory_that_is_out_comes_from_the_quarantine, set_up_guarded(EAGER, ASHLAR_GUARD_FILL)) {
    unsigned char *blocks[32];
    void *out = NULL;
    for (int i = 0; i < 32; i++) {
        blocks[i] = take(MIB / 2 - 512, streams[0]);
    }
    CHECK(ashlar_alloc(allocator, 1, streams[0], &out) == ASHLAR_ENOMEM);
    give(blocks[4]);
    give(blocks[5]);
    CHECK_ZU(stats_now().cached_bytes, MIB);
    CHECK(take(MIB - 512, streams[1]) == blocks[4]);
    CHECK(stats_now().served_drained == 1 && stats_now().cached_bytes == 0);
}

CASE(a_request_whose_red_zone_does_not_fit_is_refused) {
    void *out = NULL;
    REQUIRE(set_up_guarded(EAGER, ASHLAR_GUARD_FILL));
    CHECK(ashlar_alloc(allocator, 16 * MIB, streams[0], &out) == ASHLAR_ENOMEM);
    CHECK(ashlar_alloc(allocator, SIZE_MAX, streams[0], &out) == ASHLAR_ENOMEM);
    give(take(16 * MIB - 512, streams[0]));
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

CASE_WITH(a_block_has_the_bytes_asked_for, set_up_guarded(EAGER, ASHLAR_GUARD_FILL)) {
    size_t bytes = 0;
    unsigned char *ptr = take(4097, streams[0]);
    CHECK(ashlar_allocator_usable_bytes(allocator, ptr, &bytes) == ASHLAR_OK);
    CHECK_ZU(bytes, 4097);
    CHECK_ZU(stats_now().block_bytes, 5120);
    give(ptr);
    CHECK(ashlar_allocator_usable_bytes(allocator, ptr, &bytes) == ASHLAR_EPOINTER);
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_EPOINTER);
}

/* Random work on four streams, whole blocks written and verified, memory out now and then. */
CASE(random_work_is_never_reported) {
    enum { SLOTS = 24, OPS = 3000 };
    unsigned char *slots[SLOTS] = {NULL};
    size_t bytes[SLOTS];
    int owner[SLOTS];
    uint64_t random = 5;
    REQUIRE(set_up_guarded("memory=8MiB,mode=adversarial,seed=9", ASHLAR_GUARD_FILL));
    atomic_store(&payload_bad_count, 0);
    for (int op = 0; op < OPS; op++) {
        const size_t i = (size_t)ashlar__random_step_below(&random, SLOTS);
        const unsigned char value = (unsigned char)(i + 1);
        if (slots[i] != NULL) {
            queue_verify(streams[owner[i]], slots[i], bytes[i], value);
            CHECK(ashlar_free(allocator, slots[i]) == ASHLAR_OK);
            slots[i] = NULL;
            continue;
        }
        void *ptr = NULL;
        bytes[i] = 1 + (size_t)(random >> 40) % (op % 7 == 0 ? 800000 : 5000);
        owner[i] = (int)(random >> 60) % STREAMS;
        if (ashlar_alloc(allocator, bytes[i], streams[owner[i]], &ptr) == ASHLAR_OK) {
            slots[i] = ptr;
            queue_write(streams[owner[i]], ptr, bytes[i], value);
        }
    }
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    CHECK(stats_now().alloc_count > 1000);
    run_all();
    CHECK(atomic_load(&payload_bad_count) == 0);
    tear_down();
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

RUN_CASES()
