/*
 * test_gpu_optimizer.c - the optimizer's kernels of a CUDA device against the CPU's loops: the same
 * bits, for every algorithm and type. Exits with 77 where there is no GPU.
 */
#include "tests/allocator/device/gpu_fixture.h"

#include <ashlar/optimizer.h>

#include "allocator/base/error.h"
#include "arena/layout/arena_impl.h"
#include "tests/arena/optimizer/element_fixture.h"

static const struct {
    const char *name;
    ashlar_dtype dtype;
    size_t elements; /* also in several chunks, and no whole one */
    ashlar_tensor_options options;
    size_t columns; /* of a matrix, with more products than a partial sum has; 0: a vector */
} tensors[] = {
    {"a", ASHLAR_F32, 9001, {0}, 0},
    {"b", ASHLAR_F16, 4097, {.has_no_decay = true}, 0},
    {"c", ASHLAR_F64, 5003, {.rate_scale = 0.25}, 0},
    {"d", ASHLAR_BF16, 8192, {0}, 0},
    {"e", ASHLAR_F32, 3, {.is_frozen = true}, 0},
    {"f", ASHLAR_BF16, 37, {.rate_scale = 3}, 0},
    {"g", ASHLAR_F32, 65, {0}, 0},
    {"h", ASHLAR_F32, 30 * 270, {0}, 270},
    {"i", ASHLAR_F32, 30 * 270, {.has_no_decay = true}, 270},
    {"j", ASHLAR_BF16, 270 * 20, {0}, 20},
    {"k", ASHLAR_F64, 66 * 20, {0}, 20},
};
enum { TENSORS = sizeof tensors / sizeof tensors[0], STEPS = 4, SKIPPED_STEP = 2 };

static const struct {
    const char *name;
    ashlar_optimizer_config config;
} algorithms[] = {
    {"sgd", {.kind = ASHLAR_OPTIMIZER_SGD, .weight_decay = 0.1}},
    {"momentum", {.kind = ASHLAR_OPTIMIZER_SGD, .momentum = 0.9, .dampening = 0.1}},
    {"nesterov", {.kind = ASHLAR_OPTIMIZER_SGD, .momentum = 0.9, .nesterov = true}},
    {"adam", {.kind = ASHLAR_OPTIMIZER_ADAM, .weight_decay = 0.1}},
    {"adamw", {.kind = ASHLAR_OPTIMIZER_ADAMW}},
    {"adagrad", {.kind = ASHLAR_OPTIMIZER_ADAGRAD, .rate_decay = 0.01}},
    {"rmsprop", {.kind = ASHLAR_OPTIMIZER_RMSPROP}},
    {"rmsprop_momentum", {.kind = ASHLAR_OPTIMIZER_RMSPROP, .momentum = 0.9}},
    {"muon", {.kind = ASHLAR_OPTIMIZER_MUON}},
    {"muon_steps", {.kind = ASHLAR_OPTIMIZER_MUON, .ns_steps = 2, .weight_decay = 0.5}},
};

/* The same arena on a device. */
typedef struct side {
    ashlar_device *device;
    ashlar_stream stream;
    ashlar_allocator *allocator;
    ashlar_arena *arena;
    ashlar_optimizer *optimizer;
} side;

static side sides[2]; /* the CPU's and the GPU's */

static void close_side(side *s) {
    ashlar_optimizer_destroy(s->optimizer);
    ashlar_arena_destroy(s->arena);
    ashlar_allocator_destroy(s->allocator);
    if (s->device != NULL && s->device != gpu) {
        ashlar_stream_destroy(s->device, s->stream);
        ashlar_device_close(s->device);
    }
    *s = (side){0};
}

static void close_sides(void) {
    close_side(&sides[0]);
    close_side(&sides[1]);
}

static ashlar_status open_side(side *s, const ashlar_optimizer_config *config) {
    ASHLAR_TRY(ashlar_allocator_create(s->device, &s->allocator));
    ASHLAR_TRY(ashlar_arena_create(&s->arena));
    for (size_t i = 0; i < TENSORS; i++) {
        const size_t columns = tensors[i].columns, elements = tensors[i].elements;
        const size_t shape[2] = {columns > 0 ? elements / columns : elements, columns};
        ASHLAR_TRY(ashlar_arena_add(s->arena, tensors[i].name, tensors[i].dtype,
                                    columns > 0 ? 2 : 1, shape, NULL));
        ASHLAR_TRY(ashlar_arena_set_options(s->arena, i, &tensors[i].options));
    }
    ASHLAR_TRY(ashlar_arena_commit(s->arena, s->allocator, s->stream, ASHLAR_REGIONS_TRAINING));
    return ashlar_optimizer_create(s->arena, config, s->stream, &s->optimizer);
}

