/* test_model_random.c - models drawn from a seed: gradients of weights and inputs against finite
 * differences of the loss; the same gradients in chunks, micro-batches and captured walks, and on
 * any number of threads; windows of time; what is predicted; where the buffers lie. */
#include "tests/rnn/engine/engine_fixture.h"

#include "arena/compute/workers.h"

enum { TENSORS = 40, OUTPUTS = 2, CHECKED = 24, BUFFERS = 600 };

/* What a drawn model is made of. */
static ashlar_tensor *vectors[TENSORS]; /* that are no states */
static size_t vector_count;
static bool is_target[INPUTS], may_chunk, has_dropout;
static bool is_local; /* models are drawn that can be computed in chunks, with a layer */

static bool chance(size_t of) {
    return below(of) == 0;
}

/* ---- drawing a model ---- */

static ashlar_tensor *input(ashlar_axis axis, size_t width, size_t classes) {
    drawn.classes[model->input_count] = classes;
    return ashlar_model_input(model, "input", axis, width);
}

static void made(ashlar_tensor *tensor) {
    if (tensor != NULL && vector_count < TENSORS) {
        vectors[vector_count++] = tensor;
    }
}

/* One of the vectors on the axis of `as`, and if wanted as wide; it is one itself. */
static ashlar_tensor *draw_like(const ashlar_tensor *as, bool is_as_wide) {
    ashlar_tensor *t;
    do {
        t = vectors[below(vector_count)];
    } while (t->axis != as->axis || (is_as_wide && t->width != as->width));
    return t;
}

static ashlar_tensor *draw_any(void) {
    return vectors[below(vector_count)];
}

/* The first vector, an embedding's, is on an axis of time. */
static ashlar_tensor *draw_on_time(void) {
    ashlar_tensor *t = draw_any();
    return t->axis != ASHLAR_AXIS_NONE ? t : vectors[0];
}

static const char *name_of(const char *kind) {
    static char text[4][32];
    static size_t turn;
    (void)snprintf(text[++turn % 4], sizeof text[0], "%s%zu", kind, model->root->node_count);
    return text[turn % 4];
}

/* Of tokens, or of the likeliest class. */
static void add_embedding(void) {
    const ashlar_axis axis = drawn.words > 0 && chance(3) ? drawn.nested : ASHLAR_AXIS_TIME;
    ashlar_tensor *const x = vector_count > 0 && chance(3) ? draw_any() : NULL;
    const size_t classes = x != NULL ? x->width : 2 + below(6);
    ashlar_tensor *tokens = x != NULL ? ashlar_model_argmax(model, x) : input(axis, 0, classes);
    made(ashlar_model_embedding(model, name_of("embedding"), tokens, classes, 1 + below(5)));
}

static void add_linear(void) {
    made(ashlar_model_linear(model, name_of("linear"), draw_any(), 1 + below(5), !chance(3)));
}

static ashlar_tensor *state_input(size_t layers, size_t width) {
    drawn.layers[model->input_count] = layers;
    return input(ASHLAR_AXIS_NONE, layers * width, 0);
}

static void add_rnn(void) {
    ashlar_tensor *const x = draw_on_time();
    ashlar_rnn_config c = {.hidden = 1 + below(5),
                           .layers = 1 + below(2),
                           .cell = (ashlar_rnn_cell)below(ASHLAR_RNN_CELL_COUNT),
                           .bias = (ashlar_rnn_bias)below(4),
                           .directions = is_local ? 1 : 1 + below(2)};
    const size_t stack = c.layers * c.directions;
    const bool is_lstm = c.cell == ASHLAR_RNN_LSTM;
    ashlar_rnn_states states = {0};
    if (is_lstm && c.hidden > 1 && chance(3)) {
        c.projection = 1 + below(c.hidden - 1);
    }
    if (c.layers > 1 && chance(2)) {
        c.dropout = 0.4;
        has_dropout = true;
    }
    may_chunk &= c.directions == 1;
    if (x->axis == ASHLAR_AXIS_TIME && chance(3)) { /* states from a batch */
        states.h = state_input(stack, c.projection > 0 ? c.projection : c.hidden);
        states.c = is_lstm ? state_input(stack, c.hidden) : NULL;
    }
    const ashlar_rnn_result r = ashlar_model_rnn(model, name_of("rnn"), x, &c, &states);
    made(r.y);
    if (!is_local && chance(3)) {
        made(ashlar_model_last_layer(model, r.h));
        may_chunk = false;
    }
    if (!is_local && chance(4)) { /* another layer goes on from these states */
        const ashlar_rnn_states next = {r.h, r.c};
        made(ashlar_model_rnn(model, name_of("next"), draw_like(x, false), &c, &next).y);
        may_chunk = false;
    }
}

