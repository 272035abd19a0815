/* step_fixed.c - pads, captures, checks and launches steps. */
#include "rnn/train/step_fixed.h"

#include <stdio.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "arena/optimizer/optimizer_impl.h"
#include "rnn/train/train_impl.h"

enum { VALUES_ALIGN = 256 };

/* ---- padded lengths ---- */

/* The longest length of a part in the range of `length`. */
static size_t longest_like(const ashlar_trainer *t, size_t length) {
    const size_t longest = t->task->max_part_length;
    const size_t width = (longest - 1) / t->config.buckets + 1;
    const size_t last = ((length - 1) / width + 1) * width;
    return last < longest ? last : longest;
}

/* Of several parts, only the last one is shorter, and padded. */
static ashlar_status find_padded(ashlar_trainer *t) {
    const size_t longest = t->task->max_length, part = t->task->max_part_length;
    size_t *padded;
    ASHLAR_HOST_NEW(padded, longest + 1, "no host memory for %zu lengths", longest);
    t->fixed.padded = padded;
    for (size_t length = 1; length <= longest; length++) {
        const size_t rest = length % part, whole = length - rest;
        const size_t last = rest == 0 ? 0 : longest_like(t, rest);
        padded[length] = whole + last < longest ? whole + last : longest;
    }
    return ASHLAR_OK;
}

static size_t parts_of(const ashlar_trainer *t, size_t length) {
    return (length - 1) / t->task->max_part_length + 1;
}

/* ---- the values ---- */

static ashlar_step_values *values_at(const ashlar_trainer *t, char *block, size_t buffer) {
    return (ashlar_step_values *)(void *)(block + buffer * t->fixed.value_bytes);
}

static ashlar_status take_values(ashlar_trainer *t) {
    ashlar_step_fixed *f = &t->fixed;
    const size_t bytes = sizeof(ashlar_step_values) + t->task->max_parts * sizeof(double);
    void *host = NULL, *device = NULL;
    f->value_bytes = (bytes + VALUES_ALIGN - 1) / VALUES_ALIGN * VALUES_ALIGN;
    const size_t all = ASHLAR_TASK_BUFFERS * f->value_bytes;
    ASHLAR_TRY(ashlar_device_host_alloc(t->device, all, &host));
    f->host_values = host;
    ASHLAR_TRY(ashlar_alloc_tagged(t->allocator, all, ASHLAR_TAG_BATCH, t->stream, &device));
    f->device_values = device;
    for (size_t i = 0; i < ASHLAR_TASK_BUFFERS; i++) {
        t->task->values[i] = values_at(t, f->device_values, i);
    }
    return ashlar_fill(t->device, device, 0, all, t->stream); /* for the warm-up's steps */
}

/* Draw a step's batch, and write its values. */
static void draw(ashlar_trainer *t, size_t step) {
    ashlar__prefetch_take(&t->prefetch, step);
    const size_t parts = ashlar__prefetch_batch(&t->prefetch, step)->parts;
    const size_t *tokens = ashlar__prefetch_tokens(&t->prefetch, step);
    ashlar_step_values *v = values_at(t, t->fixed.host_values, ashlar__prefetch_buffer(step));
    v->rate = ashlar_schedule_rate(&t->config.schedule, step);
    v->seed = ashlar__train_seed(t, step);
    for (size_t part = 0; part < parts; part++) {
        v->weights[part] = 1 / (double)tokens[part];
    }
    t->fixed.ready = step;
}

static ashlar_status upload(ashlar_trainer *t, size_t buffer, ashlar_stream stream) {
    ASHLAR_TRY(t->task->table->upload(t->task, buffer, stream));
    return ashlar_copy_to_device(t->device, values_at(t, t->fixed.device_values, buffer),
                                 values_at(t, t->fixed.host_values, buffer), t->fixed.value_bytes,
                                 stream);
}

/* Draw and copy a step's batch where the step before could not copy it: there is none, or a save
 * came between. The host waits for the copy, since it draws the batch of step + 2 into the same
 * buffer before it waits for this step. */
