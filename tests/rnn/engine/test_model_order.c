/* test_model_order.c - training walks in less memory than they take, with vector clocks: each copy
 * out and back, and each operation, comes after every earlier use of its memory, on the device and
 * on the host, whatever runs when. */
#include "allocator/device/device_impl.h"
#include "tests/allocator/soft/soft_probe.h"
#include "tests/rnn/engine/engine_fixture.h"

enum { T = 48, B = 16, H = 16, V = 7, LEVELS = 12 };

static size_t used, misordered; /* by operations */

/* Whether an operation may use a buffer now: it is told of others, too, that are gone by then. */
static bool is_live(const ashlar_walking *w, size_t i) {
    const ashlar_walk_buffer *b = &w->table->buffers[i];
    const bool is_idle = b->pause < w->phase && w->phase < b->resume;
    return w->table->key.is_cut || (b->first <= w->phase && w->phase <= b->last && !is_idle);
}

/* An operation uses a buffer of the walk's block. What is no such buffer stays where it is. */
static void use(const ashlar_walking *w, const void *ptr, ashlar_stream stream) {
    size_t bytes = 0;
    bool is_ordered = false;
    for (size_t i = 0; i < w->table->buffer_count && ptr != NULL; i++) {
        const size_t own = w->plan->places[i].bytes;
        bytes = is_live(w, i) && ashlar__walk_at(w, i) == ptr && own > bytes ? own : bytes;
    }
    if (bytes > 0) {
        CHECK(ashlar__soft_clock_own(ashlar__ptr_in(ptr), bytes, stream, &is_ordered) == ASHLAR_OK);
        CHECK(ashlar__soft_clock_use(ashlar__ptr_in(ptr), bytes, stream) == ASHLAR_OK);
        used++;
        misordered += !is_ordered;
    }
}

/* In the place of what the operations compute. */
static ashlar_status use_all(void *user, const ashlar_operation_call *call, ashlar_stream stream) {
    const ashlar_walking *w = call->engine;
    (void)user;
    ASHLAR_TRY(ashlar__device_enter(device));
    for (size_t i = 0; i < ASHLAR_OPERATION_INPUTS; i++) {
        use(w, call->inputs[i].value, stream);
        use(w, call->inputs[i].gradient, stream);
    }
    for (size_t i = 0; i < ASHLAR_OPERATION_OUTPUTS; i++) {
        use(w, call->outputs[i].value, stream);
        use(w, call->outputs[i].gradient, stream);
    }
    use(w, call->kept, stream);
    use(w, call->work, stream);
    ashlar__device_leave(device);
    return ASHLAR_OK;
}

/* With copies that take next to no time, or as long as the work: then more are under way. */
static bool open_layers(size_t directions, double rate) {
    const ashlar_model_rates rates = {.out_bytes = rate, .back_bytes = rate};
    const ashlar_rnn_config config = {.hidden = H, .layers = 2, .directions = directions};
    if (!open_model("memory=64MiB,mode=adversarial,seed=5", 1)) {
        return false;
    }
    ashlar_tensor *tokens = ashlar_model_input(model, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *targets = ashlar_model_input(model, "targets", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = declare_stacks(tokens, V, H, &config);
    x = ashlar_model_linear(model, "linear", x, V, true);
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, x, targets, NULL);
    if (commit(1) != ASHLAR_OK || ashlar_model_set_rates(model, &rates) != ASHLAR_OK) {
        return false;
    }
    for (size_t n = 0; n < model->node_count; n++) {
        model->nodes[n]->operation.queue = use_all;
    }
    return true;
}

/* Other tiers than were chosen: of chunks the last go to the host, so that all slots are free when
 * the first comes back. */
static void send_the_last(void) {
    for (ashlar_walk_table *t = model->tables; t != NULL; t = t->next) {
        for (ashlar_walk_tiers *tiers = t->tiers; tiers != NULL; tiers = tiers->next) {
            for (size_t i = 0; i + 1 < tiers->chunk_count && tiers->slot_count > 0; i++) {
                tiers->of[i] = (unsigned char)(i >= tiers->slot_count ? ASHLAR_TIER_HOST
                                                                      : ASHLAR_TIER_RECOMPUTED);
            }
        }
    }
}

/* From the least memory to all: walks that share their block, slots and events. */
static void check_levels(size_t chunk) {
    ashlar_model_batch b = draw_batch(T, B, false);
    ashlar_model_need whole;
    ashlar_model_tiers tiers;
    size_t away = 0;
    used = misordered = 0;
    b.weight = 1;
    b.chunk = chunk;
    b.memory = chunk > 0 ? SIZE_MAX : 0;
    REQUIRE(ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, &b, &whole) == ASHLAR_OK);
    REQUIRE(ashlar_model_get_tiers(model, &b, &tiers) == ASHLAR_OK);
    CHECK_ZU(ashlar__soft_clock_watch_copies(), 0);
    const size_t least = tiers.least_bytes;
    for (size_t level = 0; level <= LEVELS; level++) {
        b.memory = least + (whole.plan_bytes - least) * level / LEVELS;
        REQUIRE(ashlar_model_get_tiers(model, &b, &tiers) == ASHLAR_OK);
        for (int walk = 0; walk < 4; walk++) {
            if (walk == 2) {
                send_the_last();
            }
            CHECK(ashlar_model_run(model, ASHLAR_WALK_TRAIN, &b, streams[0]) == ASHLAR_OK);
        }
        away += tiers.host_bytes > 0;
    }
    CHECK_ZU(ashlar__soft_clock_watch_copies(), 0);
    CHECK_ZU(misordered, 0);
    CHECK(used > 0 && away >= LEVELS / 4);
}

static void check_rates(size_t directions, size_t chunk) {
    static const double rates[] = {1e15, 1e9, 5e8};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        REQUIRE(open_layers(directions, rates[i]));
        check_levels(chunk);
        close_model();
    }
}

CASE(chunks_are_copied_and_used_in_order) {
    check_rates(1, 4);
}

CASE(buffers_that_move_are_copied_and_used_in_order) {
    check_rates(2, 0);
}

RUN_CASES()
