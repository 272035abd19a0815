/*
 * optimizer_fixture.h - an arena with tensors of every type and option, and what an optimizer
 * should do to it, in double precision, for tests.
 */
#ifndef ASHLAR_OPTIMIZER_FIXTURE_H
#define ASHLAR_OPTIMIZER_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include <ashlar/optimizer.h>

#include "tests/arena/optimizer/element_fixture.h"

typedef struct tensor_case {
    const char *name;
    ashlar_dtype dtype;
    size_t elements;
    ashlar_tensor_options options;
} tensor_case;

enum { ELEMENTS_MAX = 5000, TENSORS_MAX = 16 };

/* Every type, run boundaries by type and by each option, and more than one chunk. */
static const tensor_case all_cases[] = {
    {"a", ASHLAR_F32, 3, {0}},
    {"b", ASHLAR_F32, 130, {0}},
    {"no_decay", ASHLAR_F32, 70, {.has_no_decay = true}},
    {"large", ASHLAR_F32, ELEMENTS_MAX, {0}},
    {"wide", ASHLAR_F64, 77, {0}},
    {"slow", ASHLAR_F64, 33, {.rate_scale = 0.25, .decay_scale = 2}},
    {"half", ASHLAR_F16, 600, {0}},
    {"frozen", ASHLAR_F32, 100, {.is_frozen = true}},
    {"brain", ASHLAR_BF16, 515, {.has_no_decay = true}},
    {"fast", ASHLAR_BF16, 200, {.rate_scale = 3}},
    {"frozen_half", ASHLAR_F16, 9, {.is_frozen = true}},
    {"last", ASHLAR_F32, 65, {0}},
};

static const tensor_case *cases; /* of this arena */
static const size_t *case_columns; /* of matrices, 0 of vectors; NULL: there are only vectors */
static size_t case_count;
static ashlar_arena *arena;
static ashlar_optimizer *optimizer;
static ashlar_optimizer_config opened; /* what it was made of */

static inline ashlar_optimizer_config defaults(ashlar_optimizer_kind kind) {
    ashlar_optimizer_config config = {.kind = kind};
    CHECK(ashlar_optimizer_complete(&config) == ASHLAR_OK);
    return config;
}

static inline ashlar_status check_config(const ashlar_optimizer_config *config) {
    ashlar_optimizer_config copy = *config;
    return ashlar_optimizer_complete(&copy);
}

/* Steps that are large, and clipped at times. */
static inline ashlar_optimizer_config adamw(void) {
    ashlar_optimizer_config config = defaults(ASHLAR_OPTIMIZER_ADAMW);
    config.learning_rate = 0.05;
    config.clip_norm = 3;
    return config;
}

/* ---- single values ---- */

static inline bool region_has(ashlar_region region, size_t tensor) {
    return ashlar_arena_view(arena, region, tensor) != NULL;
}

static inline ashlar_dtype type_in(ashlar_region region, size_t tensor) {
    const ashlar_dtype dtype = cases[tensor].dtype;
    const bool is_storage = region == ASHLAR_REGION_PARAMETERS || region == ASHLAR_REGION_GRADIENTS;
    return is_storage || dtype == ASHLAR_F64 ? dtype : ASHLAR_F32;
}

static inline double get(ashlar_region region, size_t tensor, size_t i) {
    return get_element(ashlar_arena_view(arena, region, tensor), type_in(region, tensor), i);
}

static inline void put(ashlar_region region, size_t tensor, size_t i, double value) {
    put_element(ashlar_arena_view(arena, region, tensor), type_in(region, tensor), i, value);
}

/* Values of -size .. size in every tensor, padding left alone. */
static inline void draw(ashlar_region region, unsigned seed, double size) {
    uint64_t state = 1000003u * (uint64_t)seed + 12345;
    for (size_t t = 0; t < case_count; t++) {
        for (size_t i = 0; i < cases[t].elements; i++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            put(region, t, i, size * ((double)(state >> 11) * 0x1p-52 - 1));
        }
    }
}

/* ---- the arena and its optimizer ---- */