static ashlar_status draw_alone(ashlar_trainer *t, size_t step) {
    draw(t, step);
    ASHLAR_TRY(upload(t, ashlar__prefetch_buffer(step), t->stream));
    return ashlar_stream_synchronize(t->device, t->stream);
}

/* ---- the calls of a step ---- */

static ashlar_status queue_part(ashlar_trainer *t, size_t buffer, size_t part, size_t parts) {
    ASHLAR_TRY(ashlar__train_clear_sums(t, part, parts));
    ASHLAR_TRY(
        t->task->table->step(t->task, buffer, part, part * ASHLAR_PART_STRIDE, t->losses + part));
    return ashlar__optimizer_step_at(t->optimizer, &t->task->values[buffer]->rate,
                                     t->config.schedule.rate, 1, t->stream);
}

static ashlar_status begin_part(ashlar_trainer *t, size_t buffer, size_t part) {
    const size_t length = t->task->table->part(t->task, buffer, part).length;
    return ashlar_step_begin(t->allocator, t->stream, ashlar__trainer_key(t, length));
}

static ashlar_status queue_in_step(ashlar_trainer *t, size_t buffer, size_t part, size_t parts) {
    ASHLAR_TRY(begin_part(t, buffer, part));
    const ashlar_status status = queue_part(t, buffer, part, parts);
    const ashlar_status ended = ashlar_step_end(t->allocator);
    return status == ASHLAR_OK ? ended : status;
}

/* Let the stream of copies bring the other buffer's batch to the device beside the step. */
static ashlar_status fork_copies(ashlar_trainer *t, size_t buffer) {
    ashlar_prefetch *p = &t->prefetch;
    p->event_calls += 3;
    ASHLAR_TRY(ashlar_event_record(t->device, t->fixed.forked, t->stream));
    ASHLAR_TRY(ashlar_stream_wait(t->device, p->copies, t->fixed.forked));
    ASHLAR_TRY(upload(t, ashlar__prefetch_buffer(buffer + 1), p->copies));
    return ashlar_event_record(t->device, t->fixed.joined, p->copies);
}

/* All calls of a step on a batch of this padded length. */
static ashlar_status queue_calls(ashlar_trainer *t, size_t buffer, size_t length) {
    const size_t parts = parts_of(t, length);
    ASHLAR_TRY(fork_copies(t, buffer));
    for (size_t part = 0; part < parts; part++) {
        ASHLAR_TRY(queue_in_step(t, buffer, part, parts));
    }
    ASHLAR_TRY(ashlar__train_copy_outcome(t, buffer, parts));
    t->prefetch.event_calls++;
    return ashlar_stream_wait(t->device, t->stream, t->fixed.joined);
}

/* ---- graphs ---- */

void ashlar__step_fixed_refuse(ashlar_trainer *t, const char *what, const char *why) {
    ashlar_graph_report *r = &t->fixed.report;
    r->refused++;
    (void)snprintf(r->note, sizeof r->note, "%s%s", what, why);
}

static void identify(const ashlar_trainer *t, size_t buffer, ashlar_identity *id) {
    id->count = 0;
    t->task->table->identify(t->task, buffer, id);
    ashlar__identity_add_address(id, "the stream", t->stream);
    ashlar__identity_add_address(id, "the stream of copies", t->prefetch.copies);
    ashlar__identity_add_address(id, "the optimizer", t->optimizer);
    ashlar__identity_add_address(id, "the optimizer's address",
                                 ashlar_optimizer_loss_scale_address(t->optimizer));
    ashlar__identity_add_address(id, "the loss scale's address", t->task->loss_scale);
    ashlar__identity_add_real(id, "--learning-rate", t->config.schedule.rate);
    ashlar__identity_add_address(id, "the losses' address", t->losses);
    ashlar__identity_add_address(id, "the outcome's address", ashlar__train_outcome_of(t, buffer));
    ashlar__identity_add_address(id, "the values' address", t->task->values[buffer]);
    ashlar__identity_add_address(id, "the values' address on the host", t->fixed.host_values);
    ashlar__identity_add_address(id, "the weights' address",
                                 ashlar_arena_region(t->task->arena, ASHLAR_REGION_PARAMETERS));
    ashlar__identity_add_address(id, "the gradients' address",
                                 ashlar_arena_region(t->task->arena, ASHLAR_REGION_GRADIENTS));
    ashlar__identity_add_size(id, "the addresses that the plan gives", t->task->source.address_sum);
}

