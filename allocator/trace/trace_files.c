/* trace_files.c - finding the blocks of a trace by pairing its events, and writing them as a log
 * for RMM and as a packing problem for MiniMalloc. */
#include "allocator/trace/trace_files.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/check_level.h"
#include "allocator/base/compiler.h"
#include "allocator/base/error.h"
#include "allocator/base/file_buffer.h"
#include "allocator/base/host.h"

/* ---- pairs ---- */

/*
 * partners[i] is the position in the trace of the partner of event i:
 *     ALLOC    its FREE; LIVE if the block was never freed; UNPAIRED if the FREE is missing
 *     FREE     its ALLOC; UNPAIRED if the ALLOC is missing
 *     others   UNPAIRED, but unpaired_count does not count them
 */
#define LIVE (SIZE_MAX - 1)
#define UNPAIRED SIZE_MAX

typedef struct trace_pairs {
    size_t *partners; /* [count] */
    uint64_t unpaired_count;
} trace_pairs;

static bool is_of_block(const ashlar_trace_event *event) {
    return event->action == ASHLAR_TRACE_ALLOC || event->action == ASHLAR_TRACE_FREE;
}

/* Order positions by the address of their events, then by position. */
static int compare_addresses(const void *a, const void *b, void *context) {
    const size_t i = *(const size_t *)a, j = *(const size_t *)b;
    const ashlar_trace_event *events = context;
    if (events[i].address != events[j].address) {
        return events[i].address < events[j].address ? -1 : 1;
    }
    return (i > j) - (i < j);
}

/* Pair events. `positions` are sorted by the address of their events, then ascending. */
static void pair_sorted(const ashlar_trace_event *events, const size_t *positions, size_t count,
                        trace_pairs *p) {
    for (size_t k = 0; k < count; k++) {
        const size_t i = positions[k];
        const bool has_next =
            k + 1 < count && events[positions[k + 1]].address == events[i].address;
        if (events[i].action == ASHLAR_TRACE_FREE) {
            /* If this FREE has an ALLOC, the ALLOC came just before and has set partners[i]. */
            p->unpaired_count += p->partners[i] == UNPAIRED;
        } else if (!has_next) {
            p->partners[i] = LIVE;
        } else if (events[positions[k + 1]].action == ASHLAR_TRACE_FREE) {
            ASHLAR_CHECK2(i < positions[k + 1]);
            ASHLAR_CHECK2(p->partners[positions[k + 1]] == UNPAIRED);
            p->partners[i] = positions[k + 1];
            p->partners[positions[k + 1]] = i;
        } else {
            p->unpaired_count++;
        }
    }
}

/* Pair each ALLOC with the next FREE of its address. The caller ends *out with pairs_finish(). */
static ashlar_status find_pairs(const ashlar_trace_event *events, size_t count, trace_pairs *out) {
    size_t *partners = ashlar__host_calloc(count + 1, sizeof *partners); /* count may be 0 */
    size_t *positions = ashlar__host_calloc(count + 1, sizeof *positions);
    if (partners == NULL || positions == NULL) {
        ashlar__host_free(partners);
        ashlar__host_free(positions);
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to pair the %zu events of a trace",
                            count);
    }
    *out = (trace_pairs){.partners = partners};
    size_t position_count = 0;
    for (size_t i = 0; i < count; i++) {
        partners[i] = UNPAIRED;
        if (is_of_block(&events[i])) {
            positions[position_count++] = i;
        }
    }
    ASHLAR_CHECK2(position_count <= count);
    qsort_r(positions, position_count, sizeof *positions, compare_addresses,
            (void *)(uintptr_t)events);
    pair_sorted(events, positions, position_count, out);
    ashlar__host_free(positions);
    return ASHLAR_OK;
}

static void pairs_finish(trace_pairs *pairs) {
    ashlar__host_free(pairs->partners);
    *pairs = (trace_pairs){0};
}

/* ---- RMM ---- */

size_t ashlar__trace_print_rmm(const ashlar_trace_event *event,
                               char row[static ASHLAR_TRACE_ROW_BYTES]) {
#define RMM_NAME(name, pytorch, rmm) rmm,
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

static void write_rmm(ashlar_file_buffer *file, const ashlar_trace_event *events, size_t count,
                      const trace_pairs *p) {
    char row[ASHLAR_TRACE_ROW_BYTES];
    ashlar__file_buffer_print(file, ASHLAR_TRACE_RMM_COLUMNS);
    for (size_t i = 0; i < count; i++) {
        if (p->partners[i] != UNPAIRED || events[i].action == ASHLAR_TRACE_OOM) {
            ashlar__file_buffer_put(file, row, ashlar__trace_print_rmm(&events[i], row));
        }
    }
}

/* ---- MiniMalloc ---- */

static void write_minimalloc(ashlar_file_buffer *file, const ashlar_trace_event *events,
                             size_t count, const trace_pairs *p) {
    size_t id = 0;
    ashlar__file_buffer_print(file, "id,lower,upper,size\n");
    for (size_t i = 0; i < count; i++) {
        const size_t end = p->partners[i];
        if (events[i].action == ASHLAR_TRACE_ALLOC && end != UNPAIRED) {
            ASHLAR_CHECK2(i < end); /* LIVE is above i, too */
            ashlar__file_buffer_print(file, "%zu,%zu,%zu,%" PRIu64 "\n", id++, i,
                                      end == LIVE ? count : end, events[i].bytes);
        }
    }
}

/* ---- all lists ---- */

typedef void (*write_fn)(ashlar_file_buffer *, const ashlar_trace_event *, size_t,
                         const trace_pairs *);

static ashlar_status write_paired(write_fn write, const ashlar_trace_event *events, size_t count,
                                  const char *path, uint64_t *left_out) {
    trace_pairs p = {0};
    ashlar_file_buffer *file = NULL;
    ASHLAR_TRY(find_pairs(events, count, &p));
    ashlar_status status = ashlar__file_buffer_create(path, &file);
    if (status == ASHLAR_OK) {
        write(file, events, count, &p);
        status = ashlar__file_buffer_commit(file);
    }
    if (status == ASHLAR_OK) {
        *left_out = p.unpaired_count;
    }
    pairs_finish(&p);
    return status;
}

ashlar_status ashlar__trace_write_rmm(const ashlar_trace_event *events, size_t count,
                                      const char *path, uint64_t *left_out) {
    return write_paired(write_rmm, events, count, path, left_out);
}

ashlar_status ashlar__trace_write_minimalloc(const ashlar_trace_event *events, size_t count,
                                             const char *path, uint64_t *left_out) {
    return write_paired(write_minimalloc, events, count, path, left_out);
}
