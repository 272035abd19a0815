/*
 * test_optimizer_muon.c - MUON's matrices against the formulas of optimizer.h, whose products are
 * summed in double precision; its other tensors; frozen matrices, ranges, and what is refused.
 */
#include "tests/arena/optimizer/optimizer_fixture.h"

#include "arena/compute/workers.h"
#include "arena/optimizer/optimizer_impl.h"

/* Every type; matrices that are wide, tall, one row or column; of more rows, columns and products
 * than a tile or a partial sum has; several of one shape. */
static const tensor_case matrices[] = {
    {"bias", ASHLAR_F32, 30, {0}},
    {"wide", ASHLAR_F32, 24 * 40, {0}},
    {"tall", ASHLAR_F32, 40 * 24, {.has_no_decay = true}},
    {"row", ASHLAR_F32, 7, {0}},
    {"column", ASHLAR_F32, 70, {0}},
    {"embedding", ASHLAR_F32, 30, {.is_elementwise = true}},
    {"double", ASHLAR_F64, 12 * 9, {0}},
    {"double2", ASHLAR_F64, 12 * 9, {.rate_scale = 0.5}},
    {"half", ASHLAR_F16, 16 * 16, {0}},
    {"bfloat", ASHLAR_BF16, 9 * 20, {0}},
    {"square", ASHLAR_F32, 16 * 16, {0}},
    {"frozen", ASHLAR_F32, 16 * 16, {.is_frozen = true}},
    {"tiles", ASHLAR_F32, 70 * 66, {0}},
    {"deep", ASHLAR_F32, 9 * 300, {0}},
    {"last", ASHLAR_F32, 5, {0}},
};
enum { COUNT = sizeof matrices / sizeof matrices[0] };
static const size_t columns_of[COUNT] = {0, 40, 24, 7, 1, 5, 9, 9, 16, 20, 16, 16, 66, 300, 0};

static tensor_case now[COUNT];
static reference r; /* too large for a stack */
static double gram[70 * 70], polynomial[70 * 70], next[ELEMENTS_MAX];

static bool open_muon(const ashlar_optimizer_config *config) {
    memcpy(now, matrices, sizeof now);
    case_columns = columns_of;
    const bool is_open = open_optimizer_of("memory=64MiB", now, COUNT, config);
    reference_open(&r, config);
    return is_open;
}

static bool open_defaults(void) {
    const ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_MUON);
    return open_muon(&config);
}

static bool is_matrix(size_t t) {
    return case_columns[t] > 0 && !cases[t].options.is_elementwise;
}

/* ---- the reference ---- */

static double rounded(double value) {
    return (double)ashlar__float_from_bf16(ashlar__bf16_from_float((float)value));
}

/* c = keep base + scale a b; a is [m, k] and b [k, n], each given by its strides. */
static void multiply(const double *a, size_t a_row, size_t a_column, const double *b, size_t b_row,
                     size_t b_column, size_t m, size_t n, size_t k, const double *base, double keep,
                     double scale, double *c) {
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double sum = 0;
            for (size_t l = 0; l < k; l++) {
                sum += a[i * a_row + l * a_column] * b[l * b_row + j * b_column];
            }
            c[i * n + j] = rounded(scale * sum + (base != NULL ? keep * base[i * n + j] : 0));
        }
    }
}

static void orthogonalize(const ashlar_optimizer_config *c, double *x, size_t rows,
                          size_t columns) {
    double sum = 0;
    for (size_t i = 0; i < rows * columns; i++) {
        sum += x[i] * x[i];
    }
    for (size_t i = 0; i < rows * columns; i++) {
        x[i] = rounded(x[i] / rounded(fmax(sqrt(sum), c->ns_epsilon)));
    }
    for (uint32_t step = 0; step < c->ns_steps; step++) {
        if (rows <= columns) {
            multiply(x, columns, 1, x, 1, columns, rows, rows, columns, NULL, 0, 1, gram);
            multiply(gram, rows, 1, gram, rows, 1, rows, rows, rows, gram, c->ns[1], c->ns[2],
                     polynomial);
            multiply(polynomial, rows, 1, x, columns, 1, rows, columns, rows, x, c->ns[0], 1, next);
        } else {
            multiply(x, 1, columns, x, columns, 1, columns, columns, rows, NULL, 0, 1, gram);
            multiply(gram, columns, 1, gram, columns, 1, columns, columns, columns, gram, c->ns[1],
                     c->ns[2], polynomial);
            multiply(x, columns, 1, polynomial, columns, 1, rows, columns, columns, x, c->ns[0], 1,
                     next);
        }
        memcpy(x, next, rows * columns * sizeof *x);
    }
}

