/*
 * test_workload.c - that every recorded list can be run, again and again, and is what it says.
 */
#include "bench/peers/measure.h"

#include <stdlib.h>

#include "tests/check.h"
#include "allocator/base/host.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

/* NULL: there is none. */
static const ashlar_workload_spec *find_spec(bool is_of_plans, const char *name,
                                             const char *variant) {
    const ashlar_workload_spec *spec;
    size_t i = 0;
    while ((spec = ashlar__workload_spec(is_of_plans, i)) != NULL &&
           (strcmp(spec->name, name) != 0 || strcmp(spec->variant, variant) != 0)) {
        i++;
    }
    return spec;
}

static const ashlar_workload_spec *spec_of(const char *name, const char *variant) {
    return find_spec(false, name, variant);
}

static ashlar_workload record(const char *name, const char *variant) {
    ashlar_workload w = {0};
    const ashlar_workload_spec *spec = spec_of(name, variant);
    CHECK(spec != NULL && ashlar__workload_init(&w, spec, false) == ASHLAR_OK);
    return w;
}

/* What a list does, found by running it on paper. */
typedef struct account {
    uint32_t *taken; /* [variable_count], bytes now in each variable */
    size_t wrong;    /* takes of a taken variable, gives of a free one, variables out of range */
    size_t live, live_max;
    uint64_t bytes, peak_bytes;
} account;

static void run_on_paper(const ashlar_workload *w, account *a, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++) {
        const ashlar_op op = w->ops[i];
        if (op.variable >= w->variable_count || op.stream >= w->streams ||
            (op.bytes != 0) == (a->taken[op.variable] != 0)) {
            a->wrong++;
            continue;
        }
        a->live = op.bytes != 0 ? a->live + 1 : a->live - 1;
        a->bytes = a->bytes + op.bytes - (op.bytes != 0 ? 0 : a->taken[op.variable]);
        a->taken[op.variable] = op.bytes;
        a->live_max = a->live > a->live_max ? a->live : a->live_max;
        a->peak_bytes = a->bytes > a->peak_bytes ? a->bytes : a->peak_bytes;
    }
}

static void check_list(const ashlar_workload *w) {
    account a = {.taken = calloc(w->variable_count, sizeof *a.taken)};
    uint32_t *before = calloc(w->variable_count, sizeof *before);
    REQUIRE(a.taken != NULL && before != NULL);
    run_on_paper(w, &a, 0, w->body_begin);
    memcpy(before, a.taken, w->variable_count * sizeof *before);
    for (int i = 0; i < 2; i++) {
        run_on_paper(w, &a, w->body_begin, w->body_end);
        CHECK(memcmp(before, a.taken, w->variable_count * sizeof *before) == 0);
    }
    run_on_paper(w, &a, w->body_end, w->count);
    CHECK_ZU(a.wrong, 0);
    CHECK_ZU(a.live, 0);
    CHECK_ZU(a.live_max, w->live_max);
    CHECK(a.bytes == 0 && a.peak_bytes == w->peak_bytes);
    free(a.taken);
    free(before);
}

/* Steps lie in order, a body that has some begins with one, and none is empty. */
static void check_steps(const ashlar_workload *w) {
    size_t in_body = 0;
    bool begins_body = w->step_count == 0;
    for (size_t i = 0; i < w->step_count; i++) {
        CHECK(w->steps[i] < (i + 1 < w->step_count ? w->steps[i + 1] : w->body_end));
        begins_body = begins_body || w->steps[i] == w->body_begin;
        in_body += w->steps[i] >= w->body_begin;
    }
    CHECK(begins_body);
    CHECK_ZU(ashlar__workload_body_steps(w), in_body);
}

static void check_specs(bool is_of_plans) {
    const ashlar_workload_spec *spec;
    for (size_t i = 0; (spec = ashlar__workload_spec(is_of_plans, i)) != NULL; i++) {
        ashlar_workload w;
        REQUIRE(ashlar__workload_init(&w, spec, false) == ASHLAR_OK);
        CHECK(strcmp(w.name, spec->name) == 0 && strcmp(w.variant, spec->variant) == 0);
        CHECK(w.body_begin < w.body_end && w.body_end <= w.count);
        CHECK(w.body_pairs > 0);
        CHECK_ZU(w.body_end - w.body_begin, 2 * w.body_pairs);
        CHECK(w.live_max <= w.variable_count);
        check_list(&w);
        check_steps(&w);
        ashlar__workload_finish(&w);
    }
}

