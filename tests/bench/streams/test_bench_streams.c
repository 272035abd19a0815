/*
 * test_bench_streams.c - ashlar's streams do not wait for each other, and the benchmark that says
 * so counts right. All times are virtual, so that they may be judged.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "bench/streams/bench_streams.h"

#include "tests/check.h"
#include "tests/text.h"

#include "allocator/device/device_impl.h"
#include "bench/streams/simulation.h"

/* LeakSanitizer asks for this. CUB keeps an event for itself where the driver refuses memory. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:CachingDeviceAllocator::DeviceAllocate";
}

#define MIB ((size_t)1 << 20)
#define PLENTY ((size_t)8 << 30)

/* A walk of the heap at each allocation leaves time for few steps, and for few cases. The steps in
 * which memory is taken are too many of these for a bound on times. */
enum { IS_SHORT = ASHLAR_DEBUG >= 3 };
static const ashlar_option_list few = {.items = {"prefetch", "pipeline", "models_fixed/2"},
                                       .count = IS_SHORT ? 3 : 0};

static const ashlar_streams_case *find_case(const char *name, const char *variant) {
    size_t count, i = 0;
    const ashlar_streams_case *cases = ashlar__streams_cases(&count);
    while (strcmp(cases[i].name, name) != 0 || strcmp(cases[i].variant, variant) != 0) {
        i++;
    }
    return &cases[i];
}

static ashlar_sim_figures figures_of(const ashlar_streams_case *c,
                                     const ashlar_streams_subject *subject) {
    ashlar_sim_figures f = {0};
    CHECK(ashlar__sim_run(&c->program, subject, c->smoke_steps, PLENTY, false, &f) == ASHLAR_OK);
    return f;
}

/* ---- what is counted ---- */

CASE(the_need_is_what_blocks_have_at_a_time) {
    static const struct {
        const char *name, *variant;
        size_t bytes;
    } wants[] = {
        {"independent", "8x16MiB", 8 * 16 * MIB},
        /* 32 activations, a workspace and a gradient */
        {"models_fixed", "2", 2 * (32 * 7 * MIB / 2 + 2 * MIB + MIB)},
        /* the host is four steps ahead; four hidden blocks */
        {"prefetch", "2", 4 * (32 * MIB + MIB / 4) + 4 * 8 * MIB},
        {"pipeline", "record", 4 * 16 * MIB},
        {"pipeline", "free_on", 4 * 16 * MIB},
    };
    for (size_t i = 0; i < sizeof wants / sizeof wants[0]; i++) {
        const ashlar_streams_case *c = find_case(wants[i].name, wants[i].variant);
        CHECK_ZU(figures_of(c, &ashlar__streams_per_stream).need_bytes, wants[i].bytes);
    }
}

/* A subject with one block for all, and with or without the wait that this takes. */
static struct one_block {
    ashlar_device *device;
    ashlar_event event;
    ashlar_stream last;
    cu_ptr ptr;
    bool is_careless;
} one;

static ashlar_status create_one(ashlar_device *device, void **self) {
    one = (struct one_block){.device = device, .is_careless = one.is_careless};
    *self = &one;
    CHECK(ASHLAR_DRIVER_CALL(device->driver, mem_alloc, (&one.ptr, 2 * MIB)) == CU_SUCCESS);
    return ashlar_event_create(device, &one.event);
}

static void destroy_one(void *self) {
    (void)self;
    CHECK(ASHLAR_DRIVER_CALL(one.device->driver, mem_free, (one.ptr)) == CU_SUCCESS);
    ashlar_event_destroy(one.device, one.event);
}

static void *take_one(void *self, size_t bytes, ashlar_stream stream) {
    (void)self;
    CHECK(bytes <= 2 * MIB);
    if (one.last != NULL && !one.is_careless) {
        CHECK(ashlar_event_record(one.device, one.event, one.last) == ASHLAR_OK);
        CHECK(ashlar_stream_wait(one.device, stream, one.event) == ASHLAR_OK);
    }
    one.last = stream;
    return ashlar__ptr_out(one.ptr);
}

static void give_one(void *self, void *ptr) {
    (void)self;
    CHECK(ptr == ashlar__ptr_out(one.ptr));
}

static const ashlar_streams_subject one_block = {.name = "one_block",
                                                 .create = create_one,
                                                 .destroy = destroy_one,
                                                 .take = take_one,
                                                 .give = give_one};

CASE(streams_that_take_turns_take_the_sum_of_their_times) {
    const ashlar_streams_case *c = find_case("independent", "2x2MiB");
    one.is_careless = false;
    const ashlar_sim_figures f = figures_of(c, &one_block);
    const double kernels_ns = (double)(2 * c->smoke_steps * ashlar__sim_kernel_ns(2 * MIB));
    CHECK_NEAR((double)f.ns, kernels_ns, 0, 0.01);
    CHECK_NEAR((double)f.settled_ns,
               kernels_ns * (double)(c->smoke_steps - ASHLAR_SIM_SETTLE) / (double)c->smoke_steps,
               0, 0.01);
    CHECK_ZU(f.reserved_bytes, 2 * MIB);
    CHECK_ZU(f.need_bytes, 4 * MIB);
    CHECK(f.waits_per_step == 1);
    CHECK(f.host_waits_per_step == 0);
}

