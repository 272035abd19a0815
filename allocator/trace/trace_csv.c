#include "allocator/trace/trace_csv.h"

#include <inttypes.h>

#include "allocator/base/file_buffer.h"
#include "allocator/trace/trace_pairs.h"

/* ---- RMM ---- */

static void write_rmm_row(ashlar_file_buffer *file, const ashlar_trace_event *event) {
#define RMM_NAME(name, pytorch, rmm) rmm,
    static const char *const names[] = {ASHLAR_TRACE_ACTION_MAP(RMM_NAME)};
#undef RMM_NAME
    enum { MINUTE = 60, HOUR = 60 * MINUTE };
    const uint64_t us = event->time_ns / 1000, s = us / 1000000;
    ashlar__file_buffer_print(file,
                              "%" PRIu32 ",%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64 ".%06" PRIu64
                              ",%s,0x%" PRIx64 ",%" PRIu64 ",0x%" PRIx64 "\n",
                              event->thread, s / HOUR, s % HOUR / MINUTE, s % MINUTE, us % 1000000,
                              names[event->action], event->address, event->requested,
                              event->stream);
}

static void write_rmm(ashlar_file_buffer *file, const ashlar_trace_event *events, size_t count,
                      const ashlar_trace_pairs *p) {
    ashlar__file_buffer_print(file, "Thread,Time,Action,Pointer,Size,Stream\n");
    for (size_t i = 0; i < count; i++) {
        if (p->partners[i] != ASHLAR_TRACE_UNPAIRED || events[i].action == ASHLAR_TRACE_OOM) {
            write_rmm_row(file, &events[i]);
        }
    }
}

/* ---- MiniMalloc ---- */

static void write_minimalloc(ashlar_file_buffer *file, const ashlar_trace_event *events,
                             size_t count, const ashlar_trace_pairs *p) {
    size_t id = 0;
    ashlar__file_buffer_print(file, "id,lower,upper,size\n");
    for (size_t i = 0; i < count; i++) {
        const size_t end = p->partners[i];
        if (events[i].action == ASHLAR_TRACE_ALLOC && end != ASHLAR_TRACE_UNPAIRED) {
            ashlar__file_buffer_print(file, "%zu,%zu,%zu,%" PRIu64 "\n", id++, i,
                                      end == ASHLAR_TRACE_LIVE ? count : end, events[i].bytes);
        }
    }
}

/* ---- both ---- */

typedef void (*write_fn)(ashlar_file_buffer *, const ashlar_trace_event *, size_t,
                         const ashlar_trace_pairs *);

static ashlar_status write_paired(write_fn write, const ashlar_trace_event *events, size_t count,
                                  const char *path, uint64_t *left_out) {
    ashlar_trace_pairs p = {0};
    ashlar_file_buffer *file = NULL;
    ashlar_status status = ashlar__trace_pairs_find(events, count, &p);
    if (status != ASHLAR_OK) {
        return status;
    }
    status = ashlar__file_buffer_create(path, &file);
    if (status == ASHLAR_OK) {
        write(file, events, count, &p);
        status = ashlar__file_buffer_commit(file);
    }
    if (status == ASHLAR_OK) {
        *left_out = p.unpaired_count;
    }
    ashlar__trace_pairs_finish(&p);
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
