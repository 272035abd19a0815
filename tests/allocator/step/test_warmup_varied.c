/*
 * test_warmup_varied.c - steps whose lengths differ in more than sizes: the warm-up finds out which
 * lengths may share a plan, and needs no more memory than the largest of all steps.
 *
 * ASHLAR_VARIED_PROGRAMS in the environment says how many programs are drawn, ASHLAR_SEED which is
 * the first.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include <stdlib.h>

#include <ashlar/plan.h>

#include "allocator/base/random.h"

enum { LAYERS_MAX = 8, CHUNKS_MAX = 8, KEPT_MAX = 3, LENGTHS_MAX = 40 };

enum { PROGRAMS = CHECK_SANITIZED(60, 3) };

/* What a drawn program does in its steps. It follows from the seed, the length and the place in the
 * step alone. */
static struct program {
    uint64_t seed;
    size_t layers, width, length_count;
    bool has_optional; /* some lengths need buffers that others do without */
    bool has_orders;   /* some lengths take their buffers in another order */
    bool has_work;     /* workspaces are not the larger the longer the step */
    bool is_nested;    /* temporary buffers overlap the next ones */
    bool has_chunks;   /* longer steps run in more parts */
    bool has_streams;  /* every second layer works on a stream of its own */
    size_t shares;    /* of so many buffers of each kind one is used on a further stream; 0: none */
    bool shares_kept; /* of those that are kept for backward, not of the temporary ones */
    void *kept[LAYERS_MAX][CHUNKS_MAX][KEPT_MAX];
    size_t live_bytes[2], step_peaks[2], peaks[2]; /* by stream: in this step, in all steps */
    size_t held_bytes[2], held_peaks[2]; /* the same if shared blocks live to the step's end */
    size_t live_count;
} program;

static uint64_t drawn(uint64_t what, uint64_t i, uint64_t j) {
    return ashlar__random_mix(ashlar__random_mix(ashlar__random_mix(program.seed * 31 + what) ^ i) ^
                              j);
}

static void make_program(uint64_t seed) {
    memset(&program, 0, sizeof program);
    program.seed = seed;
    program.layers = 2 + drawn(1, 0, 0) % (LAYERS_MAX - 1);
    program.width = (1 + drawn(2, 0, 0) % 8) * 8 * MIB;
    program.length_count = 10 + drawn(3, 0, 0) % (LENGTHS_MAX - 9);
    program.has_optional = drawn(4, 0, 0) % 2 == 0;
    program.has_orders = drawn(5, 0, 0) % 2 == 0;
    program.has_work = drawn(6, 0, 0) % 4 != 0;
    program.is_nested = drawn(7, 0, 0) % 2 == 0;
    program.has_chunks = drawn(8, 0, 0) % 2 == 0;
    program.has_streams = drawn(9, 0, 0) % 4 == 0;
}

static void make_sharing_program(uint64_t seed) {
    make_program(seed);
    program.shares = 1 + drawn(10, 0, 0) % 4;
    program.shares_kept = drawn(11, 0, 0) % 2 == 0;
}

/* ---- a step ---- */

static size_t stream_of(size_t layer) {
    return program.has_streams ? layer % 2 : 0;
}

static void raise(size_t *peak, size_t bytes) {
    *peak = bytes > *peak ? bytes : *peak;
}

static ashlar_status take_one(size_t layer, size_t bytes, ashlar_tag tag, void **out) {
    const size_t at = stream_of(layer), slot_bytes = (bytes + 511) / 512 * 512;
    const ashlar_status status = ashlar_alloc_tagged(allocator, bytes, tag, streams[at], out);
    if (status == ASHLAR_OK) {
        program.live_bytes[at] += slot_bytes;
        program.held_bytes[at] += slot_bytes;
        program.live_count++;
        raise(&program.step_peaks[at], program.live_bytes[at]);
        raise(&program.held_peaks[at], program.held_bytes[at]);
    }
    return status;
}

/* The last use is on a further stream: it is marked for that, or freed there. */
static ashlar_status give_elsewhere(size_t layer, void *ptr) {
    const ashlar_stream further = streams[2 + layer % 2];
    if (layer % 3 == 0) {
        return ashlar_free_on(allocator, ptr, further);
    }
    const ashlar_status status = ashlar_record_stream(allocator, ptr, further);
    return status == ASHLAR_OK ? ashlar_free(allocator, ptr) : status;
}

