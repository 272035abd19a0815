/*
 * test_measure.c - that a measurement runs what it says, and that a failing subject ends it
 * cleanly. What it takes is not judged.
 */
#include "bench/peers/measure.h"

#include "bench/harness/harness.h"
#include "tests/bench/peers/counting_peer.h"
#include "allocator/base/error.h"

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

static ashlar_status create_from_origin(ashlar_device *of, void **self) {
    atomic_fetch_add(&counts.wrong, *self != &my_number);
    return counter_create(of, self);
}

/* The prologue's blocks have other sizes than 4096; some are given back only at the end. */
CASE(a_subject_may_be_told_what_it_gets_back) {
    ashlar_peer peer = sized;
    const ashlar_peer *subject = &peer;
    peer.origin = &my_number;
    peer.create = create_from_origin;
    REQUIRE(set_up_device(""));
    ashlar_workload w = record("4096-fragmented");
    const ashlar_measure_config config = {device, THREADS, 3, 1};
    ashlar_measurement result = {0};
    counts = (counter){0};
    CHECK(ashlar__measure(&config, &w, &subject, 1, &result) == ASHLAR_OK);
    check_counts_balance();
    CHECK_ZU(counts.other_takes, 0);
    CHECK_ZU(counts.takes, THREADS * (4000 + (2 + 3) * w.body_pairs));
    for (size_t refused = 1; refused <= 5000; refused += 1234) {
        counts = (counter){.refuse_at = refused};
        CHECK_FAILS(ashlar__measure(&config, &w, &subject, 1, &result), ASHLAR_ENOMEM,
                    "sized has no block");
        CHECK_ZU(counts.gives, counts.takes);
        CHECK_ZU(counts.other_takes, 0);
    }
    counts.refuse_at = 0;
    ashlar__workload_finish(&w);
}

/* --- steps ----------------------------------------------------------------------------------- */

static atomic_size_t step_begins, step_ends, outside; /* outside: taken in no step */
static _Thread_local bool is_in_step;
static size_t bad_begin, bad_end; /* which fails, from 1; 0: none */

static ashlar_status note_begin(void *self, ashlar_stream stream) {
    atomic_fetch_add(&counts.wrong, self != &counts || stream == NULL || is_in_step);
    if (atomic_fetch_add(&step_begins, 1) + 1 == bad_begin) {
        atomic_fetch_sub(&step_begins, 1);
        return ashlar__fail(ASHLAR_EDRIVER, "no step");
    }
    is_in_step = true;
    return ASHLAR_OK;
}

static ashlar_status note_end(void *self) {
    atomic_fetch_add(&counts.wrong, self != &counts || !is_in_step);
    is_in_step = false;
    return atomic_fetch_add(&step_ends, 1) + 1 == bad_end ? ashlar__fail(ASHLAR_EIO, "no end")
                                                          : ASHLAR_OK;
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
    const size_t refuse_at = counts.refuse_at;
    counts = (counter){.refuse_at = refuse_at};
    step_begins = step_ends = outside = 0;
    const ashlar_status status = ashlar__measure(&config, w, &peer, 1, &result);
    CHECK(step_begins == step_ends);
    check_counts_balance();
    counts.refuse_at = 0;
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

CASE_WITH(a_step_that_fails_ends_the_measurement, set_up_device("")) {
    ashlar_workload w = record_steps("rnn_step");
    for (size_t at = 1; at <= 4; at++) {
        bad_begin = at;
        CHECK(measure_stepping(&w, 1) == ASHLAR_EDRIVER);
        CHECK_ZU(step_begins, at - 1);
        bad_begin = 0;
        bad_end = at;
        CHECK(measure_stepping(&w, 1) == ASHLAR_EIO);
        CHECK_ZU(step_begins, at);
        bad_end = 0;
    }
    counts.refuse_at = 30; /* within the second step, which ends all the same */
    CHECK(measure_stepping(&w, 1) == ASHLAR_ENOMEM);
    CHECK_ZU(step_begins, 2);
    ashlar__workload_finish(&w);
}

/* --- turns ----------------------------------------------------------------------------------- */

static char turns[64]; /* a letter for each time that a subject is entered */

static ashlar_status note_turn(void *self, size_t thread) {
    (void)thread;
    const size_t used = strlen(turns);
    turns[used] = *(const char *)self;
    turns[used + 1] = '\0';
    return ASHLAR_OK;
}

static ashlar_status create_a(ashlar_device *of, void **self) {
    static char letter = 'a';
    (void)of;
    *self = &letter;
    return ASHLAR_OK;
}

static ashlar_status create_b(ashlar_device *of, void **self) {
    static char letter = 'b';
    (void)of;
    *self = &letter;
    return ASHLAR_OK;
}

static void *any_block(void *self, size_t bytes, ashlar_stream stream) {
    (void)self;
    (void)bytes;
    (void)stream;
    return block;
}

static void no_matter(void *self, void *ptr) {
    (void)self;
    (void)ptr;
}

/* Behind two turns each to get warm: once in every round, and now one first, now the other. */
CASE(every_round_has_an_order_of_its_own) {
    enum { ROUNDS = 5 };
    static const ashlar_peer a = {
        .name = "a", .create = create_a, .enter = note_turn, .take = any_block, .give = no_matter};
    static const ashlar_peer b = {
        .name = "b", .create = create_b, .enter = note_turn, .take = any_block, .give = no_matter};
    const ashlar_peer *peers[] = {&a, &b};
    REQUIRE(set_up_device(""));
    ashlar_workload w = record("4096");
    const ashlar_measure_config config = {device, 1, ROUNDS, 1};
    ashlar_measurement results[2];
    size_t first[2] = {0};
    turns[0] = '\0';
    CHECK(ashlar__measure(&config, &w, peers, 2, results) == ASHLAR_OK);
    REQUIRE(strncmp(turns, "aabb", 4) == 0);
    for (size_t i = 0; i < ROUNDS; i++) {
        const char *round = turns + 4 + 2 * i;
        CHECK(strncmp(round, "ab", 2) == 0 || strncmp(round, "ba", 2) == 0);
        first[round[0] == 'b']++;
    }
    CHECK(first[0] > 0 && first[1] > 0);
    ashlar__workload_finish(&w);
}

CASE_WITH(a_repeat_runs_the_body_as_often_as_asked, set_up_device("")) {
    ashlar_workload w = record("4096-fragmented");
    counts = (counter){0};
    CHECK(ashlar__measure_repeat(device, &w, &counting, 7) == ASHLAR_OK);
    check_counts_balance(); /* what the prologue left is given back too */
    CHECK_ZU(counts.takes, 4000 + 7 * w.body_pairs);
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

/* --- failures -------------------------------------------------------------------------------- */

CASE(any_lack_of_host_memory_ends_cleanly) {
    const ashlar_peer *peers[] = {&ashlar__peer_ashlar, &ashlar__peer_floor, &counting};
    REQUIRE(set_up_device(""));
    ashlar_workload w = record("4096");
    const ashlar_measure_config config = {device, 1, 1, 1};
    ashlar_measurement results[3];
    size_t failures = 0;
    for (unsigned long n = 1; n < 60; n++) { /* some the allocator gets over */
        counts = (counter){0};
        ashlar__host_fail_at(n);
        const ashlar_status status = ashlar__measure(&config, &w, peers, 3, results);
        CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM ||
              status == ASHLAR_EDRIVER);
        failures += status != ASHLAR_OK;
        check_counts_balance();
    }
    ashlar__host_fail_at(0);
    CHECK(failures > 7);
    ashlar__workload_finish(&w);
}

RUN_CASES()