static void add_element(void) {
    const ashlar_element_kind kind = (ashlar_element_kind)below(ASHLAR_ELEMENT_KIND_COUNT);
    ashlar_tensor *const a = draw_any();
    ashlar_tensor *const b = draw_like(a, true);
    made(ashlar_model_element(model, kind, a, kind <= ASHLAR_ELEMENT_MULTIPLY ? b : NULL));
}

static void add_scale(void) {
    ashlar_tensor *const a = draw_any();
    made(ashlar_model_element(model, ASHLAR_ELEMENT_MULTIPLY, a,
                              ashlar_model_linear(model, name_of("factors"), a, 1, true)));
}

static void add_columns(void) {
    ashlar_tensor *const a = draw_any(), *const b = draw_like(a, false);
    if (a->width + b->width <= 12 && chance(2)) {
        made(ashlar_model_concatenate(model, a, b));
        return;
    }
    const size_t first = below(a->width);
    made(ashlar_model_slice(model, a, first, 1 + below(a->width - first)));
}

static void add_pool(void) {
    made(ashlar_model_pool(model, (ashlar_pool_kind)below(ASHLAR_POOL_KIND_COUNT), draw_on_time()));
    may_chunk = false;
}

static void add_dropout(void) {
    made(ashlar_model_dropout(model, draw_any(), 0.3));
    has_dropout = true;
}

/* A loop over time: a layer's single steps with states that are carried, a value of its own that is
 * carried, and what does not depend on time. */
static void add_loop(void) {
    ashlar_tensor *const x = draw_on_time(), *const used = draw_any(), *all = NULL;
    if (x->axis != ASHLAR_AXIS_TIME) {
        return;
    }
    const size_t width = 1 + below(3);
    const ashlar_rnn_config c = {.hidden = 1 + below(4),
                                 .layers = 1 + below(2),
                                 .cell = (ashlar_rnn_cell)below(ASHLAR_RNN_CELL_COUNT)};
    const bool is_lstm = c.cell == ASHLAR_RNN_LSTM;
    ashlar_tensor *initial = chance(2) ? input(ASHLAR_AXIS_NONE, width, 0) : NULL;
    ashlar_model *body = ashlar_model_loop(model, ASHLAR_AXIS_TIME, chance(2));
    ashlar_tensor *step = ashlar_loop_step(body, x);
    const ashlar_rnn_states states = {
        .h = ashlar_loop_carried(body, NULL, c.layers * c.hidden),
        .c = is_lstm ? ashlar_loop_carried(body, NULL, c.layers * c.hidden) : NULL};
    ashlar_tensor *own = ashlar_loop_carried(body, initial, width);
    step = ashlar_model_concatenate(body, step, own);
    const ashlar_rnn_result r = ashlar_model_rnn(body, name_of("step"), step, &c, &states);
    ashlar_loop_carry(body, states.h, r.h);
    if (is_lstm) {
        ashlar_loop_carry(body, states.c, r.c);
    }
    ashlar_tensor *y = r.y;
    if (used->axis == ASHLAR_AXIS_NONE) { /* what does not change from step to step */
        y = ashlar_model_concatenate(body, y, ashlar_loop_use(body, used));
    }
    if (chance(3)) {
        y = ashlar_model_dropout(body, y, 0.3);
        has_dropout = true;
    }
    if (chance(2)) { /* the likeliest class of the step before, through an embedding */
        ashlar_tensor *before = ashlar_loop_carried(body, NULL, 0);
        ashlar_loop_carry(body, before, ashlar_model_argmax(body, y));
        before = ashlar_model_embedding(body, name_of("label"), before, y->width, 2);
        y = ashlar_model_concatenate(body, y, before);
    }
    ashlar_tensor *next = ashlar_model_linear(body, name_of("carried"), y, width, true);
    next = ashlar_model_element(body, ASHLAR_ELEMENT_TANH, next, NULL);
    ashlar_loop_carry(body, own, next);
    if (chance(2)) {
        ashlar_loop_collect(body, next, &all);
    }
    made(ashlar_loop_end(body, y));
    made(all);
    may_chunk = false;
}

