/* test_fit.c - the largest value that runs on a device of a given size, and what it needs. */
#include "tests/allocator/core/allocator_fixture.h"

#include <ashlar/plan.h>

#include "allocator/core/core.h"

/* What a program of `value` takes: a block that lasts, and steps of two blocks. */
typedef struct program {
    ashlar_allocator *allocator;
    size_t lasting_bytes, step_bytes; /* for each 1 of the value */
    size_t value;
    size_t calls;
    ashlar_status answer; /* other than ASHLAR_OK: of a value above 4 */
} program;

static ashlar_status dry_run(void *user, size_t length) {
    const program *p = user;
    void *first = NULL, *second = NULL;
    const size_t bytes = p->value * p->step_bytes * length;
    ashlar_status status = ashlar_alloc(p->allocator, bytes, streams[0], &first);
    if (status == ASHLAR_OK) {
        status = ashlar_alloc(p->allocator, bytes / 2, streams[0], &second);
    }
    CHECK(ashlar_free(p->allocator, second) == ASHLAR_OK);
    CHECK(ashlar_free(p->allocator, first) == ASHLAR_OK);
    return status;
}

static ashlar_status run(void *user, ashlar_allocator *in, size_t value) {
    program *p = user;
    const ashlar_warmup_options options = {
        .stream = streams[0], .max_length = 4, .dry_run = dry_run, .user = p};
    void *lasting = NULL;
    p->allocator = in;
    p->value = value;
    p->calls++;
    if (p->answer != ASHLAR_OK && value > 4) {
        return p->answer;
    }
    ashlar_status status = ashlar_alloc(in, value * p->lasting_bytes, streams[0], &lasting);
    if (status == ASHLAR_OK) {
        status = ashlar_allocator_warmup(in, &options, NULL);
    }
    CHECK(ashlar_free(in, lasting) == ASHLAR_OK);
    return status;
}

static const program usual = {.lasting_bytes = 2 * MIB, .step_bytes = 1 * MIB};

/* A value v needs 2 v for what lasts and 4 v + 2 v for the longest step. */
CASE_WITH(the_largest_value_is_found_with_its_need, set_up("memory=64MiB")) {
    program p = usual;
    const ashlar_fit_options options = {.run = run, .user = &p, .max_value = 1000};
    ashlar_fit_result fit;
    CHECK(ashlar_fit(device, &options, &fit) == ASHLAR_OK);
    CHECK_ZU(fit.value, 8);
    CHECK_ZU(fit.need_bytes, 64 * MIB);
    CHECK_ZU(fit.trials, p.calls);
    CHECK(fit.trials < 20);
}

CASE_WITH(a_smaller_device_than_there_is_can_be_asked_for, set_up("memory=64MiB")) {
    program p = usual;
    for (size_t mib = 8; mib <= 64; mib += 2) {
        const ashlar_fit_options options = {
            .run = run, .user = &p, .max_value = 1000, .device_bytes = mib * MIB + 5};
        ashlar_fit_result fit;
        CHECK(ashlar_fit(device, &options, &fit) == ASHLAR_OK);
        CHECK_ZU(fit.value, mib / 8);
        CHECK_ZU(fit.need_bytes, mib / 8 * 8 * MIB);
    }
}

CASE_WITH(what_does_not_fit_at_all_is_refused, set_up("memory=64MiB")) {
    program p = usual;
    ashlar_fit_options options = {.run = run, .user = &p, .min_value = 9, .max_value = 20};
    ashlar_fit_result fit = {.value = 77};
    CHECK_FAILS(ashlar_fit(device, &options, &fit), ASHLAR_ENOMEM, "warm-up");
    CHECK(fit.value == 77);
}

CASE_WITH(another_failure_ends_the_search, set_up("memory=64MiB")) {
    program p = usual;
    const ashlar_fit_options options = {.run = run, .user = &p, .max_value = 1000};
    ashlar_fit_result fit;
    p.answer = ashlar_error_set(ASHLAR_EIO, "no text");
    CHECK_FAILS(ashlar_fit(device, &options, &fit), ASHLAR_EIO, "no text");
    p.answer = ASHLAR_ENOMEM;
    CHECK(ashlar_fit(device, &options, &fit) == ASHLAR_OK && fit.value == 4);
}

CASE_WITH(options_that_make_no_sense_are_named, set_up("memory=64MiB")) {
    program p = usual;
    const ashlar_fit_options good = {.run = run, .user = &p, .max_value = 10};
    ashlar_fit_options o = good;
    ashlar_fit_result fit;
    o.run = NULL;
    CHECK_FAILS(ashlar_fit(device, &o, &fit), ASHLAR_EINVAL, "run is NULL");
    o = good;
    o.max_value = 0;
    CHECK_FAILS(ashlar_fit(device, &o, &fit), ASHLAR_EINVAL, "values 1 to 0");
    o = good;
    o.device_bytes = 66 * MIB;
    CHECK_FAILS(ashlar_fit(device, &o, &fit), ASHLAR_EINVAL, "what the software device has");
    o.device_bytes = 1 * MIB;
    CHECK_FAILS(ashlar_fit(device, &o, &fit), ASHLAR_EINVAL, "a device of 0 bytes");
    CHECK(p.calls == 0);
}

RUN_CASES()
