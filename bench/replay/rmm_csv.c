/* rmm_csv.c - reads the rows of an RMM log, and checks them. */
#include "bench/replay/replay.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/checked.h"
#include "allocator/base/parse.h"
#include "allocator/base/file.h"
#include "allocator/base/host.h"
#include "bench/replay/numbers.h"

typedef enum column { THREAD, ACTION, POINTER, SIZE, STREAM, COLUMN_COUNT } column;

static const char *const column_names[] = {"Thread", "Action", "Pointer", "Size", "Stream"};
ASHLAR_TABLE_IS_FULL(column_names, COLUMN_COUNT);

enum { DEFAULT_STREAM = 0, LEGACY_STREAM = 1, PER_THREAD_STREAM = 2 }; /* CUDA's own handles */

static const ashlar_csv_format format = {
    .columns = column_names,
    .count = COLUMN_COUNT,
    .begins = "a log of RMM begins with Thread,Time,Action,Pointer,Size,Stream",
};

typedef struct reader {
    ashlar_rmm_log *log;
    ashlar_csv csv;
    ashlar_number_map threads; /* index of a thread */
    ashlar_number_map
        streams; /* index of a stream, by handle; for PER_THREAD_STREAM also by thread */
    ashlar_number_map pointers; /* row that allocated the block that is live at an address */
    size_t live_bytes;
} reader;

/* Names of threads, pointers and streams are read as hexadecimal, with 0x or without: those that
 * the log has in decimal stay different from each other, and CUDA's own handles are one digit. */
static ashlar_status read_number(const reader *r, column c, ashlar_piece field, uint64_t *out) {
    if (c != SIZE && ashlar__piece_is(field, "(nil)")) { /* as %p prints a null pointer */
        *out = 0;
        return ASHLAR_OK;
    }
    if (!(c == SIZE ? ashlar__parse_count : ashlar__number_parse_hex)(field, out)) {
        char what[64];
        (void)snprintf(what, sizeof what, "%s has to be a number of 64 bits", column_names[c]);
        return ashlar__csv_fail(&r->csv, what, field);
    }
    return ASHLAR_OK;
}

static ashlar_status read_order(reader *r, const ashlar_piece *fields, ashlar_rmm_event *event) {
    uint64_t thread = 0, stream = 0;
    ASHLAR_TRY(read_number(r, THREAD, fields[THREAD], &thread));
    ASHLAR_TRY(read_number(r, STREAM, fields[STREAM], &stream));
    ASHLAR_TRY(
        ashlar__number_map_index(&r->threads, 0, thread, &r->log->thread_count, &event->thread));
    if (stream == LEGACY_STREAM) {
        stream = DEFAULT_STREAM;
    }
    const uint64_t owner = stream == PER_THREAD_STREAM ? event->thread : 0;
    return ashlar__number_map_index(&r->streams, owner, stream, &r->log->stream_count,
                                    &event->stream);
}

static ashlar_status begin_block(reader *r, uint64_t pointer, ashlar_piece text,
                                 ashlar_rmm_event *event) {
    size_t *live = NULL;
    if (pointer == 0) {
        return ashlar__csv_fail(&r->csv, "Pointer of an allocation has to be an address", text);
    }
    ASHLAR_TRY(ashlar__number_map_find(&r->pointers, 0, pointer, &live));
    ASHLAR_FAIL_IF(*live != ASHLAR_NUMBER_UNSET, ASHLAR_EFORMAT,
                   "%s:%zu: allocates at %#llx, where the block of line %zu is live", r->log->name,
                   r->csv.line, (unsigned long long)pointer, r->log->events[*live].line);
    *live = r->log->event_count;
    r->live_bytes += event->bytes;
    event->block = r->log->block_count++;
    return ASHLAR_OK;
}

/*
 * End the block at `pointer`. The size in the row is not compared with the allocation's. If no
 * block is live there, the row does nothing if its pointer is null or its size 0, and is an error
 * otherwise.
 */
static ashlar_status end_block(reader *r, uint64_t pointer, ashlar_rmm_event *event) {
    size_t *live = NULL;
    ASHLAR_TRY(ashlar__number_map_find(&r->pointers, 0, pointer, &live));
    if (*live != ASHLAR_NUMBER_UNSET) {
        event->block = r->log->events[*live].block;
        r->live_bytes -= r->log->events[*live].bytes;
        *live = ASHLAR_NUMBER_UNSET;
    } else if (pointer == 0 || event->bytes == 0) {
        event->action = ASHLAR_RMM_NOTHING;
    } else {
        return ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: frees %#llx, where no block is live",
                            r->log->name, r->csv.line, (unsigned long long)pointer);
    }
    event->bytes = 0;
    return ASHLAR_OK;
}

static void note_failure(reader *r, size_t bytes) {
    size_t needed;
    if (!ashlar__add(r->live_bytes, bytes, &needed)) {
        needed = SIZE_MAX;
    }
    r->log->needed_bytes = needed > r->log->needed_bytes ? needed : r->log->needed_bytes;
}

static ashlar_status read_memory(reader *r, const ashlar_piece *fields, ashlar_rmm_event *event) {
    uint64_t pointer = 0, bytes = 0;
    ASHLAR_TRY(read_number(r, SIZE, fields[SIZE], &bytes));
    event->bytes = bytes;
    if (event->action == ASHLAR_RMM_NOTHING) {
        note_failure(r, bytes);
        return ASHLAR_OK;
    }
    if (event->action == ASHLAR_RMM_STEP) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(read_number(r, POINTER, fields[POINTER], &pointer));
    if (event->action == ASHLAR_RMM_FREE) {
        return end_block(r, pointer, event);
    }
    if (bytes == 0) {
        event->action = ASHLAR_RMM_NOTHING;
        return ASHLAR_OK;
    }
    return begin_block(r, pointer, fields[POINTER], event);
}