static double scale_of(const ashlar_optimizer_config *c, double rows, double columns) {
    return c->muon_scale == ASHLAR_MUON_SCALE_ORIGINAL          ? sqrt(fmax(1, rows / columns))
           : c->muon_scale == ASHLAR_MUON_SCALE_MATCH_RMS_ADAMW ? 0.2 * sqrt(fmax(rows, columns))
                                                                : sqrt(rows / columns);
}

/* A step from the arena's values before it, so that roundings do not add up. */
static void step_matrix(const ashlar_optimizer_config *c, size_t t, double rate, double factor) {
    const tensor_case *m = &cases[t];
    const size_t columns = case_columns[t], rows = m->elements / columns;
    const double own = rate * (m->options.rate_scale > 0 ? m->options.rate_scale : 1);
    for (size_t i = 0; i < m->elements; i++) {
        const double g = get(ASHLAR_REGION_GRADIENTS, t, i) * factor, mu = c->momentum;
        r.m[t][i] = mu * r.m[t][i] + (1 - mu) * g;
        r.v[t][i] = rounded(c->nesterov ? mu * r.m[t][i] + (1 - mu) * g : r.m[t][i]);
    }
    orthogonalize(c, r.v[t], rows, columns);
    for (size_t i = 0; i < m->elements; i++) {
        r.p[t][i] -= own * ((m->options.has_no_decay ? 0 : c->weight_decay) * r.p[t][i] +
                            scale_of(c, (double)rows, (double)columns) * r.v[t][i]);
    }
}

static void take_matrix(size_t t) {
    const ashlar_region region = r.updates[t] > 0 && ashlar_dtype_is_narrow(cases[t].dtype)
                                     ? ASHLAR_REGION_MASTER
                                     : ASHLAR_REGION_PARAMETERS;
    for (size_t i = 0; i < cases[t].elements; i++) {
        r.p[t][i] = get(region, t, i);
        r.m[t][i] = get(ASHLAR_REGION_MOMENT1, t, i);
        r.v[t][i] = get(ASHLAR_REGION_MOMENT2, t, i);
    }
}

/* The sums' last bits may turn a rounding over, which then spreads, but not far. Returns whether
 * that was so. */
static bool check_matrix(size_t t, double rate) {
    const ashlar_region region =
        ashlar_dtype_is_narrow(cases[t].dtype) ? ASHLAR_REGION_MASTER : ASHLAR_REGION_PARAMETERS;
    size_t different = 0;
    for (size_t i = 0; i < cases[t].elements; i++) {
        const double x = get(ASHLAR_REGION_MOMENT2, t, i);
        different += x != r.v[t][i];
        CHECK_NEAR(x, r.v[t][i], 1e-2, 1e-2);
        CHECK_NEAR(get(ASHLAR_REGION_MOMENT1, t, i), r.m[t][i], absolute_f32, relative_f32);
        CHECK_NEAR(get(region, t, i), r.p[t][i], 3e-7 + 4 * rate * fabs(x - r.v[t][i]),
                   relative_f32);
    }
    return different * 50 > cases[t].elements;
}

static void check_steps(const ashlar_optimizer_config *config, double gradient_scale) {
    enum { STEPS = 2 };
    int spread = 0;
    REQUIRE(open_muon(config));
    for (int step = 1; step <= STEPS; step++) {
        const double rate = config->learning_rate / step;
        draw(ASHLAR_REGION_GRADIENTS, 10u + (unsigned)step, 1);
        for (size_t t = 0; t < COUNT; t++) {
            if (is_matrix(t)) {
                take_matrix(t);
            }
        }
        reference copy = r;
        CHECK(ashlar_optimizer_step(optimizer, rate, gradient_scale, streams[0]) == ASHLAR_OK);
        wait_for(streams[0]);
        reference_step(&r, config, rate, gradient_scale);
        const double clip = config->clip_norm > 0 ? fmin(1, config->clip_norm / r.norm) : 1;
        CHECK_NEAR(state_now().norm, r.norm, 0, 1e-14);
        for (size_t t = 0; t < COUNT; t++) {
            if (is_matrix(t) && !cases[t].options.is_frozen) {
                memcpy(r.p[t], copy.p[t], sizeof r.p[t]);
                memcpy(r.m[t], copy.m[t], sizeof r.m[t]);
                step_matrix(config, t, rate, clip * gradient_scale / r.loss_scale);
                spread += check_matrix(t, rate);
            } else {
                check_tensor(&r, t);
            }
        }
        check_padding();
    }
    CHECK(spread <= 2 * STEPS); /* of 11 matrices in each step; 11 if one was not rounded */
    close_optimizer();
}

