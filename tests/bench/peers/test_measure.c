/*
 * test_measure.c - that a measurement runs what it says, whatever the kind of its list, and that a
 * failing subject ends it cleanly. What it takes is not judged.
 */
#include "bench/peers/measure.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "allocator/base/error.h"
#include "bench/harness/harness.h"
#include "bench/peers/peer.h"
#include "tests/allocator/core/allocator_fixture.h"

/* --- subjects that count what they are asked, and have one block ----------------------------- */

enum { THREADS = 2 };

typedef struct counter {
    atomic_size_t takes, gives, other_takes; /* other: not of 4096 B */
    atomic_size_t enters, leaves, wrong;
    atomic_size_t creates, destroys;
    size_t refuse_at; /* the take that fails, from 1; 0: none */
    size_t bar;       /* the thread that cannot enter, from 1; 0: none */
    atomic_size_t takes_of[THREADS], gives_of[THREADS];
    _Atomic(ashlar_stream) streams[THREADS];
} counter;

static counter counts;
static _Thread_local size_t my_number;
static char block[1];

static ashlar_status counter_create(ashlar_device *of, void **self) {
    atomic_fetch_add(&counts.wrong, of != device);
    atomic_fetch_add(&counts.creates, 1);
    *self = &counts;
    return ASHLAR_OK;
}

static void counter_destroy(void *self) {
    atomic_fetch_add(&counts.wrong, self != &counts);
    atomic_fetch_add(&counts.destroys, 1);
}

static ashlar_status counter_enter(void *self, size_t thread) {
    atomic_fetch_add(&counts.wrong, self != &counts || thread >= THREADS);
    if (thread + 1 == counts.bar) {
        return ashlar__fail(ASHLAR_EDRIVER, "no entry");
    }
    atomic_fetch_add(&counts.enters, 1);
    my_number = thread;
    return ASHLAR_OK;
}

static void counter_leave(void *self) {
    atomic_fetch_add(&counts.wrong, self != &counts);
    atomic_fetch_add(&counts.leaves, 1);
}

static void *counter_take(void *self, size_t bytes, ashlar_stream stream) {
    atomic_fetch_add(&counts.wrong, self != &counts);
    counts.streams[my_number] = stream;
    if (atomic_fetch_add(&counts.takes, 1) + 1 == counts.refuse_at) {
        atomic_fetch_sub(&counts.takes, 1);
        return NULL;
    }
    atomic_fetch_add(&counts.other_takes, bytes != 4096);
    atomic_fetch_add(&counts.takes_of[my_number], 1);
    return block;
}

static void counter_give(void *self, void *ptr) {
    atomic_fetch_add(&counts.wrong, self != &counts || ptr != block);
    atomic_fetch_add(&counts.gives, 1);
    atomic_fetch_add(&counts.gives_of[my_number], 1);
}

static void counter_usage(void *self, ashlar_peer_usage *out) {
    atomic_fetch_add(&counts.wrong, self != &counts);
    *out = (ashlar_peer_usage){.reserved_peak_bytes = 300, .live_peak_bytes = 200};
}

static const ashlar_peer counting = {
    .name = "counting",
    .create = counter_create,
    .destroy = counter_destroy,
    .enter = counter_enter,
    .leave = counter_leave,
    .take = counter_take,
    .give = counter_give,
    .usage = counter_usage,
};

/* One that is told the bytes and the stream: those of the take. */
static void counter_give_sized(void *self, void *ptr, size_t bytes, ashlar_stream stream) {
    atomic_fetch_add(&counts.wrong, stream == NULL || stream != counts.streams[my_number]);
    atomic_fetch_sub(&counts.other_takes, bytes != 4096);
    counter_give(self, ptr);
}

static const ashlar_peer sized = {
    .name = "sized",
    .create = counter_create,
    .destroy = counter_destroy,
    .enter = counter_enter,
    .leave = counter_leave,
    .take = counter_take,
    .give_sized = counter_give_sized,
};

static void check_counts_balance(void) {
    CHECK_ZU(counts.wrong, 0);
    CHECK_ZU(counts.gives, counts.takes);
    CHECK_ZU(counts.leaves, counts.enters);
    CHECK_ZU(counts.destroys, counts.creates);
}

static ashlar_workload record(const char *variant) {
    ashlar_workload w = {0};
    size_t i = 0;
    while (strcmp(ashlar__workload_spec(false, i)->variant, variant) != 0) {
        i++;
    }
    CHECK(ashlar__workload_init(&w, ashlar__workload_spec(false, i), false) == ASHLAR_OK);
    return w;
}

/* --- the median ------------------------------------------------------------------------------ */

CASE_WITH(every_part_of_the_list_is_run_on_every_thread, set_up_device("")) {
    const ashlar_peer *peer = &counting;
    ashlar_workload w = record("4096-fragmented");
    const ashlar_measure_config config = {device, THREADS, 5, 1};
    ashlar_measurement result = {0};
    counts = (counter){0};
    const size_t opened = CALLS(stream_create), closed = CALLS(stream_destroy);
    CHECK(ashlar__measure(&config, &w, &peer, 1, &result) == ASHLAR_OK);
    check_counts_balance();
    CHECK_ZU(CALLS(stream_create) - opened, THREADS);
    CHECK_ZU(CALLS(stream_destroy) - closed, THREADS);
    /* Rounds of 1 ns: the body once each. Before them twice. The prologue once. */
    CHECK_ZU(counts.other_takes, THREADS * 4000);
    CHECK_ZU(counts.takes, THREADS * (4000 + (2 + 5) * w.body_pairs));
    CHECK(counts.streams[0] != NULL && counts.streams[1] != NULL);
    CHECK(counts.streams[0] != counts.streams[1]);
    CHECK(result.ns_pair > 0);
    CHECK_ZU(result.driver_calls, 0);
    CHECK_NEAR(result.reserved_over_live, 1.5, 1e-12, 0);
    ashlar__workload_finish(&w);
}

