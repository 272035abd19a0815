/* step_fixed.c - pads, captures, checks and launches steps. */
#include "rnn/train/step_fixed.h"

#include <stdio.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "rnn/train/train_impl.h"

enum { VALUES_ALIGN = 256 };

/* ---- padded lengths ---- */

/* The longest length of a part in the range of `length`. */
static size_t longest_like(const ashlar_trainer *t, size_t length) {
    const size_t longest = t->batches.max_part_length;
    const size_t width = (longest - 1) / t->config.buckets + 1;
    const size_t last = ((length - 1) / width + 1) * width;
    return last < longest ? last : longest;
}

/* Of several parts, only the last one is shorter, and padded. */
static ashlar_status find_padded(ashlar_trainer *t) {
    const size_t longest = t->batches.max_length, part = t->batches.max_part_length;
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
    return (length - 1) / t->batches.max_part_length + 1;
}

/* ---- the values ---- */

static ashlar_step_values *values_at(const ashlar_trainer *t, char *block, size_t buffer) {
    return (ashlar_step_values *)(void *)(block + buffer * t->fixed.value_bytes);
}

static ashlar_status take_values(ashlar_trainer *t) {
    ashlar_step_fixed *f = &t->fixed;
    const size_t bytes = sizeof(ashlar_step_values) + t->batches.max_parts * sizeof(double);
    void *host = NULL, *device = NULL;
    f->value_bytes = (bytes + VALUES_ALIGN - 1) / VALUES_ALIGN * VALUES_ALIGN;
    const size_t all = ASHLAR_BATCHES_BUFFERS * f->value_bytes;
    ASHLAR_TRY(ashlar_device_host_alloc(t->device, all, &host));
    f->host_values = host;
    ASHLAR_TRY(ashlar_alloc_tagged(t->allocator, all, ASHLAR_TAG_BATCH, t->stream, &device));
    f->device_values = device;
    for (size_t i = 0; i < ASHLAR_BATCHES_BUFFERS; i++) {
        t->values[i] = values_at(t, f->device_values, i);
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
    v->seed = ashlar__train_seed(t, step) - ASHLAR_PART_STRIDE; /* parts begin with 1 of it */
    for (size_t part = 0; part < parts; part++) {
        v->weights[part] = 1 / (double)tokens[part];
    }
    t->fixed.ready = step;
}

static ashlar_status upload(ashlar_trainer *t, size_t buffer, ashlar_stream stream) {
    ASHLAR_TRY(ashlar__batches_upload(&t->batches, t->device, buffer, stream));
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
    ASHLAR_TRY(fork_copies(t, buffer));
    ASHLAR_TRY(ashlar__train_queue_parts(t, buffer, parts_of(t, length)));
    t->prefetch.event_calls++;
    return ashlar_stream_wait(t->device, t->stream, t->fixed.joined);
}

/* ---- graphs ---- */

static size_t graph_places(const ashlar_trainer *t) {
    return (t->batches.max_length + 1) * ASHLAR_BATCHES_BUFFERS;
}

void ashlar__step_fixed_refuse(ashlar_trainer *t, const char *what, const char *why) {
    ashlar_graph_report *r = &t->fixed.report;
    r->refused++;
    (void)snprintf(r->note, sizeof r->note, "%s%s", what, why);
}

static ashlar_step_graph *graph_of(const ashlar_trainer *t, size_t buffer, size_t length) {
    return &t->fixed.graphs[length * ASHLAR_BATCHES_BUFFERS + buffer];
}

/* Queue a step's calls into a new graph. *out is NULL after a failure. */
static ashlar_status capture_calls(ashlar_trainer *t, size_t buffer, size_t length,
                                   ashlar_graph **out) {
    ashlar_graph *graph = NULL;
    t->address_sum = 0;
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

/* Capture the step on the batch in a buffer. A failure is no error of the training. */
static void capture(ashlar_trainer *t, size_t buffer, size_t length) {
    ashlar_step_graph *g = graph_of(t, buffer, length);
    if (capture_calls(t, buffer, length, &g->graph) != ASHLAR_OK) {
        ashlar__step_fixed_refuse(t, "a step cannot be captured: ", ashlar_error_detail());
    } else {
        t->fixed.report.captured++;
    }
    g->is_tried = true;
    g->address_sum = t->address_sum;
}

/* Take and give back the blocks of each part, and launch a captured step before the last part's
 * step of the allocator ends; but not if the blocks lie elsewhere. */
static ashlar_status launch(ashlar_trainer *t, size_t buffer, size_t length,
                            const ashlar_step_graph *captured, bool *is_done) {
    const size_t parts = parts_of(t, length);
    t->address_sum = 0;
    for (size_t part = 0; part < parts; part++) {
        ASHLAR_TRY(ashlar__train_begin_part(t, buffer, part));
        ashlar_status status = ashlar__train_take_blocks(
            t, ASHLAR_WALK_TRAIN, ashlar__batches_length(&t->batches, buffer, part));
        *is_done = part + 1 == parts && t->address_sum == captured->address_sum;
        if (*is_done) {
            ASHLAR_THEN(status, ashlar__graph_launch(captured->graph));
        }
        const ashlar_status ended = ashlar_step_end(t->allocator);
        ASHLAR_TRY(status == ASHLAR_OK ? ended : status);
    }
    return ASHLAR_OK;
}

/* Launch the step as a captured graph, on the batch in a buffer. If that is not possible, *is_done
 * stays false. */
static ashlar_status try_graph(ashlar_trainer *t, size_t buffer, size_t length, bool *is_done) {
    ashlar_step_graph *g = graph_of(t, buffer, length);
    if (!g->is_tried) {
        capture(t, buffer, length);
    }
    if (g->graph == NULL) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(launch(t, buffer, length, g, is_done));
    if (!*is_done) {
        ashlar__step_fixed_refuse(t, "changed since the capture: ",
                                  "the addresses that the plan gives");
        ASHLAR_TRY(ashlar_stream_synchronize(t->device, t->stream)); /* it may be running */
        ashlar__graph_destroy(g->graph);
        *g = (ashlar_step_graph){0};
    }
    return ASHLAR_OK;
}

static ashlar_status queue(ashlar_trainer *t, size_t buffer, size_t length) {
    bool is_done = false;
    if (t->fixed.graphs != NULL) {
        ASHLAR_TRY(try_graph(t, buffer, length, &is_done));
    }
    t->fixed.report.eager += !is_done;
    if (!is_done) {
        return queue_calls(t, buffer, length);
    }
    t->fixed.report.launched++;
    return ASHLAR_OK;
}

/* ---- from the outside ---- */

ashlar_status ashlar__step_fixed_open(ashlar_trainer *t) {
    ASHLAR_TRY(find_padded(t));
    ASHLAR_TRY(take_values(t));
    ASHLAR_TRY(ashlar_event_create(t->device, &t->fixed.forked));
    ASHLAR_TRY(ashlar_event_create(t->device, &t->fixed.joined));
    t->batches.padded = t->fixed.padded;
    return ASHLAR_OK;
}

void ashlar__step_fixed_close(ashlar_trainer *t) {
    ashlar_step_fixed *f = &t->fixed;
    if (t->stream != NULL) {
        ASHLAR_IGNORE(ashlar_stream_synchronize(t->device, t->stream));
    }
    for (size_t i = 0; f->graphs != NULL && i < graph_places(t); i++) {
        ashlar__graph_destroy(f->graphs[i].graph);
    }
    ashlar__host_free(f->graphs);
    ashlar_event_destroy(t->device, f->forked);
    ashlar_event_destroy(t->device, f->joined);
    if (f->device_values != NULL) { /* cannot fail: this allocator gave the block */
        ASHLAR_IGNORE(ashlar_free(t->allocator, f->device_values));
    }
    ashlar_device_host_free(t->device, f->host_values);
    ashlar__host_free(f->padded);
    *f = (ashlar_step_fixed){0};
}

static void capture_all(ashlar_trainer *t) {
    for (size_t i = 1; i <= t->batches.max_length; i++) {
        for (size_t buffer = 0; buffer < ASHLAR_BATCHES_BUFFERS && t->fixed.padded[i] == i;
             buffer++) {
            ashlar__batches_make_dummy(&t->batches, buffer, i);
            capture(t, buffer, i);
        }
    }
}

ashlar_status ashlar__step_fixed_begin(ashlar_trainer *t, bool is_planned) {
    if (t->config.graphs && !is_planned) {
        ashlar__step_fixed_refuse(
            t, "steps are not captured: ", "there is no plan, so their addresses may change");
    } else if (t->config.graphs) {
        ASHLAR_HOST_NEW(t->fixed.graphs, graph_places(t), "no host memory for the graphs of steps");
        capture_all(t);
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
