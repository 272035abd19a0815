/*
 * test_turn.c - what the threads do with a list by its kind: blocks that are handed over, marked,
 * timed one by one, or live in great number. What it takes is not judged.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "bench/peers/turn.h"

#include <math.h>
#include <stdlib.h>

#include "allocator/base/clock.h"
#include "bench/peers/measure.h"
#include "tests/bench/peers/counting_peer.h"

/* The first list of a kind, as short as it may be. */
static ashlar_workload record_kind(ashlar_workload_kind kind) {
    ashlar_workload w = {0};
    size_t i = 0;
    while (ashlar__workload_spec(false, i)->kind != kind) {
        i++;
    }
    CHECK(ashlar__workload_init(&w, ashlar__workload_spec(false, i), true) == ASHLAR_OK);
    return w;
}

static ashlar_status measure_kind(const ashlar_workload *w, const ashlar_peer *peer, size_t rounds,
                                  ashlar_measurement *out) {
    const bool is_handed = w->kind == ASHLAR_WORKLOAD_HANDOFF;
    const ashlar_measure_config config = {device, is_handed ? 2 : 1, rounds, 1};
    CHECK(ashlar__measure_can(w, peer));
    return ashlar__measure(&config, w, &peer, 1, out);
}

/* The bytes and the stream are those of the take, on whichever thread. */
static void give_handed(void *self, void *ptr, size_t bytes, ashlar_stream stream) {
    atomic_fetch_add(&counts.wrong, stream != counts.streams[0] || bytes != 4096);
    counter_give(self, ptr);
}

CASE_WITH(handed_blocks_are_taken_by_one_thread_and_given_by_the_other, set_up_device("")) {
    ashlar_workload w = record_kind(ASHLAR_WORKLOAD_HANDOFF);
    ashlar_peer peer = sized;
    ashlar_measurement result;
    peer.give_sized = give_handed;
    for (size_t i = 0; i < 2; i++) {
        counts = (counter){0};
        CHECK(measure_kind(&w, i == 0 ? &counting : &peer, 3, &result) == ASHLAR_OK);
        check_counts_balance();
        CHECK_ZU(counts.takes_of[0], (2 + 3) * w.body_pairs);
        CHECK_ZU(counts.gives_of[1], (2 + 3) * w.body_pairs);
        CHECK(result.ns_pair > 0 && isnan(result.ns_p50) && isnan(result.host_bytes));
    }
    ashlar__workload_finish(&w);
}

CASE_WITH(a_handoff_that_fails_leaves_no_block, set_up_device("")) {
    ashlar_workload w = record_kind(ASHLAR_WORKLOAD_HANDOFF);
    ashlar_measurement result;
    for (size_t refused = 1; refused < 3 * w.body_pairs; refused += 77) {
        counts = (counter){.refuse_at = refused};
        CHECK_FAILS(measure_kind(&w, &counting, 3, &result), ASHLAR_ENOMEM, "handoff");
        check_counts_balance();
    }
    for (size_t barred = 1; barred <= 2; barred++) {
        counts = (counter){.bar = barred};
        CHECK_FAILS(measure_kind(&w, &counting, 3, &result), ASHLAR_EDRIVER, "no entry");
        check_counts_balance();
    }
    ashlar__workload_finish(&w);
}

enum { STALL_EVERY = 400, STALL_NS = 200000 };

static void *stalling_take(void *self, size_t bytes, ashlar_stream stream) {
    void *ptr = counter_take(self, bytes, stream);
    const uint64_t start = ashlar__clock_ns();
    while (counts.takes % STALL_EVERY == 0 && ashlar__clock_ns() - start < STALL_NS) {
    }
    return ptr;
}

/* One of 400 pairs is longer than the rest: the last of 100 percentiles begins before it. */
CASE_WITH(latencies_are_those_of_the_slowest_pairs, set_up_device("")) {
    ashlar_workload w = record_kind(ASHLAR_WORKLOAD_LATENCY);
    ashlar_peer peer = counting;
    ashlar_measurement result;
    peer.take = stalling_take;
    counts = (counter){0};
    CHECK(measure_kind(&w, &peer, 1, &result) == ASHLAR_OK);
    check_counts_balance();
    CHECK_ZU(counts.takes, 3 * w.body_pairs);
    CHECK(result.ns_p50 <= result.ns_p99 && result.ns_p99 <= result.ns_p999);
    CHECK(result.ns_p999 >= STALL_NS * 0.99 && result.ns_max >= result.ns_p999);
    CHECK(result.ns_p50 < STALL_NS);
    CHECK(result.ns_pair > STALL_NS * 0.99 / STALL_EVERY);
    CHECK(isnan(result.ns_late));
    counts = (counter){.refuse_at = 5000};
    CHECK_FAILS(measure_kind(&w, &peer, 1, &result), ASHLAR_ENOMEM, "latency");
    check_counts_balance();
    ashlar__workload_finish(&w);
}

static atomic_size_t marks, finished, since_create;
static ashlar_event behind_work; /* on the further stream; NULL: none */
static size_t bad_mark;          /* the mark that fails, from 1; 0: none */

static ashlar_status note_create(ashlar_device *of, void **self) {
    since_create = 0;
    return counter_create(of, self);
}

