/*
 * test_gpu_rows.c - the operations that move rows, on a CUDA device: every bit, in every type, of
 * rows narrow and wide, aligned to vectors or not, with gaps that must stay as they are. Exits with
 * 77 where there is no GPU. It also runs on the fake driver, whose kernels are the same source on
 * the CPU.
 */
#include "tests/arena/optimizer/element_fixture.h"
#include "tests/allocator/device/gpu_fixture.h"
#include "tests/allocator/trace/numbers_fixture.h"

#include "rnn/layer/ops.h"

static ashlar_dtype dtype; /* of the case's elements */
static size_t item;
static ashlar_ops *ops;

/* Widths around those at which kernels share out rows in another way. */
static const size_t WIDTHS[] = {1,  2,  3,   7,   8,   9,   16,   24,  40,
                                64, 65, 128, 257, 512, 513, 1031, 4104};
enum { WIDTH_COUNT = sizeof WIDTHS / sizeof *WIDTHS, TRIALS = CHECK_SANITIZED(30, 8) };

static size_t below(size_t end) {
    return ashlar__random_step_below(&random_state, end);
}

/* Elements, none of them NaN. */
static char *drawn(size_t count) {
    char *elements = host_take(count * item);
    for (size_t i = 0; i < count; i++) {
        put_element(elements, dtype, i, random_real());
    }
    return elements;
}

static void check_bytes(const char *want, const char *far, size_t bytes) {
    const char *got = gpu_fetch(far, bytes);
    size_t at = 0;
    while (at < bytes && got[at] == want[at]) {
        at++;
    }
    CHECK_ZU(at, bytes);
}

static void in_every_type(void (*check)(void)) {
    for (int type = 0; type < ASHLAR_DTYPE_COUNT; type++) {
        dtype = (ashlar_dtype)type;
        item = ashlar_dtype_bytes(dtype);
        REQUIRE(ashlar_ops_create(gpu, dtype, &ops) == ASHLAR_OK);
        for (int i = 0; i < TRIALS; i++) {
            check();
            gpu_give_all();
        }
        ashlar_ops_destroy(ops);
    }
}