static void add_loss(ashlar_tensor *x) {
    static const double weights[] = {1, 0.5, 2, 1, 3, 0.25, 1, 1, 2, 1, 1, 0.5,
                                     1, 1,   1, 2, 1, 1,    1, 1, 1, 1, 1, 1};
    const ashlar_loss_kind kind = (ashlar_loss_kind)below(ASHLAR_LOSS_KIND_COUNT);
    const bool has_classes = kind == ASHLAR_LOSS_CROSS_ENTROPY;
    const ashlar_loss_options options = {.factor = chance(2) ? 0.7 : 0,
                                         .smoothing = has_classes && chance(3) ? 0.1 : 0,
                                         .class_weights =
                                             has_classes && chance(3) ? weights : NULL};
    is_target[model->input_count] = true;
    ashlar_tensor *targets = input(x->axis, has_classes ? 0 : x->width, has_classes ? x->width : 0);
    ashlar_model_loss(model, kind, x, targets, &options);
}

static void draw_model(void) {
    static void (*const adders[])(void) = {add_embedding, add_linear,  add_linear,  add_rnn,
                                           add_rnn,       add_element, add_element, add_scale,
                                           add_columns,   add_dropout, add_pool,    add_loop};
    const size_t count = sizeof adders / sizeof adders[0] - (is_local ? 2 : 0);
    vector_count = 0;
    memset(is_target, 0, sizeof is_target);
    has_dropout = false;
    may_chunk = true;
    if (!is_local && chance(4)) {
        drawn.nested = ashlar_model_axis(model, ASHLAR_AXIS_TIME);
        drawn.words = 1 + below(WORDS);
        may_chunk = false;
    }
    add_embedding();
    if (chance(2)) {
        made(input(ASHLAR_AXIS_TIME, 1 + below(4), 0));
    }
    for (size_t i = 2 + below(7); i-- > 0;) {
        adders[below(count)]();
    }
    if (is_local) {
        add_rnn();
    }
    add_linear();
    add_loss(vectors[vector_count - 1]);
    if (chance(3)) {
        add_loss(draw_any());
    }
    ashlar_model_output(model, vectors[vector_count - 1]);
    ashlar_model_output(model, vectors[0]);
}

/* A loss in chunks has the bits of that in one piece, but for other dropout. */
static void check_loss(double in_chunks, double all) {
    CHECK(has_dropout || in_chunks == all);
}

/* With dropout, which each chunk draws anew, a chunked walk has gradients of its own. */
static void check_chunks(const ashlar_model_batch *plain) {
    ashlar_model_batch b = *plain;
    b.weight = 1.0 / 7; /* of the whole batch: a mean over a chunk is another one */
    const double all = run(ASHLAR_WALK_TRAIN, &b);
    expect();
    for (b.chunk = 1; b.chunk < b.steps; b.chunk++) {
        check_loss(run(ASHLAR_WALK_TRAIN, &b), all);
        if (has_dropout) {
            expect();
            (void)run(ASHLAR_WALK_TRAIN, &b);
        }
        check_same(has_dropout ? 0 : 1e-12);
    }
    b.chunk = 1 + below(b.steps - 1);
    if (has_dropout) {
        check_gradients(&b, CHECKED / 3, is_target);
    }
}