CASE(every_list_can_be_run_again_and_again) {
    check_specs(false);
    check_specs(true);
}

static ashlar_workload record_for_plan(const char *name, const char *variant) {
    ashlar_workload w = {0};
    const ashlar_workload_spec *spec = find_spec(true, name, variant);
    CHECK(spec != NULL && ashlar__workload_init(&w, spec, false) == ASHLAR_OK);
    return w;
}

CASE(steps_for_plans_are_as_long_as_they_say) {
    static const struct {
        const char *name, *variant;
        size_t steps, pairs; /* of the body */
    } wanted[] = {{"one_size", "4096", 1, 256},
                  {"rnn_step", "1", 1, 20},
                  {"rnn_step", "64", 1, 1280},
                  {"rnn_warm", "", 1000, 20000}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        ashlar_workload w = record_for_plan(wanted[i].name, wanted[i].variant);
        CHECK_ZU(ashlar__workload_body_steps(&w), wanted[i].steps);
        CHECK_ZU(w.body_pairs, wanted[i].pairs);
        /* What is recorded for the plan is the body itself, or was a step before it. */
        CHECK_ZU(w.step_count, wanted[i].steps + (i > 0));
        ashlar__workload_finish(&w);
    }
}

CASE(all_that_is_to_be_measured_is_there) {
    static const char *const wanted[][2] = {
        {"one_size", "512"},     {"one_size", "4096"},     {"one_size", "65536"},
        {"one_size", "1048576"}, {"one_size", "67108864"}, {"one_size", "4096-fragmented"},
        {"mix", "reverse"},      {"mix", "shuffled"},      {"random", ""},
        {"latency", "random"},   {"handoff", ""},          {"streams_64", ""},
        {"streams_512", ""},     {"live_1e6", ""},         {"rnn_warm", ""},
        {"rnn_cold", ""},
    };
    CHECK(ashlar__workload_spec(false, sizeof wanted / sizeof wanted[0]) == NULL);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const ashlar_workload_spec *spec = spec_of(wanted[i][0], wanted[i][1]);
        REQUIRE(spec != NULL);
        const bool scales = strcmp(spec->name, "one_size") == 0 || strcmp(spec->name, "mix") == 0 ||
                            strcmp(spec->name, "random") == 0;
        const bool is_handed = spec->kind == ASHLAR_WORKLOAD_HANDOFF;
        CHECK_ZU(spec->threads_least, is_handed ? 2 : 1);
        CHECK_ZU(spec->threads_most, is_handed || scales ? 2 : 1);
    }
}

enum { TENSORS = 400 };

CASE(recording_again_gives_the_same_list) {
    ashlar_workload one = record("random", ""), two = record("random", "");
    REQUIRE(one.count == two.count);
    CHECK(memcmp(one.ops, two.ops, one.count * sizeof one.ops[0]) == 0);
    ashlar__workload_finish(&one);
    ashlar__workload_finish(&two);
}

CASE(any_lack_of_host_memory_is_reported) {
    const ashlar_workload_spec *spec = spec_of("one_size", "4096-fragmented");
    ashlar_workload w = {.count = 7};
    unsigned long n = 0;
    ashlar_status status;
    do {
        ashlar__host_fail_at(++n);
        status = ashlar__workload_init(&w, spec, false);
        CHECK(status == ASHLAR_OK || (status == ASHLAR_EHOSTMEM && w.count == 7));
    } while (status != ASHLAR_OK && n < 1000);
    ashlar__host_fail_at(0);
    CHECK(n > 10 && n < 1000);
    CHECK_HAS(ashlar_error_detail(), "one_size");
    check_list(&w);
    ashlar__workload_finish(&w);
}

RUN_CASES()
