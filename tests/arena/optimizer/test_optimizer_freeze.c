/*
 * test_optimizer_freeze.c - tensors that are frozen and unfrozen between steps, also of a captured
 * graph: nothing of a frozen one changes, and each counts its own updates.
 */
#include "tests/arena/optimizer/optimizer_fixture.h"

#include "allocator/base/random.h"

enum { CASES = sizeof all_cases / sizeof all_cases[0], STEPS = 30 };

static tensor_case now[CASES];
static reference r; /* too large for a stack */
static uint64_t random_state;

static bool chance(double probability) {
    return ashlar__random_step_uniform(&random_state) < probability;
}

static bool open_frozen(const ashlar_optimizer_config *config) {
    random_state = 7;
    memcpy(now, all_cases, sizeof now);
    const bool is_open = open_optimizer_of("memory=16MiB", now, CASES, config);
    reference_open(&r, config);
    return is_open;
}

static void set_frozen(size_t t, bool is_frozen) {
    now[t].options.is_frozen = is_frozen;
    CHECK(ashlar_arena_set_options(arena, t, &now[t].options) == ASHLAR_OK);
}

/* Large gradients, and in frozen tensors worse ones. */
static void draw_gradients(unsigned seed) {
    draw(ASHLAR_REGION_GRADIENTS, seed, 1);
    for (size_t t = 0; t < CASES; t++) {
        if (now[t].options.is_frozen) {
            put(ASHLAR_REGION_GRADIENTS, t, 0, (double)NAN);
            put(ASHLAR_REGION_GRADIENTS, t, 1, 1000);
        }
    }
}

/* Go on from the arena's values, so that roundings do not add up. */
static void take_reference(void) {
    for (size_t t = 0; t < CASES; t++) {
        const bool has_master = r.updates[t] > 0 && ashlar_dtype_is_narrow(now[t].dtype);
        for (size_t i = 0; i < now[t].elements; i++) {
            r.p[t][i] = get(has_master ? ASHLAR_REGION_MASTER : ASHLAR_REGION_PARAMETERS, t, i);
            r.m[t][i] = region_has(ASHLAR_REGION_MOMENT1, t) ? get(ASHLAR_REGION_MOMENT1, t, i) : 0;
            r.v[t][i] = region_has(ASHLAR_REGION_MOMENT2, t) ? get(ASHLAR_REGION_MOMENT2, t, i) : 0;
        }
    }
}

/* In every region, frozen tensors have the bits of the image. */
static void check_untouched(const image *before) {
    for (int region = 0; region < ASHLAR_REGION_COUNT; region++) {
        const char *base = ashlar_arena_region(arena, (ashlar_region)region);
        for (size_t t = 0; t < CASES; t++) {
            const char *view = ashlar_arena_view(arena, (ashlar_region)region, t);
            CHECK(view == NULL || !now[t].options.is_frozen ||
                  memcmp(view, before->bytes[region] + (view - base),
                         now[t].elements * ashlar_dtype_bytes(type_in((ashlar_region)region, t))) ==
                      0);
        }
    }
}

static void check_updates(void) {
    ashlar_optimizer_state state;
    uint64_t updates[CASES];
    CHECK(ashlar_optimizer_copy_state_to_host(optimizer, &state, updates, streams[0]) == ASHLAR_OK);
    for (size_t t = 0; t < CASES; t++) {
        CHECK_ZU(updates[t] == ASHLAR_UPDATED_ALWAYS ? state.step : updates[t],
                 (size_t)r.updates[t]);
    }
}

/* One step, in a graph or not; in between one that is skipped. */
static void check_step(unsigned seed, const ashlar_graph *graph) {
    image before;
    draw_gradients(seed);
    const bool is_bad = chance(0.1) && !now[3].options.is_frozen;
    if (is_bad) {
        put(ASHLAR_REGION_GRADIENTS, 3, 0, (double)INFINITY);
    }
    take_image(&before);
    CHECK((graph != NULL ? ashlar_graph_launch(graph)
                         : ashlar_optimizer_step(optimizer, 0.05, 1, streams[0])) == ASHLAR_OK);
    wait_for(streams[0]);
    check_untouched(&before);
    if (is_bad) {
        CHECK(is_image(&before));
    } else {
        reference_step(&r, &opened, 0.05, 1);
        check_equal(&r);
        take_reference();
    }
    free_image(&before);
    check_updates();
    check_padding();
}