/* What a walk takes with this memory; 0: it does not run. */
static size_t need_with(const ashlar_model_batch *plain, size_t memory) {
    ashlar_model_batch b = *plain;
    ashlar_model_need need = {0};
    b.memory = memory;
    const ashlar_status status = ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, &b, &need);
    CHECK(status == ASHLAR_OK || status == ASHLAR_ENOMEM);
    return status == ASHLAR_OK ? need.plan_bytes : 0;
}

static size_t moves_seen, tiers_seen[2]; /* walks with something on the host; computed again */

/* Give chunks other tiers than were chosen: as many as may be on the host, from any of them, and
 * fewer residents than slots. */
static void shuffle_tiers(void) {
    for (ashlar_walk_table *t = model->tables; t != NULL; t = t->next) {
        for (ashlar_walk_tiers *tiers = t->tiers; tiers != NULL; tiers = tiers->next) {
            const size_t slots = tiers->slot_count, others = tiers->chunk_count - 1;
            size_t residents = slots > 0 ? below(slots) : 0, away = slots > 0 ? others - slots : 0;
            for (size_t i = others; i-- > 0;) {
                const bool stays = residents > 0 && chance(2), leaves = away > 0 && !chance(4);
                residents -= stays;
                away -= !stays && leaves;
                tiers->of[i] = (unsigned char)(stays    ? ASHLAR_TIER_RESIDENT
                                               : leaves ? ASHLAR_TIER_HOST
                                                        : ASHLAR_TIER_RECOMPUTED);
            }
        }
    }
}

/* In any memory that a walk runs in, chunks have the same bits; in less it says what it needs. */
static void check_memory(const ashlar_model_batch *plain) {
    ashlar_model_batch b = *plain;
    b.weight = 1.0 / 7;
    const double all = run(ASHLAR_WALK_TRAIN, &b);
    b.chunk = 1 + below(b.steps / 3);
    const size_t least = need_with(&b, 0), whole = need_with(&b, SIZE_MAX);
    ashlar_model_tiers tiers = {0};
    check_loss(run(ASHLAR_WALK_TRAIN, &b), all);
    expect();
    for (size_t i = 0; i < 5; i++) {
        static const double copies[] = {1e6, 5e7, 1e8, 2e8, 4e8, 1e9, 1e12};
        const ashlar_model_rates rates = {.out_bytes = copies[below(7)],
                                          .back_bytes = copies[below(7)]};
        CHECK(ashlar_model_set_rates(model, &rates) == ASHLAR_OK);
        b.memory = i == 0 ? SIZE_MAX : least + (i == 1 ? 0 : below(whole - least + 1));
        check_loss(run(ASHLAR_WALK_TRAIN, &b), all);
        check_same(0);
        CHECK(need_with(&b, b.memory) <= b.memory);
        CHECK(ashlar_model_get_tiers(model, &b, &tiers) == ASHLAR_OK);
        CHECK_ZU(tiers.least_bytes, least);
        CHECK(tiers.time >= 1 && (i > 0 || tiers.time == 1));
        tiers_seen[0] += tiers.host_bytes > 0;
        tiers_seen[1] += tiers.recomputed_bytes > 0;
        shuffle_tiers();
        check_loss(run(ASHLAR_WALK_TRAIN, &b), all);
        check_same(0);
    }
    b.memory = least - 1;
    CHECK(ashlar_model_run(model, ASHLAR_WALK_TRAIN, &b, streams[0]) == ASHLAR_ENOMEM);
    CHECK_HAS(ashlar_error_detail(), "needs at least");
}

static void check_places(const ashlar_model_batch *b);