static ashlar_status read_action(reader *r, ashlar_piece field, ashlar_rmm_event *event) {
    static const char *const words[] = {[ASHLAR_RMM_ALLOCATE] = "allocate",
                                        [ASHLAR_RMM_FREE] = "free",
                                        [ASHLAR_RMM_STEP] = "step",
                                        [ASHLAR_RMM_NOTHING] = "allocate failure"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (ashlar__piece_is(field, words[i])) {
            event->action = (ashlar_rmm_action)i;
            r->log->recorded_failures += i == ASHLAR_RMM_NOTHING;
            return ASHLAR_OK;
        }
    }
    return ashlar__csv_fail(&r->csv, "Action has to be allocate, free, allocate failure or step",
                            field);
}

static ashlar_status append(ashlar_rmm_log *log, const ashlar_rmm_event *event) {
    ASHLAR_HOST_GROW(log->events, &log->event_capacity, log->closed_count,
                     "%s: no host memory for its events", log->name);
    log->events[log->closed_count++] = *event;
    return ASHLAR_OK;
}

static ashlar_status read_row(reader *r, const ashlar_piece *fields) {
    ashlar_rmm_event event = {.line = r->csv.line};
    ASHLAR_TRY(read_action(r, fields[ACTION], &event));
    ASHLAR_TRY(read_order(r, fields, &event));
    ASHLAR_TRY(read_memory(r, fields, &event));
    ASHLAR_TRY(append(r->log, &event));
    r->log->event_count = r->log->closed_count;
    return ASHLAR_OK;
}

ashlar_status ashlar__rmm_log_close(ashlar_rmm_log *log) {
    const size_t last = log->events[log->event_count - 1].line;
    bool *is_live;
    ASHLAR_HOST_NEW(is_live, log->block_count + 1, "%s: no host memory for its end", log->name);
    for (size_t i = 0; i < log->event_count; i++) {
        const ashlar_rmm_event *event = &log->events[i];
        if (event->action == ASHLAR_RMM_ALLOCATE || event->action == ASHLAR_RMM_FREE) {
            is_live[event->block] = event->action == ASHLAR_RMM_ALLOCATE;
        }
    }
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < log->event_count && status == ASHLAR_OK; i++) {
        ashlar_rmm_event event = log->events[i];
        if (event.action == ASHLAR_RMM_ALLOCATE && is_live[event.block]) {
            event.action = ASHLAR_RMM_FREE;
            event.line = last;
            event.bytes = 0;
            status = append(log, &event);
        }
    }
    ashlar__host_free(is_live);
    return status;
}

static ashlar_status read_rows(reader *r) {
    ashlar_piece fields[COLUMN_COUNT];
    size_t default_stream, count;
    ASHLAR_TRY(ashlar__number_map_index(&r->streams, 0, DEFAULT_STREAM, &r->log->stream_count,
                                        &default_stream));
    while (ashlar__csv_next(&r->csv, fields, &count)) {
        if (count < r->csv.field_count && r->csv.rest.text[-1] != '\n') {
            break; /* the program has ended while it wrote this row */
        }
        ASHLAR_TRY(ashlar__csv_check(&r->csv, count));
        ASHLAR_TRY(read_row(r, fields));
    }
    ASHLAR_FAIL_IF(r->log->event_count == 0, ASHLAR_EFORMAT,
                   "%s:%zu: no event follows the column names", r->log->name, r->csv.line);
    return ashlar__rmm_log_close(r->log);
}

ashlar_status ashlar__rmm_log_parse(const char *name, const char *text, size_t bytes,
                                    ashlar_rmm_log **out) {
    reader r = {.log = ashlar__host_calloc(1, sizeof *r.log)};
    const size_t name_bytes = strlen(name) + 1;
    if (r.log == NULL || (r.log->name = ashlar__host_calloc(name_bytes, 1)) == NULL) {
        ashlar__rmm_log_free(r.log);
        return ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory to read it", name);
    }
    memcpy(r.log->name, name, name_bytes);
    ashlar_status status = ashlar__csv_begin(&r.csv, &format, r.log->name, text, bytes);
    ASHLAR_THEN(status, read_rows(&r));
    ashlar__number_map_finish(&r.threads);
    ashlar__number_map_finish(&r.streams);
    ashlar__number_map_finish(&r.pointers);
    if (status != ASHLAR_OK) {
        ashlar__rmm_log_free(r.log);
        return status;
    }
    *out = r.log;
    return ASHLAR_OK;
}

void ashlar__rmm_log_free(ashlar_rmm_log *log) {
    if (log != NULL) {
        ashlar__host_free(log->events);
        ashlar__host_free(log->name);
        ashlar__host_free(log);
    }
}

ashlar_status ashlar__rmm_log_read(const char *path, ashlar_rmm_log **out) {
    char *text = NULL;
    size_t bytes;
    ASHLAR_TRY(ashlar__file_read_stream(path, &text, &bytes));
    const bool is_packed = bytes >= 2 && memcmp(text, "\x1f\x8b", 2) == 0;
    const ashlar_status status =
        is_packed || (bytes > 0 && text[0] == '\x80')
            ? ashlar__fail(
                  ASHLAR_EFORMAT,
                  "%s: a snapshot, or packed by gzip: from a pipe, only logs are read; put "
                  "it into a file, or unpack a log: zcat FILE | ashlar-replay /dev/stdin",
                  path)
            : ashlar__rmm_log_parse(path, text, bytes, out);
    ashlar__host_free(text);
    return status;
}
