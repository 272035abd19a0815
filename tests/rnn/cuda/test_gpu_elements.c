/*
 * test_gpu_elements.c - a model's engine's operations and the losses on a CUDA device against the
 * CPU's, in every type. Exits with 77 where there is no GPU. It also runs on the fake driver, whose
 * kernels are the same source on the CPU.
 */
#include "tests/allocator/device/gpu_fixture.h"
#include "tests/arena/optimizer/element_fixture.h"
#include "tests/rnn/layer/ops_elements_fixture.h"

/* By type: what one rounding of a number near 1 is, or a little more. */
static const double NEAR[ASHLAR_DTYPE_COUNT] = {
    [ASHLAR_F32] = 4e-6, [ASHLAR_F64] = 1e-12, [ASHLAR_F16] = 2e-3, [ASHLAR_BF16] = 1.6e-2};

static double numbers[OPERAND_COUNT][COUNT_MAX], near_loss, near_losses[ROWS];
static int32_t targets[ROWS];

static void *send_numbers(double *near, size_t width, ashlar_dtype dtype) {
    static double image[COUNT_MAX];
    for (size_t i = 0; i < room_of(width); i++) {
        put_element(image, dtype, i, near[i]);
        near[i] = get_element(image, dtype, i);
    }
    return gpu_send(image, room_of(width) * ashlar_dtype_bytes(dtype));
}

/* Operands here, of double, and there, of the same numbers. */
static void draw_both(size_t width, ashlar_dtype dtype, const ashlar_ops *ops, operands *near,
                      operands *far) {
    near_loss = 1;
    *near = (operands){.width = width,
                       .lengths = LENGTHS,
                       .targets = targets,
                       .seed_at = &SEED_MORE,
                       .weight_at = WEIGHTS,
                       .scale = &SCALE,
                       .loss = &near_loss,
                       .losses = near_losses};
    *far = (operands){.width = width,
                      .lengths = gpu_send(LENGTHS, sizeof LENGTHS),
                      .seed_at = gpu_send(&SEED_MORE, sizeof SEED_MORE),
                      .weight_at = gpu_send(WEIGHTS, sizeof WEIGHTS),
                      .scale = gpu_send(&SCALE, sizeof SCALE),
                      .work = gpu_take(ashlar_ops_get_need(ops, ROWS).loss_work_bytes),
                      .loss = gpu_send(&near_loss, sizeof near_loss),
                      .losses = gpu_take(ROWS * sizeof(double))};
    draw_targets(width, targets);
    far->targets = gpu_send(targets, sizeof targets);
    for (int i = 0; i < OPERAND_COUNT; i++) {
        near->of[i] = numbers[i];
        draw_operand((operand)i, width, numbers[i]);
        far->of[i] = send_numbers(numbers[i], width, dtype);
    }
    derive_operands(near);
    for (operand i = PADDED; i <= TOPS_SHORT; i += i == PADDED ? TOPS - PADDED : 1) {
        far->of[i] = send_numbers(numbers[i], width, dtype);
    }
}

static void compare_losses(const operands *far, double near) {
    const double *const got = gpu_fetch(far->loss, sizeof *got);
    CHECK_NEAR(*got, near_loss, near, near);
    if (far->losses == NULL) {
        return;
    }
    const double *const each = gpu_fetch(far->losses, ROWS * sizeof *each);
    for (size_t row = 0; row < ROWS; row++) {
        CHECK_NEAR(each[row], near_losses[row], near, near);
    }
}

/* How an operation is asked for: its result is written over what is there, added to it, in the
 * place of an input; of a loss there is no gradient, and no length. */
enum { OVERWRITTEN, ADDED, IN_PLACE, LOSS_ALONE, MODES };

