/*
 * test_optimizer_staging.c - moments and masters in page-locked memory: steps have the bits of an
 * optimizer whose state is on the device, in any order of work; captured ones, too.
 */
#include "tests/arena/optimizer/optimizer_fixture.h"

#include "allocator/device/device_impl.h"
#include "arena/layout/arena_impl.h"
#include "arena/optimizer/optimizer_staging.h"
#include "tests/allocator/soft/soft_probe.h"

/* Every type, so that pieces have masters, and none; matrices larger than a piece, and smaller. */
static const tensor_case tensors[] = {
    {"a", ASHLAR_F32, 3, {0}},
    {"large", ASHLAR_F32, 70000, {0}},
    {"wide", ASHLAR_F64, 9001, {.rate_scale = 0.25}},
    {"half", ASHLAR_F16, 60001, {0}},
    {"frozen", ASHLAR_F32, 20000, {.is_frozen = true}},
    {"brain", ASHLAR_BF16, 50000, {.has_no_decay = true}},
    {"matrix", ASHLAR_F32, 200 * 301, {0}},
    {"tall", ASHLAR_F16, 300 * 90, {0}},
    {"small", ASHLAR_F64, 9 * 7, {0}},
    {"last", ASHLAR_F32, 65, {0}},
};
enum { COUNT = sizeof tensors / sizeof tensors[0], STEPS = 3, SHARES_LEAST = 10 };
static const size_t columns_of[COUNT] = {0, 0, 0, 0, 0, 0, 301, 90, 7, 0};

static const unsigned no_state =
    ASHLAR_REGIONS_INFERENCE | ASHLAR_REGION_BIT(ASHLAR_REGION_GRADIENTS);

static bool open_state(const char *spec, const ashlar_optimizer_config *config, bool on_host) {
    ashlar_optimizer_config c = *config;
    c.state_on_host = on_host;
    case_columns = columns_of;
    if (!open_arena(spec, tensors, COUNT, no_state) ||
        ashlar_optimizer_create(arena, &c, streams[0], &optimizer) != ASHLAR_OK) {
        return false;
    }
    wait_for(streams[0]);
    draw(ASHLAR_REGION_PARAMETERS, 1, 1);
    return true;
}

