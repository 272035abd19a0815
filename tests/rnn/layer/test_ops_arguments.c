/* test_ops_arguments.c - a model's operations say which buffer is missing or the host's, and take
 * none that they do not need. */
#include "tests/allocator/core/allocator_fixture.h"
#include "tests/strict.h"

#include "allocator/soft/soft_state.h"
#include "rnn/layer/ops.h"

enum { FIELDS_MAX = 12 };

/* Of a buffer: the operation does not look at it, uses it if it is there, needs it. */
typedef enum use { UNUSED, USED, NEEDED } use;

/* An operation with all of its buffers. */
typedef struct operation {
    const char *name;
    ashlar_status (*run)(const ashlar_ops *ops, const void *args);
    const void *args;
    size_t bytes;
    struct {
        const char *name;
        size_t offset;
        use use;
    } fields[FIELDS_MAX];
    size_t sizes[3]; /* offsets of sizes that may not be 0 */
} operation;

static ashlar_ops *ops;
static char *misaligned; /* device memory */

static void close_ops(void) {
    check_forget(close_ops);
    CHECK(ashlar_stream_synchronize(device, streams[0]) == ASHLAR_OK);
    ashlar_ops_destroy(ops);
    tear_down();
}

static bool open_ops(void) {
    return set_up("memory=64MiB," STRICT_NOT_HERE) &&
           ashlar_ops_create(device, ASHLAR_F64, &ops) == ASHLAR_OK && check_at_end(close_ops);
}

#define RUN(op, kind)                                                           \
    static ashlar_status run_##op(const ashlar_ops *of, const void *args) {     \
        return ashlar_##op(of, (const ashlar_##kind##_args *)args, streams[0]); \
    }
ASHLAR_OPS_PUBLIC_MAP(RUN)

/* Each buffer in turn NULL, then the host's, then misaligned; each size 0. */
static void check_arguments(const operation *o) {
    static double on_host[4];
    void *const host = on_host;
    char args[256], text[64];
    for (size_t i = 0; i < FIELDS_MAX && o->fields[i].name != NULL; i++) {
        memcpy(args, o->args, o->bytes);
        memset(args + o->fields[i].offset, 0, sizeof(void *));
        const use as = o->fields[i].use;
        CHECK(o->run(ops, args) == (as == NEEDED ? ASHLAR_EINVAL : ASHLAR_OK));
        snprintf(text, sizeof text, "ashlar_%s: %s is NULL", o->name, o->fields[i].name);
        CHECK(as != NEEDED || strcmp(ashlar_error_detail(), text) == 0);
        memcpy(args + o->fields[i].offset, &host, sizeof host);
        CHECK(o->run(ops, args) == (as == UNUSED ? ASHLAR_OK : ASHLAR_EINVAL));
        snprintf(text, sizeof text, "ashlar_%s: %s, ", o->name, o->fields[i].name);
        CHECK(as == UNUSED || strstr(ashlar_error_detail(), text) != NULL);
        CHECK(as == UNUSED ||
              strstr(ashlar_error_detail(), "is not memory of device soft:0") != NULL);
        memcpy(args + o->fields[i].offset, &misaligned, sizeof misaligned);
        CHECK(o->run(ops, args) == (as == UNUSED ? ASHLAR_OK : ASHLAR_EINVAL));
        snprintf(text, sizeof text, "ashlar_%s: %s, at ", o->name, o->fields[i].name);
        CHECK(as == UNUSED || (strstr(ashlar_error_detail(), text) != NULL &&
                               strstr(ashlar_error_detail(), "is not aligned") != NULL));
    }
    for (size_t i = 0; i < 3; i++) {
        memcpy(args, o->args, o->bytes);
        memset(args + o->sizes[i], 0, sizeof(size_t));
        snprintf(text, sizeof text, "ashlar_%s: a size is 0", o->name);
        CHECK_FAILS(o->run(ops, args), ASHLAR_EINVAL, text);
    }
}