CASE(a_block_that_is_handed_out_too_early_is_found) {
    const ashlar_streams_case *c = find_case("independent", "2x2MiB");
    ashlar_sim_figures f;
    one.is_careless = false;
    CHECK(ashlar__sim_run(&c->program, &one_block, 8, PLENTY, true, &f) == ASHLAR_OK);
    one.is_careless = true;
    CHECK(ashlar__sim_run(&c->program, &one_block, 8, PLENTY, true, &f) == ASHLAR_EFORMAT);
}

CASE(a_device_without_room_is_told_as_such) {
    const ashlar_streams_case *c = find_case("models_fixed", "2");
    ashlar_streams_subject subject;
    ashlar_sim_figures f;
    for (size_t i = 0; ashlar__streams_subject(i, &subject); i++) {
        CHECK(ashlar__sim_run(&c->program, &subject, 4, 32 * MIB, false, &f) == ASHLAR_ENOMEM);
    }
}

/* ---- the subjects ---- */

CASE(no_subject_hands_a_block_out_too_early) {
    size_t count;
    const ashlar_streams_case *cases = ashlar__streams_cases(&count);
    ashlar_streams_subject subject;
    for (size_t i = 0; i < count; i++) {
        if (IS_SHORT && cases[i].program.streams == ASHLAR_SIM_STREAMS_MAX) {
            continue;
        }
        const ashlar_sim_figures need = figures_of(&cases[i], &ashlar__streams_per_stream);
        for (size_t k = 0; ashlar__streams_subject(k, &subject); k++) {
            const size_t bytes =
                cases[i].share == 0 ? PLENTY : (size_t)(cases[i].share * (double)need.need_bytes);
            ashlar_sim_figures f;
            const ashlar_status status =
                ashlar__sim_run(&cases[i].program, &subject, 4, bytes, true, &f);
            CHECK(status == ASHLAR_OK ||
                  (status == ASHLAR_ENOMEM && bytes != PLENTY && strcmp(subject.name, "cub") == 0));
        }
    }
}

/* Of the plain reference: it takes segments of 20 MiB, and shares nothing. */
CASE(the_reference_reserves_whole_segments_for_each_stream) {
    const ashlar_sim_figures small =
        figures_of(find_case("independent", "8x2MiB"), &ashlar__streams_per_stream);
    const ashlar_sim_figures large =
        figures_of(find_case("independent", "8x64MiB"), &ashlar__streams_per_stream);
    CHECK_ZU(small.reserved_bytes, 8 * 20 * MIB);
    CHECK_ZU(large.reserved_bytes, 8 * 64 * MIB);
}

/* ---- the rows ---- */

static void measure(ashlar_rows *rows, bool is_smoke, const char *subject) {
    const ashlar_bench_request request = {.is_smoke = is_smoke,
                                          .out = nowhere(),
                                          .workloads = few,
                                          .subjects = {.items = {subject}, .count = 1}};
    *rows = (ashlar_rows){.form = ashlar__benchmark_streams.form};
    REQUIRE(ashlar__benchmark_streams.run(&request, NULL, rows, NULL) == ASHLAR_OK);
}

static void judge_apart(const ashlar_rows_cell *cells) {
    CHECK(IS_SHORT || cells[ASHLAR_STREAMS_TIME].number <= 1.01);
    CHECK(IS_SHORT || cells[ASHLAR_STREAMS_SETTLED].number <= 1.001);
    CHECK(cells[ASHLAR_STREAMS_RESERVED].number <= 1.05);
    CHECK(cells[ASHLAR_STREAMS_WAITS].number == 0);
    CHECK(cells[ASHLAR_STREAMS_HOST_WAITS].number == 0);
}

/* Streams that have less than they need, and take memory from each other. */
static void judge_shared(const ashlar_rows_cell *cells) {
    CHECK(cells[ASHLAR_STREAMS_TIME].number <= 1.06);
    CHECK(cells[ASHLAR_STREAMS_RESERVED].number <= 0.87);
}

CASE(ashlar_keeps_streams_apart_in_little_more_memory_than_they_need) {
    ashlar_rows rows;
    size_t shared = 0;
    measure(&rows, IS_SHORT, "ashlar");
    for (size_t i = 0; i < rows.count; i++) {
        const ashlar_rows_cell *cells = rows.items[i].cells;
        const bool is_shared = strcmp(cells[ASHLAR_STREAMS_CASE].text, "models_fixed_087") == 0;
        const int before = check_failed;
        (is_shared ? judge_shared : judge_apart)(cells);
        shared += is_shared;
        if (check_failed != before) {
            printf("# in %s/%s\n", cells[ASHLAR_STREAMS_CASE].text,
                   cells[ASHLAR_STREAMS_VARIANT].text);
        }
    }
    CHECK_ZU(rows.count, IS_SHORT ? 4 : 16);
    CHECK_ZU(shared, IS_SHORT ? 0 : 3);
    ashlar__rows_finish(&rows);
}

CASE(figures_are_the_same_in_each_run) {
    ashlar_streams_subject subject;
    for (size_t i = 0; ashlar__streams_subject(i, &subject); i++) {
        ashlar_rows first, second;
        measure(&first, true, subject.name);
        measure(&second, true, subject.name);
        CHECK_ZU(first.count, second.count);
        for (size_t k = 0; k < first.count && k < second.count; k++) {
            for (size_t c = ASHLAR_STREAMS_TIME; c < ASHLAR_STREAMS_COLUMNS; c++) {
                const double a = first.items[k].cells[c].number;
                const double b = second.items[k].cells[c].number;
                CHECK(a == b || (isnan(a) && isnan(b)));
            }
        }
        ashlar__rows_finish(&first);
        ashlar__rows_finish(&second);
    }
}

RUN_CASES()