static ashlar_status give_one(size_t layer, size_t bytes, bool is_kept, void **ptr) {
    const bool is_shared = program.shares > 0 && is_kept == program.shares_kept &&
                           drawn(12, layer, is_kept) % program.shares == 0;
    const size_t at = stream_of(layer), slot_bytes = (bytes + 511) / 512 * 512;
    const ashlar_status status =
        is_shared ? give_elsewhere(layer, *ptr) : ashlar_free(allocator, *ptr);
    *ptr = NULL;
    program.live_bytes[at] -= slot_bytes;
    program.held_bytes[at] -= is_shared ? 0 : slot_bytes;
    program.live_count--;
    return status;
}

static size_t kept_bytes(size_t layer, size_t which, size_t length) {
    const size_t shares[KEPT_MAX] = {4, 1, 2};
    return length * program.width / 16 * shares[which] + layer * 3000 + 1;
}

/* As the fastest algorithm for a shape needs it: much, little or none, whatever the length. */
static size_t work_bytes(size_t layer, size_t length, bool is_forward) {
    const uint64_t algorithm = drawn(20 + is_forward, layer, length / 3) % 3;
    return program.has_work ? algorithm * 5 * program.width + 700 : length * program.width / 8 + 1;
}

static bool is_needed(size_t layer, size_t which, size_t length) {
    return which != 2 || !program.has_optional || drawn(30, layer, length) % 2 == 0;
}

static ashlar_status work_once(size_t layer, size_t length, bool is_forward) {
    void *work = NULL;
    const size_t bytes = work_bytes(layer, length, is_forward);
    const ashlar_status status = take_one(layer, bytes, ASHLAR_TAG_WORKSPACE, &work);
    return status == ASHLAR_OK ? give_one(layer, bytes, false, &work) : status;
}

static ashlar_status forward_one(size_t layer, size_t chunk, size_t length) {
    const bool turns = program.has_orders && drawn(40, layer, length) % 2 == 0;
    const size_t temporary_bytes = length * program.width / 5 + 9;
    void *temporary = NULL;
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < KEPT_MAX && status == ASHLAR_OK; i++) {
        const size_t which = turns ? KEPT_MAX - 1 - i : i;
        if (i == 1 && program.is_nested) {
            status = take_one(layer, temporary_bytes, ASHLAR_TAG_ACTIVATIONS, &temporary);
        }
        if (status == ASHLAR_OK && is_needed(layer, which, length)) {
            status = take_one(layer, kept_bytes(layer, which, length), ASHLAR_TAG_SAVED,
                              &program.kept[layer][chunk][which]);
        }
    }
    if (status == ASHLAR_OK) {
        status = work_once(layer, length, true);
    }
    return status == ASHLAR_OK && temporary != NULL
               ? give_one(layer, temporary_bytes, false, &temporary)
               : status;
}

static ashlar_status backward_one(size_t layer, size_t chunk, size_t length) {
    ashlar_status status = work_once(layer, length, false);
    for (size_t which = 0; which < KEPT_MAX && status == ASHLAR_OK; which++) {
        if (is_needed(layer, which, length)) {
            status = give_one(layer, kept_bytes(layer, which, length), true,
                              &program.kept[layer][chunk][which]);
        }
    }
    return status;
}

static ashlar_status step(void *user, size_t length) {
    const size_t chunks = program.has_chunks ? 1 + length * (CHUNKS_MAX - 1) / LENGTHS_MAX : 1;
    ashlar_status status = ASHLAR_OK;
    (void)user;
    memset(program.step_peaks, 0, sizeof program.step_peaks);
    memset(program.held_bytes, 0, sizeof program.held_bytes);
    for (size_t i = 0; i < program.layers * chunks && status == ASHLAR_OK; i++) {
        status = forward_one(i / chunks, i % chunks, length);
    }
    for (size_t i = program.layers * chunks; i-- > 0 && status == ASHLAR_OK;) {
        status = backward_one(i / chunks, i % chunks, length);
    }
    CHECK(status != ASHLAR_OK || program.live_count == 0);
    for (size_t at = 0; at < 2; at++) {
        raise(&program.peaks[at], program.step_peaks[at]);
    }
    return status;
}

/* ---- the claims ---- */

/* The worst of all programs. */
static struct {
    double reserved_over_peak;
    size_t plans;
} worst;

static struct { double reserved, peak, held; } sums;

