/* events.h - the history of a PyTorch memory snapshot, as tools/snapshot_events.py writes it, and
 * what tools/snapshot_answers.py says of it (internal). */
#ifndef ASHLAR_EVENTS_H
#define ASHLAR_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

/* PyTorch's own words for what happened. */
#define ASHLAR_EVENT_ACTION_MAP(X)                                             \
    X(ALLOC, "alloc")                                                          \
    X(FREE_REQUESTED, "free_requested") /* the program is done with it */      \
    X(FREE_COMPLETED, "free_completed") /* and so are the streams: reusable */ \
    X(SEGMENT_ALLOC, "segment_alloc")                                          \
    X(SEGMENT_FREE, "segment_free")                                            \
    X(SEGMENT_MAP, "segment_map")                                              \
    X(SEGMENT_UNMAP, "segment_unmap")                                          \
    X(OOM, "oom")

typedef enum ashlar_event_action {
#define X(name, text) ASHLAR_EVENT_##name,
    ASHLAR_EVENT_ACTION_MAP(X)
#undef X
        ASHLAR_EVENT_ACTION_COUNT
} ashlar_event_action;

#define ASHLAR_EVENTS_NONE UINT32_MAX /* no allocation; an event before the history began */

/* One event. Streams and pools are indexes, in the order of first appearance. */
typedef struct ashlar_history_event {
    uint64_t address;    /* OOM: bytes that were free on the device */
    uint64_t bytes;      /* ALLOC, FREE_*: as requested; OOM: the rounded request */
    uint32_t allocation; /* ALLOC, FREE_*: its number; ASHLAR_EVENTS_NONE of others */
    uint32_t line;       /* in the event file; the first is 1 */
    uint32_t stack;      /* its number; 0: not recorded */
    uint32_t stream;     /* 0 is always the default stream */
    uint32_t pool;       /* 0 is always PyTorch's own pool, others those of graphs and programs */
    uint16_t device;
    uint8_t action; /* ashlar_event_action */
} ashlar_history_event;

_Static_assert(sizeof(ashlar_history_event) <= 48, "a history has millions of events");

/* One allocation: those live or pending when the history begins, in order of address, then those of
 * the history. */
typedef struct ashlar_allocation {
    uint64_t bytes; /* as requested */
    uint32_t freed; /* its event; ASHLAR_EVENTS_NONE: before the history; event_count: never */
} ashlar_allocation;

typedef enum ashlar_block_state {
    ASHLAR_BLOCK_INACTIVE,
    ASHLAR_BLOCK_ACTIVE,
    ASHLAR_BLOCK_PENDING, /* its free was requested, but not completed */
} ashlar_block_state;

typedef struct ashlar_event_block {
    uint64_t address, bytes;
    uint64_t requested;  /* 0 of an inactive one */
    uint32_t allocation; /* ASHLAR_EVENTS_NONE of an inactive one */
    uint32_t line;
    uint16_t device;
    uint8_t state; /* ashlar_block_state */
} ashlar_event_block;

/* Its blocks are blocks[first_block] .. blocks[first_block + block_count - 1], at least one; they
 * cover it without gaps. */
typedef struct ashlar_event_segment {
    uint64_t address, bytes;
    size_t first_block, block_count;
    uint32_t stream, pool;
    uint32_t line;
    uint16_t device;
    bool is_small;
    bool is_expandable;
} ashlar_event_segment;

/* All memory taken from the driver at one time. Segments and blocks are in order of device and
 * address. */
typedef struct ashlar_event_state {
    ashlar_event_segment *segments;
    ashlar_event_block *blocks;
    size_t segment_count, segment_capacity;
    size_t block_count, block_capacity;
} ashlar_event_state;

typedef struct ashlar_event_setting {
    const char *name, *value;
} ashlar_event_setting;

/* A line to print: an answer, or an assertion that does not hold. */
typedef struct ashlar_event_line {
    const char *text;
    bool is_failure;
} ashlar_event_line;

typedef struct ashlar_events {
    const char *name; /* the file's name, for messages */
    ashlar_history_event *events;
    ashlar_allocation *allocations;
    ashlar_event_state first; /* when the history begins */
    ashlar_event_line *lines;
    const char *answers; /* JSON: an array; NULL: there are none */
    ashlar_event_setting *settings;
    uint64_t *streams; /* [stream_count]: PyTorch's numbers of them */
    size_t event_count, allocation_count, setting_count, stream_count, pool_count, line_count;
    size_t device_count; /* at least 1 */
    char *texts;         /* owns all texts above */
} ashlar_events;

/*
 * Read an event file from text in memory. `name` stands for the file's name in messages; it is
 * copied.
 *
 * Ownership: the caller frees *out with ashlar__events_free().
 * Errors:    ASHLAR_EFORMAT (the detail begins with FILE:LINE:; also for a free of a block that is
 *            not live, an allocation at the address of a live one, and blocks that do not cover
 *            their segment), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__events_parse(const char *name, const char *text,
                                                     size_t bytes, ashlar_events **out);

void ashlar__events_free(ashlar_events *events); /* NULL is allowed */

/* The value of a setting; NULL: it was not recorded. */
const char *ashlar__events_setting(const ashlar_events *events, const char *name);

/* PyTorch's word for an action. */
const char *ashlar__event_word(ashlar_event_action action);

/* The first line of each event file. */
extern const char ashlar__events_head[];

/* Whether a file is a snapshot by its first bytes: a pickle, one in gzip, or an event file. */
bool ashlar__snapshot_is(const char *path);

enum { ASHLAR_SNAPSHOT_ASSERTIONS_MAX = 64 };

/* What is asked of a snapshot, beside its history. */
typedef struct ashlar_snapshot_job {
    const char *before; /* an older snapshot, to say what differs instead; NULL: none */
    const char *const *assertions;
    size_t assertion_count; /* at most ASHLAR_SNAPSHOT_ASSERTIONS_MAX */
    const char *junit;      /* the file for what came of these; NULL: none */
} ashlar_snapshot_job;

/*
 * Read a snapshot. A pickle is read and answered for by python3, which runs
 * tools/snapshot_answers.py; an event file has no answers.
 *
 * Ownership: the caller frees *out with ashlar__events_free().
 * Errors:    those of ashlar__events_parse(), ASHLAR_EFORMAT (no snapshot), ASHLAR_EIO (no such
 *            file, no python3), ASHLAR_EINVAL (an assertion, or no pickle for one).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__snapshot_read(const char *path,
                                                      const ashlar_snapshot_job *job,
                                                      ashlar_events **out);

#endif /* ASHLAR_EVENTS_H */
