/* step_record.c - records what steps take from their allocator, by hooks around it. */
#include "rnn/train/step_record.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/base/error.h"

struct ashlar_step_record {
    ashlar_buffer_hooks hooks;
    ashlar_buffer_source from;
    ashlar_step_boxes now, largest;
    size_t open;         /* buffers that are held */
    uint64_t peak_bytes; /* of the steps since the last training step */
    bool is_training;
    double last_s; /* when the last training step was queued */
    ashlar_step_held *held;
    size_t held_count, held_capacity;
};

/* ---- the step that runs ---- */

static void begin(ashlar_step_boxes *b) {
    b->count = b->left_out = b->moments = 0;
    b->backward = SIZE_MAX;
    b->live_bytes = b->peak_bytes = 0;
}

static void add(ashlar_step_record *r, const ashlar_buffer_request *q, const void *ptr) {
    ashlar_step_boxes *b = &r->now;
    if (r->open++ == 0) {
        begin(b);
    }
    b->backward = q->is_backward && b->backward == SIZE_MAX ? b->moments : b->backward;
    const ashlar_step_box box = {.name = q->name,
                                 .tag = q->tag,
                                 .address = (uintptr_t)ptr,
                                 .bytes = q->bytes,
                                 .taken = b->moments,
                                 .given = SIZE_MAX};
    if (b->count == ASHLAR_STEP_BOXES) {
        b->left_out++;
        return;
    }
    b->list[b->count++] = box;
    b->moments++;
    b->live_bytes += q->bytes;
    b->peak_bytes = b->live_bytes > b->peak_bytes ? b->live_bytes : b->peak_bytes;
}

/* The box that is held at an address; NULL: it was left out. */
static ashlar_step_box *find(ashlar_step_boxes *b, const void *ptr) {
    for (size_t i = b->count; i-- > 0;) {
        if (b->list[i].address == (uintptr_t)ptr && b->list[i].given == SIZE_MAX) {
            return &b->list[i];
        }
    }
    return NULL;
}

static void close_step(ashlar_step_record *r) {
    ashlar_step_boxes *b = &r->now;
    b->backward = b->backward < b->moments ? b->backward : b->moments;
    r->peak_bytes = b->peak_bytes > r->peak_bytes ? b->peak_bytes : r->peak_bytes;
    if (b->peak_bytes > r->largest.peak_bytes) {
        memcpy(&r->largest, b, sizeof *b);
    }
}

static void end(ashlar_step_record *r, const void *ptr) {
    ashlar_step_boxes *b = &r->now;
    ashlar_step_box *box = find(b, ptr);
    ASHLAR_CHECK2(r->open > 0);
    if (box != NULL) {
        box->given = b->moments++;
        b->live_bytes -= box->bytes;
    }
    if (--r->open == 0) {
        close_step(r);
    }
}

/* ---- hooks ---- */

static ashlar_status take(void *context, const ashlar_buffer_request *request,
                          ashlar_allocator *allocator, ashlar_stream stream, void **out) {
    ashlar_step_record *r = context;
    ASHLAR_TRY(ashlar__buffer_take(&r->from, request, allocator, stream, out));
    add(r, request, *out);
    return ASHLAR_OK;
}

static ashlar_status give(void *context, ashlar_allocator *allocator, void *ptr) {
    ashlar_step_record *r = context;
    end(r, ptr);
    return ashlar__buffer_give(&r->from, allocator, ptr);
}

/* The first call comes before the first step: what was seen until then was the warm-up. */
static void queued(void *context, size_t step, const ashlar_stats *stats) {
    ashlar_step_record *r = context;
    void *grown = r->held;
    const double now = ashlar__clock_s();
    const ashlar_step_held held = {step, stats->live_bytes + r->peak_bytes, stats->reserved_bytes,
                                   now - r->last_s};
    if (!r->is_training) {
        r->largest.peak_bytes = 0; /* its boxes stay until a step is larger than nothing */
    } else if (ashlar__host_grow(&grown, &r->held_capacity, r->held_count, sizeof held)) {
        r->held = grown;
        r->held[r->held_count++] = held;
    }
    r->is_training = true;
    r->peak_bytes = 0;
    r->last_s = now;
    if (r->from.hooks != NULL && r->from.hooks->queued != NULL) {
        r->from.hooks->queued(r->from.hooks->context, step, stats);
    }
}

/* ---- the record ---- */

ashlar_status ashlar__step_record_create(const ashlar_buffer_hooks *from,
                                         ashlar_step_record **out) {
    ashlar_step_record *r;
    ASHLAR_HOST_NEW(r, 1, "no host memory for a record of steps");
    r->from.hooks = from;
    r->hooks = (ashlar_buffer_hooks){.take = take, .give = give, .queued = queued, .context = r};
    *out = r;
    return ASHLAR_OK;
}

void ashlar__step_record_destroy(ashlar_step_record *r) {
    if (r != NULL) {
        ashlar__host_free(r->held);
        ashlar__host_free(r);
    }
}

const ashlar_buffer_hooks *ashlar__step_record_hooks(const ashlar_step_record *r) {
    return &r->hooks;
}

const ashlar_step_boxes *ashlar__step_record_largest(const ashlar_step_record *r) {
    return &r->largest;
}

const ashlar_step_held *ashlar__step_record_held(const ashlar_step_record *r, size_t *count) {
    *count = r->held_count;
    return r->held;
}