#define CASE_OF_TRIALS(test)      \
    static void test##_of(void);  \
    CASE(test) {                  \
        in_every_type(test##_of); \
    }                             \
    static void test##_of(void)

/* Half of all places and gaps are aligned to vectors in every type. */
static size_t some_gap(void) {
    return below(2) == 0 ? 8 * below(3) : below(8);
}

/* At least `width`, often aligned where that is not. */
static size_t some_stride(size_t width) {
    return below(2) == 0 ? width + some_gap() : (width + 7) / 8 * 8 + 8 * below(2);
}

CASE_OF_TRIALS(columns_are_copied_from_any_place_to_any) {
    const size_t width = WIDTHS[below(WIDTH_COUNT)], rows = 1 + below(width < 500 ? 70 : 3);
    const size_t before = some_gap(), from_stride = some_stride(width);
    const size_t to_before = some_gap(), to_stride = some_stride(width);
    const size_t from_count = before + rows * from_stride, count = to_before + rows * to_stride;
    const char *from = drawn(from_count);
    char *want = drawn(count), *to = gpu_send(want, count * item);
    const ashlar_columns_args args = {.rows = rows,
                                      .width = width,
                                      .from =
                                          (char *)gpu_send(from, from_count * item) + before * item,
                                      .from_stride = from_stride,
                                      .to = to + to_before * item,
                                      .to_stride = to_stride};
    for (size_t row = 0; row < rows; row++) {
        memcpy(want + (to_before + row * to_stride) * item,
               from + (before + row * from_stride) * item, width * item);
    }
    CHECK(ashlar_copy_columns(ops, &args, gpu_stream) == ASHLAR_OK);
    check_bytes(want, to, count * item);
}

/* Of no input there is nothing but the bias. */
CASE_OF_TRIALS(a_bias_becomes_every_row) {
    const size_t width = WIDTHS[below(WIDTH_COUNT)], rows = 1 + below(width < 500 ? 40 : 3);
    const size_t before = some_gap(), bias_before = some_gap();
    const char *bias = drawn(bias_before + width);
    char *want = drawn(before + rows * width + 1);
    char *y = gpu_send(want, (before + rows * width + 1) * item);
    const void *zeros = gpu_send(host_take((rows + width) * item), (rows + width) * item);
    const ashlar_linear_args args = {.rows = rows,
                                     .in = 1,
                                     .out = width,
                                     .x = zeros,
                                     .weight = zeros,
                                     .bias = (char *)gpu_send(bias, (bias_before + width) * item) +
                                             bias_before * item,
                                     .y = y + before * item};
    for (size_t row = 0; row < rows; row++) {
        memcpy(want + (before + row * width) * item, bias + bias_before * item, width * item);
    }
    CHECK(ashlar_linear_forward(ops, &args, gpu_stream) == ASHLAR_OK);
    check_bytes(want, y, (before + rows * width + 1) * item);
}

static size_t some_steps(size_t width) {
    return 1 + below(width < 500 ? 40 : 4);
}

/* A table with its elements and those of [T, B, width], each behind `before` elements; `tokens` has
 * some that are no classes, if it may. */
typedef struct embedding {
    size_t steps, batch, classes, width, positions;
    size_t table_before, rows_before, table_count, row_count;
    int32_t *lengths, *tokens; /* lengths may be NULL */
    char *table, *rows;
} embedding;

static embedding drawn_embedding(size_t classes, size_t width, size_t steps, bool may_miss) {
    embedding e = {.steps = steps, .batch = 1 + below(7)};
    e.classes = classes;
    e.width = width;
    e.positions = e.steps * e.batch;
    e.table_before = some_gap();
    e.rows_before = some_gap();
    e.table_count = e.table_before + classes * width;
    e.row_count = e.rows_before + e.positions * width;
    e.table = drawn(e.table_count);
    e.rows = drawn(e.row_count);
    e.lengths = below(2) == 0 ? NULL : host_take(e.batch * sizeof(int32_t));
    e.tokens = host_take(e.positions * sizeof(int32_t));
    for (size_t i = 0; e.lengths != NULL && i < e.batch; i++) {
        e.lengths[i] = (int32_t)below(e.steps + 1);
    }
    for (size_t i = 0; i < e.positions; i++) { /* some often */
        e.tokens[i] = (int32_t)below(below(2) == 0 ? classes : 3 < classes ? 3 : classes);
        e.tokens[i] =
            may_miss && below(20) == 0 ? below(2) == 0 ? -1 : (int32_t)classes : e.tokens[i];
    }
    return e;
}

static bool is_inside(const embedding *e, size_t at) {
    return e->lengths == NULL || at / e->batch < (size_t)e->lengths[at % e->batch];
}

/* `table` and `rows` on the device. */
static ashlar_embedding_args args_of(const embedding *e, char *table, char *rows) {
    return (ashlar_embedding_args){.steps = e->steps,
                                   .batch = e->batch,
                                   .lengths = gpu_send(e->lengths, e->batch * sizeof(int32_t)),
                                   .classes = e->classes,
                                   .width = e->width,
                                   .tokens = gpu_send(e->tokens, e->positions * sizeof(int32_t)),
                                   .table = table + e->table_before * item,
                                   .out = rows + e->rows_before * item,
                                   .dout = rows + e->rows_before * item,
                                   .dtable = table + e->table_before * item};
}

CASE_OF_TRIALS(tokens_become_their_rows) {
    const size_t width = WIDTHS[below(WIDTH_COUNT)];
    const embedding e = drawn_embedding(1 + below(9), width, some_steps(width), true);
    char *out = gpu_send(e.rows, e.row_count * item);
    const ashlar_embedding_args args = args_of(&e, gpu_send(e.table, e.table_count * item), out);
    for (size_t i = 0; i < e.positions * e.width; i++) {
        const size_t at = i / e.width, token = (size_t)e.tokens[at];
        char *to = e.rows + (e.rows_before + i) * item;
        put_element(to, dtype, 0, is_inside(&e, at) ? (double)NAN : 0);
        if (is_inside(&e, at) && token < e.classes) {
            memcpy(to, e.table + (e.table_before + token * e.width + i % e.width) * item, item);
        }
    }
    CHECK(ashlar_embedding_forward(ops, &args, gpu_stream) == ASHLAR_OK);
    check_bytes(e.rows, out, e.row_count * item);
}

/* Add up as a kernel does: in float, rounded once, or in double. */
static void add_gradients(const embedding *e) {
    double *sums = host_take(e->classes * e->width * sizeof *sums);
    for (size_t i = 0; i < e->classes * e->width; i++) {
        sums[i] = get_element(e->table, dtype, e->table_before + i);
    }
    for (size_t i = 0; i < e->positions * e->width; i++) {
        if (is_inside(e, i / e->width)) {
            double *sum = &sums[(size_t)e->tokens[i / e->width] * e->width + i % e->width];
            *sum += get_element(e->rows, dtype, e->rows_before + i);
            *sum = dtype == ASHLAR_F64 ? *sum : (double)(float)*sum;
        }
    }
    for (size_t i = 0; i < e->classes * e->width; i++) {
        put_element(e->table, dtype, e->table_before + i, sums[i]);
    }
}

static void check_gradients(const embedding *e) {
    const size_t bytes = (e->classes + e->positions) * sizeof(uint32_t);
    char *dtable = gpu_send(e->table, e->table_count * item);
    const ashlar_embedding_args args = args_of(e, dtable, gpu_send(e->rows, e->row_count * item));
    CHECK(ashlar_ops_set_work(ops, gpu_take(bytes), bytes) == ASHLAR_OK);
    CHECK(ashlar_embedding_backward(ops, &args, gpu_stream) == ASHLAR_OK);
    add_gradients(e);
    check_bytes(e->table, dtable, e->table_count * item);
    gpu_wait();
    CHECK(ashlar_ops_set_work(ops, NULL, 0) == ASHLAR_OK);
}

/* With so many classes that positions are linked. */
CASE_OF_TRIALS(gradients_of_rows_add_up_along_links) {
    const size_t width = WIDTHS[below(WIDTH_COUNT)], classes = 4097 / (width / 128 + 1) + 1;
    const embedding e = drawn_embedding(classes, width, some_steps(width), false);
    check_gradients(&e);
}

/* With so few that each row looks at all positions, of which there may be more than it looks at in
 * one go. */
CASE_OF_TRIALS(or_each_row_looks_for_its_positions) {
    const size_t width = WIDTHS[below(WIDTH_COUNT)], classes = 1 + below(5);
    const size_t steps = width < 8 ? 600 + below(600) : some_steps(width);
    const embedding e = drawn_embedding(classes, width, steps, false);
    check_gradients(&e);
}

RUN_CASES_ON_GPU()