/* Within 2 %, or to the handles of 2 MiB that each stream's memory is made of. */
static bool is_near(double reserved, double bytes) {
    return reserved <= 1.02 * bytes ||
           reserved <= bytes + (program.has_streams ? 2 : 1) * 2.0 * MIB;
}

static void check_warmup(const ashlar_warmup_report *report) {
    const double peak = (double)(program.peaks[0] + program.peaks[1]);
    const double held = (double)(program.held_peaks[0] + program.held_peaks[1]);
    const double ratio = (double)report->reserved_bytes / peak;
    CHECK(report->is_planned && report->is_steady);
    CHECK_ZU(report->plan.bound_bytes, program.peaks[0] + program.peaks[1]);
    CHECK(is_near((double)report->reserved_bytes, held));
    CHECK(program.shares > 0 || is_near((double)report->reserved_bytes, peak));
    CHECK(report->gap + 1 <= ratio && ratio <= (report->gap + 1) * 1.001 + 4 * MIB / peak);
    sums.reserved += (double)report->reserved_bytes;
    sums.peak += peak;
    sums.held += held;
    if (ratio > worst.reserved_over_peak) {
        worst.reserved_over_peak = ratio;
    }
    if (report->plan.plan_count > worst.plans) {
        worst.plans = report->plan.plan_count;
    }
}

static void run_later(const ashlar_warmup_options *o) {
    const ashlar_stats before = stats_now();
    const ashlar_driver_counts calls_before = counts_now();
    for (size_t i = 0; i < 2 * o->max_length; i++) {
        const size_t length = 1 + drawn(50, i, 0) % o->max_length;
        CHECK(ashlar_step_begin(allocator, o->stream, ashlar_warmup_key(o, length)) == ASHLAR_OK);
        CHECK(step(NULL, length) == ASHLAR_OK);
        CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    }
    const ashlar_stats after = stats_now();
    const uint64_t memory_calls_after = counts_now().memory, waits_after = counts_now().wait;
    ashlar_plan_stats plan;
    ashlar_plan_get_stats(allocator, &plan);
    CHECK_ZU(plan.miss_count, 0);
    CHECK_ZU(plan.unplanned + plan.steps_declined, 0);
    CHECK(program.shares > 0 || after.driver_calls == before.driver_calls);
    CHECK(memory_calls_after == calls_before.memory && waits_after == calls_before.wait);
    CHECK_ZU(after.reserved_bytes, before.reserved_bytes);
}

static void check_program(uint64_t seed, void (*make)(uint64_t seed)) {
    ashlar_warmup_report report;
    make(seed);
    /* Where work is late, no event that a trim records has completed before the host waits. */
    REQUIRE(set_up_cached(seed % 4 == 0 ? "memory=512GiB,mode=adversarial,seed=7" : "memory=512GiB",
                          64 * MIB));
    const ashlar_warmup_options o = {
        .stream = streams[0], .min_length = 1, .max_length = program.length_count, .dry_run = step};
    const ashlar_status status = ashlar_allocator_warmup(allocator, &o, &report);
    CHECK(status == ASHLAR_OK);
    if (status != ASHLAR_OK) {
        printf("# %s\n", ashlar_error_detail());
    } else {
        check_warmup(&report);
        run_later(&o);
        check_all();
    }
    tear_down();
}

static uint64_t number_from(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void check_programs(void (*make)(uint64_t seed)) {
    memset(&worst, 0, sizeof worst);
    memset(&sums, 0, sizeof sums);
    const uint64_t count = number_from("ASHLAR_VARIED_PROGRAMS", PROGRAMS);
    const uint64_t first = number_from("ASHLAR_SEED", 1);
    for (uint64_t seed = first; seed < first + count && check_failed == 0; seed++) {
        check_program(seed, make);
        if (check_failed != 0) {
            printf("# ASHLAR_SEED=%llu\n", (unsigned long long)seed);
        }
    }
    printf("# %llu programs: reserved / peak at most %.4f, together %.4f, and %.4f if shared "
           "blocks live to the end; at most %zu plans\n",
           (unsigned long long)count, worst.reserved_over_peak, sums.reserved / sums.peak,
           sums.reserved / sums.held, worst.plans);
}

CASE(steps_that_vary_need_hardly_more_than_the_largest_of_them) {
    check_programs(make_program);
}

/* Between steps only order is asked for: see check_program(). */
CASE(blocks_of_several_streams_need_what_they_have_at_the_end_of_the_step) {
    check_programs(make_sharing_program);
}

RUN_CASES()
