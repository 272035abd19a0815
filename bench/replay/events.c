/* events.c - reads the event file of a snapshot, and numbers its allocations. */
#include "bench/replay/events.h"

#include <stdio.h>
#include <string.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/base/parse.h"
#include "bench/replay/numbers.h"

const char ashlar__events_head[] = "ashlar-events/1";

static const char *const action_words[] = {
#define X(name, text) text,
    ASHLAR_EVENT_ACTION_MAP(X)
#undef X
};
ASHLAR_TABLE_IS_FULL(action_words, ASHLAR_EVENT_ACTION_COUNT);

static const char *const state_words[] = {"inactive", "active", "pending"};
static const char *const size_words[] = {"large", "small"};
static const char *const flag_words[] = {"0", "1"};

/* PyTorch refuses requests from here on, so that sums of sizes in its memory fit in 64 bits. */
#define BYTES_END (UINT64_C(1) << 60)

#define NEVER (UINT32_MAX - 1) /* an event, until their count is known */

enum { FIELDS_MAX = 7, DEVICES_MAX = 4096 };

typedef struct reader {
    ashlar_events *all;
    ashlar_piece rest;
    size_t line;
    const char *record; /* what the line is, for messages */
    ashlar_piece fields[FIELDS_MAX];
    ashlar_number_map live; /* number of the allocation at a device's address */
    ashlar_number_map streams, pools;
    uint64_t live_bytes;
    bool has_begun; /* the first state is complete */
    size_t event_capacity, allocation_capacity, setting_capacity, stream_capacity, line_capacity;
    size_t text_bytes;
} reader;

#define NO_MEMORY "%s: no host memory for its records"

/* Append an item to an array of ashlar_events. */
#define APPEND(r, array, count, capacity, ...)                                      \
    do {                                                                            \
        ASHLAR_HOST_GROW((array), &(capacity), (count), NO_MEMORY, (r)->all->name); \
        (array)[(count)++] = __VA_ARGS__;                                           \
    } while (0)

/* ---- fields ---- */

static ashlar_status fail_field(const reader *r, size_t i, const char *what) {
    char shown[ASHLAR_SHOWN_BYTES];
    return ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: field %zu of \"%s\" has to be %s, not \"%s\"",
                        r->all->name, r->line, i + 1, r->record, what,
                        ashlar__piece_show(r->fields[i], shown));
}

/* Read field `i`, a number below `end`. */
static ashlar_status read_below(const reader *r, size_t i, uint64_t end, const char *what,
                                uint64_t *out) {
    if (!ashlar__parse_count(r->fields[i], out) || *out >= end) {
        return fail_field(r, i, what);
    }
    return ASHLAR_OK;
}

static ashlar_status read_bytes(const reader *r, size_t i, uint64_t *out) {
    return read_below(r, i, BYTES_END, "bytes below 2^60", out);
}

static ashlar_status read_address(const reader *r, size_t i, uint64_t *out) {
    return ashlar__number_parse_hex(r->fields[i], out)
               ? ASHLAR_OK
               : fail_field(r, i, "hexadecimal, of 64 bits");
}

static ashlar_status read_device(const reader *r, uint16_t *out) {
    uint64_t device = 0;
    ASHLAR_TRY(read_below(r, 0, DEVICES_MAX, "a device below 4096", &device));
    *out = (uint16_t)device;
    r->all->device_count = device < r->all->device_count ? r->all->device_count : device + 1;
    return ASHLAR_OK;
}

static ashlar_status read_word(const reader *r, size_t i, const char *const *words, size_t count,
                               const char *what, size_t *out) {
    for (size_t k = 0; k < count; k++) {
        if (ashlar__piece_is(r->fields[i], words[k])) {
            *out = k;
            return ASHLAR_OK;
        }
    }
    return fail_field(r, i, what);
}