static void check_variant(const ashlar_ops *ops, case_number number, int v, size_t width,
                          int mode) {
    const op_case *const c = &op_cases[number];
    const size_t room = room_of(width);
    operands near, far;
    draw_both(width, ops->dtype, ops, &near, &far);
    near.adds = far.adds = mode == ADDED;
    near.is_in_place = far.is_in_place = mode == IN_PLACE;
    near.is_loss_only = far.is_loss_only = mode == LOSS_ALONE;
    if (mode == IN_PLACE) {
        memcpy(numbers[OUT], numbers[c->place], room * sizeof(double));
        far.of[OUT] = send_numbers(numbers[OUT], width, ops->dtype);
        near.scale = far.scale = NULL;
    }
    if (mode == LOSS_ALONE) {
        near.of[PADDED] = near.of[IN];
        far.of[PADDED] = far.of[IN];
        near.lengths = far.lengths = NULL;
        far.losses = NULL;
    }
    CHECK(c->queue(ops, &far, v, gpu_stream) == ASHLAR_OK);
    c->near(&near, v, true);
    const void *const got = gpu_fetch(far.of[OUT], room * ashlar_dtype_bytes(ops->dtype));
    for (size_t i = 0; i < room; i++) { /* the rest, too, is as it was */
        const double want = numbers[OUT][i], is = get_element(got, ops->dtype, i);
        if (!isnan(want) || !isnan(is)) {
            CHECK_NEAR(is, want, NEAR[ops->dtype], NEAR[ops->dtype]);
        }
    }
    if (is_loss(number)) {
        compare_losses(&far, ops->dtype == ASHLAR_F64 ? 1e-12 : 1e-5);
    }
    gpu_give_all();
}

static bool is_mode_of(case_number number, int mode) {
    const op_case *const c = &op_cases[number];
    return mode == OVERWRITTEN || (mode == ADDED && c->may_add) ||
           (mode == IN_PLACE && c->place != OPERAND_COUNT) ||
           (mode == LOSS_ALONE && is_loss(number));
}

/* Losses of more classes than threads, too, and some of more than a block has at once. */
static bool is_width_of(case_number number, int v, size_t width) {
    return is_loss(number) ? width < WIDTH_MAX || v % 3 == 0 : width <= 40;
}

/* In rows of vectors, or not. */
CASE(operations_are_those_of_the_cpu) {
    static const size_t widths[] = {WIDTH_MAX, 1, 140, 37, 40};
    for (int type = 0; type < ASHLAR_DTYPE_COUNT; type += CHECK_SHARE(1, 4)) {
        ashlar_ops *ops;
        REQUIRE(ashlar_ops_create(gpu, (ashlar_dtype)type, &ops) == ASHLAR_OK);
        for (int i = 0; i < CASE_COUNT * MODES; i++) {
            const case_number number = (case_number)(i / MODES);
            for (int v = 0; v < op_cases[number].variants && is_mode_of(number, i % MODES); v++) {
                for (size_t w = CHECK_SHARE(0, 2); w < 5; w++) {
                    if (is_width_of(number, v, widths[w])) {
                        check_variant(ops, number, v, widths[w], i % MODES);
                    }
                }
            }
        }
        ashlar_ops_destroy(ops);
    }
}

CASE(lengths_are_clipped_as_on_the_cpu) {
    const int32_t lengths[] = {9, 0, 5, 4};
    int32_t want[4];
    ashlar_ops *ops;
    REQUIRE(ashlar_ops_create(gpu, ASHLAR_F32, &ops) == ASHLAR_OK);
    for (int i = 0; i < 2; i++) {
        ashlar_clip_lengths_args args = {.batch = 4,
                                         .first = 3,
                                         .steps = 4,
                                         .least = (size_t)i,
                                         .lengths = i == 0 ? lengths : NULL,
                                         .whole = 5,
                                         .out = want};
        ashlar__clip_lengths_f32(&args);
        args.lengths = i == 0 ? gpu_send(lengths, sizeof lengths) : NULL;
        args.out = gpu_take(sizeof want);
        CHECK(ashlar__ops_clip_lengths(ops, &args, gpu_stream) == ASHLAR_OK);
        CHECK(memcmp(gpu_fetch(args.out, sizeof want), want, sizeof want) == 0);
        gpu_give_all();
    }
    ashlar_ops_destroy(ops);
}

RUN_CASES_ON_GPU()