static void step(unsigned gradients) {
    draw(ASHLAR_REGION_GRADIENTS, gradients, 1);
    CHECK(ashlar_optimizer_step(optimizer, 0.05, 0.5, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
}

/* Whole steps, a skipped one, and one of which each of two ranges is a call. */
static void train(void) {
    const size_t all = ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_PARAMETERS];
    size_t middle = 0;
    for (unsigned i = 1; i <= STEPS; i++) {
        step(i);
    }
    put(ASHLAR_REGION_GRADIENTS, 1, 9, (double)NAN);
    CHECK(ashlar_optimizer_step(optimizer, 0.05, 0.5, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    CHECK_ZU(state_now().skipped, 1);
    draw(ASHLAR_REGION_GRADIENTS, 9, 1);
    middle = (size_t)((char *)ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, 4) -
                      (char *)ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS));
    CHECK(sum_range(0, all) == ASHLAR_OK && decide(1) == ASHLAR_OK);
    CHECK(update_range(middle, all - middle, 0.05) == ASHLAR_OK);
    CHECK(update_range(0, middle, 0.05) == ASHLAR_OK);
    wait_for(streams[0]);
}

static void check_same(const char *spec, const ashlar_optimizer_config *config) {
    image resident;
    REQUIRE(open_state(spec, config, false));
    CHECK_ZU(ashlar_optimizer_get_info(optimizer).host_bytes, 0);
    train();
    take_image(&resident);
    close_optimizer();
    REQUIRE(open_state(spec, config, true));
    const ashlar_arena_info info = ashlar_arena_get_info(arena);
    size_t bytes = 0;
    for (unsigned i = ASHLAR_REGION_MOMENT1; i < ASHLAR_REGION_COUNT; i++) {
        bytes += (info.regions & ASHLAR_REGION_BIT(i)) != 0 ? info.region_bytes[i] : 0;
    }
    CHECK_ZU(ashlar_optimizer_get_info(optimizer).host_bytes, bytes);
    train();
    CHECK(is_image(&resident));
    check_padding();
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    CHECK(ashlar_arena_check_padding(arena, streams[0]) == ASHLAR_OK);
    free_image(&resident);
    close_optimizer();
}

CASE(state_on_the_host_has_the_bits_of_state_on_the_device) {
    for (int kind = 0; kind < ASHLAR_OPTIMIZER_COUNT; kind++) {
        ashlar_optimizer_config config = defaults((ashlar_optimizer_kind)kind);
        config.clip_norm = 20;
        check_same("memory=64MiB", &config);
        config.momentum = 0.5;
        check_same("memory=64MiB", &config);
    }
}

/* Whatever does not wait for what it needs runs before it, with some seed. */
CASE(copies_and_updates_are_in_order_whenever_they_run) {
    const ashlar_optimizer_config config = adamw(), muon = defaults(ASHLAR_OPTIMIZER_MUON);
    char spec[64];
    for (unsigned seed = 1; seed <= 6; seed++) {
        (void)snprintf(spec, sizeof spec, "memory=64MiB,mode=adversarial,seed=%u", seed);
        check_same(spec, seed % 3 == 0 ? &muon : &config);
    }
}

/* ---- with vector clocks ---- */

static const ashlar_optimizer_table *table;
static size_t uses, misordered; /* of launches */

static void use(const void *first, const void *end, ashlar_stream stream) {
    const size_t bytes = (size_t)((const char *)end - (const char *)first);
    bool is_ordered = false;
    CHECK(ashlar__soft_clock_own(ashlar__ptr_in(first), bytes, stream, &is_ordered) == ASHLAR_OK);
    CHECK(ashlar__soft_clock_use(ashlar__ptr_in(first), bytes, stream) == ASHLAR_OK);
    uses++;
    misordered += !is_ordered;
}

/* In the place of the update. */
static ashlar_status use_state(const ashlar_optimizer *o, const ashlar_optimizer_job *job,
                               ashlar_stream stream) {
    (void)o;
    ASHLAR_TRY(ashlar__device_enter(device));
    for (size_t i = 0; i < job->run_count; i++) {
        ashlar_optimizer_run run = table->runs[job->first_run + i];
        const size_t first = i == 0 ? job->first : 0;
        const size_t end = i + 1 == job->run_count ? job->end : run.elements;
        const size_t width = run.dtype == ASHLAR_F64 ? sizeof(double) : sizeof(float);
        ashlar__formula_stage(job, &run);
        use((char *)run.moment1 + first * width, (char *)run.moment1 + end * width, stream);
        use((char *)run.moment2 + first * width, (char *)run.moment2 + end * width, stream);
        if (run.master != NULL) {
            use(run.master + first, run.master + end, stream);
        }
    }
    ashlar__device_leave(device);
    return ASHLAR_OK;
}

CASE(every_copy_and_update_comes_after_all_uses_of_its_memory) {
    ashlar_optimizer_config config = adamw();
    REQUIRE(open_state("memory=64MiB,mode=adversarial,seed=3", &config, true));
    SKIP_IF(ashlar_device_get_info(device).kind != ASHLAR_DEVICE_SOFT, "no clocks there");
    const ashlar_optimizer_rule rule = {.algorithm = ashlar__optimizer_algorithm(&config),
                                        .config = config};
    const size_t all = ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_PARAMETERS];
    ashlar_optimizer_table own;
    ashlar_optimizer_staging staging = {0};
    REQUIRE(ashlar__optimizer_table_init(&own, arena, &rule) == ASHLAR_OK);
    table = &own;
    CHECK(ashlar__optimizer_staging_open(&staging, arena, &rule, streams[0]) == ASHLAR_OK);
    CHECK_ZU(ashlar__soft_clock_watch_copies(), 0);
    for (int i = 0; i < 3; i++) {
        const ashlar_optimizer_job job = {.rule = rule, .passes = ASHLAR_OPTIMIZER_UPDATE};
        CHECK(ashlar__optimizer_staging_run(&staging, table, own.runs, &job, 0, all, use_state,
                                            optimizer, streams[0]) == ASHLAR_OK);
        CHECK(ashlar_arena_zero(arena, ASHLAR_REGION_MOMENT1, streams[0]) == ASHLAR_OK);
    }
    CHECK_ZU(ashlar__soft_clock_watch_copies(), 0);
    CHECK_ZU(misordered, 0);
    CHECK(uses > 3 * 2 * SHARES_LEAST);
    ashlar__optimizer_staging_close(&staging, allocator);
    ashlar__optimizer_table_finish(&own);
}

/* ---- memory ---- */

CASE(what_stays_on_the_device_is_the_two_pieces) {
    const ashlar_optimizer_config config = adamw();
    REQUIRE(open_state("memory=64MiB", &config, false));
    const uint64_t resident = stats_now().live_bytes;
    close_optimizer();
    REQUIRE(open_state("memory=64MiB", &config, true));
    const uint64_t host = ashlar_optimizer_get_info(optimizer).host_bytes;
    CHECK(stats_now().live_bytes < resident - host / 2);
}