static ashlar_status add_stream(reader *r, uint64_t stream, uint32_t *out) {
    ashlar_events *e = r->all;
    size_t index = 0, count = e->stream_count;
    ASHLAR_TRY(ashlar__number_map_index(&r->streams, 0, stream, &count, &index));
    if (count > e->stream_count) {
        APPEND(r, e->streams, e->stream_count, r->stream_capacity, stream);
    }
    *out = (uint32_t)index;
    return ASHLAR_OK;
}

static ashlar_status read_stream(reader *r, size_t i, uint32_t *out) {
    uint64_t stream = 0;
    return ashlar__parse_count(r->fields[i], &stream)
               ? add_stream(r, stream, out)
               : fail_field(r, i, "a stream's number of 64 bits");
}

static ashlar_status read_pool(reader *r, size_t i, uint32_t *out) {
    ashlar_piece rest = r->fields[i];
    const ashlar_piece first = ashlar__piece_cut(&rest, ':');
    uint64_t high = 0, low = 0;
    size_t index = 0;
    if (!ashlar__parse_count(first, &high) || !ashlar__parse_count(rest, &low)) {
        return fail_field(r, i, "a pool's two numbers, as 0:1");
    }
    ASHLAR_TRY(ashlar__number_map_index(&r->pools, high, low, &r->all->pool_count, &index));
    *out = (uint32_t)index;
    return ASHLAR_OK;
}

/* Copy field `i` without its escapes. There is room: a copy is at most a field and its mark. */
static const char *read_text(reader *r, size_t i) {
    char *const text = r->all->texts + r->text_bytes;
    const ashlar_piece field = r->fields[i];
    char *to = text;
    for (size_t k = 0; k < field.bytes; k++) {
        char c = field.text[k];
        if (c == '\\' && k + 1 < field.bytes) {
            c = field.text[++k];
            c = (char)(c == 't' ? '\t' : c == 'n' ? '\n' : c);
        }
        *to++ = c;
    }
    *to++ = '\0';
    r->text_bytes += (size_t)(to - text);
    return text;
}

/* ---- records ---- */

static ashlar_status read_setting(reader *r) {
    ashlar_events *e = r->all;
    const char *name = read_text(r, 0), *value = read_text(r, 1);
    APPEND(r, e->settings, e->setting_count, r->setting_capacity,
           (ashlar_event_setting){name, value});
    return ASHLAR_OK;
}

static ashlar_status read_text_line(reader *r) {
    ashlar_events *e = r->all;
    const ashlar_event_line line = {read_text(r, 0), r->record[0] == 'f'};
    APPEND(r, e->lines, e->line_count, r->line_capacity, line);
    return ASHLAR_OK;
}

static ashlar_status read_answers(reader *r) {
    r->all->answers = read_text(r, 0);
    return ASHLAR_OK;
}

/* The first three fields of a segment or block. */
static ashlar_status read_place(const reader *r, uint16_t *device, uint64_t *address,
                                uint64_t *bytes) {
    ASHLAR_TRY(read_device(r, device));
    ASHLAR_TRY(read_address(r, 1, address));
    ASHLAR_TRY(read_bytes(r, 2, bytes));
    ASHLAR_FAIL_IF(*bytes == 0 || *address > UINT64_MAX - *bytes, ASHLAR_EFORMAT,
                   "%s:%zu: a %s of %llu bytes at %#llx", r->all->name, r->line, r->record,
                   (unsigned long long)*bytes, (unsigned long long)*address);
    ASHLAR_FAIL_IF(r->has_begun, ASHLAR_EFORMAT, "%s:%zu: a %s behind the first event",
                   r->all->name, r->line, r->record);
    return ASHLAR_OK;
}