CASE(matrices_follow_the_formulas) {
    ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_MUON);
    check_steps(&config, 1);
    config.learning_rate = 0.05;
    config.nesterov = false;
    config.momentum = 0.3;
    config.muon_scale = ASHLAR_MUON_SCALE_MATCH_RMS_ADAMW;
    config.clip_norm = 3;
    check_steps(&config, 0.125);
    config.ns[0] = 3;
    config.ns[1] = -3.2;
    config.ns[2] = 1.2;
    config.ns_steps = 2;
    config.muon_scale = ASHLAR_MUON_SCALE_SPECTRAL_UNCLAMPED;
    config.loss_scale = 64;
    config.weight_decay = 0;
    check_steps(&config, 3);
}

/* Also of gradients that are all 0, of which there is no direction. */
CASE(the_least_norm_is_epsilon) {
    ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_MUON);
    config.ns_epsilon = 64;
    config.weight_decay = 0;
    check_steps(&config, 1);
    REQUIRE(open_muon(&config));
    image before;
    take_image(&before);
    CHECK(ashlar_optimizer_step(optimizer, 0.1, 1, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    CHECK(memcmp(before.bytes[ASHLAR_REGION_PARAMETERS],
                 ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS),
                 ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_PARAMETERS]) == 0);
    free_image(&before);
}

/* ---- the same bits ---- */

static void run_steps(unsigned first, unsigned last) {
    for (unsigned i = first; i <= last; i++) {
        draw(ASHLAR_REGION_GRADIENTS, i, 1);
        CHECK(ashlar_optimizer_step(optimizer, 0.02, 1, streams[0]) == ASHLAR_OK);
    }
    wait_for(streams[0]);
}

/* Also where a product is worth several threads, and where matrices are fewer than threads. */
CASE(any_number_of_threads_gets_the_same_bits) {
    static const tensor_case large[] = {{"a", ASHLAR_F32, 300 * 400, {0}},
                                        {"b", ASHLAR_F32, 400 * 300, {0}},
                                        {"c", ASHLAR_F32, 400 * 300, {0}}};
    static const size_t large_columns[] = {400, 300, 300};
    const ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_MUON);
    image one = {0};
    SKIP_IF(getenv("ASHLAR_TEST_DEVICE") != NULL, "a CUDA device does not use the CPU's threads");
    case_columns = large_columns;
    for (size_t threads = 1; threads <= 5; threads += 2) {
        ashlar__workers_set_count(threads);
        REQUIRE(open_optimizer_of("memory=64MiB", large, 3, &config));
        run_steps(1, 2);
        if (threads == 1) {
            take_image(&one);
        } else {
            CHECK(is_image(&one));
        }
        close_optimizer();
    }
    ashlar__workers_set_count(0);
    free_image(&one);
}

CASE(a_batch_has_one_shape_and_64_mib) {
    static const ashlar_optimizer_matrix list[] = {
        {0, 8, 9, false},       {1, 8, 9, false},       {2, 8, 9, true},
        {3, 8, 10, true},       {4, 1024, 2048, false}, {5, 1024, 2048, false},
        {6, 1024, 2048, false}, {7, 1024, 2048, false}, {8, 4096, 8192, false},
        {9, 4096, 8192, false},
    };
    static const size_t batches[] = {2, 1, 1, 4, 1, 1};
    size_t at = 0;
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        CHECK_ZU(ashlar__muon_batch(list, 10, at), batches[i]);
        at += batches[i];
    }
}

CASE_WITH(a_step_in_ranges_of_whole_matrices_is_a_step, open_defaults()) {
    const size_t all = ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_PARAMETERS];
    image whole;
    run_steps(1, 1);
    take_image(&whole);
    close_optimizer();
    REQUIRE(open_defaults());
    draw(ASHLAR_REGION_GRADIENTS, 1, 1);
    CHECK(sum_range(0, all) == ASHLAR_OK && decide(1) == ASHLAR_OK);
    for (size_t t = 0; t < COUNT; t++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, t, &info);
        const size_t begin = info.offset[ASHLAR_LAYOUT_STORAGE];
        const size_t end = (begin + info.bytes + 255) / 256 * 256;
        CHECK(update_range(begin, end - begin, 0.02) == ASHLAR_OK);
    }
    wait_for(streams[0]);
    CHECK(is_image(&whole));
    free_image(&whole);
    ashlar_tensor_info info;
    ashlar_arena_tensor(arena, 1, &info);
    const size_t begin = info.offset[ASHLAR_LAYOUT_STORAGE];
    CHECK_FAILS(update_range(begin + 256, all - begin - 256, 0.02), ASHLAR_EINVAL, "matrix wide");
    CHECK_FAILS(update_range(0, begin + 256, 0.02), ASHLAR_EINVAL, "matrix wide");
    CHECK(sum_range(begin + 256, 256) == ASHLAR_OK);
}

