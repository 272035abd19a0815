/*
 * test_workload.c - that every recorded list can be run, again and again, and is what it says.
 */
#include "bench/peers/workload.h"

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

/* So that a thread's cache serves the step: no large blocks, and a heap that is much larger. */
CASE(the_small_step_fits_a_cache) {
    ashlar_workload w = record_for_plan("rnn_step", "1");
    REQUIRE(w.step_count > 0);
    uint64_t step_bytes = 0, before = 0;
    for (size_t i = 0; i < w.body_end; i++) {
        CHECK(i < w.steps[0] || w.ops[i].bytes <= MIB);
        before += i < w.steps[0] ? w.ops[i].bytes : 0;
    }
    step_bytes = w.peak_bytes - before;
    CHECK(step_bytes > MIB && step_bytes < before / 64);
    ashlar__workload_finish(&w);
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

CASE(one_size_is_pairs_of_that_size) {
    static const char *const variants[] = {"512", "4096", "65536", "1048576", "67108864"};
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        ashlar_workload w = record("one_size", variants[i]);
        const uint64_t bytes = strtoull(variants[i], NULL, 10);
        size_t wrong = 0;
        for (size_t op = 0; op < w.count; op++) {
            wrong += w.ops[op].bytes != (op % 2 == 0 ? bytes : 0);
        }
        CHECK_ZU(wrong, 0);
        CHECK_ZU(w.live_max, 1);
        CHECK_ZU(w.body_pairs * 2, w.count);
        ashlar__workload_finish(&w);
    }
}

CASE(streams_have_a_pair_in_turn) {
    static const char *const names[] = {"streams_64", "streams_512"};
    static const size_t counts[] = {64, 512};
    for (size_t i = 0; i < 2; i++) {
        ashlar_workload w = record(names[i], "");
        size_t wrong = 0;
        CHECK_ZU(w.streams, counts[i]);
        CHECK_ZU(w.count % (2 * counts[i]), 0);
        for (size_t op = 0; op < w.count; op++) {
            wrong += w.ops[op].bytes != (op % 2 == 0 ? 4096 : 0);
            wrong += w.ops[op].stream != op / 2 % counts[i];
        }
        CHECK_ZU(wrong, 0);
        ashlar__workload_finish(&w);
    }
}

/* Of all sizes, and given back from anywhere among them. */
CASE(a_million_blocks_are_live) {
    ashlar_workload w = record("live_1e6", "");
    size_t by_size[8] = {0}, wrong = 0, near = 0;
    CHECK_ZU(w.body_begin, 1000000);
    CHECK_ZU(w.live_max, 1000000);
    for (size_t i = 0; i < w.body_begin; i++) {
        REQUIRE(w.ops[i].bytes >= 512 && w.ops[i].bytes <= 4096 && w.ops[i].bytes % 512 == 0);
        by_size[w.ops[i].bytes / 512 - 1]++;
    }
    for (size_t i = 0; i < 8; i++) {
        CHECK(by_size[i] > 120000 && by_size[i] < 130000);
    }
    for (size_t i = w.body_begin; i < w.body_end; i += 2) {
        wrong += w.ops[i].bytes != 0 || w.ops[i + 1].bytes == 0 ||
                 w.ops[i].variable != w.ops[i + 1].variable;
        near += w.ops[i].variable < 100000;
    }
    CHECK_ZU(wrong, 0);
    CHECK(near > w.body_pairs / 10 - w.body_pairs / 50 &&
          near < w.body_pairs / 10 + w.body_pairs / 50);
    ashlar__workload_finish(&w);
}

CASE(a_smoke_runs_list_is_short_where_the_other_is_long) {
    static const char *const names[] = {"live_1e6", "random"};
    for (size_t i = 0; i < 2; i++) {
        ashlar_workload full = record(names[i], ""), smoke = {0};
        REQUIRE(ashlar__workload_init(&smoke, spec_of(names[i], ""), true) == ASHLAR_OK);
        CHECK(i == 0 ? smoke.count < full.count / 20 : smoke.count == full.count);
        check_list(&smoke);
        ashlar__workload_finish(&full);
        ashlar__workload_finish(&smoke);
    }
}