#define FIELD(type, name, use) \
    { #name, offsetof(type, name), use }

CASE_WITH(each_buffer_that_is_missing_or_the_hosts_is_named, open_ops()) {
    enum { NUMBERS = 4, BUFFERS = 6 };
    double *const from = (double *)(void *)take(BUFFERS * NUMBERS * sizeof(double), streams[0]);
    double *const to = from + NUMBERS, *const more = to + NUMBERS, *const extra = more + NUMBERS;
    double *const loss = extra + NUMBERS;
    int32_t *const ints = (int32_t *)(void *)(loss + NUMBERS);
    memset(from, 0, BUFFERS * NUMBERS * sizeof(double));
    misaligned = (char *)from + 1;
    const ashlar_embedding_args embedding = {1, 1, ints, 1, 1, ints, from, to, from, to};
    const ashlar_linear_args linear = {1, 1, 1, from, from, from, to, from, to, more, extra};
    const ashlar_cross_entropy_args entropy = {1,  1,    ints, 1,    from,  ints, 0,    NULL,
                                               to, from, more, loss, extra, from, from, 0, 0};
    const ashlar_squared_error_args squares = {
        1, 1,    ints, 1, from, from, 0, to, from, more, loss, extra, ASHLAR_ELEMENT_SQUARED,
        0, from, NULL, 0};
    const ashlar_columns_args columns = {1, 1, from, 1, to, 1, false};
    const ashlar_argmax_args argmax = {1, 1, from, ints};
#define E(name, use) FIELD(ashlar_embedding_args, name, use)
#define L(name, use) FIELD(ashlar_linear_args, name, use)
#define X(name, use) FIELD(ashlar_cross_entropy_args, name, use)
#define S(name, use) FIELD(ashlar_squared_error_args, name, use)
    const operation all[] = {
        {"embedding_forward",
         run_embedding_forward,
         &embedding,
         sizeof embedding,
         {E(lengths, USED), E(tokens, NEEDED), E(table, NEEDED), E(out, NEEDED), E(dout, UNUSED),
          E(dtable, UNUSED)},
         {0, 8, 32}},
        {"embedding_backward",
         run_embedding_backward,
         &embedding,
         sizeof embedding,
         {E(lengths, USED), E(tokens, NEEDED), E(table, UNUSED), E(out, UNUSED), E(dout, NEEDED),
          E(dtable, NEEDED)},
         {0, 24, 32}},
        {"linear_forward",
         run_linear_forward,
         &linear,
         sizeof linear,
         {L(x, NEEDED), L(weight, NEEDED), L(bias, USED), L(y, NEEDED), L(dy, UNUSED),
          L(dx, UNUSED), L(dweight, UNUSED), L(dbias, UNUSED)},
         {0, 8, 16}},
        {"linear_backward",
         run_linear_backward,
         &linear,
         sizeof linear,
         {L(x, NEEDED), L(weight, NEEDED), L(bias, UNUSED), L(y, UNUSED), L(dy, NEEDED),
          L(dx, USED), L(dweight, USED), L(dbias, USED)},
         {0, 8, 16}},
        {"cross_entropy",
         run_cross_entropy,
         &entropy,
         sizeof entropy,
         {X(lengths, USED), X(logits, NEEDED), X(targets, NEEDED), X(weight_at, USED),
          X(dlogits, USED), X(scale, USED), X(work, UNUSED), X(loss, NEEDED), X(losses, USED),
          X(class_weights, USED), X(position_weights, USED)},
         {0, 8, 24}},
        {"squared_error",
         run_squared_error,
         &squares,
         sizeof squares,
         {S(lengths, USED), S(outputs, NEEDED), S(targets, NEEDED), S(doutputs, USED),
          S(scale, USED), S(work, UNUSED), S(loss, NEEDED), S(losses, USED), S(mask, USED),
          S(weight_at, USED)},
         {0, 8, 24}},
        {"copy_columns",
         run_copy_columns,
         &columns,
         sizeof columns,
         {FIELD(ashlar_columns_args, from, NEEDED), FIELD(ashlar_columns_args, to, NEEDED)},
         {0, 8, 24}},
        {"argmax",
         run_argmax,
         &argmax,
         sizeof argmax,
         {FIELD(ashlar_argmax_args, logits, NEEDED), FIELD(ashlar_argmax_args, labels, NEEDED)},
         {0, 8, 8}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        check_arguments(&all[i]);
    }
    ashlar_columns_args huge = columns;
    huge.rows = SIZE_MAX / 2;
    CHECK_FAILS(run_copy_columns(ops, &huge), ASHLAR_EINVAL, "ashlar_copy_columns: from, ");
    ashlar_cross_entropy_args smooth = entropy;
    smooth.smoothing = 1.5;
    CHECK_FAILS(run_cross_entropy(ops, &smooth), ASHLAR_EINVAL, "smoothing is not in 0..1");
    ashlar_squared_error_args huber = squares;
    huber.kind = ASHLAR_ELEMENT_HUBER;
    CHECK_FAILS(run_squared_error(ops, &huber), ASHLAR_EINVAL, "kind or delta");
    huber.kind = ASHLAR_ELEMENT_LOSS_COUNT;
    CHECK_FAILS(run_squared_error(ops, &huber), ASHLAR_EINVAL, "kind or delta");
    give(from);
}

CASE_WITH(what_backward_does_not_want_it_does_not_need, open_ops()) {
    double *const dy = (double *)(void *)take(3 * sizeof(double), streams[0]);
    double *const dbias = dy + 2;
    memcpy(dy, (double[]){1, 2, 5}, 3 * sizeof(double));
    const ashlar_linear_args args = {.rows = 2, .in = 1, .out = 1, .dy = dy, .dbias = dbias};
    CHECK(ashlar_linear_backward(ops, &args, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, streams[0]) == ASHLAR_OK);
    CHECK(dbias[0] == 8);
    give(dy);
}

CASE_WITH(arrays_are_added_up, open_ops()) {
    double *const to = (double *)(void *)take(4 * sizeof(double), streams[0]);
    const double *const from = to + 2;
    memcpy(to, (double[]){1, 2, 0.5, -4}, 4 * sizeof(double));
    ashlar_columns_args args = {.rows = 1,
                                .width = 2,
                                .from = from,
                                .from_stride = 2,
                                .to = to,
                                .to_stride = 2,
                                .adds = true};
    CHECK(ashlar_copy_columns(ops, &args, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, streams[0]) == ASHLAR_OK);
    CHECK(to[0] == 1.5 && to[1] == -2 && to[2] == 0.5);
    args.from = NULL;
    CHECK_FAILS(ashlar_copy_columns(ops, &args, streams[0]), ASHLAR_EINVAL, "from is NULL");
    give(to);
}

CASE_WITH(a_type_that_there_is_not_is_refused, open_ops()) {
    ashlar_ops *none = NULL;
    CHECK_FAILS(ashlar_ops_create(device, ASHLAR_DTYPE_COUNT, &none), ASHLAR_EINVAL,
                "4 is no type of elements");
    CHECK_FAILS(ashlar_ops_create(device, ASHLAR_F16, &none), ASHLAR_ENOTSUP, "ASHLAR_F16");
    CHECK(none == NULL);
}

static void check_lost(bool is_fine, const char *why) {
    if (is_fine) {
        CHECK(ashlar_stream_synchronize(device, streams[0]) == ASHLAR_OK);
    } else {
        CHECK_FAILS(ashlar_stream_synchronize(device, streams[0]), ASHLAR_EDRIVER, why);
        ashlar__soft_state.devices[0].fault = CU_SUCCESS;
    }
}

/* What is outside of the classes is found when the work runs: the device is lost, by a line that
 * says why, and nothing was read or written outside of the table. */
CASE_WITH(a_token_that_is_no_class_loses_the_device, open_ops()) {
    enum { T = 2, B = 2, V = 3 };
    static const struct {
        int32_t token;
        bool is_fine, is_target_fine;
    } cases[] = {{V - 1, true, true}, {V, false, false}, {-1, false, true}};
    struct {
        double table[V], out[T * B], logits[T * B * V], loss;
        int32_t tokens[T * B], lengths[B];
    } *at = (void *)take(sizeof *at, streams[0]);
    double *const work =
        (void *)take(ashlar_ops_get_need(ops, T * B).loss_work_bytes + 1, streams[0]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int is_past = 0; is_past < 2; is_past++) {
            memset(at, 0, sizeof *at);
            at->tokens[2] = cases[i].token; /* of sequence 0 at step 1 */
            at->lengths[0] = is_past ? 1 : 2;
            at->lengths[1] = 2;
            ashlar_embedding_args embedding = {.steps = T,
                                               .batch = B,
                                               .lengths = at->lengths,
                                               .classes = V,
                                               .width = 1,
                                               .tokens = at->tokens,
                                               .table = at->table,
                                               .out = at->out};
            const ashlar_cross_entropy_args loss = {.steps = T,
                                                    .batch = B,
                                                    .lengths = at->lengths,
                                                    .classes = V,
                                                    .logits = at->logits,
                                                    .targets = at->tokens,
                                                    .work = work,
                                                    .loss = &at->loss};
            CHECK(ashlar_embedding_forward(ops, &embedding, streams[0]) == ASHLAR_OK);
            check_lost(cases[i].is_fine || is_past, "embedding: a token is no class of the table");
            embedding.dout = at->out;
            embedding.dtable = at->table;
            CHECK(ashlar_embedding_backward(ops, &embedding, streams[0]) == ASHLAR_OK);
            check_lost(cases[i].is_fine || is_past, "embedding: a token is no class of the table");
            CHECK(ashlar_cross_entropy(ops, &loss, streams[0]) == ASHLAR_OK);
            check_lost(cases[i].is_target_fine || is_past, "cross-entropy: a target is no class");
        }
    }
    give(at);
    give(work);
}

RUN_CASES()
