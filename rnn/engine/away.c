/* away.c - copies of a walk's buffers to page-locked memory and back, on two streams of their own;
 * the streams, events and memory that this takes. */
#include <stdio.h>

#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "allocator/soft/soft.h"
#include "rnn/engine/engine.h"

/* ---- streams, events, memory ---- */

void ashlar__away_need(ashlar_model *m, const ashlar_walk_plan *plan) {
    ashlar_away *a = &m->away;
    if (plan->host_bytes > a->needed_bytes) {
        a->needed_bytes = plan->host_bytes;
    }
    const size_t events = plan->slot_count > 0 ? plan->slot_count : plan->move_count;
    if (plan->host_bytes > 0 && events > a->needed_events) {
        a->needed_events = events;
    }
}

static ashlar_status take_streams(const ashlar_model *m, ashlar_away *a) {
    ASHLAR_TRY(a->now != NULL ? ASHLAR_OK : ashlar_event_create(m->device, &a->now));
    ASHLAR_TRY(a->out != NULL ? ASHLAR_OK : ashlar_stream_create(m->device, &a->out));
    return a->back != NULL ? ASHLAR_OK : ashlar_stream_create(m->device, &a->back);
}

static ashlar_status take_events(const ashlar_model *m, ashlar_away *a) {
    ashlar_event *events = a->event_count >= a->needed_events
                               ? a->events
                               : ashlar__host_realloc(a->events, a->needed_events, sizeof *events);
    ASHLAR_FAIL_IF(events == NULL, ASHLAR_EHOSTMEM, "no host memory for the events of %zu copies",
                   a->needed_events);
    a->events = events;
    for (; a->event_count < a->needed_events; a->event_count++) {
        ASHLAR_TRY(ashlar_event_create(m->device, &a->events[a->event_count]));
    }
    return ASHLAR_OK;
}

static ashlar_status wait_for_copies(const ashlar_model *m) {
    ASHLAR_TRY(ashlar_stream_synchronize(m->device, m->away.out));
    return ashlar_stream_synchronize(m->device, m->away.back);
}

static ashlar_status take_host(const ashlar_model *m, ashlar_away *a) {
    void *host;
    if (a->bytes >= a->needed_bytes) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(wait_for_copies(m));
    ashlar_device_host_free(m->device, a->host);
    a->host = NULL;
    a->bytes = 0;
    const ashlar_status status = ashlar_device_host_alloc(m->device, a->needed_bytes, &host);
    ASHLAR_FAIL_IF(status != ASHLAR_OK, status,
                   "model: %zu bytes of page-locked memory for what has no room on the device: %s",
                   a->needed_bytes, ashlar_error_detail());
    a->host = host;
    a->bytes = a->needed_bytes;
    return ASHLAR_OK;
}

ashlar_status ashlar__away_take(ashlar_model *m) {
    const ashlar_away *a = &m->away;
    if (a->bytes >= a->needed_bytes && a->event_count >= a->needed_events) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(take_streams(m, &m->away));
    ASHLAR_TRY(take_events(m, &m->away));
    return take_host(m, &m->away);
}

void ashlar__away_finish(ashlar_model *m) {
    ashlar_away *a = &m->away;
    if (a->back != NULL) {
        ASHLAR_IGNORE(wait_for_copies(m)); /* what failed was reported where it was queued */
    }
    for (size_t i = 0; i < a->event_count; i++) {
        ashlar_event_destroy(m->device, a->events[i]);
    }
    ashlar__host_free(a->events);
    ashlar_event_destroy(m->device, a->now);
    ashlar_stream_destroy(m->device, a->out);
    ashlar_stream_destroy(m->device, a->back);
    ashlar_device_host_free(m->device, a->host);
}

/* ---- copies ---- */

ashlar_status ashlar__away_record(ashlar_model *m, ashlar_event event, ashlar_stream stream) {
    m->away.event_calls++;
    return ashlar_event_record(m->device, event, stream);
}

ashlar_status ashlar__away_wait(ashlar_model *m, ashlar_stream stream, ashlar_event event) {
    m->away.event_calls++;
    return ashlar_stream_wait(m->device, stream, event);
}

/* Have `to` wait for what is queued on `from` now. */
static ashlar_status follow(ashlar_model *m, ashlar_stream to, ashlar_stream from) {
    ASHLAR_TRY(ashlar__away_record(m, m->away.now, from));
    return ashlar__away_wait(m, to, m->away.now);
}

ashlar_status ashlar__away_send(ashlar_model *m, const ashlar_away_place *p, ashlar_stream stream) {
    const ashlar_away *a = &m->away;
    ASHLAR_TRY(follow(m, a->out, stream));
    ASHLAR_TRY(ashlar_copy_to_host(m->device, a->host + p->host, p->device, p->bytes, a->out));
    ashlar__soft_trace_bytes(a->out, "host", p->bytes, false);
    ashlar__soft_trace_bytes(a->out, "resident", p->bytes, true);
    return ashlar__away_record(m, p->event, a->out);
}

ashlar_status ashlar__away_follow(ashlar_model *m, ashlar_stream stream) {
    return follow(m, m->away.back, stream);
}

ashlar_status ashlar__away_fetch(ashlar_model *m, const ashlar_away_place *p, bool waits) {
    const ashlar_away *a = &m->away;
    ASHLAR_TRY(waits ? ashlar__away_wait(m, a->back, p->event) : ASHLAR_OK);
    ashlar__soft_trace_bytes(a->back, "resident", p->bytes, false);
    ASHLAR_TRY(ashlar_copy_to_device(m->device, p->device, a->host + p->host, p->bytes, a->back));
    ashlar__soft_trace_bytes(a->back, "host", p->bytes, true);
    return ashlar__away_record(m, p->event, a->back);
}

ashlar_status ashlar__away_join(ashlar_model *m, ashlar_stream stream, ashlar_status failed) {
    char detail[ASHLAR_DETAIL_BYTES];
    (void)snprintf(detail, sizeof detail, "%s", ashlar_error_detail());
    ashlar_status status = follow(m, stream, m->away.out);
    ASHLAR_THEN(status, follow(m, stream, m->away.back));
    if (status != ASHLAR_OK) {
        ASHLAR_IGNORE(wait_for_copies(m)); /* whose failure is that of the device */
    }
    return ashlar_error_set(failed, detail);
}