/* Queue a step's calls into a new graph. *out is NULL after a failure. */
static ashlar_status capture_calls(ashlar_trainer *t, size_t buffer, size_t length,
                                   ashlar_graph **out) {
    ashlar_graph *graph = NULL;
    t->task->source.address_sum = 0;
    ASHLAR_TRY(ashlar__graph_begin(t->device, t->stream, &graph));
    ashlar_status status = queue_calls(t, buffer, length);
    ASHLAR_THEN(status, ashlar__graph_end(graph));
    if (status != ASHLAR_OK) {
        ashlar__graph_destroy(graph);
        return status;
    }
    *out = graph;
    return ASHLAR_OK;
}

/* Capture the step on the batch in a buffer. A failure is no error of the training: the place stays
 * without a graph. */
static ashlar_status capture(ashlar_trainer *t, size_t buffer, size_t length,
                             ashlar_step_graph **out) {
    ashlar_step_graph *place = ashlar__step_graphs_place(&t->fixed.graphs);
    if (place->length != 0) { /* its graph may be running */
        ASHLAR_TRY(ashlar_stream_synchronize(t->device, t->stream));
        ashlar__step_graph_drop(place);
        t->fixed.report.evicted++;
    }
    const ashlar_status status = capture_calls(t, buffer, length, &place->graph);
    if (status != ASHLAR_OK) {
        ashlar__step_fixed_refuse(t, "a step cannot be captured: ", ashlar_error_detail());
    } else {
        t->fixed.report.captured++;
    }
    place->length = length;
    place->buffer = buffer;
    place->used_at = ++t->fixed.graphs.uses;
    identify(t, buffer, &place->identity);
    *out = place;
    return ASHLAR_OK;
}

/* Launch the captured step if its identity is as it was; else *changed says what has changed. */
static ashlar_status check_and_launch(const ashlar_trainer *t, const ashlar_step_graph *captured,
                                      const char **changed) {
    ashlar_identity now;
    identify(t, captured->buffer, &now);
    *changed = ashlar__identity_difference(&captured->identity, &now);
    return *changed == NULL ? ashlar__graph_launch(captured->graph) : ASHLAR_OK;
}

/* Take and give back the blocks of each part, and launch a captured step before the last part's
 * step of the allocator ends. If something has changed, *changed says what, and nothing is
 * launched. */
static ashlar_status launch(ashlar_trainer *t, const ashlar_step_graph *captured,
                            const char **changed) {
    const size_t parts = parts_of(t, captured->length);
    t->task->source.address_sum = 0;
    for (size_t part = 0; part < parts; part++) {
        const size_t length = t->task->table->part(t->task, captured->buffer, part).length;
        ASHLAR_TRY(begin_part(t, captured->buffer, part));
        ashlar_status status = t->task->table->dry_run(t->task, length);
        if (part + 1 == parts) {
            ASHLAR_THEN(status, check_and_launch(t, captured, changed));
        }
        const ashlar_status ended = ashlar_step_end(t->allocator);
        ASHLAR_TRY(status == ASHLAR_OK ? ended : status);
    }
    return ASHLAR_OK;
}

/* Launch the step as a captured graph, on the batch in buffer `buffer`. If that is not possible,
 * *is_done stays false. */
static ashlar_status try_graph(ashlar_trainer *t, size_t buffer, size_t length, bool *is_done) {
    ashlar_step_graph *captured = ashlar__step_graphs_find(&t->fixed.graphs, length, buffer);
    const char *changed = NULL;
    if (captured == NULL) {
        ASHLAR_TRY(capture(t, buffer, length, &captured));
    }
    if (captured->graph == NULL) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(launch(t, captured, &changed));
    *is_done = changed == NULL;
    if (changed != NULL) {
        ashlar__step_fixed_refuse(t, "changed since the capture: ", changed);
        ASHLAR_TRY(ashlar_stream_synchronize(t->device, t->stream));
        ashlar__step_graph_drop(captured);
    }
    return ASHLAR_OK;
}

