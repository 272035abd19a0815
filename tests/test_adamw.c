/*
 * test_adamw.c - the update against the formula of optimizer.h, evaluated in double precision.
 */
#include "allocator_fixture.h"

#include <float.h>

#include <ashlar/optimizer.h>

#include "arena_impl.h"

static ashlar_arena *arena;
static double *norm; /* device memory */

/* Three tensors in 64 + 192 + 128 places: padding behind the first two, the last one full. */
enum { COUNT = 384, TENSORS = 3 };
static const size_t ELEMENTS[TENSORS] = {3, 130, 128}, FIRST[TENSORS] = {0, 64, 256};

static bool is_padding(size_t place) {
    for (size_t i = 0; i < TENSORS; i++) {
        if (place >= FIRST[i] && place < FIRST[i] + ELEMENTS[i]) {
            return false;
        }
    }
    return true;
}

static float *region(ashlar_region which) {
    return ashlar_arena_region(arena, which);
}

/* Of fp32 tensors but for number `wide`. */
static bool set_up_types(const char *spec, size_t wide, unsigned regions) {
    if (!set_up(spec) || ashlar_arena_create(&arena) != ASHLAR_OK) {
        return false;
    }
    for (size_t i = 0; i < TENSORS; i++) {
        const char *const names[TENSORS] = {"a", "b", "c"};
        CHECK(ashlar_arena_add(arena, names[i], i == wide ? ASHLAR_F64 : ASHLAR_F32, 1,
                               &ELEMENTS[i], NULL) == ASHLAR_OK);
    }
    CHECK(ashlar_arena_commit(arena, allocator, streams[0], regions) == ASHLAR_OK);
    norm = (double *)(void *)take(sizeof *norm, streams[0]);
    wait_for(streams[0]);
    *norm = -1;
    return true;
}

static bool set_up_arena(const char *spec, unsigned regions) {
    return set_up_types(spec, TENSORS, regions);
}

static void finish(void) {
    give(norm);
    ashlar_arena_destroy(arena);
    CHECK_ZU(stats_now().live_blocks, 0);
    tear_down();
}

/* Values of -1 .. 1 in every tensor, padding left alone. */
static void draw(float *values, unsigned seed) {
    uint64_t state = 1000003u * (uint64_t)seed + 12345;
    for (size_t i = 0; i < COUNT; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        if (!is_padding(i)) {
            values[i] = (float)((double)(state >> 11) * 0x1p-52 - 1);
        }
    }
}

static void step(const ashlar_adamw *adamw, uint64_t number) {
    CHECK(ashlar_adamw_step(arena, adamw, number, norm, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
}

/* The reference: state of its own, in double. */
typedef struct reference {
    double p[COUNT], m[COUNT], v[COUNT];
    double norm;
} reference;

static void reference_open(reference *r) {
    *r = (reference){0};
    for (size_t i = 0; i < COUNT; i++) {
        r->p[i] = (double)region(ASHLAR_REGION_PARAMETERS)[i];
    }
}

static void reference_step(reference *r, const ashlar_adamw *a, int number) {
    const float *g = region(ASHLAR_REGION_GRADIENTS);
    double sum = 0;
    for (size_t i = 0; i < COUNT; i++) {
        sum += (double)g[i] * (double)g[i];
    }
    r->norm = sqrt(sum);
    const double s = a->clip_norm > 0 && r->norm > a->clip_norm ? a->clip_norm / r->norm : 1;
    for (size_t i = 0; i < COUNT; i++) {
        const double sg = s * (double)g[i];
        r->m[i] = a->beta1 * r->m[i] + (1 - a->beta1) * sg;
        r->v[i] = a->beta2 * r->v[i] + (1 - a->beta2) * sg * sg;
        const double m_hat = r->m[i] / (1 - pow(a->beta1, number));
        const double v_hat = r->v[i] / (1 - pow(a->beta2, number));
        r->p[i] -= a->learning_rate * (m_hat / (sqrt(v_hat) + a->epsilon) +
                                       a->weight_decay * r->p[i]);
    }
}

static const double absolute = 1e-7, relative = 2e-6; /* a few roundings of fp32 */

static void check_equal(const reference *r) {
    CHECK_NEAR(*norm, r->norm, 0, 1e-14);
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_NEAR((double)region(ASHLAR_REGION_PARAMETERS)[i], r->p[i], absolute, relative);
        CHECK_NEAR((double)region(ASHLAR_REGION_MOMENT1)[i], r->m[i], absolute, relative);
        CHECK_NEAR((double)region(ASHLAR_REGION_MOMENT2)[i], r->v[i], 1e-10, relative);
    }
}

/* Padding is exactly zero in every region. */
static void check_padding(void) {
    size_t wrong = 0;
    for (int which = 0; which < ASHLAR_REGION_MASTER; which++) {
        for (size_t i = 0; i < COUNT; i++) {
            wrong += is_padding(i) && region((ashlar_region)which)[i] != 0;
        }
    }
    CHECK_ZU(wrong, 0);
}

static void check_steps(const ashlar_adamw *adamw, int count) {
    REQUIRE(set_up_arena("memory=16MiB", ASHLAR_REGIONS_ALL));
    REQUIRE(ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS) == COUNT * sizeof(float));
    draw(region(ASHLAR_REGION_PARAMETERS), 1);
    static reference r;
    reference_open(&r);
    for (int number = 1; number <= count; number++) {
        float before[COUNT];
        draw(region(ASHLAR_REGION_GRADIENTS), 10u + (unsigned)number);
        memcpy(before, region(ASHLAR_REGION_GRADIENTS), sizeof before);
        step(adamw, (uint64_t)number);
        reference_step(&r, adamw, number);
        check_equal(&r);
        check_padding();
        CHECK(memcmp(before, region(ASHLAR_REGION_GRADIENTS), sizeof before) == 0);
    }
    finish();
}