static ashlar_status read_segment(reader *r) {
    ashlar_event_state *state = &r->all->first;
    ashlar_event_segment s = {.line = (uint32_t)r->line};
    size_t is_small = 0, is_expandable = 0;
    ASHLAR_TRY(read_place(r, &s.device, &s.address, &s.bytes));
    ASHLAR_TRY(read_stream(r, 3, &s.stream));
    ASHLAR_TRY(read_word(r, 4, size_words, 2, "small or large", &is_small));
    ASHLAR_TRY(read_pool(r, 5, &s.pool));
    ASHLAR_TRY(read_word(r, 6, flag_words, 2, "0 or 1", &is_expandable));
    s.is_small = is_small != 0;
    s.is_expandable = is_expandable != 0;
    APPEND(r, state->segments, state->segment_count, state->segment_capacity, s);
    return ASHLAR_OK;
}

static ashlar_status read_block(reader *r) {
    ashlar_event_state *state = &r->all->first;
    ashlar_event_block b = {.line = (uint32_t)r->line, .allocation = ASHLAR_EVENTS_NONE};
    size_t word = 0;
    ASHLAR_TRY(read_place(r, &b.device, &b.address, &b.bytes));
    ASHLAR_TRY(read_bytes(r, 3, &b.requested));
    ASHLAR_TRY(read_word(r, 4, state_words, 3, "active, pending or inactive", &word));
    b.state = (uint8_t)word;
    APPEND(r, state->blocks, state->block_count, state->block_capacity, b);
    return ASHLAR_OK;
}

/* ---- the states, and allocations ---- */

/* Give each segment its blocks: records stand in order of device and address. */
static ashlar_status close_state(const reader *r, ashlar_event_state *state) {
    size_t next = 0;
    for (size_t i = 0; i < state->segment_count; i++) {
        ashlar_event_segment *s = &state->segments[i];
        const ashlar_event_segment *before = i == 0 ? NULL : s - 1;
        uint64_t at = s->address;
        ASHLAR_FAIL_IF(before != NULL && (before->device > s->device ||
                                          (before->device == s->device &&
                                           before->address + before->bytes > s->address)),
                       ASHLAR_EFORMAT, "%s:%u: the segment has to be behind that of line %u",
                       r->all->name, s->line, before->line);
        s->first_block = next;
        while (next < state->block_count && at < s->address + s->bytes &&
               state->blocks[next].device == s->device && state->blocks[next].address == at) {
            at += state->blocks[next++].bytes;
        }
        s->block_count = next - s->first_block;
        ASHLAR_FAIL_IF(at != s->address + s->bytes, ASHLAR_EFORMAT,
                       "%s:%u: the segment's blocks do not cover it", r->all->name, s->line);
    }
    ASHLAR_FAIL_IF(next < state->block_count, ASHLAR_EFORMAT,
                   "%s:%u: a block outside of all segments", r->all->name,
                   state->blocks[next].line);
    return ASHLAR_OK;
}

static ashlar_status begin_allocation(reader *r, uint16_t device, uint64_t address, size_t line,
                                      ashlar_allocation fresh, uint32_t *number) {
    ashlar_events *e = r->all;
    size_t *at = NULL;
    ASHLAR_TRY(ashlar__number_map_find(&r->live, device, address, &at));
    /* What was freed may be there without its completion: a history can leave these out. */
    ASHLAR_FAIL_IF(*at != ASHLAR_NUMBER_UNSET && e->allocations[*at].freed == NEVER, ASHLAR_EFORMAT,
                   "%s:%zu: allocates at %#llx, where a block is live", e->name, line,
                   (unsigned long long)address);
    ASHLAR_FAIL_IF(r->live_bytes >= BYTES_END, ASHLAR_EFORMAT,
                   "%s:%zu: more bytes are live than any device has", e->name, line);
    r->live_bytes += fresh.bytes;
    *at = e->allocation_count;
    *number = (uint32_t)e->allocation_count;
    APPEND(r, e->allocations, e->allocation_count, r->allocation_capacity, fresh);
    return ASHLAR_OK;
}