/* Masters that the arena has already stay where they are, as do regions of an optimizer before. */
CASE(only_what_the_arena_lacks_goes_to_the_host) {
    ashlar_optimizer_config config = adamw();
    config.state_on_host = true;
    REQUIRE(open_arena("memory=64MiB", tensors, COUNT, ASHLAR_REGIONS_TRAINING));
    REQUIRE(ashlar_optimizer_create(arena, &config, streams[0], &optimizer) == ASHLAR_OK);
    const size_t moments = 2 * ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_MOMENT1];
    CHECK_ZU(ashlar_optimizer_get_info(optimizer).host_bytes, moments);
    step(1);
    ashlar_optimizer_destroy(optimizer);
    config.state_on_host = false;
    REQUIRE(ashlar_optimizer_create(arena, &config, streams[0], &optimizer) == ASHLAR_OK);
    CHECK_ZU(ashlar_optimizer_get_info(optimizer).host_bytes, moments);
    step(2);
}

CASE(steps_take_no_memory_and_ask_nothing) {
    const ashlar_optimizer_config config = adamw();
    REQUIRE(open_state("memory=64MiB", &config, true));
    step(1);
    const ashlar_driver_counts before = ashlar_device_get_info(device).calls;
    const uint64_t events = ashlar_optimizer_get_info(optimizer).event_calls;
    step(2);
    const ashlar_driver_counts after = ashlar_device_get_info(device).calls;
    const uint64_t more = ashlar_optimizer_get_info(optimizer).event_calls - events;
    CHECK_ZU(after.memory, before.memory);
    CHECK_ZU(after.order - before.order, more);
    CHECK(more > 0);
}

CASE(a_captured_step_has_the_same_bits) {
    const ashlar_optimizer_config config = adamw();
    image called;
    ashlar_graph *graph = NULL;
    REQUIRE(open_state("memory=64MiB", &config, true));
    step(1);
    step(2);
    take_image(&called);
    close_optimizer();
    REQUIRE(open_state("memory=64MiB", &config, true));
    CHECK(ashlar_graph_begin(device, streams[0], &graph) == ASHLAR_OK);
    CHECK(ashlar_optimizer_step(optimizer, 0.05, 0.5, streams[0]) == ASHLAR_OK);
    REQUIRE(ashlar_graph_end(graph) == ASHLAR_OK);
    for (unsigned i = 1; i <= 2; i++) {
        draw(ASHLAR_REGION_GRADIENTS, i, 1);
        CHECK(ashlar_graph_launch(graph) == ASHLAR_OK);
        wait_for(streams[0]);
    }
    CHECK(is_image(&called));
    ashlar_graph_destroy(graph);
    free_image(&called);
}

/* Nothing is leaked, and nothing uses memory that was given back. */
CASE(a_call_that_fails_is_told) {
    static const ashlar_driver_fn calls[] = {
        ASHLAR_DRIVER_FN_mem_host_alloc,    ASHLAR_DRIVER_FN_stream_create,
        ASHLAR_DRIVER_FN_event_create,      ASHLAR_DRIVER_FN_memcpy_dtoh_async,
        ASHLAR_DRIVER_FN_memcpy_htod_async, ASHLAR_DRIVER_FN_event_record,
        ASHLAR_DRIVER_FN_stream_wait_event};
    ashlar_optimizer_config config = adamw();
    config.state_on_host = true;
    REQUIRE(open_arena("memory=64MiB,mode=adversarial,seed=3", tensors, COUNT, no_state));
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        size_t failures = 0;
        uint64_t made = 1;
        for (uint64_t n = 1; made >= n; n++) {
            const uint64_t before = atomic_load(&device->driver->calls[calls[i]]);
            ashlar_status status;
            DRIVER_FAILS_AT(
                calls[i], n, CU_UNKNOWN,
                status = ashlar_optimizer_create(arena, &config, streams[0], &optimizer);
                ASHLAR_THEN(status, ashlar_optimizer_step(optimizer, 0.05, 1, streams[0])));
            made = atomic_load(&device->driver->calls[calls[i]]) - before;
            CHECK(status == ASHLAR_OK || status == ASHLAR_EDRIVER);
            failures += status != ASHLAR_OK;
            ashlar_optimizer_destroy(optimizer);
            optimizer = NULL;
            CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
        }
        CHECK(failures > 0);
        wait_for(streams[0]);
    }
    CHECK((ashlar_arena_get_info(arena).regions & ~no_state) != 0); /* which stay the arena's */
}

RUN_CASES()
