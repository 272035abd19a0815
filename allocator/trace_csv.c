#include "trace_csv.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "error.h"
#include "file_buffer.h"
#include "host.h"

/*
 * What belongs to an event, by positions:
 *     ALLOC: its FREE, LIVE where there is none, UNPAIRED where it is missing
 *     FREE: its ALLOC, or UNPAIRED
 *     others: UNPAIRED, and not counted
 */
#define LIVE (SIZE_MAX - 1)
#define UNPAIRED SIZE_MAX

typedef struct pairs {
    size_t *partners; /* [count] */
    uint64_t unpaired_count;
} pairs;

static bool is_of_block(const ashlar_trace_event *event) {
    return event->action == ASHLAR_TRACE_ALLOC || event->action == ASHLAR_TRACE_FREE;
}

/* By address, then by position. */
static int compare(const void *a, const void *b, void *context) {
    const size_t i = *(const size_t *)a, j = *(const size_t *)b;
    const ashlar_trace_event *events = context;
    if (events[i].address != events[j].address) {
        return events[i].address < events[j].address ? -1 : 1;
    }
    return (i > j) - (i < j);
}

/* `order`: the positions of one address's events after the other's, each in ascending order. */
static void pair_sorted(const ashlar_trace_event *events, const size_t *order, size_t count,
                        pairs *p) {
    for (size_t k = 0; k < count; k++) {
        const size_t i = order[k];
        const bool has_next = k + 1 < count && events[order[k + 1]].address == events[i].address;
        if (events[i].action == ASHLAR_TRACE_FREE) {
            p->unpaired_count += p->partners[i] == UNPAIRED; /* its ALLOC would have set it */
        } else if (!has_next) {
            p->partners[i] = LIVE;
        } else if (events[order[k + 1]].action == ASHLAR_TRACE_FREE) {
            p->partners[i] = order[k + 1];
            p->partners[order[k + 1]] = i;
        } else {
            p->unpaired_count++;
        }
    }
}

/* Ownership: the caller frees p->partners. */
static ashlar_status find_pairs(const ashlar_trace_event *events, size_t count, pairs *p) {
    size_t *partners = ashlar_host_calloc(count + 1, sizeof *partners); /* count may be 0 */
    size_t *order = ashlar_host_calloc(count + 1, sizeof *order);
    if (partners == NULL || order == NULL) {
        ashlar_host_free(partners);
        ashlar_host_free(order);
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory to pair the %zu events of a trace",
                           count);
    }
    *p = (pairs){.partners = partners};
    size_t order_count = 0;
    for (size_t i = 0; i < count; i++) {
        partners[i] = UNPAIRED;
        if (is_of_block(&events[i])) {
            order[order_count++] = i;
        }
    }
    qsort_r(order, order_count, sizeof *order, compare, (void *)(uintptr_t)events);
    pair_sorted(events, order, order_count, p);
    ashlar_host_free(order);
    return ASHLAR_OK;
}

/* ---- RMM ---- */

static void write_rmm_row(ashlar_file_buffer *file, const ashlar_trace_event *event) {
#define RMM_NAME(name, pytorch, rmm) rmm,
    static const char *const names[] = {ASHLAR_TRACE_ACTION_MAP(RMM_NAME)};
#undef RMM_NAME
    enum { MINUTE = 60, HOUR = 60 * MINUTE };
    const uint64_t us = event->time_ns / 1000, s = us / 1000000;
    ashlar_file_buffer_print(file,
                             "%" PRIu32 ",%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64 ".%06" PRIu64
                             ",%s,0x%" PRIx64 ",%" PRIu64 ",0x%" PRIx64 "\n",
                             event->thread, s / HOUR, s % HOUR / MINUTE, s % MINUTE, us % 1000000,
                             names[event->action], event->address, event->requested, event->stream);
}

static void write_rmm(ashlar_file_buffer *file, const ashlar_trace_event *events, size_t count,
                      const pairs *p) {
    ashlar_file_buffer_print(file, "Thread,Time,Action,Pointer,Size,Stream\n");
    for (size_t i = 0; i < count; i++) {
        if (p->partners[i] != UNPAIRED || events[i].action == ASHLAR_TRACE_OOM) {
            write_rmm_row(file, &events[i]);
        }
    }
}

/* ---- MiniMalloc ---- */

static void write_minimalloc(ashlar_file_buffer *file, const ashlar_trace_event *events,
                             size_t count, const pairs *p) {
    size_t id = 0;
    ashlar_file_buffer_print(file, "id,lower,upper,size\n");
    for (size_t i = 0; i < count; i++) {
        const size_t end = p->partners[i];
        if (events[i].action == ASHLAR_TRACE_ALLOC && end != UNPAIRED) {
            ashlar_file_buffer_print(file, "%zu,%zu,%zu,%" PRIu64 "\n", id++, i,
                                     end == LIVE ? count : end, events[i].bytes);
        }
    }
}

/* ---- both ---- */

typedef void (*write_fn)(ashlar_file_buffer *, const ashlar_trace_event *, size_t, const pairs *);

static ashlar_status write_paired(write_fn write, const ashlar_trace_event *events, size_t count,
                                  const char *path, uint64_t *left_out) {
    pairs p = {0};
    ashlar_file_buffer *file = NULL;
    ashlar_status status = find_pairs(events, count, &p);
    if (status != ASHLAR_OK) {
        return status;
    }
    status = ashlar_file_buffer_create(path, &file);
    if (status == ASHLAR_OK) {
        write(file, events, count, &p);
        status = ashlar_file_buffer_commit(file);
    }
    ashlar_host_free(p.partners);
    if (status == ASHLAR_OK) {
        *left_out = p.unpaired_count;
    }
    return status;
}

ashlar_status ashlar_trace_write_rmm(const ashlar_trace_event *events, size_t count,
                                     const char *path, uint64_t *left_out) {
    return write_paired(write_rmm, events, count, path, left_out);
}

ashlar_status ashlar_trace_write_minimalloc(const ashlar_trace_event *events, size_t count,
                                            const char *path, uint64_t *left_out) {
    return write_paired(write_minimalloc, events, count, path, left_out);
}