static void steps_follow_the_formula(void) {
    const ashlar_adamw adamw = ashlar_adamw_default();
    check_steps(&adamw, 8);
}

static void every_value_counts(void) {
    check_steps(&(ashlar_adamw){.learning_rate = 0.05,
                                .beta1 = 0.7,
                                .beta2 = 0.8,
                                .epsilon = 0.25,
                                .weight_decay = 0.5},
                8);
    check_steps(&(ashlar_adamw){.learning_rate = 0.05, .epsilon = 0.25}, 3); /* both betas 0 */
}

/* The gradients' norm is about 9 throughout. */
static void gradients_above_the_clip_norm_are_scaled_down(void) {
    ashlar_adamw adamw = ashlar_adamw_default();
    adamw.learning_rate = 0.1;
    adamw.epsilon = 0.01; /* else an update hardly depends on the gradient's scale */
    for (adamw.clip_norm = 0.125; adamw.clip_norm <= 32; adamw.clip_norm *= 16) {
        check_steps(&adamw, 4);
    }
    for (adamw.clip_norm = 8.5; adamw.clip_norm < 10; adamw.clip_norm += 0.05) {
        check_steps(&adamw, 1);
    }
}

static void the_defaults_are_those_of_the_paper(void) {
    const ashlar_adamw adamw = ashlar_adamw_default();
    CHECK(adamw.learning_rate == 1e-3 && adamw.beta1 == 0.9 && adamw.beta2 == 0.999);
    CHECK(adamw.epsilon == 1e-8 && adamw.weight_decay == 0.01 && adamw.clip_norm == 0);
}

/* The sum of the squares 1, 4, 9 .. has more digits than fp32; it is exact in double. */
static void the_norm_is_exact(void) {
    const ashlar_adamw adamw = ashlar_adamw_default();
    REQUIRE(set_up_arena("memory=16MiB", ASHLAR_REGIONS_ALL));
    double sum = 0;
    int next = 1;
    for (size_t i = 0; i < COUNT; i++) {
        if (!is_padding(i)) {
            region(ASHLAR_REGION_GRADIENTS)[i] = (float)(4096 + next);
            sum += (4096.0 + next) * (4096.0 + next);
            next++;
        }
    }
    step(&adamw, 1);
    CHECK(*norm == sqrt(sum));
    finish();
}

