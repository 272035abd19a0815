/* train_step.c - what a step queues: the next batch's copy, walks over the model, the update; call
 * by call, or captured and launched; dry runs, and what a step needs. */
#include "rnn/train/train_impl.h"

#include <stdio.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

/* The difference between the dropout seeds of neighbouring micro-batches, which must drop different
 * outputs. Odd, like those between steps and parts. */
static const uint64_t MICRO_STRIDE = UINT64_C(0xa0761d6478bd642f);

ashlar_status ashlar__train_clear_sums(ashlar_trainer *t, size_t part, size_t parts) {
    ASHLAR_TRY(
        part > 0 ? ASHLAR_OK
                 : ashlar_fill(t->device, t->votes, 0, (1 + parts) * sizeof *t->losses, t->stream));
    return ashlar_arena_zero(t->arena, ASHLAR_REGION_GRADIENTS, t->stream);
}

uint64_t ashlar__trainer_key(const ashlar_trainer *t, size_t length) {
    return ashlar_warmup_key(&t->warmup, length);
}

ashlar_status ashlar__train_begin_part(ashlar_trainer *t, size_t buffer, size_t part) {
    const size_t length = ashlar__batches_length(&t->batches, buffer, part);
    return ashlar_step_begin(t->allocator, t->stream, ashlar__trainer_key(t, length));
}

static void add_address(ashlar_trainer *t, const void *address) {
    t->address_sum = ashlar__random_mix(t->address_sum + (uintptr_t)address);
}

