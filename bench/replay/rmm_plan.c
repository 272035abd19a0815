#include "bench/replay/rmm_plan.h"

#include <ashlar/plan_list.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* The events of a list; its blocks are numbered by their allocations. */
typedef struct list {
    ashlar_plan_event *events;
    size_t count;
    size_t *numbers; /* of the log's blocks from `base` on: the block's number, from 1; 0: none */
    size_t base;     /* the first block that the log's events allocate, or all that it has */
    size_t block_count;
} list;

/* A log's blocks are numbered by their allocations, too: those from the first one on are ours. */
static size_t first_block(const ashlar_rmm_log *log, size_t first, size_t end) {
    while (first < end && log->events[first].action != ASHLAR_RMM_ALLOCATE) {
        first++;
    }
    return first < end ? log->events[first].block : log->block_count;
}

static void add(list *l, const ashlar_rmm_event *e) {
    if (e->action == ASHLAR_RMM_NOTHING || e->block < l->base) {
        return;
    }
    size_t *number = &l->numbers[e->block - l->base];
    if (e->action == ASHLAR_RMM_ALLOCATE) {
        *number = ++l->block_count;
        l->events[l->count++] =
            (ashlar_plan_event){.block = *number - 1, .bytes = e->bytes, .tag = ASHLAR_TAG_USER};
    } else if (*number != 0) {
        l->events[l->count++] = (ashlar_plan_event){.block = *number - 1, .is_free = true};
    }
}

ashlar_status ashlar_plan_record_rmm(ashlar_allocator *a, ashlar_stream stream, uint64_t key,
                                     const ashlar_rmm_log *log, size_t log_stream, size_t first,
                                     size_t end) {
    if (first > end || end > log->event_count || log_stream >= log->stream_count) {
        return ashlar_fail(ASHLAR_EINVAL,
                           "%s: events %zu to %zu of stream %zu; it has %zu events and %zu streams",
                           log->name, first, end, log_stream, log->event_count, log->stream_count);
    }
    list l = {.base = first_block(log, first, end)};
    l.events = ashlar_host_calloc(end - first + 1, sizeof *l.events);
    l.numbers = ashlar_host_calloc(end - first + 1, sizeof *l.numbers);
    ashlar_status status = ASHLAR_OK;
    if (l.events == NULL || l.numbers == NULL) {
        status = ashlar_fail(ASHLAR_EHOSTMEM, "%s: no host memory for a step of %zu events",
                             log->name, end - first);
    }
    for (size_t i = first; i < end && status == ASHLAR_OK; i++) {
        if (log->events[i].stream == log_stream) {
            add(&l, &log->events[i]);
        }
    }
    if (status == ASHLAR_OK) {
        status = ashlar_plan_record_events(a, stream, key, l.events, l.count);
    }
    ashlar_host_free(l.events);
    ashlar_host_free(l.numbers);
    return status;
}