/* The first state is complete: number the allocations that are in it. */
static ashlar_status begin_history(reader *r) {
    ashlar_event_state *first = &r->all->first;
    r->has_begun = true;
    ASHLAR_TRY(close_state(r, first));
    for (size_t i = 0; i < first->block_count; i++) {
        ashlar_event_block *b = &first->blocks[i];
        const bool is_live = b->state == ASHLAR_BLOCK_ACTIVE;
        const ashlar_allocation old = {b->requested, is_live ? NEVER : ASHLAR_EVENTS_NONE};
        if (b->state != ASHLAR_BLOCK_INACTIVE) {
            ASHLAR_TRY(begin_allocation(r, b->device, b->address, b->line, old, &b->allocation));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status end_allocation(reader *r, ashlar_history_event *event) {
    ashlar_events *e = r->all;
    size_t *at = NULL;
    const bool is_request = event->action == ASHLAR_EVENT_FREE_REQUESTED;
    ASHLAR_TRY(ashlar__number_map_find(&r->live, event->device, event->address, &at));
    ashlar_allocation *old = *at == ASHLAR_NUMBER_UNSET ? NULL : &e->allocations[*at];
    ASHLAR_FAIL_IF(old == NULL || (is_request && old->freed != NEVER), ASHLAR_EFORMAT,
                   "%s:%zu: frees %#llx, where no block is live", e->name, r->line,
                   (unsigned long long)event->address);
    event->allocation = (uint32_t)*at;
    if (old->freed == NEVER) {
        old->freed = (uint32_t)e->event_count;
        r->live_bytes -= old->bytes;
    }
    if (!is_request) {
        *at = ASHLAR_NUMBER_UNSET;
    }
    return ASHLAR_OK;
}

static ashlar_status read_event(reader *r) {
    ashlar_events *e = r->all;
    ashlar_history_event event = {.line = (uint32_t)r->line, .allocation = ASHLAR_EVENTS_NONE};
    size_t action = 0;
    uint64_t stack = 0;
    if (!r->has_begun) {
        ASHLAR_TRY(begin_history(r));
    }
    ASHLAR_TRY(read_device(r, &event.device));
    ASHLAR_TRY(
        read_word(r, 1, action_words, ASHLAR_EVENT_ACTION_COUNT, "an action of PyTorch", &action));
    event.action = (uint8_t)action;
    ASHLAR_TRY(read_address(r, 2, &event.address));
    ASHLAR_TRY(read_bytes(r, 3, &event.bytes));
    ASHLAR_TRY(read_stream(r, 4, &event.stream));
    ASHLAR_TRY(read_below(r, 5, UINT32_MAX, "a stack's number of 32 bits", &stack));
    ASHLAR_TRY(read_pool(r, 6, &event.pool));
    event.stack = (uint32_t)stack;
    ASHLAR_FAIL_IF(e->event_count + 2 >= NEVER, ASHLAR_EFORMAT, "%s:%zu: too many events", e->name,
                   r->line);
    if (action == ASHLAR_EVENT_ALLOC) {
        const ashlar_allocation fresh = {event.bytes, NEVER};
        ASHLAR_TRY(
            begin_allocation(r, event.device, event.address, r->line, fresh, &event.allocation));
    } else if (action == ASHLAR_EVENT_FREE_REQUESTED || action == ASHLAR_EVENT_FREE_COMPLETED) {
        ASHLAR_TRY(end_allocation(r, &event));
    }
    APPEND(r, e->events, e->event_count, r->event_capacity, event);
    return ASHLAR_OK;
}

/* ---- lines ---- */

static const struct record {
    const char *name;
    size_t field_count;
    ashlar_status (*read)(reader *r);
} records[] = {
    {"event", 7, read_event},     {"block", 5, read_block},    {"segment", 7, read_segment},
    {"setting", 2, read_setting}, {"text", 1, read_text_line}, {"failed", 1, read_text_line},
    {"answers", 1, read_answers},
};

static ashlar_status read_line(reader *r, ashlar_piece line) {
    char shown[ASHLAR_SHOWN_BYTES];
    const ashlar_piece name = ashlar__piece_cut(&line, '\t');
    for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
        if (!ashlar__piece_is(name, records[i].name)) {
            continue;
        }
        size_t count = 0;
        r->record = records[i].name;
        /* A piece that ends with a mark has one more field, an empty one. */
        for (bool is_last = false; !is_last && count < records[i].field_count; count++) {
            const size_t before = line.bytes;
            r->fields[count] = ashlar__piece_cut(&line, '\t');
            is_last = r->fields[count].bytes == before;
        }
        ASHLAR_FAIL_IF(count != records[i].field_count || line.bytes > 0, ASHLAR_EFORMAT,
                       "%s:%zu: \"%s\" has to have %zu fields", r->all->name, r->line,
                       records[i].name, records[i].field_count);
        return records[i].read(r);
    }
    return ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: no record of events: \"%s\"", r->all->name,
                        r->line, ashlar__piece_show(name, shown));
}

static ashlar_status read_lines(reader *r) {
    ashlar_events *e = r->all;
    const ashlar_piece head = ashlar__piece_cut(&r->rest, '\n');
    ASHLAR_FAIL_IF(!ashlar__piece_is(head, ashlar__events_head), ASHLAR_EFORMAT,
                   "%s:1: an event file begins with %s", e->name, ashlar__events_head);
    while (r->rest.bytes > 0) {
        const ashlar_piece line = ashlar__piece_cut(&r->rest, '\n');
        r->line++;
        ASHLAR_TRY(line.bytes > 0 ? read_line(r, line) : ASHLAR_OK);
    }
    if (!r->has_begun) {
        ASHLAR_TRY(begin_history(r));
    }
    for (size_t i = 0; i < e->allocation_count; i++) {
        ashlar_allocation *a = &e->allocations[i];
        a->freed = a->freed == NEVER ? (uint32_t)e->event_count : a->freed;
    }
    return ASHLAR_OK;
}

/* Make room for the name and for all texts, and what is there before all records. */
static ashlar_status set_up(reader *r, const char *name) {
    ashlar_events *e = r->all;
    const size_t name_bytes = strlen(name) + 1;
    uint32_t stream;
    size_t pool;
    ASHLAR_HOST_NEW(e->texts, name_bytes + r->rest.bytes + 1, NO_MEMORY, name);
    memcpy(e->texts, name, name_bytes);
    e->name = e->texts;
    r->text_bytes = name_bytes;
    r->line = 1;
    e->device_count = 1;
    ASHLAR_TRY(add_stream(r, 0, &stream));
    return ashlar__number_map_index(&r->pools, 0, 0, &e->pool_count, &pool);
}

ashlar_status ashlar__events_parse(const char *name, const char *text, size_t bytes,
                                   ashlar_events **out) {
    reader r = {.rest = {text, bytes}};
    ASHLAR_HOST_NEW(r.all, 1, NO_MEMORY, name);
    ashlar_status status = set_up(&r, name);
    ASHLAR_THEN(status, read_lines(&r));
    ashlar__number_map_finish(&r.live);
    ashlar__number_map_finish(&r.streams);
    ashlar__number_map_finish(&r.pools);
    ASHLAR_HAND_OUT(status, r.all, ashlar__events_free, out);
}

void ashlar__events_free(ashlar_events *e) {
    if (e == NULL) {
        return;
    }
    void *const owned[] = {e->events,       e->allocations, e->first.segments,
                           e->first.blocks, e->lines,       e->settings,
                           e->streams,      e->texts,       e};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) {
        ashlar__host_free(owned[i]);
    }
}

const char *ashlar__events_setting(const ashlar_events *events, const char *name) {
    for (size_t i = 0; i < events->setting_count; i++) {
        if (strcmp(events->settings[i].name, name) == 0) {
            return events->settings[i].value;
        }
    }
    return NULL;
}

const char *ashlar__event_word(ashlar_event_action action) {
    return action_words[action];
}