/* The same without chunks, where buffers go to the host in their idle time. */
static void check_moves(const ashlar_model_batch *plain) {
    ashlar_model_batch b = *plain;
    ashlar_model_tiers tiers = {0};
    (void)run(ASHLAR_WALK_TRAIN, &b);
    expect();
    CHECK(ashlar_model_get_tiers(model, &b, &tiers) == ASHLAR_OK);
    const size_t whole = need_with(&b, 0), least = tiers.least_bytes;
    for (size_t i = 0; i < 4 && least < whole; i++) {
        b.memory = least + (i == 0 ? 0 : below(whole - least));
        (void)run(ASHLAR_WALK_TRAIN, &b);
        check_same(0);
        CHECK(need_with(&b, b.memory) <= b.memory);
        check_places(&b);
        CHECK(ashlar_model_get_tiers(model, &b, &tiers) == ASHLAR_OK);
        CHECK(tiers.time >= 1 && tiers.least_bytes == least);
        moves_seen += tiers.host_bytes > 0; /* a search may find another plan without them */
    }
    b.memory = least - 1;
    CHECK(ashlar_model_run(model, ASHLAR_WALK_TRAIN, &b, streams[0]) ==
              (least < whole ? ASHLAR_ENOMEM : ASHLAR_OK) ||
          least == whole);
}

/* The batch's steps from `first` on, with lengths that may be 0 in device memory. */
static ashlar_model_batch window_of(const ashlar_model_batch *whole, size_t first, size_t steps,
                                    const void **inputs, int32_t *lengths, int32_t *far) {
    const size_t B = whole->batch;
    ashlar_model_batch b = *whole;
    for (size_t k = 0; k < B; k++) {
        const int32_t left = whole->lengths[k] - (int32_t)first;
        far[k] = left < 0 ? 0 : left < (int32_t)steps ? left : (int32_t)steps;
        lengths[k] = far[k] == 0 ? 1 : far[k];
    }
    for (size_t i = 0; i < model->input_count; i++) {
        const bool moves = model->inputs[i].axis == ASHLAR_AXIS_TIME;
        inputs[i] = (char *)drawn.inputs[i] + (moves ? first * B * item_of(i) : 0);
    }
    b.steps = steps;
    b.lengths = lengths;
    b.lengths_at = far;
    b.inputs = inputs;
    return b;
}

/* Time cut in two, with states that go from one batch to the next, and no gradient back. */
static void check_windows(const ashlar_model_batch *plain) {
    const size_t T = plain->steps, B = plain->batch, cut = 1 + below(T - 1);
    int32_t whole[B_MOST], lengths[2][B_MOST];
    int32_t *const far = (int32_t *)(void *)take(2 * B * sizeof *far, streams[0]);
    const void *inputs[2][INPUTS];
    ashlar_model_batch b = *plain;
    ashlar_model_need need;
    for (size_t k = 0; k < B; k++) {
        whole[k] = (int32_t)(1 + below(T));
    }
    b.weight = 1.0 / 7;
    b.lengths = whole;
    ashlar_model_batch first = window_of(&b, 0, cut, inputs[0], lengths[0], far);
    ashlar_model_batch second = window_of(&b, cut, T - cut, inputs[1], lengths[1], far + B);
    REQUIRE(ashlar_model_get_need(model, ASHLAR_WALK_TEST, &b, &need) == ASHLAR_OK);
    void *states = take(need.carried_bytes + 1, streams[0]);
    memset(states, 0xff, need.carried_bytes); /* NaN: they must be written */
    first.after = states;
    second.before = states;
    const double all = run(ASHLAR_WALK_TEST, &b);
    b.chunk = cut;
    CHECK(run(ASHLAR_WALK_TEST, &b) == all);
    (void)run(ASHLAR_WALK_TEST, &first);
    go(ASHLAR_WALK_TEST, &second);
    CHECK_NEAR(*loss, all, 1e-12, 1e-12);
    second.chunk = below(T - cut);
    (void)run(ASHLAR_WALK_TRAIN, &second);
    expect();
    for (size_t k = 0; k < CHECKED / 3; k++) {
        const size_t i = below(region_count());
        check_slope(region(ASHLAR_REGION_PARAMETERS) + i, expected[i], &second);
    }
    give(states);
    give(far);
}

