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

static void *send_numbers(double *near, ashlar_dtype dtype) {
    static double image[COUNT_MAX];
    for (size_t i = 0; i < COUNT_MAX; i++) {
        put_element(image, dtype, i, near[i]);
        near[i] = get_element(image, dtype, i);
    }
    return gpu_send(image, COUNT_MAX * ashlar_dtype_bytes(dtype));
}

/* Operands here, of double, and there, of the same numbers. */
static void draw_both(size_t width, ashlar_dtype dtype, const ashlar_ops *ops, operands *near,
                      operands *far) {
    near_loss = 1;
    *near = (operands){.width = width,
                       .lengths = LENGTHS,
                       .targets = targets,
                       .seed_at = &SEED_MORE,
                       .weight_at = &WEIGHT,
                       .scale = &SCALE,
                       .loss = &near_loss,
                       .losses = near_losses};
    *far = (operands){.width = width,
                      .lengths = gpu_send(LENGTHS, sizeof LENGTHS),
                      .seed_at = gpu_send(&SEED_MORE, sizeof SEED_MORE),
                      .weight_at = gpu_send(&WEIGHT, sizeof WEIGHT),
                      .scale = gpu_send(&SCALE, sizeof SCALE),
                      .work = gpu_take(ashlar_ops_get_need(ops, ROWS).loss_work_bytes),
                      .loss = gpu_send(&near_loss, sizeof near_loss),
                      .losses = gpu_take(ROWS * sizeof(double))};
    draw_targets(width, targets);
    far->targets = gpu_send(targets, sizeof targets);
    for (int i = 0; i < OPERAND_COUNT; i++) {
        near->of[i] = numbers[i];
        draw_operand((operand)i, width, numbers[i]);
        far->of[i] = send_numbers(numbers[i], dtype);
    }
    derive_operands(near);
    for (operand i = PADDED; i <= TOPS_SHORT; i += i == PADDED ? TOPS - PADDED : 1) {
        far->of[i] = send_numbers(numbers[i], dtype);
    }
}

static void compare_losses(const operands *far, double near) {
    const double *const got = gpu_fetch(far->loss, sizeof *got);
    const double *const each = gpu_fetch(far->losses, ROWS * sizeof *each);
    CHECK_NEAR(*got, near_loss, near, near);
    for (size_t row = 0; row < ROWS; row++) {
        CHECK_NEAR(each[row], near_losses[row], near, near);
    }
}

static void check_variant(const ashlar_ops *ops, case_number number, int v, size_t width,
                          int mode) {
    const op_case *const c = &op_cases[number];
    operands near, far;
    draw_both(width, ops->dtype, ops, &near, &far);
    near.adds = far.adds = mode == 1;
    near.is_in_place = far.is_in_place = mode == 2;
    if (mode == 2) {
        memcpy(numbers[OUT], numbers[c->place], sizeof numbers[OUT]);
        far.of[OUT] = send_numbers(numbers[OUT], ops->dtype);
    }
    CHECK(c->queue(ops, &far, v, gpu_stream) == ASHLAR_OK);
    c->near(&near, v, true);
    const void *const got = gpu_fetch(far.of[OUT], COUNT_MAX * ashlar_dtype_bytes(ops->dtype));
    for (size_t i = 0; i < COUNT_MAX; i++) { /* the rest, too, is as it was */
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

/* Overwritten, added to, in place; in rows of vectors, or not. */
CASE(operations_are_those_of_the_cpu) {
    static const size_t widths[] = {1, 37, WIDTH_MAX};
    for (int type = 0; type < ASHLAR_DTYPE_COUNT; type += CHECK_SHARE(1, 4)) {
        ashlar_ops *ops;
        REQUIRE(ashlar_ops_create(gpu, (ashlar_dtype)type, &ops) == ASHLAR_OK);
        for (int number = 0; number < CASE_COUNT; number++) {
            const op_case *const c = &op_cases[number];
            for (int i = 0; i < 3 * 3 * c->variants; i++) {
                const int mode = i % 3;
                if (i / 3 % 3 >= CHECK_SHARE(0, 1) && (mode != 1 || c->may_add) &&
                    (mode != 2 || c->place != OPERAND_COUNT)) {
                    check_variant(ops, (case_number)number, i / 9, widths[i / 3 % 3], mode);
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