static bool open_sides(const ashlar_optimizer_config *config) {
    close_sides();
    sides[1] = (side){.device = gpu, .stream = gpu_stream};
    return check_at_end(close_sides) && ashlar_device_open("soft", &sides[0].device) == ASHLAR_OK &&
           ashlar_stream_create(sides[0].device, &sides[0].stream) == ASHLAR_OK &&
           open_side(&sides[0], config) == ASHLAR_OK && open_side(&sides[1], config) == ASHLAR_OK;
}

/* The same numbers of -size .. size into both; `first` instead of the first one, unless 0. */
static void draw(ashlar_region region, uint64_t state, double size, double first) {
    const size_t bytes = ashlar_arena_get_info(sides[0].arena).region_bytes[region];
    char *image = calloc(1, bytes);
    CHECK(image != NULL && ashlar_arena_get_info(sides[1].arena).region_bytes[region] == bytes);
    for (size_t t = 0; t < TENSORS; t++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(sides[0].arena, t, &info);
        for (size_t i = 0; i < info.elements; i++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            const double value = size * ((double)(state >> 11) * 0x1p-52 - 1);
            put_element(image + info.offset[ASHLAR_LAYOUT_STORAGE], info.dtype, i,
                        t == 0 && i == 0 && first != 0 ? first : value);
        }
    }
    for (size_t i = 0; i < 2; i++) {
        CHECK(ashlar_copy_to_device(sides[i].device, ashlar_arena_region(sides[i].arena, region),
                                    image, bytes, sides[i].stream) == ASHLAR_OK);
        CHECK(ashlar_stream_synchronize(sides[i].device, sides[i].stream) == ASHLAR_OK);
    }
    free(image);
}

static char *fetch(const side *s, ashlar_region region, size_t bytes) {
    char *image = malloc(bytes > 0 ? bytes : 1);
    CHECK(image != NULL &&
          ashlar_copy_to_host(s->device, image, ashlar_arena_region(s->arena, region), bytes,
                              s->stream) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(s->device, s->stream) == ASHLAR_OK);
    return image;
}

/* How many bytes of a region differ; padding counts, too. */
static size_t count_different(const char *name, ashlar_region region) {
    const size_t bytes = ashlar_arena_get_info(sides[0].arena).region_bytes[region];
    char *cpu = fetch(&sides[0], region, bytes), *cuda = fetch(&sides[1], region, bytes);
    size_t different = 0, first = 0;
    for (size_t i = bytes; i-- > 0;) {
        different += cpu[i] != cuda[i] ? 1 : 0;
        first = cpu[i] != cuda[i] ? i : first;
    }
    if (different > 0) {
        printf("# %s: %zu of %zu bytes of the %s differ, the first at %zu\n", name, different,
               bytes, ashlar__region_text(region), first);
    }
    free(cpu);
    free(cuda);
    return different;
}

/* The state's own figures; the norm's sum goes over chunks in another order. */
static void compare_states(void) {
    ashlar_optimizer_state states[2];
    for (size_t i = 0; i < 2; i++) {
        CHECK(ashlar_optimizer_copy_state_to_host(sides[i].optimizer, &states[i], NULL,
                                                  sides[i].stream) == ASHLAR_OK);
        CHECK(ashlar_stream_synchronize(sides[i].device, sides[i].stream) == ASHLAR_OK);
    }
    CHECK(states[0].step == states[1].step && states[0].skipped == states[1].skipped &&
          states[0].is_skipped == states[1].is_skipped &&
          states[0].good_steps == states[1].good_steps);
    CHECK_NEAR(states[1].loss_scale, states[0].loss_scale, 0, 0);
    if (isfinite(states[0].norm)) {
        CHECK_NEAR(states[1].norm, states[0].norm, 0, 1e-12);
    }
}

static void run_step(size_t step, double first) {
    draw(ASHLAR_REGION_GRADIENTS, step + 77, 0.01, first);
    for (size_t i = 0; i < 2; i++) {
        CHECK(ashlar_optimizer_step(sides[i].optimizer, 0.01, 0.5, sides[i].stream) == ASHLAR_OK);
    }
    compare_states();
}

CASE(every_algorithm_and_type_gets_the_bits_of_the_cpu) {
    for (size_t a = 0; a < sizeof algorithms / sizeof algorithms[0]; a++) {
        ashlar_optimizer_config config = algorithms[a].config;
        config.loss_scale = 4;
        config.scale_interval = 2;
        REQUIRE(open_sides(&config));
        draw(ASHLAR_REGION_PARAMETERS, 5, 1, 0);
        for (size_t step = 0; step < STEPS; step++) {
            run_step(step, step == SKIPPED_STEP ? (double)INFINITY : 0);
            for (int region = 0; region < ASHLAR_REGION_COUNT; region++) {
                if ((ashlar_arena_get_info(sides[0].arena).regions >> region & 1) != 0) {
                    CHECK_ZU(count_different(algorithms[a].name, (ashlar_region)region), 0);
                }
            }
        }
    }
}

RUN_CASES_ON_GPU()