static inline void close_optimizer(void) {
    ashlar_optimizer_destroy(optimizer);
    optimizer = NULL;
    ashlar_arena_destroy(arena);
    CHECK_ZU(stats_now().live_blocks, 0);
    tear_down();
}

static void (*before_commit)(void); /* NULL: nothing is done */

/* With buckets of 300 bytes or more, which `ranks` ranks share; 0: as by default. */
static inline bool open_arena_of_ranks(const char *spec, const tensor_case *tensors, size_t count,
                                       unsigned regions, size_t ranks) {
    cases = tensors;
    case_count = count;
    if (!set_up(spec) || ashlar_arena_create(&arena) != ASHLAR_OK) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const size_t columns = case_columns != NULL ? case_columns[i] : 0;
        const size_t elements = cases[i].elements;
        const size_t shape[2] = {columns > 0 ? elements / columns : elements, columns};
        CHECK(ashlar_arena_add(arena, cases[i].name, cases[i].dtype, columns > 0 ? 2 : 1, shape,
                               NULL) == ASHLAR_OK);
        CHECK(ashlar_arena_set_options(arena, i, &cases[i].options) == ASHLAR_OK);
    }
    if (before_commit != NULL) {
        before_commit();
    }
    CHECK(ranks == 0 || ashlar_arena_set_buckets(arena, 300, ranks) == ASHLAR_OK);
    return ashlar_arena_commit(arena, allocator, streams[0], regions) == ASHLAR_OK &&
           check_at_end(close_optimizer);
}

static inline bool open_arena(const char *spec, const tensor_case *tensors, size_t count,
                              unsigned regions) {
    return open_arena_of_ranks(spec, tensors, count, regions, 0);
}

/* With drawn parameters. */
static inline bool open_optimizer_of(const char *spec, const tensor_case *tensors, size_t count,
                                     const ashlar_optimizer_config *config) {
    if (!open_arena(spec, tensors, count, ASHLAR_REGIONS_TRAINING) ||
        ashlar_optimizer_create(arena, config, streams[0], &optimizer) != ASHLAR_OK) {
        return false;
    }
    opened = *config;
    wait_for(streams[0]);
    draw(ASHLAR_REGION_PARAMETERS, 1, 1);
    return true;
}

static inline bool open_optimizer(const ashlar_optimizer_config *config) {
    return open_optimizer_of("memory=16MiB", all_cases, sizeof all_cases / sizeof all_cases[0],
                             config);
}

static inline bool open_kind(ashlar_optimizer_kind kind) {
    const ashlar_optimizer_config config = defaults(kind);
    return open_optimizer(&config);
}

static inline bool open_adamw(void) {
    const ashlar_optimizer_config config = adamw();
    return open_optimizer(&config);
}

static inline ashlar_status sum_range(size_t offset, size_t bytes) {
    const ashlar_optimizer_call call = {
        .parts = ASHLAR_OPTIMIZER_SUM, .offset = offset, .bytes = bytes};
    return ashlar_optimizer_step_with(optimizer, &call, streams[0]);
}

static inline ashlar_status decide(double gradient_scale) {
    const ashlar_optimizer_call call = {.parts = ASHLAR_OPTIMIZER_DECIDE,
                                        .gradient_scale = gradient_scale};
    return ashlar_optimizer_step_with(optimizer, &call, streams[0]);
}

static inline ashlar_status update_range(size_t offset, size_t bytes, double learning_rate) {
    const ashlar_optimizer_call call = {.parts = ASHLAR_OPTIMIZER_UPDATE,
                                        .learning_rate = learning_rate,
                                        .offset = offset,
                                        .bytes = bytes};
    return ashlar_optimizer_step_with(optimizer, &call, streams[0]);
}