/* ---- parts of a batch ---- */

/* Run with columns first, first + stride .. of the batch alone. */
static void run_columns(const ashlar_model_batch *whole, size_t first, size_t stride, size_t n) {
    const size_t T = whole->steps, B = whole->batch;
    int32_t own[B_MOST], nested[T_MOST * B_MOST];
    void *inputs[INPUTS];
    ashlar_model_batch b = *whole;
    for (size_t i = 0; i < model->input_count; i++) {
        const size_t S = steps_of(i, T), item = item_of(i);
        char *to = inputs[i] = take(S * n * item, streams[0]);
        for (size_t k = 0; k < S * n; k++) {
            const size_t column = k / n * B + first + k % n * stride;
            memcpy(to + k * item, (char *)drawn.inputs[i] + column * item, item);
        }
    }
    for (size_t k = 0; k < T * n; k++) {
        own[k % n] = drawn.lengths[first + k % n * stride];
        nested[k] = drawn.nested_lengths[k / n * B + first + k % n * stride];
    }
    b.batch = n;
    b.lengths = b.lengths == NULL ? NULL : own;
    b.axes[drawn.nested].lengths = b.axes[drawn.nested].lengths == NULL ? NULL : nested;
    b.inputs = (const void *const *)inputs;
    b.sequence_first = first;
    b.sequence_stride = stride;
    go(ASHLAR_WALK_TRAIN, &b);
    for (size_t i = 0; i < model->input_count; i++) {
        give(inputs[i]);
    }
}

/* Micro-batches, one behind the other; the sequences of ranks, which take turns. */
static void check_parts(const ashlar_model_batch *plain) {
    const size_t B = plain->batch, cut = 1 + below(B - 1);
    ashlar_model_batch b = *plain;
    b.weight = 1.0 / 7;
    (void)run(ASHLAR_WALK_TRAIN, &b);
    expect();
    clear();
    run_columns(&b, 0, 1, cut);
    run_columns(&b, cut, 1, B - cut);
    check_same(1e-12);
    clear();
    run_columns(&b, 0, 2, (B + 1) / 2);
    run_columns(&b, 1, 2, B / 2);
    check_same(1e-12);
}

/* ---- captured walks ---- */