/* ---- what changes, and what does not ---- */

CASE_WITH(a_skipped_step_and_a_frozen_matrix_change_nothing, open_defaults()) {
    image before;
    run_steps(1, 2);
    take_image(&before);
    draw(ASHLAR_REGION_GRADIENTS, 3, 1);
    put(ASHLAR_REGION_GRADIENTS, 1, 5, (double)INFINITY);
    CHECK(ashlar_optimizer_step(optimizer, 0.02, 1, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    put(ASHLAR_REGION_GRADIENTS, 1, 5, 0);
    CHECK(state_now().is_skipped == 1);
    CHECK(memcmp(before.bytes[ASHLAR_REGION_MOMENT1],
                 ashlar_arena_region(arena, ASHLAR_REGION_MOMENT1),
                 ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_MOMENT1]) == 0);
    for (size_t t = 0; t < COUNT; t++) {
        now[t].options.is_frozen = t != 2; /* "tall" */
        CHECK(ashlar_arena_set_options(arena, t, &now[t].options) == ASHLAR_OK);
        put(ASHLAR_REGION_GRADIENTS, t, 0, t != 2 ? (double)NAN : 1);
    }
    CHECK(ashlar_optimizer_step(optimizer, 0.02, 1, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    CHECK(state_now().is_skipped == 0);
    const char *base = ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS);
    for (size_t t = 0; t < COUNT; t++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, t, &info);
        const size_t at = info.offset[ASHLAR_LAYOUT_STORAGE];
        const bool is_same =
            memcmp(before.bytes[ASHLAR_REGION_PARAMETERS] + at, base + at, info.bytes) == 0;
        CHECK(is_same == (t != 2));
    }
    free_image(&before);
}

/* Room for products is taken once. */
CASE_WITH(a_tensor_becomes_a_matrix_if_there_is_room, open_defaults()) {
    run_steps(1, 1);
    now[5].options.is_elementwise = false; /* "embedding", a small one */
    CHECK(ashlar_arena_set_options(arena, 5, &now[5].options) == ASHLAR_OK);
    run_steps(2, 2);
    CHECK(get(ASHLAR_REGION_MOMENT2, 5, 0) == rounded(get(ASHLAR_REGION_MOMENT2, 5, 0)));
    close_optimizer();
    static const tensor_case two[] = {{"small", ASHLAR_F32, 64, {0}},
                                      {"large", ASHLAR_F32, 4096, {.is_elementwise = true}}};
    static const size_t two_columns[] = {8, 64};
    const ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_MUON);
    case_columns = two_columns;
    REQUIRE(open_optimizer_of("memory=64MiB", two, 2, &config));
    CHECK(ashlar_arena_set_options(arena, 1, NULL) == ASHLAR_OK);
    CHECK_FAILS(ashlar_optimizer_step(optimizer, 0.02, 1, streams[0]), ASHLAR_EINVAL,
                "is_elementwise");
    CHECK(ashlar_arena_set_options(arena, 1, &two[1].options) == ASHLAR_OK);
    run_steps(1, 1);
}

CASE(every_failure_of_creation_leaks_nothing) {
    const ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_MUON);
    ashlar_status status = ASHLAR_EHOSTMEM;
    case_columns = columns_of;
    for (unsigned long n = 1; status != ASHLAR_OK; n++) {
        REQUIRE(n < 100 && open_arena("memory=64MiB", matrices, COUNT, ASHLAR_REGIONS_TRAINING));
        HOST_FAILS_AT(n, status = ashlar_optimizer_create(arena, &config, streams[0], &optimizer));
        CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM);
        CHECK((optimizer != NULL) == (status == ASHLAR_OK));
        close_optimizer(); /* no block is left */
    }
}

CASE(values_that_cannot_be_are_refused) {
    ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_MUON);
    config.ns_steps = 100;
    CHECK_FAILS(check_config(&config), ASHLAR_EINVAL, "optimizer muon: ns_steps 100; give 1 to 99");
    config.ns_steps = 1;
    config.muon_scale = ASHLAR_MUON_SCALE_COUNT;
    CHECK_FAILS(check_config(&config), ASHLAR_EINVAL, "muon_scale");
}

RUN_CASES()