static inline ashlar_optimizer_state state_now(void) {
    ashlar_optimizer_state state = {0};
    CHECK(ashlar_optimizer_copy_state_to_host(optimizer, &state, NULL, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    return state;
}

/* Everything that lies between tensors is zero, in every region. */
static inline void check_padding(void) {
    size_t wrong = 0;
    for (int r = 0; r < ASHLAR_REGION_COUNT; r++) {
        const ashlar_region region = (ashlar_region)r;
        const unsigned char *base = ashlar_arena_region(arena, region);
        size_t at = 0;
        for (size_t t = 0; base != NULL && t < case_count; t++) {
            const unsigned char *view = ashlar_arena_view(arena, region, t);
            for (; view != NULL && base + at < view; at++) {
                wrong += base[at] != 0;
            }
            at += view == NULL ? 0 : cases[t].elements * ashlar_dtype_bytes(type_in(region, t));
        }
        for (; base != NULL && at < ashlar_arena_get_info(arena).region_bytes[region]; at++) {
            wrong += base[at] != 0;
        }
    }
    CHECK_ZU(wrong, 0);
}

/* ---- the reference ---- */

typedef struct reference {
    double p[TENSORS_MAX][ELEMENTS_MAX], m[TENSORS_MAX][ELEMENTS_MAX], v[TENSORS_MAX][ELEMENTS_MAX];
    int updates[TENSORS_MAX];
    double norm;
    double loss_scale;
} reference;

static inline void reference_open(reference *r, const ashlar_optimizer_config *c) {
    *r = (reference){.loss_scale = c->loss_scale > 0 ? c->loss_scale : 1};
    for (size_t t = 0; t < case_count; t++) {
        for (size_t i = 0; i < cases[t].elements; i++) {
            r->p[t][i] = get(ASHLAR_REGION_PARAMETERS, t, i);
        }
    }
}

/* One element, by the formulas of optimizer.h. */
static inline void reference_update(const ashlar_optimizer_config *c, int step, double rate,
                                    double decay, double g, double *p, double *m, double *v) {
    const double before = *p;
    const bool is_decoupled = c->kind == ASHLAR_OPTIMIZER_ADAMW || c->kind == ASHLAR_OPTIMIZER_MUON;
    g += is_decoupled ? 0 : decay * before;
    switch (c->kind) {
    case ASHLAR_OPTIMIZER_SGD:
        *m = step == 1 ? g : c->momentum * *m + (1 - c->dampening) * g;
        *p -= rate * (c->momentum <= 0 ? g : c->nesterov ? g + c->momentum * *m : *m);
        break;
    case ASHLAR_OPTIMIZER_ADAGRAD:
        *v += g * g;
        *p -= rate / (1 + (step - 1) * c->rate_decay) * g / (sqrt(*v) + c->epsilon);
        break;
    case ASHLAR_OPTIMIZER_RMSPROP:
        *v = c->smoothing * *v + (1 - c->smoothing) * g * g;
        *m = c->momentum * *m + g / (sqrt(*v) + c->epsilon);
        *p -= rate * *m;
        break;
    default:
        *m = c->beta1 * *m + (1 - c->beta1) * g;
        *v = c->beta2 * *v + (1 - c->beta2) * g * g;
        *p -= rate * (*m / (1 - pow(c->beta1, step))) /
              (sqrt(*v / (1 - pow(c->beta2, step))) + c->epsilon);
        *p -= is_decoupled ? rate * decay * before : 0;
        break;
    }
}

static inline double decay_of(const ashlar_optimizer_config *c, const ashlar_tensor_options *o) {
    return o->has_no_decay ? 0 : c->weight_decay * (o->decay_scale > 0 ? o->decay_scale : 1);
}

/* A good step. */
static inline void reference_step(reference *r, const ashlar_optimizer_config *c,
                                  double learning_rate, double gradient_scale) {
    const double unscale = gradient_scale / r->loss_scale;
    double sum = 0;
    for (size_t t = 0; t < case_count; t++) {
        for (size_t i = 0; i < cases[t].elements && !cases[t].options.is_frozen; i++) {
            const double g = get(ASHLAR_REGION_GRADIENTS, t, i);
            sum += g * g;
        }
    }
    r->norm = sqrt(sum) * unscale;
    const double clip = c->clip_norm > 0 && r->norm > c->clip_norm ? c->clip_norm / r->norm : 1;
    for (size_t t = 0; t < case_count; t++) {
        const ashlar_tensor_options *o = &cases[t].options;
        const double rate = learning_rate * (o->rate_scale > 0 ? o->rate_scale : 1);
        r->updates[t] += !o->is_frozen;
        for (size_t i = 0; i < cases[t].elements && !o->is_frozen; i++) {
            reference_update(c, r->updates[t], rate, decay_of(c, o),
                             get(ASHLAR_REGION_GRADIENTS, t, i) * unscale * clip, &r->p[t][i],
                             &r->m[t][i], &r->v[t][i]);
        }
    }
}

/* A few roundings of the type that the arithmetic is in. */
static const double absolute_f32 = 2e-7, relative_f32 = 3e-6;
static const double absolute_f64 = 2e-15, relative_f64 = 1e-13;

static inline void check_tensor(const reference *r, size_t t) {
    const bool is_wide = cases[t].dtype == ASHLAR_F64;
    const bool is_narrow = ashlar_dtype_is_narrow(cases[t].dtype);
    const bool has_master = is_narrow && r->updates[t] > 0;
    const double absolute = is_wide ? absolute_f64 : absolute_f32;
    const double relative = is_wide ? relative_f64 : relative_f32;
    const ashlar_region region = has_master ? ASHLAR_REGION_MASTER : ASHLAR_REGION_PARAMETERS;
    for (size_t i = 0; i < cases[t].elements; i++) {
        CHECK_NEAR(get(region, t, i), r->p[t][i], absolute, relative);
        if (region_has(ASHLAR_REGION_MOMENT1, t)) {
            CHECK_NEAR(get(ASHLAR_REGION_MOMENT1, t, i), r->m[t][i], absolute, relative);
        }
        if (region_has(ASHLAR_REGION_MOMENT2, t)) {
            CHECK_NEAR(get(ASHLAR_REGION_MOMENT2, t, i), r->v[t][i], 1e-3 * absolute, relative);
        }
    }
    for (size_t i = 0; has_master && i < cases[t].elements; i++) {
        const double parameter = get(ASHLAR_REGION_PARAMETERS, t, i);
        const float master = (float)get(ASHLAR_REGION_MASTER, t, i);
        CHECK(parameter ==
              (cases[t].dtype == ASHLAR_F16
                   ? (double)ashlar__float_from_f16(ashlar__f16_from_float(master))
                   : (double)ashlar__float_from_bf16(ashlar__bf16_from_float(master))));
    }
}

static inline void check_equal(const reference *r) {
    CHECK_NEAR(state_now().norm, r->norm, 0, 1e-14);
    for (size_t t = 0; t < case_count; t++) {
        check_tensor(r, t);
    }
}

/* ---- images of everything that a step may change ---- */

typedef struct image {
    unsigned char *bytes[ASHLAR_REGION_COUNT];
} image;

static inline void take_image(image *to) {
    for (int r = 0; r < ASHLAR_REGION_COUNT; r++) {
        const void *base = ashlar_arena_region(arena, (ashlar_region)r);
        const size_t bytes = ashlar_arena_get_info(arena).region_bytes[(ashlar_region)r];
        to->bytes[r] = base == NULL ? NULL : malloc(bytes);
        if (to->bytes[r] != NULL) {
            memcpy(to->bytes[r], base, bytes);
        }
    }
}

static inline void free_image(image *of) {
    for (int r = 0; r < ASHLAR_REGION_COUNT; r++) {
        free(of->bytes[r]);
    }
}

/* The arena is to the last bit what it was. */
static inline bool is_image(const image *of) {
    bool is_same = true;
    for (int r = 0; r < ASHLAR_REGION_COUNT; r++) {
        const void *base = ashlar_arena_region(arena, (ashlar_region)r);
        is_same =
            is_same && (base == NULL || of->bytes[r] == NULL ||
                        memcmp(of->bytes[r], base,
                               ashlar_arena_get_info(arena).region_bytes[(ashlar_region)r]) == 0);
    }
    return is_same;
}

#endif /* ASHLAR_OPTIMIZER_FIXTURE_H */