static ashlar_status queue(ashlar_trainer *t, size_t buffer, size_t length) {
    bool is_done = false;
    if (t->fixed.graphs.most > 0) {
        ASHLAR_TRY(try_graph(t, buffer, length, &is_done));
    }
    t->fixed.report.eager += !is_done;
    if (!is_done) {
        return queue_calls(t, buffer, length);
    }
    t->fixed.report.launched++;
    for (size_t part = 0; part < parts_of(t, length); part++) {
        ashlar__train_buckets_launched(&t->buckets,
                                       t->task->table->part(t->task, buffer, part).length);
    }
    return ASHLAR_OK;
}

/* ---- from the outside ---- */

ashlar_status ashlar__step_fixed_open(ashlar_trainer *t) {
    ASHLAR_TRY(find_padded(t));
    ASHLAR_TRY(take_values(t));
    ASHLAR_TRY(ashlar_event_create(t->device, &t->fixed.forked));
    ASHLAR_TRY(ashlar_event_create(t->device, &t->fixed.joined));
    t->task->padded = t->fixed.padded;
    return ASHLAR_OK;
}

void ashlar__step_fixed_close(ashlar_trainer *t) {
    ashlar_step_fixed *f = &t->fixed;
    if (t->stream != NULL) {
        ASHLAR_IGNORE(ashlar_stream_synchronize(t->device, t->stream));
    }
    ashlar__step_graphs_finish(&f->graphs);
    ashlar_event_destroy(t->device, f->forked);
    ashlar_event_destroy(t->device, f->joined);
    if (f->device_values != NULL) { /* cannot fail: this allocator gave the block */
        ASHLAR_IGNORE(ashlar_free(t->allocator, f->device_values));
    }
    ashlar_device_host_free(t->device, f->host_values);
    ashlar__host_free(f->padded);
    *f = (ashlar_step_fixed){0};
}

