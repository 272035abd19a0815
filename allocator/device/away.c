/* away.c - copies of device memory to page-locked memory and back, on two streams of their own; the
 * streams, events and memory that this takes. */
#include "allocator/device/away.h"

#include <stdio.h>

#include "allocator/base/host.h"
#include "allocator/soft/soft.h"

/* ---- streams, events, memory ---- */

void ashlar__away_need(ashlar_away *a, size_t bytes, size_t events) {
    a->needed_bytes = bytes > a->needed_bytes ? bytes : a->needed_bytes;
    a->needed_events = events > a->needed_events ? events : a->needed_events;
}

static ashlar_status take_streams(ashlar_away *a) {
    ASHLAR_TRY(a->now != NULL ? ASHLAR_OK : ashlar_event_create(a->device, &a->now));
    ASHLAR_TRY(a->out != NULL ? ASHLAR_OK : ashlar_stream_create(a->device, &a->out));
    return a->back != NULL ? ASHLAR_OK : ashlar_stream_create(a->device, &a->back);
}

static ashlar_status take_events(ashlar_away *a) {
    ashlar_event *events = a->event_count >= a->needed_events
                               ? a->events
                               : ashlar__host_realloc(a->events, a->needed_events, sizeof *events);
    ASHLAR_FAIL_IF(events == NULL, ASHLAR_EHOSTMEM, "no host memory for the events of %zu copies",
                   a->needed_events);
    a->events = events;
    for (; a->event_count < a->needed_events; a->event_count++) {
        ASHLAR_TRY(ashlar_event_create(a->device, &a->events[a->event_count]));
    }
    return ASHLAR_OK;
}

static ashlar_status wait_for_copies(const ashlar_away *a) {
    ASHLAR_TRY(ashlar_stream_synchronize(a->device, a->out));
    return ashlar_stream_synchronize(a->device, a->back);
}

static ashlar_status take_host(ashlar_away *a) {
    void *host;
    if (a->bytes >= a->needed_bytes) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(wait_for_copies(a));
    ashlar_device_host_free(a->device, a->host);
    a->host = NULL;
    a->bytes = 0;
    const ashlar_status status = ashlar_device_host_alloc(a->device, a->needed_bytes, &host);
    ASHLAR_FAIL_IF(status != ASHLAR_OK, status,
                   "%zu bytes of page-locked memory for what has no room on the device: %s",
                   a->needed_bytes, ashlar_error_detail());
    a->host = host;
    a->bytes = a->needed_bytes;
    return ASHLAR_OK;
}

ashlar_status ashlar__away_take(ashlar_away *a) {
    if (a->bytes >= a->needed_bytes && a->event_count >= a->needed_events) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(take_streams(a));
    ASHLAR_TRY(take_events(a));
    return take_host(a);
}

void ashlar__away_finish(ashlar_away *a) {
    if (a->back != NULL) {
        ASHLAR_IGNORE(wait_for_copies(a)); /* what failed was reported where it was queued */
    }
    for (size_t i = 0; i < a->event_count; i++) {
        ashlar_event_destroy(a->device, a->events[i]);
    }
    ashlar__host_free(a->events);
    ashlar_event_destroy(a->device, a->now);
    ashlar_stream_destroy(a->device, a->out);
    ashlar_stream_destroy(a->device, a->back);
    ashlar_device_host_free(a->device, a->host);
}

/* ---- copies ---- */

ashlar_status ashlar__away_record(ashlar_away *a, ashlar_event event, ashlar_stream stream) {
    a->event_calls++;
    return ashlar_event_record(a->device, event, stream);
}

ashlar_status ashlar__away_wait(ashlar_away *a, ashlar_stream stream, ashlar_event event) {
    a->event_calls++;
    return ashlar_stream_wait(a->device, stream, event);
}

/* Have `to` wait for what is queued on `from` now. */
static ashlar_status follow(ashlar_away *a, ashlar_stream to, ashlar_stream from) {
    ASHLAR_TRY(ashlar__away_record(a, a->now, from));
    return ashlar__away_wait(a, to, a->now);
}

ashlar_status ashlar__away_send(ashlar_away *a, const ashlar_away_place *p, ashlar_stream stream) {
    ASHLAR_TRY(follow(a, a->out, stream));
    ASHLAR_TRY(ashlar_copy_to_host(a->device, p->host, p->device, p->bytes, a->out));
    ashlar__soft_trace_bytes(a->out, "host", p->bytes, false);
    ashlar__soft_trace_bytes(a->out, "resident", p->bytes, true);
    return ashlar__away_record(a, p->event, a->out);
}

ashlar_status ashlar__away_follow(ashlar_away *a, ashlar_stream stream) {
    return follow(a, a->back, stream);
}

ashlar_status ashlar__away_fetch(ashlar_away *a, const ashlar_away_place *p, bool waits) {
    ASHLAR_TRY(waits ? ashlar__away_wait(a, a->back, p->event) : ASHLAR_OK);
    ashlar__soft_trace_bytes(a->back, "resident", p->bytes, false);
    ASHLAR_TRY(ashlar_copy_to_device(a->device, p->device, p->host, p->bytes, a->back));
    ashlar__soft_trace_bytes(a->back, "host", p->bytes, true);
    return ashlar__away_record(a, p->event, a->back);
}

ashlar_status ashlar__away_join(ashlar_away *a, ashlar_stream stream, ashlar_status status) {
    char detail[ASHLAR_DETAIL_BYTES];
    (void)snprintf(detail, sizeof detail, "%s", ashlar_error_detail());
    ashlar_status joined = follow(a, stream, a->out);
    ASHLAR_THEN(joined, follow(a, stream, a->back));
    if (joined != ASHLAR_OK) {
        ASHLAR_IGNORE(wait_for_copies(a)); /* whose failure is that of the device */
    }
    return status == ASHLAR_OK ? joined : ashlar_error_set(status, detail);
}
