/*
 * test_turn.c - what the threads do with a list by its kind: blocks that are handed over, timed
 * one by one, or live in great number. What it takes is not judged.
 */
#include "bench/peers/measure.h"

#include <math.h>
#include <stdlib.h>

#include "allocator/base/host.h"
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
                  {ASHLAR_WORKLOAD_LIVE, &ashlar__peer_floor, true},
                  {ASHLAR_WORKLOAD_HANDOFF, &ashlar__peer_floor, false},
                  {ASHLAR_WORKLOAD_HANDOFF, &ashlar__peer_driver, true}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const ashlar_workload w = {.kind = wanted[i].kind};
        CHECK(ashlar__measure_can(&w, wanted[i].peer) == wanted[i].can);
    }
}

RUN_CASES()