/* Capture the steps of all lengths, as far as there is room. */
static ashlar_status capture_all(ashlar_trainer *t) {
    ashlar_step_graph *captured = NULL;
    size_t before = 0, room = t->fixed.graphs.most;
    for (size_t i = 1; i <= t->task->max_length && room >= ASHLAR_TASK_BUFFERS; i++) {
        const size_t length = t->fixed.padded[i];
        if (length == before) {
            continue;
        }
        for (size_t buffer = 0; buffer < ASHLAR_TASK_BUFFERS; buffer++, room--) {
            t->task->table->make_dummy(t->task, buffer, length);
            ASHLAR_TRY(capture(t, buffer, length, &captured));
        }
        before = length;
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__step_fixed_begin(ashlar_trainer *t, bool is_planned) {
    const bool is_wanted = t->config.graphs > 0;
    if (is_wanted && !is_planned) {
        ashlar__step_fixed_refuse(
            t, "steps are not captured: ", "there is no plan, so their addresses may change");
    } else if (is_wanted && t->task->table->identify == NULL) {
        ashlar__step_fixed_refuse(t, "steps are not captured: ", "this model's cannot be");
    } else if (is_wanted) {
        ASHLAR_TRY(ashlar__step_graphs_init(&t->fixed.graphs, t->config.graphs));
        ASHLAR_TRY(capture_all(t));
    }
    return t->state.step < t->config.steps ? draw_alone(t, t->state.step + 1) : ASHLAR_OK;
}

ashlar_status ashlar__step_fixed_queue(ashlar_trainer *t, size_t step, bool is_followed) {
    const size_t buffer = ashlar__prefetch_buffer(step);
    if (t->fixed.ready != step) {
        ASHLAR_TRY(draw_alone(t, step));
    }
    const size_t length = t->fixed.padded[ashlar__prefetch_batch(&t->prefetch, step)->length];
    if (is_followed) {
        draw(t, step + 1);
    }
    ASHLAR_TRY(queue(t, buffer, length));
    return ashlar__prefetch_end_step(&t->prefetch, step);
}

/* ---- step identity ---- */

/*
 * Lists what a step's calls depend on, and compares two lists.
 */

void ashlar__identity_add_size(ashlar_identity *id, const char *what, uint64_t value) {
    ASHLAR_ASSERT(id->count < ASHLAR_IDENTITY_MAX);
    id->facts[id->count].what = what;
    id->facts[id->count++].value = value;
}

void ashlar__identity_add_real(ashlar_identity *id, const char *what, double value) {
    uint64_t bits;
    _Static_assert(sizeof bits == sizeof value, "a double is one fact");
    memcpy(&bits, &value, sizeof bits);
    ashlar__identity_add_size(id, what, bits);
}

void ashlar__identity_add_address(ashlar_identity *id, const char *what, const void *ptr) {
    ashlar__identity_add_size(id, what, (uintptr_t)ptr);
}

void ashlar__identity_add_rnn(ashlar_identity *id, const ashlar_rnn *rnn) {
    static const char what[] = "the description of the layers";
    const ashlar_rnn_config *c = &ashlar_rnn_layout_of(rnn)->config;
    ashlar__identity_add_address(id, what, rnn);
    ashlar__identity_add_size(id, what, c->input);
    ashlar__identity_add_size(id, what, c->hidden);
    ashlar__identity_add_size(id, what, c->layers);
    ashlar__identity_add_size(id, what, c->dtype);
    ashlar__identity_add_size(id, what, c->cell);
    ashlar__identity_add_size(id, what, c->bias);
    ashlar__identity_add_size(id, what, c->directions);
    ashlar__identity_add_size(id, what, c->projection);
    ashlar__identity_add_size(id, what, c->math);
    ashlar__identity_add_size(id, what, c->algorithm);
    ashlar__identity_add_real(id, "--dropout", c->dropout);
}

const char *ashlar__identity_difference(const ashlar_identity *a, const ashlar_identity *b) {
    const size_t count = a->count < b->count ? a->count : b->count;
    for (size_t i = 0; i < count; i++) {
        if (a->facts[i].value != b->facts[i].value || a->facts[i].what != b->facts[i].what) {
            return a->facts[i].what;
        }
    }
    return a->count == b->count ? NULL : "the kind of step";
}

/* ---- step graphs ---- */

/*
 * Finds, places and drops captured steps.
 */

ashlar_status ashlar__step_graphs_init(ashlar_step_graphs *graphs, size_t most) {
    *graphs = (ashlar_step_graphs){0};
    ASHLAR_HOST_NEW(graphs->list, most, "no host memory for %zu graphs", most);
    graphs->most = most;
    return ASHLAR_OK;
}

void ashlar__step_graphs_finish(ashlar_step_graphs *graphs) {
    for (size_t i = 0; i < graphs->most; i++) {
        ashlar__step_graph_drop(&graphs->list[i]);
    }
    ashlar__host_free(graphs->list);
    *graphs = (ashlar_step_graphs){0};
}

ashlar_step_graph *ashlar__step_graphs_find(ashlar_step_graphs *graphs, size_t length,
                                            size_t buffer) {
    ASHLAR_CHECK2(length > 0);
    for (size_t i = 0; i < graphs->most; i++) {
        ashlar_step_graph *one = &graphs->list[i];
        if (one->length == length && one->buffer == buffer) {
            one->used_at = ++graphs->uses;
            return one;
        }
    }
    return NULL;
}

ashlar_step_graph *ashlar__step_graphs_place(const ashlar_step_graphs *graphs) {
    ashlar_step_graph *oldest = &graphs->list[0];
    for (size_t i = 0; i < graphs->most; i++) {
        ashlar_step_graph *one = &graphs->list[i];
        if (one->length == 0) {
            return one;
        }
        oldest = one->used_at < oldest->used_at ? one : oldest;
    }
    return oldest;
}

void ashlar__step_graph_drop(ashlar_step_graph *graph) {
    ashlar__graph_destroy(graph->graph);
    *graph = (ashlar_step_graph){0};
}