/* A captured walk serves other batches of its shape as eager ones do. */
static void check_capture(const ashlar_model_batch *plain) {
    const size_t T = plain->steps, B = plain->batch;
    struct {
        double weight;
        uint64_t seed;
        int32_t lengths[B_MOST], nested[T_MOST * B_MOST];
    } *values = (void *)take(sizeof *values, streams[0]);
    ashlar_graph *graph = NULL;
    ashlar_model_batch b = *plain, eager = *plain;
    b.lengths = NULL;
    b.lengths_at = values->lengths;
    b.axes[drawn.nested].lengths = NULL;
    b.axes[drawn.nested].lengths_at = values->nested;
    b.weight_at = &values->weight;
    b.seed_at = &values->seed;
    b.chunk = eager.chunk = may_chunk ? below(T) : 0;
    if (b.chunk > 0 && chance(2)) {
        const size_t least = need_with(&b, 0);
        b.memory = least + below(need_with(&b, SIZE_MAX) - least + 1);
    }
    REQUIRE(ashlar_model_dry_run(model, ASHLAR_WALK_TRAIN, &b, streams[0], NULL) == ASHLAR_OK);
    REQUIRE(ashlar_graph_begin(device, streams[0], &graph) == ASHLAR_OK);
    CHECK(ashlar_model_run(model, ASHLAR_WALK_TRAIN, &b, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_graph_end(graph) == ASHLAR_OK);
    for (uint64_t k = 0; k < 2; k++) {
        draw_values(T, B);
        memcpy(values->lengths, drawn.lengths, sizeof values->lengths);
        memcpy(values->nested, drawn.nested_lengths, sizeof values->nested);
        values->seed = 9 * k;
        values->weight = 0.3 + (double)k;
        clear();
        CHECK(ashlar_graph_launch(graph) == ASHLAR_OK);
        wait_for(streams[0]);
        expect();
        eager.lengths = drawn.lengths;
        eager.axes[drawn.nested].lengths = drawn.words > 0 ? drawn.nested_lengths : NULL;
        eager.seed = plain->seed + values->seed;
        eager.weight = values->weight;
        (void)run(ASHLAR_WALK_TRAIN, &eager);
        check_same(1e-12);
    }
    ashlar_graph_destroy(graph);
    give((void *)values);
}

/* ---- what is predicted ---- */

static bool is_valid(const ashlar_model_batch *b, ashlar_axis axis, size_t s, size_t column) {
    const size_t t = s % b->steps, c = s / b->steps;
    return b->lengths == NULL || axis == ASHLAR_AXIS_NONE ||
           (t < (size_t)b->lengths[column] &&
            (axis == ASHLAR_AXIS_TIME || c < (size_t)drawn.nested_lengths[t * b->batch + column]));
}

static void check_predicted(const ashlar_model_batch *plain) {
    ashlar_model_batch b = *plain;
    const ashlar_walk walk = has_dropout ? ASHLAR_WALK_TEST : ASHLAR_WALK_TRAIN;
    void *outputs[OUTPUTS], *again[OUTPUTS];
    for (size_t i = 0; i < OUTPUTS; i++) {
        const ashlar_axis axis = model->outputs[i]->axis;
        const size_t width = model->outputs[i]->width;
        const size_t bytes = outer_of(axis, b.steps) * b.batch * width * sizeof(double);
        outputs[i] = take(bytes, streams[0]);
        again[i] = take(bytes, streams[0]);
    }
    (void)run(walk, &b);
    expect();
    b.outputs = outputs;
    (void)run(walk, &b);
    check_same(0);
    b.outputs = again;
    go(ASHLAR_WALK_PREDICT, &b);
    for (size_t i = 0; i < OUTPUTS; i++) {
        const ashlar_axis axis = model->outputs[i]->axis;
        const size_t width = model->outputs[i]->width, rows = outer_of(axis, b.steps);
        for (size_t k = 0; k < rows * b.batch * width; k++) {
            CHECK(!is_valid(&b, axis, k / width / b.batch, k / width % b.batch) ||
                  ((double *)outputs[i])[k] == ((double *)again[i])[k]);
        }
        give(outputs[i]);
        give(again[i]);
    }
}

/* ---- where buffers lie ---- */

static int compare_offsets(const void *a, const void *b) {
    const size_t x = ((const ashlar_model_buffer *)a)->offset;
    const size_t y = ((const ashlar_model_buffer *)b)->offset;
    return (x > y) - (x < y);
}

/* Two buffers that are live together lie apart, unless one lies in the other's place; and in no
 * phase do they take more than the bound, which they reach. */
static void check_places(const ashlar_model_batch *b) {
    static ashlar_model_buffer buffers[BUFFERS];
    ashlar_model_need need;
    size_t count, most = 0;
    CHECK(ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, b, &need) == ASHLAR_OK);
    CHECK(b->memory > 0 || (double)need.plan_bytes <= 1.005 * (double)need.bound_bytes);
    CHECK(ashlar_model_list_buffers(model, ASHLAR_WALK_TRAIN, b, buffers, BUFFERS, &count) ==
          ASHLAR_OK);
    REQUIRE(count <= BUFFERS);
    qsort(buffers, count, sizeof *buffers, compare_offsets);
    for (size_t phase = 0; phase < need.phases; phase++) {
        const ashlar_model_buffer *last = NULL;
        size_t live = 0;
        for (size_t i = 0; i < count; i++) {
            const ashlar_model_buffer *a = &buffers[i];
            if (phase < a->first || phase > a->last) {
                continue;
            }
            const bool is_in_place =
                last != NULL && a->offset == last->offset && a->bytes == last->bytes;
            CHECK(last == NULL || is_in_place || a->offset >= last->offset + last->bytes);
            CHECK(a->offset + a->bytes <= need.plan_bytes);
            live += is_in_place ? 0 : (a->bytes + 255) / 256 * 256;
            last = a;
        }
        most = live > most ? live : most;
    }
    CHECK(most == need.bound_bytes || (b->memory > 0 && most < need.bound_bytes));
}

