/* trace.c - an allocator's newest events in a ring, and their log in RMM's format. */
#include "allocator/trace/trace.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/base/compiler.h"
#include "allocator/base/error.h"
#include "allocator/base/file.h"
#include "allocator/base/threads.h"

#define CAPACITY_MAX (UINT64_C(1) << 32)

uint32_t ashlar__trace_thread(void) {
    return ashlar__thread_number() - 1;
}

ashlar_status ashlar__trace_init(ashlar_trace *trace, size_t capacity) {
    ASHLAR_FAIL_IF(capacity == 0 || capacity > CAPACITY_MAX, ASHLAR_EINVAL,
                   "trace: a ring of %zu events; give 1 .. %llu", capacity,
                   (unsigned long long)CAPACITY_MAX);
    ASHLAR_HOST_NEW(trace->events, capacity, "no host memory for a trace of %zu events; keep fewer",
                    capacity);
    trace->capacity = capacity;
    trace->count = 0;
    trace->now_ns = NULL;
    return ASHLAR_OK;
}

void ashlar__trace_finish(ashlar_trace *trace) {
    ashlar__host_free(trace->events);
    trace->events = NULL;
    trace->capacity = 0;
}

void ashlar__trace_put(ashlar_trace *trace, const ashlar_trace_event *given) {
    if (trace == NULL) {
        return;
    }
    ashlar_trace_event event = *given;
    event.time_ns = trace->now_ns != NULL ? trace->now_ns() : ashlar__clock_ns();
    event.thread = ashlar__trace_thread();
    for (int i = 0; i < ASHLAR_TRACE_LISTENERS; i++) {
        if (trace->listeners[i].tell != NULL) {
            trace->listeners[i].tell(trace->listeners[i].self, &event);
        }
    }
    if (trace->capacity > 0) {
        trace->events[trace->count++ % trace->capacity] = event;
    }
}

size_t ashlar__trace_read(const ashlar_trace *trace, ashlar_trace_event *events, size_t capacity,
                          uint64_t *lost) {
    const uint64_t kept = trace->count < trace->capacity ? trace->count : trace->capacity;
    const uint64_t count = kept < capacity ? kept : capacity;
    *lost = trace->count - count;
    for (uint64_t i = 0; i < count; i++) {
        events[i] = trace->events[(*lost + i) % trace->capacity];
    }
    return (size_t)count;
}

/* ---- RMM's log ---- */

static int compare_positions(const void *a, const void *b, void *context) {
    const size_t i = *(const size_t *)a, j = *(const size_t *)b;
    const ashlar_trace_event *events = context;
    if (events[i].address != events[j].address) {
        return events[i].address < events[j].address ? -1 : 1;
    }
    return (i > j) - (i < j);
}

/* Set is_half[i] for each ALLOC without its FREE (unless its block is still live) and each FREE
 * without its ALLOC. Returns their number. positions: [count], overwritten. */
static uint64_t find_halves(const ashlar_trace_event *events, size_t count, size_t *positions,
                            bool *is_half) {
    size_t of_blocks = 0;
    uint64_t halves = 0;
    for (size_t i = 0; i < count; i++) {
        if (events[i].action == ASHLAR_TRACE_ALLOC || events[i].action == ASHLAR_TRACE_FREE) {
            positions[of_blocks++] = i;
        }
    }
    qsort_r(positions, of_blocks, sizeof *positions, compare_positions, (void *)(uintptr_t)events);
    for (size_t k = 0; k < of_blocks; k++) {
        const ashlar_trace_event *e = &events[positions[k]];
        const ashlar_trace_event *before = k > 0 ? &events[positions[k - 1]] : NULL;
        const ashlar_trace_event *after = k + 1 < of_blocks ? &events[positions[k + 1]] : NULL;
        const bool has_alloc =
            before != NULL && before->address == e->address && before->action == ASHLAR_TRACE_ALLOC;
        const bool has_free =
            after == NULL || after->address != e->address || after->action == ASHLAR_TRACE_FREE;
        is_half[positions[k]] = e->action == ASHLAR_TRACE_FREE ? !has_alloc : !has_free;
        halves += is_half[positions[k]];
    }
    return halves;
}

size_t ashlar__trace_print_rmm(const ashlar_trace_event *event,
                               char row[static ASHLAR_TRACE_ROW_BYTES]) {
#define RMM_NAME(name, text, rmm) rmm,
    static const char *const names[] = {ASHLAR_TRACE_ACTION_MAP(RMM_NAME)};
#undef RMM_NAME
    ASHLAR_TABLE_IS_FULL(names, ASHLAR_TRACE_ACTION_COUNT);
    enum { MINUTE = 60, HOUR = 60 * MINUTE };
    const uint64_t us = event->time_ns / 1000, s = us / 1000000;
    ASHLAR_CHECK2(event->action < ASHLAR_TRACE_ACTION_COUNT);
    if (names[event->action] == NULL) {
        return 0;
    }
    const int bytes =
        snprintf(row, ASHLAR_TRACE_ROW_BYTES,
                 "%" PRIu32 ",%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64 ".%06" PRIu64 ",%s,0x%" PRIx64
                 ",%" PRIu64 ",0x%" PRIx64 "\n",
                 event->thread, s / HOUR, s % HOUR / MINUTE, s % MINUTE, us % 1000000,
                 names[event->action], event->address, event->requested, event->stream);
    ASHLAR_CHECK2(bytes > 0 && bytes < ASHLAR_TRACE_ROW_BYTES);
    return (size_t)bytes;
}

static ashlar_status write_whole(const ashlar_trace_event *events, size_t count,
                                 const bool *is_half, const char *path) {
    char row[ASHLAR_TRACE_ROW_BYTES];
    ashlar_file_buffer *file = NULL;
    ASHLAR_TRY(ashlar__file_buffer_create(path, &file));
    ashlar__file_buffer_print(file, ASHLAR_TRACE_RMM_COLUMNS);
    for (size_t i = 0; i < count; i++) {
        if (!is_half[i]) {
            ashlar__file_buffer_put(file, row, ashlar__trace_print_rmm(&events[i], row));
        }
    }
    return ashlar__file_buffer_commit(file);
}

ashlar_status ashlar__trace_write_rmm(const ashlar_trace_event *events, size_t count,
                                      const char *path, uint64_t *left_out) {
    size_t *positions = ashlar__host_calloc(count + 1, sizeof *positions); /* count may be 0 */
    bool *is_half = ashlar__host_calloc(count + 1, sizeof *is_half);
    ashlar_status status = ASHLAR_EHOSTMEM;
    uint64_t halves = 0;
    if (positions != NULL && is_half != NULL) {
        halves = find_halves(events, count, positions, is_half);
        status = write_whole(events, count, is_half, path);
    } else {
        status = ashlar__fail(status, "no host memory to pair the %zu events of a trace", count);
    }
    *left_out = status == ASHLAR_OK ? halves : *left_out;
    ashlar__host_free(positions);
    ashlar__host_free(is_half);
    return status;
}
