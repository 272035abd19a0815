/*
 * test_workload.c - that every recorded list can be run, again and again, and is what it says.
 */
#include "bench/peers/measure.h"

#include <stdlib.h>

#include "tests/check.h"

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

RUN_CASES()