static void the_norm_may_be_left_out(void) {
    const ashlar_adamw adamw = ashlar_adamw_default();
    REQUIRE(set_up_arena("memory=16MiB", ASHLAR_REGIONS_ALL));
    region(ASHLAR_REGION_GRADIENTS)[0] = 1;
    CHECK(ashlar_adamw_step(arena, &adamw, 1, NULL, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    CHECK(region(ASHLAR_REGION_PARAMETERS)[0] < 0);
    CHECK(*norm == -1);
    finish();
}

static void a_gradient_that_is_not_finite_changes_nothing(void) {
    const float bad[] = {NAN, INFINITY, -INFINITY};
    const ashlar_adamw adamw = ashlar_adamw_default();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        REQUIRE(set_up_arena("memory=16MiB", ASHLAR_REGIONS_ALL));
        static float before[ASHLAR_REGION_MASTER][COUNT];
        for (int which = 0; which < ASHLAR_REGION_MASTER; which++) {
            draw(region((ashlar_region)which), (unsigned)which);
        }
        region(ASHLAR_REGION_GRADIENTS)[100] = bad[i];
        for (int which = 0; which < ASHLAR_REGION_MASTER; which++) {
            memcpy(before[which], region((ashlar_region)which), sizeof before[which]);
        }
        step(&adamw, 1);
        CHECK(!isfinite(*norm));
        for (int which = 0; which < ASHLAR_REGION_MASTER; which++) {
            CHECK(memcmp(before[which], region((ashlar_region)which), sizeof before[which]) == 0);
        }
        finish();
    }
}

/* Huge and tiny gradients together with the smallest epsilon and the largest rate there may be. */
static void padding_survives_extreme_values(void) {
    ashlar_adamw adamw = ashlar_adamw_default();
    adamw.learning_rate = (double)FLT_MAX / 16;
    adamw.epsilon = (double)FLT_TRUE_MIN;
    adamw.weight_decay = 1;
    REQUIRE(set_up_arena("memory=16MiB", ASHLAR_REGIONS_ALL));
    region(ASHLAR_REGION_GRADIENTS)[0] = FLT_MAX;
    region(ASHLAR_REGION_GRADIENTS)[1] = FLT_TRUE_MIN;
    step(&adamw, 1);
    check_padding();
    CHECK(region(ASHLAR_REGION_PARAMETERS)[2] == 0); /* a gradient of 0 moves nothing */
    finish();
}

static void work_is_queued_with_its_own_copy_of_the_values(void) {
    static float eager[COUNT];
    for (int pass = 0; pass < 2; pass++) {
        REQUIRE(set_up_arena(pass == 0 ? "memory=16MiB" : "memory=16MiB,mode=adversarial,seed=3",
                             ASHLAR_REGIONS_ALL));
        ashlar_adamw adamw = ashlar_adamw_default();
        draw(region(ASHLAR_REGION_PARAMETERS), 1);
        draw(region(ASHLAR_REGION_GRADIENTS), 2);
        CHECK(ashlar_adamw_step(arena, &adamw, 1, norm, streams[0]) == ASHLAR_OK);
        CHECK((*norm == -1) == (pass == 1)); /* nothing has run yet */
        adamw = (ashlar_adamw){0};
        wait_for(streams[0]);
        CHECK(*norm > 0);
        if (pass == 0) {
            memcpy(eager, region(ASHLAR_REGION_PARAMETERS), sizeof eager);
        } else {
            CHECK(memcmp(eager, region(ASHLAR_REGION_PARAMETERS), sizeof eager) == 0);
        }
        finish();
    }
}

/* ---- refusals ---- */

static void check_refused(ashlar_adamw adamw, uint64_t number) {
    CHECK(ashlar_adamw_step(arena, &adamw, number, norm, streams[0]) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "out of its range");
    wait_for(streams[0]);
    CHECK(*norm == -1);
}

/* Each value of a field in the place of its default, at step number `number`. */
static void check_field_refused(size_t field, const double *values, size_t count, uint64_t number) {
    for (size_t i = 0; i < count; i++) {
        ashlar_adamw bad = ashlar_adamw_default();
        memcpy((char *)&bad + field, &values[i], sizeof values[i]);
        check_refused(bad, number);
    }
}

static void values_outside_their_ranges_are_refused(void) {
    const double nan = (double)NAN, inf = (double)INFINITY;
    const ashlar_adamw fine = ashlar_adamw_default();
    const double learning_rates[] = {0, -1e-3, nan, inf, 1e39}, betas[] = {-0.1, 1, 1.5, nan},
                 epsilons[] = {0, -1e-8, nan, 1e-50}, decays[] = {-1, nan, inf},
                 clips[] = {-1, nan};
    REQUIRE(set_up_arena("memory=16MiB", ASHLAR_REGIONS_ALL));
    check_field_refused(offsetof(ashlar_adamw, learning_rate), learning_rates, 5, 1);
    check_field_refused(offsetof(ashlar_adamw, beta1), betas, 4, 2);
    check_field_refused(offsetof(ashlar_adamw, beta2), betas, 4, 2);
    check_field_refused(offsetof(ashlar_adamw, epsilon), epsilons, 4, 1);
    check_field_refused(offsetof(ashlar_adamw, weight_decay), decays, 3, 1);
    check_field_refused(offsetof(ashlar_adamw, clip_norm), clips, 2, 1);
    ashlar_adamw steep = fine;
    steep.learning_rate = 1e39;
    steep.weight_decay = 0; /* so that it is the rate itself which is too large */
    check_refused(steep, 1);
    check_refused(fine, 0);
    check_refused((ashlar_adamw){0.5, 0.25, 0.125, 0.0625, 2, -3}, 77);
    CHECK_HAS(ashlar_error_detail(), "learning_rate 0.5, beta1 0.25, beta2 0.125, epsilon 0.0625, "
                                     "weight_decay 2, clip_norm -3, step 77:");
    CHECK(ashlar_adamw_step(arena, &fine, 1, norm, streams[0]) == ASHLAR_OK);
    finish();
}

static void arenas_that_cannot_be_updated_are_refused(void) {
    const ashlar_adamw adamw = ashlar_adamw_default();
    REQUIRE(set_up_arena("memory=16MiB", 7));
    CHECK(ashlar_adamw_step(arena, &adamw, 1, norm, streams[0]) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "lacks gradients or moments");
    finish();
    static const char *const words[] = {"tensor a is not", "tensor b is not", "tensor c is not"};
    for (size_t wide = 0; wide < TENSORS; wide++) {
        REQUIRE(set_up_types("memory=16MiB", wide, ASHLAR_REGIONS_ALL));
        CHECK(ashlar_adamw_step(arena, &adamw, 1, norm, streams[0]) == ASHLAR_EINVAL);
        CHECK_HAS(ashlar_error_detail(), words[wide]);
        finish();
    }
}

/* A device of the other kind, as far as one can tell from outside. */
static void a_cuda_device_is_not_supported_yet(void) {
    const ashlar_adamw adamw = ashlar_adamw_default();
    REQUIRE(set_up_arena("memory=16MiB", ASHLAR_REGIONS_ALL));
    device->info.kind = ASHLAR_DEVICE_CUDA;
    CHECK(ashlar_adamw_step(arena, &adamw, 1, norm, streams[0]) == ASHLAR_ENOTSUP);
    CHECK_HAS(ashlar_error_detail(), "software device");
    device->info.kind = ASHLAR_DEVICE_SOFT;
    finish();
}

static void a_launch_that_fails_is_reported(void) {
    const ashlar_adamw adamw = ashlar_adamw_default();
    REQUIRE(set_up_arena("memory=16MiB", ASHLAR_REGIONS_ALL));
    region(ASHLAR_REGION_GRADIENTS)[0] = 1;
    ashlar_driver_fail_at(driver, ASHLAR_DRIVER_FN_launch_host_func, 1, CU_UNKNOWN);
    CHECK(ashlar_adamw_step(arena, &adamw, 1, norm, streams[0]) == ASHLAR_EDRIVER);
    ashlar_host_fail_at(1);
    CHECK(ashlar_adamw_step(arena, &adamw, 1, norm, streams[0]) == ASHLAR_EHOSTMEM);
    ashlar_host_fail_at(0);
    CHECK(region(ASHLAR_REGION_PARAMETERS)[0] == 0);
    finish();
}

int main(void) {
    RUN(steps_follow_the_formula);
    RUN(every_value_counts);
    RUN(gradients_above_the_clip_norm_are_scaled_down);
    RUN(the_defaults_are_those_of_the_paper);
    RUN(the_norm_is_exact);
    RUN(the_norm_may_be_left_out);
    RUN(a_gradient_that_is_not_finite_changes_nothing);
    RUN(padding_survives_extreme_values);
    RUN(work_is_queued_with_its_own_copy_of_the_values);
    RUN(values_outside_their_ranges_are_refused);
    RUN(arenas_that_cannot_be_updated_are_refused);
    RUN(a_cuda_device_is_not_supported_yet);
    RUN(a_launch_that_fails_is_reported);
    return check_report();
}