CASE(each_tensor_counts_its_own_updates) {
    static const struct {
        ashlar_optimizer_kind kind;
        double momentum, dampening;
        bool nesterov;
    } rows[] = {
        {ASHLAR_OPTIMIZER_SGD, 0, 0, false},       {ASHLAR_OPTIMIZER_SGD, 0.9, 0, false},
        {ASHLAR_OPTIMIZER_SGD, 0.9, 0, true},      {ASHLAR_OPTIMIZER_SGD, 0.9, 0.25, false},
        {ASHLAR_OPTIMIZER_ADAM, 0, 0, false},      {ASHLAR_OPTIMIZER_ADAMW, 0, 0, false},
        {ASHLAR_OPTIMIZER_ADAGRAD, 0, 0, false},   {ASHLAR_OPTIMIZER_RMSPROP, 0, 0, false},
        {ASHLAR_OPTIMIZER_RMSPROP, 0.4, 0, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ashlar_optimizer_config config = defaults(rows[i].kind);
        config.momentum = rows[i].momentum;
        config.dampening = rows[i].dampening;
        config.nesterov = rows[i].nesterov;
        config.weight_decay = 0.1;
        config.rate_decay = 0.05;
        config.smoothing = 0.5;
        config.epsilon = 0.25;
        config.clip_norm = i % 2 == 0 ? 3 : 0;
        REQUIRE(open_frozen(&config));
        for (unsigned step = 1; step <= STEPS; step++) {
            for (size_t t = 0; t < CASES; t++) {
                if (chance(0.2)) {
                    set_frozen(t, !now[t].options.is_frozen);
                }
            }
            check_step(step, NULL);
        }
        close_optimizer();
    }
}

CASE(a_tensor_unfrozen_after_a_hundred_steps_begins_with_update_1) {
    const ashlar_optimizer_config config = adamw();
    REQUIRE(open_frozen(&config));
    set_frozen(1, true);
    for (unsigned step = 1; step <= 100; step++) {
        draw_gradients(step);
        CHECK(ashlar_optimizer_step(optimizer, 0.05, 1, streams[0]) == ASHLAR_OK);
    }
    set_frozen(1, false);
    const double before = get(ASHLAR_REGION_PARAMETERS, 1, 0);
    draw(ASHLAR_REGION_GRADIENTS, 1, 1);
    CHECK(ashlar_optimizer_step(optimizer, 0.05, 1, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    const double sign = get(ASHLAR_REGION_GRADIENTS, 1, 0) > 0 ? 1 : -1;
    CHECK_NEAR(get(ASHLAR_REGION_PARAMETERS, 1, 0), before * (1 - 0.05 * 0.01) - 0.05 * sign, 1e-6,
               0);
    const ashlar_optimizer_state start = {.step = 0};
    CHECK(ashlar_optimizer_copy_state_to_device(optimizer, &start, NULL, streams[0]) == ASHLAR_OK);
    memset(r.updates, 0, sizeof r.updates);
    check_updates();
}

/* ---- graphs ---- */

static ashlar_graph *graph;

static void close_graph(void) {
    wait_for(streams[0]);
    ashlar_graph_destroy(graph);
    graph = NULL;
}

static ashlar_status capture(void) {
    CHECK(ashlar_graph_begin(device, streams[0], &graph) == ASHLAR_OK);
    const ashlar_status status = ashlar_optimizer_step(optimizer, 0.05, 1, streams[0]);
    CHECK(status != ASHLAR_OK || ashlar_graph_end(graph) == ASHLAR_OK);
    return status;
}

CASE(a_captured_step_asks_which_tensors_are_frozen) {
    const ashlar_optimizer_config config = adamw();
    REQUIRE(open_frozen(&config) && check_at_end(close_graph));
    for (size_t t = 1; t < CASES; t++) {
        set_frozen(t, true);
        set_frozen(t, all_cases[t].options.is_frozen);
    }
    CHECK_FAILS(capture(), ASHLAR_EINVAL, "before the capture");
    ashlar_graph_destroy(graph);
    CHECK(ashlar_optimizer_follow(optimizer, streams[0]) == ASHLAR_OK);
    CHECK(capture() == ASHLAR_OK);
    for (unsigned step = 1; step <= STEPS; step++) {
        for (size_t t = 1; t < CASES; t++) {
            if (chance(0.2)) {
                set_frozen(t, !now[t].options.is_frozen);
            }
        }
        CHECK(ashlar_optimizer_follow(optimizer, streams[0]) == ASHLAR_OK);
        check_step(step, step % 4 == 0 ? NULL : graph);
    }
}

static void check_launch_is_skipped(void) {
    image before;
    const uint64_t skipped = state_now().skipped;
    draw(ASHLAR_REGION_GRADIENTS, 1, 1);
    take_image(&before);
    CHECK(ashlar_optimizer_follow(optimizer, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_graph_launch(graph) == ASHLAR_OK);
    const ashlar_optimizer_state state = state_now();
    CHECK(isnan(state.norm) && state.is_skipped == 1 && state.skipped == skipped + 1);
    CHECK(is_image(&before));
    free_image(&before);
}

CASE(a_captured_step_that_does_not_fit_any_more_is_skipped) {
    const ashlar_optimizer_config config = adamw();
    const ashlar_tensor_options faster = {.rate_scale = 2};
    REQUIRE(open_frozen(&config) && check_at_end(close_graph));
    CHECK(capture() == ASHLAR_OK);
    check_step(1, graph);
    CHECK(ashlar_arena_set_options(arena, 1, &faster) == ASHLAR_OK);
    check_launch_is_skipped();
    set_frozen(1, false); /* as before */
    CHECK(ashlar_optimizer_follow(optimizer, streams[0]) == ASHLAR_OK);
    check_step(2, graph);
    set_frozen(1, true);
    check_launch_is_skipped();
    check_step(3, NULL);
}

RUN_CASES()