/* Sizes of the class of 4 KiB would be no holes but what is asked for. */
CASE(the_fragmented_heap_has_holes_of_other_sizes_only) {
    ashlar_workload w = record("one_size", "4096-fragmented");
    size_t takes = 0, same = 0, measured = 0, larger = 0;
    for (size_t i = 0; i < w.body_begin; i++) {
        takes += w.ops[i].bytes != 0;
        same += w.ops[i].bytes > 3584 && w.ops[i].bytes <= 4096;
        larger += w.ops[i].bytes > 4096;
        CHECK(w.ops[i].bytes <= 64 * KIB);
    }
    CHECK_ZU(takes, 4000);
    CHECK_ZU(w.body_begin - takes, 2000); /* and as many stay until the end */
    CHECK_ZU(w.count - w.body_end, 2000);
    CHECK_ZU(same, 0);
    CHECK(larger > 3000);
    for (size_t i = w.body_begin; i < w.body_end; i++) {
        measured += w.ops[i].bytes == 4096;
    }
    CHECK_ZU(measured, w.body_pairs);
    ashlar__workload_finish(&w);
}

CASE(holes_lie_between_blocks) {
    ashlar_workload w = record("one_size", "4096-fragmented");
    size_t neighbours = 0;
    for (size_t i = 4000; i + 1 < w.body_begin; i++) {
        CHECK_ZU(w.ops[i].bytes, 0);
        neighbours += w.ops[i + 1].variable == w.ops[i].variable + 1;
    }
    CHECK_ZU(neighbours, 0);
    ashlar__workload_finish(&w);
}

enum { TENSORS = 400 };

CASE(a_mix_takes_400_tensors_of_all_magnitudes) {
    ashlar_workload reverse = record("mix", "reverse"), shuffled = record("mix", "shuffled");
    size_t by_doubling[17] = {0};
    CHECK_ZU(reverse.live_max, TENSORS);
    CHECK_ZU(reverse.count, shuffled.count);
    CHECK(reverse.peak_bytes == shuffled.peak_bytes);
    for (size_t i = 0; i < TENSORS; i++) {
        const uint64_t bytes = reverse.ops[i].bytes;
        REQUIRE(bytes >= 512 && bytes <= 64 * MIB);
        CHECK_ZU(shuffled.ops[i].bytes, bytes);
        size_t doubling = 0;
        while (bytes >= (uint64_t)1024 << doubling && doubling < 16) {
            doubling++;
        }
        by_doubling[doubling]++;
    }
    for (size_t i = 0; i < 17; i++) { /* 24 of each are expected */
        CHECK(by_doubling[i] > 8 && by_doubling[i] < 48);
    }
    ashlar__workload_finish(&reverse);
    ashlar__workload_finish(&shuffled);
}

CASE(the_two_mixes_differ_in_the_order_of_giving) {
    ashlar_workload reverse = record("mix", "reverse"), shuffled = record("mix", "shuffled");
    size_t opposite = 0, same = 0, again = 0;
    for (size_t i = 0; i < TENSORS; i++) {
        opposite += reverse.ops[TENSORS + i].variable == reverse.ops[TENSORS - 1 - i].variable;
        same += shuffled.ops[TENSORS + i].variable == reverse.ops[TENSORS + i].variable;
        again += shuffled.ops[TENSORS + i].variable == shuffled.ops[3 * TENSORS + i].variable;
    }
    CHECK_ZU(opposite, TENSORS);
    CHECK(same < 20);
    CHECK(again < 20); /* every turn is shuffled anew */
    ashlar__workload_finish(&reverse);
    ashlar__workload_finish(&shuffled);
}