/* --- steps ----------------------------------------------------------------------------------- */

static atomic_size_t step_begins, step_ends, outside; /* outside: taken in no step */
static _Thread_local bool is_in_step;

static ashlar_status note_begin(void *self, ashlar_stream stream) {
    atomic_fetch_add(&counts.wrong, self != &counts || stream == NULL || is_in_step);
    atomic_fetch_add(&step_begins, 1);
    is_in_step = true;
    return ASHLAR_OK;
}

static ashlar_status note_end(void *self) {
    atomic_fetch_add(&counts.wrong, self != &counts || !is_in_step);
    is_in_step = false;
    atomic_fetch_add(&step_ends, 1);
    return ASHLAR_OK;
}

static void *take_in_step(void *self, size_t bytes, ashlar_stream stream) {
    atomic_fetch_add(&outside, !is_in_step);
    return counter_take(self, bytes, stream);
}

static const ashlar_peer stepping = {
    .name = "stepping",
    .create = counter_create,
    .destroy = counter_destroy,
    .enter = counter_enter,
    .leave = counter_leave,
    .take = take_in_step,
    .give = counter_give,
    .begin_step = note_begin,
    .end_step = note_end,
};

static ashlar_workload record_steps(const char *name) {
    ashlar_workload w = {0};
    size_t i = 0;
    while (strcmp(ashlar__workload_spec(true, i)->name, name) != 0) {
        i++;
    }
    CHECK(ashlar__workload_init(&w, ashlar__workload_spec(true, i), false) == ASHLAR_OK);
    return w;
}

static ashlar_status measure_stepping(const ashlar_workload *w, size_t threads) {
    const ashlar_peer *peer = &stepping;
    const ashlar_measure_config config = {device, threads, 1, 1};
    ashlar_measurement result;
    counts = (counter){0};
    step_begins = step_ends = outside = 0;
    const ashlar_status status = ashlar__measure(&config, w, &peer, 1, &result);
    CHECK(step_begins == step_ends);
    check_counts_balance();
    return status;
}

CASE_WITH(steps_begin_and_end_where_the_list_has_them, set_up_device("")) {
    ashlar_workload w = record_steps("rnn_warm");
    for (size_t threads = 1; threads <= THREADS; threads++) {
        CHECK(measure_stepping(&w, threads) == ASHLAR_OK);
        CHECK_ZU(step_begins, threads * (1 + 3 * (size_t)ASHLAR_WORKLOAD_RNN_STEPS));
        CHECK_ZU(outside, 0);
    }
    ashlar__workload_finish(&w);
    w = record_steps("rnn_step"); /* with a block before its first step */
    CHECK(measure_stepping(&w, 1) == ASHLAR_OK);
    CHECK_ZU(step_begins, 1 + 3);
    CHECK_ZU(outside, 1);
    ashlar__workload_finish(&w);
}

CASE_WITH(a_subject_that_runs_out_is_named_and_nothing_stays_taken, set_up_device("")) {
    const ashlar_peer *peer = &counting;
    ashlar_workload w = record("4096-fragmented");
    const size_t moments[] = {1, 3999, 4001, 4000 + 2 * w.body_pairs, 4000 + 3 * w.body_pairs};
    for (size_t threads = 1; threads <= THREADS; threads++) {
        for (size_t i = 0; i < sizeof moments / sizeof moments[0]; i++) {
            const ashlar_measure_config config = {device, threads, 3, 1};
            ashlar_measurement result;
            counts = (counter){.refuse_at = moments[i]};
            CHECK_FAILS(ashlar__measure(&config, &w, &peer, 1, &result), ASHLAR_ENOMEM, "counting");
            CHECK_HAS(ashlar_error_detail(), "one_size");
            check_counts_balance();
        }
    }
    ashlar__workload_finish(&w);
}

/* --- real subjects --------------------------------------------------------------------------- */

CASE(every_subject_runs_on_one_thread_and_on_two) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    ashlar_measurement results[ASHLAR_PEERS_MAX];
    const size_t count = ashlar__peers(peers);
    REQUIRE(set_up_device(""));
    ashlar_workload w = record("4096");
    for (size_t threads = 1; threads <= THREADS; threads++) {
        const ashlar_measure_config config = {device, threads, 2, 1};
        REQUIRE(ashlar__measure(&config, &w, peers, count, results) == ASHLAR_OK);
        for (size_t i = 0; i < count; i++) {
            const bool is_known =
                peers[i]->usage != NULL && (threads == 1 || peers[i] != ashlar__peer_find("cub"));
            CHECK(results[i].ns_pair > 0);
            CHECK((results[i].reserved_over_live > 0) == is_known);
        }
    }
    ashlar__workload_finish(&w);
}

CASE(driver_calls_are_those_of_one_run_of_the_body) {
    const ashlar_peer *peers[] = {&ashlar__peer_driver, &ashlar__peer_ashlar, &ashlar__peer_floor};
    ashlar_measurement results[3];
    REQUIRE(set_up_device(""));
    ashlar_workload w = record("4096");
    const ashlar_measure_config config = {device, 1, 3, 1};
    REQUIRE(ashlar__measure(&config, &w, peers, 3, results) == ASHLAR_OK);
    CHECK_ZU(results[0].driver_calls, 2 * w.body_pairs);
    CHECK(results[1].driver_calls > 0 && results[1].driver_calls < 10);
    CHECK_ZU(results[2].driver_calls, 0);
    ashlar__workload_finish(&w);
}

/* --- kinds of lists --------------------------------------------------------------------------- */

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