ashlar_status ashlar__train_walk(ashlar_trainer *t, size_t buffer, size_t part, uint64_t seed,
                                 double *loss) {
    const ashlar_batches *b = &t->batches;
    const ashlar_step_values *values = b->buffers[buffer].values_at;
    for (size_t piece = 0; piece < b->split.pieces; piece++) {
        void *address = NULL;
        ashlar_batch_part p;
        ashlar__batches_get(b, buffer, t->shard * b->split.pieces + piece, part, &p);
        p.batch.loss = loss;
        p.batch.scale = ashlar_optimizer_get_info(t->optimizer).loss_scale;
        p.batch.seed = seed + piece * MICRO_STRIDE;
        p.batch.seed_at = values == NULL ? NULL : &values->seed;
        p.batch.weight_at = values == NULL || p.batch.weight == 0 ? NULL : &values->weights[part];
        p.batch.sequence_first = t->drops_alone ? 0 : b->split.first + t->shard;
        p.batch.sequence_stride = t->drops_alone ? 0 : b->split.shards;
        p.batch.address = &address;
        ASHLAR_TRY(ashlar_model_run(t->model, ASHLAR_WALK_TRAIN, &p.batch, t->stream));
        add_address(t, address);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__train_take_blocks(ashlar_trainer *t, ashlar_walk walk, size_t length) {
    const ashlar_model_batch shape = ashlar__batches_shape(&t->batches, length);
    for (size_t micro = 0; micro < t->batches.micro; micro++) {
        void *address;
        ASHLAR_TRY(ashlar_model_dry_run(t->model, walk, &shape, t->stream, &address));
        add_address(t, address);
    }
    return ASHLAR_OK;
}

/* A step takes the blocks of its training walks; a step of the held-out text the same, and then
 * those of its own walks. So one dry run is that of both. */
ashlar_status ashlar__train_dry_run(void *user, size_t length) {
    ashlar_trainer *t = user;
    ASHLAR_TRY(ashlar__train_take_blocks(t, ASHLAR_WALK_TRAIN, length));
    return t->config.held_out > 0 ? ashlar__train_take_blocks(t, ASHLAR_WALK_TEST, length)
                                  : ASHLAR_OK;
}

/* ---- a step, call by call ---- */

/* Draw a step's batch, and write its values where batches are padded. */
static void draw(ashlar_trainer *t, size_t step) {
    const ashlar_drawn_batch *const drawn = ashlar__batches_next(&t->batches, step);
    ashlar_step_values *const values = t->batches.buffers[ashlar__train_buffer(step)].values;
    if (values != NULL) {
        values->rate = ashlar_schedule_rate(&t->config.schedule, step);
        values->seed = ashlar__train_seed(t, step) - ASHLAR_PART_STRIDE; /* parts have 1 of it */
        for (size_t part = 0; part < drawn->parts; part++) {
            values->weights[part] = 1 / (double)drawn->part_tokens[part];
        }
    }
}

/* Queue a part: forward, backward, update of the weights. Where batches are padded, the rate and
 * the step's share of the seed are read in device memory. */
static ashlar_status queue_part(ashlar_trainer *t, size_t step, size_t part, size_t parts) {
    const size_t buffer = ashlar__train_buffer(step);
    const ashlar_step_values *values = t->batches.buffers[buffer].values_at;
    const ashlar_schedule *schedule = &t->config.schedule;
    const uint64_t seed = (values != NULL ? ASHLAR_PART_STRIDE : ashlar__train_seed(t, step)) +
                          part * ASHLAR_PART_STRIDE;
    ASHLAR_TRY(ashlar__train_clear_sums(t, part, parts));
    ASHLAR_TRY(ashlar__shards_are_used(&t->config)
                   ? ashlar__shard_sums_queue(t, step, buffer, part, seed, t->losses + part)
                   : ashlar__train_walk(t, buffer, part, seed, t->losses + part));
    const ashlar_optimizer_call call = {
        .learning_rate = values != NULL ? schedule->rate : ashlar_schedule_rate(schedule, step),
        .rate_at = values != NULL ? &values->rate : NULL,
        .gradient_scale = 1};
    return ashlar_optimizer_step_with(t->optimizer, &call, t->stream);
}

/* Each part is a step of the allocator, with a plan or without: the warm-up's promise is about such
 * steps. */
static ashlar_status queue_in_step(ashlar_trainer *t, size_t step, size_t part, size_t parts) {
    ASHLAR_TRY(ashlar__train_begin_part(t, ashlar__train_buffer(step), part));
    const ashlar_status status = queue_part(t, step, part, parts);
    const ashlar_status ended = ashlar_step_end(t->allocator);
    return status == ASHLAR_OK ? ended : status;
}

/* Queue the copy of a step's batch beside the step before it, which reads the other buffer. */
static ashlar_status upload(ashlar_trainer *t, size_t step) {
    t->event_calls++;
    ASHLAR_TRY(
        ashlar__batches_upload(&t->batches, t->device, ashlar__train_buffer(step), t->copies));
    return ashlar_event_record(t->device, t->joined, t->copies);
}

static ashlar_status wait_for_upload(ashlar_trainer *t) {
    t->event_calls++;
    return ashlar_stream_wait(t->device, t->stream, t->joined);
}

static ashlar_status queue_parts(ashlar_trainer *t, size_t step) {
    const size_t buffer = ashlar__train_buffer(step);
    const size_t parts = t->batches.buffers[buffer].split.parts;
    ashlar_train_outcome *out = ashlar__train_outcome_of(t, buffer);
    for (size_t part = 0; part < parts; part++) {
        ASHLAR_TRY(queue_in_step(t, step, part, parts));
    }
    ASHLAR_TRY(ashlar_optimizer_copy_state_to_host(t->optimizer, &out->optimizer, NULL, t->stream));
    return ashlar_copy_to_host(t->device, &out->votes, t->votes, (1 + parts) * sizeof *t->losses,
                               t->stream);
}

/* All calls of a step that may be captured: the copy of the next batch is among them, for launches
 * of graphs do not overlap. Of a padded step only the buffer counts: the calls are those of every
 * step of that length on this buffer. */
static ashlar_status queue_calls(ashlar_trainer *t, size_t step) {
    t->event_calls += 2;
    ASHLAR_TRY(ashlar_event_record(t->device, t->forked, t->stream));
    ASHLAR_TRY(ashlar_stream_wait(t->device, t->copies, t->forked));
    ASHLAR_TRY(upload(t, step + 1));
    ASHLAR_TRY(queue_parts(t, step));
    return wait_for_upload(t);
}

/* A step without graphs. The host has waited for the step that last read this buffer, so that the
 * copy waits for nothing on the device. */
static ashlar_status queue_step(ashlar_trainer *t, size_t step) {
    draw(t, step);
    ASHLAR_TRY(upload(t, step));
    ASHLAR_TRY(wait_for_upload(t));
    return queue_parts(t, step);
}

/* ---- graphs ---- */

static size_t graph_places(const ashlar_trainer *t) {
    return (t->batches.max_length + 1) * ASHLAR_BATCHES_BUFFERS;
}

/* Say in the report that steps are queued call by call, and why. */
static void refuse(ashlar_trainer *t, const char *what, const char *why) {
    ashlar_graph_report *r = &t->report.graphs;
    r->refused++;
    (void)snprintf(r->note, sizeof r->note, "%s%s", what, why);
}

static ashlar_step_graph *graph_of(const ashlar_trainer *t, size_t buffer, size_t length) {
    return &t->graphs[length * ASHLAR_BATCHES_BUFFERS + buffer];
}

/* Queue the calls of a step on the batch in a buffer into a new graph. A failure is no error of the
 * training. */
static void capture(ashlar_trainer *t, size_t buffer) {
    ashlar_step_graph *g = graph_of(t, buffer, t->batches.buffers[buffer].split.steps);
    t->address_sum = 0;
    ashlar_status status = ashlar_graph_begin(t->device, t->stream, &g->graph);
    ASHLAR_THEN(status, queue_calls(t, buffer));
    ASHLAR_THEN(status, ashlar_graph_end(g->graph));
    if (status != ASHLAR_OK) {
        refuse(t, "a step cannot be captured: ", ashlar_error_detail());
        ashlar_graph_destroy(g->graph);
        g->graph = NULL;
    }
    t->report.graphs.captured += g->graph != NULL;
    g->is_tried = true;
    g->address_sum = t->address_sum;
}

/* Take and give back the blocks of each part, and launch a captured step before the last part's
 * step of the allocator ends; but not if the blocks lie elsewhere. */
static ashlar_status launch(ashlar_trainer *t, size_t buffer, const ashlar_step_graph *captured,
                            bool *is_done) {
    const size_t parts = t->batches.buffers[buffer].split.parts;
    t->address_sum = 0;
    for (size_t part = 0; part < parts; part++) {
        ASHLAR_TRY(ashlar__train_begin_part(t, buffer, part));
        ashlar_status status = ashlar__train_take_blocks(
            t, ASHLAR_WALK_TRAIN, ashlar__batches_length(&t->batches, buffer, part));
        *is_done = part + 1 == parts && t->address_sum == captured->address_sum;
        if (*is_done) {
            ASHLAR_THEN(status, ashlar_graph_launch(captured->graph));
        }
        const ashlar_status ended = ashlar_step_end(t->allocator);
        ASHLAR_TRY(status == ASHLAR_OK ? ended : status);
    }
    return ASHLAR_OK;
}

/* Launch the step as a captured graph, on the batch in a buffer. If that is not possible, *is_done
 * stays false. */
static ashlar_status try_graph(ashlar_trainer *t, size_t buffer, bool *is_done) {
    ashlar_step_graph *g = graph_of(t, buffer, t->batches.buffers[buffer].split.steps);
    if (!g->is_tried) {
        capture(t, buffer);
    }
    if (g->graph == NULL) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(launch(t, buffer, g, is_done));
    if (!*is_done) {
        refuse(t, "changed since the capture: ", "the addresses that the plan gives");
        ASHLAR_TRY(ashlar_stream_synchronize(t->device, t->stream)); /* it may be running */
        ashlar_graph_destroy(g->graph);
        *g = (ashlar_step_graph){0};
    }
    return ASHLAR_OK;
}

/* ---- the steps of a run ---- */

static ashlar_status launch_or_queue(ashlar_trainer *t, size_t step, bool *is_done) {
    draw(t, step + 1);
    ASHLAR_TRY(try_graph(t, ashlar__train_buffer(step), is_done));
    return *is_done ? ASHLAR_OK : queue_calls(t, step);
}

ashlar_status ashlar__train_queue(ashlar_trainer *t, size_t step) {
    bool is_done = false;
    ASHLAR_TRY(t->graphs != NULL ? launch_or_queue(t, step, &is_done) : queue_step(t, step));
    t->report.graphs.launched += is_done;
    t->report.graphs.eager += !is_done && ashlar__train_pads(&t->config);
    t->event_calls++;
    return ashlar_event_record(t->device, t->done[ashlar__train_buffer(step)], t->stream);
}

ashlar_status ashlar__train_open_steps(ashlar_trainer *t) {
    ASHLAR_TRY(ashlar_stream_create(t->device, &t->copies));
    ASHLAR_TRY(ashlar_event_create(t->device, &t->forked));
    ASHLAR_TRY(ashlar_event_create(t->device, &t->joined));
    for (size_t i = 0; i < ASHLAR_BATCHES_BUFFERS; i++) {
        ASHLAR_TRY(ashlar_event_create(t->device, &t->done[i]));
    }
    return ASHLAR_OK;
}

void ashlar__train_close_steps(ashlar_trainer *t) {
    const ashlar_stream streams[] = {t->copies, t->stream};
    for (size_t i = 0; i < 2; i++) {
        if (streams[i] != NULL) {
            ASHLAR_IGNORE(ashlar_stream_synchronize(t->device, streams[i]));
        }
    }
    for (size_t i = 0; t->graphs != NULL && i < graph_places(t); i++) {
        ashlar_graph_destroy(t->graphs[i].graph);
    }
    ashlar__host_free(t->graphs);
    for (size_t i = 0; i < ASHLAR_BATCHES_BUFFERS; i++) {
        ashlar_event_destroy(t->device, t->done[i]);
    }
    ashlar_event_destroy(t->device, t->joined);
    ashlar_event_destroy(t->device, t->forked);
    ashlar_stream_destroy(t->device, t->copies);
}

static void capture_all(ashlar_trainer *t) {
    for (size_t length = 1; length <= t->batches.max_length; length++) {
        for (size_t i = 0; i < ASHLAR_BATCHES_BUFFERS && t->batches.padded[length] == length; i++) {
            ashlar__batches_make_dummy(&t->batches, i, length);
            capture(t, i);
        }
    }
}

/* The host waits for what the warm-up queued, and where steps are launched for the copy of the
 * first batch, since it draws that of step + 2 into the same buffer before it waits for the step.
 */
ashlar_status ashlar__train_begin_steps(ashlar_trainer *t, bool is_planned) {
    const size_t first = t->state.step + 1;
    if (t->config.graphs && !is_planned) {
        refuse(t, "steps are not captured: ", "there is no plan, so their addresses may change");
    } else if (t->config.graphs) {
        ASHLAR_HOST_NEW(t->graphs, graph_places(t), "no host memory for the graphs of steps");
        capture_all(t);
        draw(t, first);
        ASHLAR_TRY(
            ashlar__batches_upload(&t->batches, t->device, ashlar__train_buffer(first), t->stream));
    }
    return ashlar_stream_synchronize(t->device, t->stream);
}