CASE(random_keeps_nearly_1000_blocks_live) {
    ashlar_workload w = record("random", "");
    size_t live = 0, many = 0, takes = 0;
    uint64_t sum = 0;
    for (size_t i = 0; i < w.count; i++) {
        CHECK(w.ops[i].bytes <= MIB);
        live = w.ops[i].bytes != 0 ? live + 1 : live - 1;
        many += live > 900;
        takes += w.ops[i].bytes != 0;
        sum += w.ops[i].bytes;
    }
    CHECK_ZU(w.live_max, 1000);
    CHECK(many > w.count / 2);
    CHECK(sum / takes > MIB / 2 - MIB / 50 && sum / takes < MIB / 2 + MIB / 50); /* uniform */
    ashlar__workload_finish(&w);
}

CASE(random_gives_old_and_new_blocks_alike) {
    ashlar_workload w = record("random", "");
    size_t *taken_at = calloc(w.variable_count, sizeof *taken_at);
    size_t newest = 0, gives = 0;
    REQUIRE(taken_at != NULL);
    for (size_t i = 0; i < 20000; i++) {
        if (w.ops[i].bytes != 0) {
            taken_at[w.ops[i].variable] = i;
        } else {
            gives++;
            newest += i - taken_at[w.ops[i].variable] < 20;
        }
    }
    CHECK(gives > 9000);
    CHECK(newest < gives / 20);
    free(taken_at);
    ashlar__workload_finish(&w);
}

CASE(the_two_rnn_lists_differ_in_the_first_step_only) {
    ashlar_workload warm = record("rnn_warm", ""), cold = record("rnn_cold", "");
    const size_t first = warm.body_begin;
    CHECK(first > 0 && cold.body_begin == 0);
    CHECK(warm.body_end == warm.count && cold.body_end == cold.count);
    REQUIRE(warm.count - first == cold.count);
    size_t steps = 0, different = 0;
    uint32_t taken[2][64] = {{0}}; /* by variable, which are numbered differently */
    REQUIRE(warm.variable_count <= 64 && cold.variable_count <= 64);
    for (size_t i = 0; i < cold.count; i++) {
        const ashlar_op one = warm.ops[first + i], two = cold.ops[i];
        different += one.bytes != two.bytes ||
                     (one.bytes == 0 && taken[0][one.variable] != taken[1][two.variable]);
        taken[0][one.variable] = one.bytes;
        taken[1][two.variable] = two.bytes;
        steps += two.bytes == sizeof(float); /* one loss a step */
    }
    CHECK_ZU(different, 0);
    CHECK_ZU(steps, ASHLAR_WORKLOAD_RNN_STEPS);
    ashlar__workload_finish(&warm);
    ashlar__workload_finish(&cold);
}

/* Operation by operation no later step asks for more than the first, and lengths vary. */
CASE(the_first_rnn_step_is_the_longest) {
    ashlar_workload w = record("rnn_warm", "");
    const size_t step = w.body_begin;
    size_t larger = 0, longest = 0, shortest = 0;
    REQUIRE((w.count - step) % step == 0);
    for (size_t i = step; i < w.count; i++) {
        larger += w.ops[i].bytes > w.ops[i % step].bytes;
        CHECK((w.ops[i].bytes == 0) == (w.ops[i % step].bytes == 0));
    }
    CHECK_ZU(larger, 0);
    const uint64_t most = w.ops[1].bytes; /* the input: [T, B, H] */
    CHECK(most == 256 * 32 * 256 * sizeof(float));
    for (size_t i = step; i < w.count; i += step) {
        longest += w.ops[i + 1].bytes > most / 100 * 95;
        shortest += w.ops[i + 1].bytes < most / 100 * 5;
        CHECK(w.ops[i + 1].bytes % (32 * 256 * sizeof(float)) == 0);
    }
    CHECK(longest > 20 && longest < 100 && shortest > 20 && shortest < 100);
    ashlar__workload_finish(&w);
}

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