static ashlar_status note_mark(void *self, void *ptr, ashlar_stream stream) {
    bool is_finished = false;
    atomic_fetch_add(&counts.wrong, self != &counts || ptr != block || stream == NULL ||
                                        stream == counts.streams[0] ||
                                        counts.takes != counts.gives + 1);
    CHECK(ashlar_event_record(device, behind_work, stream) == ASHLAR_OK);
    CHECK(ashlar_event_query(device, behind_work, &is_finished) == ASHLAR_OK);
    atomic_fetch_add(&finished, is_finished);
    atomic_fetch_add(&since_create, 1);
    return atomic_fetch_add(&marks, 1) + 1 == bad_mark ? ashlar__fail(ASHLAR_EIO, "no mark")
                                                       : ASHLAR_OK;
}

static const ashlar_peer marking = {
    .name = "marking",
    .create = note_create,
    .destroy = counter_destroy,
    .enter = counter_enter,
    .leave = counter_leave,
    .take = counter_take,
    .give = counter_give,
    .mark = note_mark,
};

CASE_WITH(each_run_of_marked_blocks_is_a_new_instances, set_up_device("")) {
    static const ashlar_workload_kind kinds[] = {ASHLAR_WORKLOAD_MARKED,
                                                 ASHLAR_WORKLOAD_MARKED_UNFINISHED};
    REQUIRE(ashlar_event_create(device, &behind_work) == ASHLAR_OK);
    for (size_t i = 0; i < 2; i++) {
        ashlar_workload w = record_kind(kinds[i]);
        ashlar_measurement result;
        counts = (counter){0};
        marks = finished = 0;
        CHECK(measure_kind(&w, &marking, 2, &result) == ASHLAR_OK);
        check_counts_balance();
        CHECK_ZU(marks, (2 + 2) * w.body_pairs);
        CHECK_ZU(since_create, w.body_pairs);
        CHECK_ZU(counts.creates, 2 + 2);
        CHECK_ZU(finished, i == 0 ? marks : 0); /* the further stream has work till the end */
        CHECK(result.ns_early > 0 && result.ns_late > 0 && !isnan(result.host_bytes));
        CHECK(result.ns_pair == result.ns_late && isnan(result.ns_p999));
        counts = (counter){.refuse_at = 700};
        CHECK_FAILS(measure_kind(&w, &marking, 2, &result), ASHLAR_ENOMEM, "record_stream");
        check_counts_balance();
        counts = (counter){.bar = 1};
        CHECK(measure_kind(&w, &marking, 2, &result) == ASHLAR_EDRIVER);
        check_counts_balance();
        counts = (counter){0};
        marks = 0;
        bad_mark = 700;
        CHECK_FAILS(measure_kind(&w, &marking, 2, &result), ASHLAR_EIO, "no mark");
        check_counts_balance();
        bad_mark = 0;
        ashlar__workload_finish(&w);
    }
    ashlar_event_destroy(device, behind_work);
}

enum { HOST_BYTES = 8192 };

static void *take_host(void *self, size_t bytes, ashlar_stream stream) {
    void *ptr = malloc(HOST_BYTES);
    (void)self, (void)bytes, (void)stream;
    return ptr != NULL ? memset(ptr, 1, HOST_BYTES) : NULL;
}

static void give_host(void *self, void *ptr) {
    (void)self;
    free(ptr);
}

CASE_WITH(live_blocks_are_told_by_the_host_memory_of_each, set_up_device("")) {
    static const ashlar_peer on_host = {.name = "host", .take = take_host, .give = give_host};
    ashlar_workload w = record_kind(ASHLAR_WORKLOAD_LIVE);
    ashlar_measurement result;
    CHECK(measure_kind(&w, &on_host, 1, &result) == ASHLAR_OK);
    CHECK(result.host_bytes > 0.9 * HOST_BYTES);
    ashlar__workload_finish(&w);
}

CASE(a_peer_runs_the_kinds_that_it_can) {
    static const struct {
        ashlar_workload_kind kind;
        const ashlar_peer *peer;
        bool can;
    } wanted[] = {{ASHLAR_WORKLOAD_LIST, &ashlar__peer_driver, true},
                  {ASHLAR_WORKLOAD_LATENCY, &ashlar__peer_floor, true},
                  {ASHLAR_WORKLOAD_LIVE, &ashlar__peer_driver, false},
                  {ASHLAR_WORKLOAD_LIVE, &ashlar__peer_glibc, false},
                  {ASHLAR_WORKLOAD_LIVE, &ashlar__peer_floor, true},
                  {ASHLAR_WORKLOAD_HANDOFF, &ashlar__peer_floor, false},
                  {ASHLAR_WORKLOAD_HANDOFF, &ashlar__peer_driver, true},
                  {ASHLAR_WORKLOAD_MARKED, &ashlar__peer_ashlar, true},
                  {ASHLAR_WORKLOAD_MARKED, &ashlar__peer_floor, false},
                  {ASHLAR_WORKLOAD_MARKED_UNFINISHED, &ashlar__peer_glibc, false}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const ashlar_workload w = {.kind = wanted[i].kind};
        CHECK(ashlar__measure_can(&w, wanted[i].peer) == wanted[i].can);
    }
}

RUN_CASES()