/* ---- cases ---- */

static bool open_drawn(uint64_t seed) {
    if (!open_model("memory=64MiB,mode=adversarial", seed)) {
        return false;
    }
    draw_model();
    const ashlar_status status = commit(seed);
    if (status != ASHLAR_OK) {
        printf("# seed %llu: %s\n", (unsigned long long)seed, ashlar_error_detail());
    }
    return status == ASHLAR_OK;
}

static void check_model(uint64_t seed) {
    REQUIRE(open_drawn(seed));
    const size_t T = 1 + below(6), B = 1 + below(5);
    const ashlar_model_batch b = draw_batch(T, B, !chance(4));
    check_gradients(&b, CHECKED, is_target);
    if (may_chunk && T > 1) {
        check_chunks(&b);
        check_windows(&b);
    }
    if (B > 1 && !(drawn.words > 0 && has_dropout)) {
        check_parts(&b);
    }
    check_predicted(&b);
    check_places(&b);
    check_capture(&b);
}

/* ASHLAR_SEED: the first model; ASHLAR_COUNT: how many. */
CASE(whatever_the_model_its_walks_compute_the_same) {
    const char *seed_text = getenv("ASHLAR_SEED"), *count_text = getenv("ASHLAR_COUNT");
    const uint64_t from = seed_text != NULL ? strtoull(seed_text, NULL, 10) : 1;
    const uint64_t count =
        count_text != NULL ? strtoull(count_text, NULL, 10) : CHECK_SANITIZED(1000, 60);
    for (uint64_t seed = from; seed < from + count; seed++) {
        const int before = check_failed;
        check_model(seed);
        close_model();
        if (check_failed > before) {
            printf("# seed %llu\n", (unsigned long long)seed);
        }
    }
}

CASE(in_any_memory_the_bits_are_the_same) {
    for (uint64_t seed = 1; seed <= CHECK_SANITIZED(400, 60); seed++) {
        const int before = check_failed;
        is_local = seed % 2 == 0;
        REQUIRE(open_drawn(seed));
        const ashlar_model_batch b = draw_batch(6 + below(30), 1 + below(5), !chance(4));
        check_moves(&b);
        if (is_local) {
            check_memory(&b);
        }
        close_model();
        if (check_failed > before) {
            printf("# seed %llu\n", (unsigned long long)seed);
        }
    }
    is_local = false;
    CHECK(moves_seen > 0);
    CHECK(tiers_seen[0] > 0 && tiers_seen[1] > 0);
}

CASE(the_bits_are_the_same_on_any_number_of_threads) {
    for (uint64_t seed = 1; seed <= CHECK_SANITIZED(20, 4); seed++) {
        REQUIRE(open_drawn(seed));
        const ashlar_model_batch b = draw_batch(T_MOST, B_MOST, true);
        for (size_t threads = 1; threads <= 3; threads++) {
            ashlar__workers_set_count(threads);
            (void)run(ASHLAR_WALK_TRAIN, &b);
            if (threads == 1) {
                expect();
            }
            check_same(0);
        }
        ashlar__workers_set_count(0);
        close_model();
    }
}

RUN_CASES()
