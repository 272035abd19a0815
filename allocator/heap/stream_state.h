/*
 * stream_state.h - what the allocator knows about one stream: its zones, the windows of addresses
 * that its blocks are cut from, and the order of its work (internal).
 */
#ifndef ASHLAR_STREAM_STATE_H
#define ASHLAR_STREAM_STATE_H

#include "allocator/base/threads.h"
#include "allocator/device/device_impl.h"
#include "allocator/heap/block.h"
#include "allocator/trace/trace.h"

typedef struct ashlar_zone ashlar_zone;
typedef struct ashlar_cache ashlar_cache;

/* ---- the driver ---- */

/* One allocator's access to the driver, which counts the allocator's calls. */
typedef struct ashlar_driver_client {
    ashlar_device *device; /* const */
    ashlar_trace *trace;   /* const; records what is mapped and unmapped; NULL: no trace is kept */
    uint64_t calls;        /* Lock: the allocator's, for this and the fields below */
    cu_stream beside_legacy; /* ordered with the legacy default stream; NULL before it is needed:
                              * see beside_legacy() in stream_state.c */
    bool watches_streams;    /* streams may end unannounced: the driver sees a handle only in calls
                                that name it */
    bool has_stream_ids;     /* the driver can tell streams apart that had the same handle */
    bool records_at_calls;   /* each call that names a watched stream records an event on it */
    bool is_wanting;         /* a request looks for memory, so events recorded now are late */
    uint64_t free_count;     /* frees so far that wait for all streams (deferred_free.c) */
} ashlar_driver_client;

/* Make and count one driver call. */
#define ASHLAR_CALL(client, field, args) \
    ((client)->calls++, ASHLAR_DRIVER_CALL((client)->device->driver, field, args))

/* The status of a call's result; `what` is CUDA's name of the call. */
static inline ashlar_status ashlar__client_status(const ashlar_driver_client *client,
                                                  const char *what, cu_result result) {
    return ashlar__driver_status(client->device->driver, what, result);
}

/* ---- zones ---- */

/*
 * Each stream has two zones, one for blocks that have a size class and one for larger blocks, so
 * that a small block never keeps the memory around a large one. A zone takes windows of addresses
 * as it needs them. Blocks cover all of a window: used blocks, and FREE ones, called gaps, whether
 * or not memory is mapped behind them. A block's place depends on the gaps alone, never on what is
 * mapped. So a program that repeats itself gets the same addresses each time, and needs no more
 * memory the second time than the first.
 *
 * This is exact for a step on one stream that begins with nothing live, if the device is done with
 * freed memory by the time another zone wants it. Else a request takes any gap that has memory
 * rather than wait on the host (tests/allocator/step/test_repeated.c measures what that costs).
 *
 * Memory is mapped behind a window in handles; a segment always has all of its memory. A handle is
 * free if it lies wholly in a gap. Its memory can then be unmapped, and mapped in another window,
 * as soon as the device is done with it:
 *
 *     is_past(handle) == (owner->completed >= handle.covered_by)
 */

/* The memory behind the part of a window that one handle maps. */
typedef struct ashlar_backing {
    cu_mem_handle handle; /* 0 in a segment */
    uint64_t is_mapped : 1;
    uint64_t covered_by : 63; /* the number of the zone owner's recording that comes behind the last
                               * use; 0: not used since it was mapped */
} ashlar_backing;

/*
 * Whoever may touch the zone may write `first` and `last`, and covered_by of memory that it frees.
 * All other fields that are not const change under the lock, while nobody else may touch the zone.
 *
 * Invariants (ashlar__heap_check):
 *   first->offset == offset,  last->offset + last->bytes == offset + bytes
 *   block->next->offset == block->offset + block->bytes,  block->next->prev == block
 *   block->window == this,  two gaps are never neighbours
 *   a used block lies in mapped memory;  a gap's holes == handles in it that are not mapped
 *   mapped_count == handles that are mapped,  of each: covered_by <= zone->owner->last_tick + 1
 */
struct ashlar_window {
    ashlar_window *next;  /* next in the zone */
    ashlar_window *above; /* next in the heap, in address order */
    ashlar_zone *zone;
    size_t offset; /* const; a multiple of the handle's bytes, except for segments */
    size_t bytes;  /* const; a multiple of the handle's bytes */
    ashlar_block *first, *last;
    size_t mapped_count;
    ashlar_backing backing[]; /* [bytes / handle_bytes] */
};

enum {
    ASHLAR_ZONE_SMALL, /* blocks up to ASHLAR_SC_MAX_BYTES */
    ASHLAR_ZONE_LARGE,
    ASHLAR_ZONE_COUNT
};

/* Unused block nodes, linked by `next`. */
typedef struct ashlar_node_pool {
    ashlar_block *first;
    size_t count;
} ashlar_node_pool;

/* allocator/core/core.h says who may touch a zone. The lock guards the links `next`. */
struct ashlar_zone {
    ashlar_free_bins gaps;
    ashlar_node_pool nodes;     /* spare ones, for the next blocks to be cut in this zone */
    size_t used_bytes;          /* sum of the used blocks in the windows */
    ashlar_window *windows;     /* newest first */
    ashlar_stream_state *owner; /* const; the stream state that contains this zone */
    ashlar_zone *next;          /* next in the heap's list of zones that have windows */
};

/* ---- the order of work on a stream ---- */

/*
 * Until memory is short, events are recorded on a stream only when another stream wants a block
 * that was last used here. Recordings are numbered 1, 2, 3 ... A use is stamped with a tick, the
 * number of recordings made before it ended. Recording n then comes after the use, in stream order,
 * exactly if n > tick:
 *
 *     is_past(state, tick) == (state->completed > tick)
 *
 * Each recording has an event of its own. So on a busy stream the oldest event completes, however
 * many follow it. If ASHLAR_EVENTS_MAX are pending, the newest event is recorded again, with the
 * new number: waits for it take longer, but prove no less.
 *
 * Deferred frees wait for all streams, and are numbered (deferred_free.c). Each recording notes the
 * newest: once the recording has completed, all work submitted here before that free is over.
 */

/* Stands for no stream: a handle that no driver gives. */
#define ASHLAR_NO_STREAM ((ashlar_stream)UINTPTR_MAX)

/* The most recordings of one stream that may be pending at a time: about as many as the large frees
 * of two steps on a full device. With fewer, the newest event would come behind much work that
 * nobody waits for. Once ASHLAR_EVENTS_FEW are pending, they are queried before a further event is
 * created: if the device keeps up, one of them is spare. */
enum { ASHLAR_EVENTS_FEW = 16, ASHLAR_EVENTS_MAX = 128 };

/* Streams are found by their handles, in one list for each bucket of a hash table. */
enum { ASHLAR_STREAM_BUCKETS = 256 };

static inline size_t ashlar__stream_bucket(ashlar_stream stream) {
    const uint64_t mixed = (uint64_t)(uintptr_t)stream * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(mixed >> 56);
}
_Static_assert(ASHLAR_STREAM_BUCKETS == 256, "a bucket's number is 8 bits");

typedef struct ashlar_numbered_event {
    uint64_t number;      /* of the event's recording; unused while the event is spare */
    uint64_t free_number; /* number of the newest deferred free when it was recorded */
    bool is_late;         /* recorded when a stream wanted the memory, not when it was freed: a wait
                           * for the event is also a wait for work queued after the free */
    cu_event event;
} ashlar_numbered_event;

/* A stream's counters when a wait on the host for all its work began. */
typedef struct ashlar_settlement {
    uint64_t wait; /* the wait's number; 0: none yet */
    uint64_t recorded, stamp_count, free_number;
} ashlar_settlement;

/* How many blocks have a use of the stream stamped with the newest tick: they share an event. */
typedef struct ashlar_use_batch {
    uint64_t tick;
    size_t count, bytes;
} ashlar_use_batch;

/*
 * Lock: the allocator's guards every field except those marked const.
 *
 * Invariants (ashlar__stream_state_is_sound):
 *   completed <= recorded                     what has completed was recorded
 *   last_tick <= recorded                     no stamp is ahead of the recordings
 *   pending_count <= event_count <= ASHLAR_EVENTS_MAX
 *   pending_count == 0  <=>  completed == recorded
 *   completed < events[0].number < ... < events[pending_count - 1].number == recorded
 *   is_gone && !is_lost  =>  last_tick < recorded   the last recording came after every use
 *   is_lost  =>  is_gone
 *   all memory in its zones has covered_by <= last_tick + 1
 */
struct ashlar_stream_state {
    ashlar_stream_state *next;           /* next in the allocator's list of streams */
    ashlar_stream_state *next_in_bucket; /* the next in the same bucket of the hash table */
    ashlar_stream stream;                /* const, except in a pool: the stream of its latest
                                          * capture */
    uint64_t thread;           /* the number of the thread whose default stream this is; else 0 */
    ashlar_stream_state *pool; /* while the stream is captured: its graph pool; else NULL */
    bool is_pool;  /* not a stream but a graph's pool: keeps its blocks until the graph is gone */
    bool is_idle;  /* const; not a stream: owns the blocks for any stream (deferred_free.c) */
    bool is_gone;  /* the stream is destroyed, or about to be: its handle is never used again */
    bool is_lost;  /* gone before its last event was recorded: its memory is never reused */
    bool is_ended; /* no request names it: the pool's capture, or its thread, has ended */
    /* In a pool whose graph is gone: the stream given to ashlar_graph_pool_release(), which may use
     * the pool's memory at once; others may once the event that was recorded then has completed. */
    ashlar_stream_state *released_on;
    bool is_replaced;    /* ended unannounced: its handle names another stream now */
    bool has_id;         /* `id` is known */
    uint64_t id;         /* the driver's, if streams are watched; unique */
    size_t caller_count; /* calls under way that name it and so prove it alive; if watched */
    /* The thread's cache that owns the zones, last_used, last_tick, has_freed and stamp_count;
     * NULL: these are under the lock, like all other fields. See core/core.h. */
    _Atomic(ashlar_cache *) owner_cache;
    unsigned handovers; /* how often the stream passed from one owner_cache to another */
    _Atomic(ashlar_block *) remote_frees; /* blocks freed by other threads than owner_cache's,
                                             linked by `older` */
    size_t waiter_count;              /* threads that dropped the lock to wait for an event */
    bool is_referenced;               /* scratch, while looking for states that may be freed */
    ashlar_zone zones[ASHLAR_ZONE_COUNT]; /* its addresses, and the memory that it used last */
    ashlar_block *oldest_cross;           /* blocks that wait for this stream, linked by `older` */
    ashlar_block *newest_cross;
    ashlar_use_batch batch;            /* the blocks freed at the newest tick */
    ashlar_stream_state *next_awaited; /* next in the heap's list of streams that blocks wait for */
    bool is_awaited;                   /* is in that list */
    bool was_planned;                  /* plan memory has lain in its zones: steps search both */
    size_t beside_bytes;               /* mapped for its steps while plan memory was idle; see
                                        * is_in_vain() in rungs.c */
    size_t cross_count;                /* cross-stream blocks that it owns */
    uint64_t last_used;                /* the heap's use_clock at the newest request, or free under
                                        * the lock */
    bool has_freed;                    /* last_tick is valid: some use has been stamped */
    bool orders_frees;                 /* deferred frees wait for this stream's work, too */
    uint64_t free_past;   /* number of a deferred free: all work submitted here before it is over */
    size_t pending_count; /* events [0, pending_count), oldest first, may be incomplete */
    size_t event_count;   /* created so far; events that are not pending are spare */
    uint64_t recorded;    /* the newest recording; 0: none so far */
    uint64_t completed;   /* the newest recording known to have completed */
    uint64_t last_tick;   /* the newest tick stamped on a block that was freed here */
    uint64_t recorded_at; /* the newest recording's number, counted over all streams */
    uint64_t stamp_count; /* uses stamped so far */
    ashlar_settlement settling; /* the counters when the newest such wait began */
    ashlar_numbered_event events[ASHLAR_EVENTS_MAX];
};

/* Whether the invariants above hold, except for those of blocks. O(pending_count). */
bool ashlar__stream_state_is_sound(const ashlar_stream_state *state);

/* Whether a use of this stream stamped `tick` is known to be over. */
static inline bool ashlar__stream_state_is_past(const ashlar_stream_state *state, uint64_t tick) {
    return state == NULL || state->completed > tick;
}

/* Whether all work that may use memory freed here is known to be over. */
static inline bool ashlar__stream_state_is_quiet(const ashlar_stream_state *state) {
    return !state->has_freed || ashlar__stream_state_is_past(state, state->last_tick);
}

/* The tick of a use that ends now. The use is over once an event with a higher number, in the
 * stream's order of recordings, has completed: so the tick is the number of the newest recording.
 * On a stream that is gone, the last recording followed all its work, so the tick is one less. A
 * stream that was lost has no recording behind its work, and its uses never count as over. */
static inline uint64_t ashlar__stream_state_stamp(const ashlar_stream_state *state) {
    const bool is_covered = state->is_gone && !state->is_lost;
    ASHLAR_CHECK2(!is_covered || state->recorded > 0);
    return is_covered ? state->recorded - 1 : state->recorded;
}

/* Note a use that ends now. Returns the number of the stream's next recording, which will follow
 * all work queued so far. */
static inline uint64_t ashlar__stream_state_next(ashlar_stream_state *state) {
    state->last_tick = ashlar__stream_state_stamp(state);
    state->has_freed = true;
    state->stamp_count++;
    return state->last_tick + 1;
}

/*
 * Whether no event can be recorded here now, so that no other stream can have the blocks last used
 * here. That is the case for a graph's pool, for a stream under capture, for a stream that was
 * lost, and for a silent stream (see below) whose last free has no event behind it. While any
 * stream is under capture, it is also the case for other threads' default streams, whose events
 * would go to the legacy one.
 */
bool ashlar__stream_state_is_closed(const ashlar_stream_state *state,
                                    const ashlar_driver_client *client);

/* Whether the stream can be made to wait for an event: it has not ended, the calling thread can
 * name it, and it is not captured; nor is it the legacy default stream during a capture. */
bool ashlar__stream_state_can_wait(const ashlar_stream_state *state,
                                   const ashlar_driver_client *client);

/* Whether a wait for a use stamped `tick` is a wait for that use alone: the use is over, or the
 * first event behind it was recorded at the free. An event that is recorded late, when another
 * stream wants the memory, comes behind work queued after the free. */
bool ashlar__stream_state_is_prompt(const ashlar_stream_state *state, uint64_t tick);

/* Whether the program made the stream, and so can end it. Default streams live as long as their
 * context or thread. */
static inline bool ashlar__stream_can_end(ashlar_stream stream) {
    return (uintptr_t)stream > CU_STREAM_PER_THREAD;
}

/* Whether the driver must not see the stream's handle, because the stream may have been destroyed
 * unannounced: streams are watched, and no call under way names this one. */
static inline bool ashlar__stream_state_is_silent(const ashlar_stream_state *state,
                                                  const ashlar_driver_client *client) {
    return client->watches_streams && (state->caller_count == 0 || state->is_replaced) &&
           ashlar__stream_can_end(state->stream) && !state->is_gone;
}

/* Whether each call that names the stream, which is watched, must record an event on it. */
static inline bool ashlar__stream_state_is_recorded_at_calls(const ashlar_stream_state *state,
                                                             const ashlar_driver_client *client) {
    return client->records_at_calls && ashlar__stream_can_end(state->stream);
}

/* Whether an event follows the last use of all memory freed here. */
static inline bool ashlar__stream_state_is_covered(const ashlar_stream_state *state) {
    return !state->has_freed || state->recorded > state->last_tick;
}

/* Whether the stream is another thread's default stream, which the calling thread cannot name. */
static inline bool ashlar__stream_state_is_others(const ashlar_stream_state *state) {
    return state->thread != 0 && state->thread != ashlar__thread_number();
}

/*
 * Record an event, unless there is a recording after `tick` already. *recorded counts the
 * recordings of all streams. *is_covered false: no event can be recorded now; the state is closed,
 * or the driver says that its stream is part of a capture.
 *
 * If the stream's handle is no longer valid, is_gone must be set, since the driver must not see a
 * destroyed handle. A handle stays valid until ashlar_allocator_forget_stream().
 *
 * Errors: ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_try_cover(ashlar_stream_state *state,
                                                               ashlar_driver_client *client,
                                                               uint64_t tick, uint64_t *recorded,
                                                               bool *is_covered);

/* Like ashlar__stream_state_try_cover(), for callers that cannot do without the event. Errors: also
 * ASHLAR_EINVAL (none can be recorded). */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_cover(ashlar_stream_state *state,
                                                           ashlar_driver_client *client,
                                                           uint64_t tick, uint64_t *recorded);

/* The number of the newest deferred free before which all work submitted on the stream is over. */
static inline uint64_t ashlar__stream_state_free_past(const ashlar_stream_state *state) {
    const bool is_done = state->is_gone && !state->is_lost && state->completed == state->recorded;
    return is_done ? UINT64_MAX : state->free_past;
}

/* Whether the work submitted before a deferred free is over, or some recording follows it. */
static inline bool ashlar__stream_state_covers_free(const ashlar_stream_state *state,
                                                    uint64_t number) {
    return ashlar__stream_state_free_past(state) >= number ||
           (state->pending_count > 0 &&
            state->events[state->pending_count - 1].free_number >= number);
}

/* See to it that some recording follows all work submitted before the newest deferred free, unless
 * that work is known to be over, or the stream is found idle. Errors: ASHLAR_EINVAL (not during a
 * capture), ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_cover_frees(ashlar_stream_state *state,
                                                                 ashlar_driver_client *client,
                                                                 uint64_t *recorded);

/* Query, without waiting, which recordings have completed, from the oldest pending one up to the
 * first that has not. Allowed during captures, too: the events are our own, and in no graph. */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_query(ashlar_stream_state *state,
                                                           ashlar_driver_client *client);

/* Find out, without waiting, whether a use stamped `tick` is over. If no recording follows it, make
 * one first, if one can be made now. Errors: ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_ask(ashlar_stream_state *state,
                                                         ashlar_driver_client *client,
                                                         uint64_t tick, uint64_t *recorded);

/* Find out, without waiting, whether the stream is idle; then all uses stamped so far are over. A
 * newly recorded event would not show this: queried at once, it may not have completed even on an
 * idle stream. An event is recorded behind the work only if the stream is not idle, or cannot be
 * queried because it is gone, captured or another thread's. Errors: ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_ask_idle(ashlar_stream_state *state,
                                                              ashlar_driver_client *client,
                                                              uint64_t *recorded);

/* Let `waiter` wait, in-stream, for the oldest recording after `tick`, unless that is known to have
 * completed. Requires recorded > tick. Errors: ASHLAR_EINVAL (`waiter` is captured without a pool),
 * ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_wait_on(ashlar_stream_state *state,
                                                             ashlar_driver_client *client,
                                                             ashlar_stream waiter, uint64_t tick);

/*
 * Wait on the host until the oldest pending recording of one of the states, whichever it is, has
 * completed. Each must have one.
 *
 * count   1 .. ASHLAR_AWAITED_MAX
 * lock    the allocator's, held; dropped during the wait, since the awaited work may depend on
 *         another thread that needs the lock
 *
 * Errors: ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_states_wait(ashlar_stream_state *const *states,
                                                           size_t count,
                                                           ashlar_driver_client *client,
                                                           ashlar_lock *lock);

/*
 * _begin_settling: call it before a wait on the host for all work of the stream, or of the device;
 * `free_number` is the newest deferred free before which that wait proves all work of the stream
 * over. _settle: call it after the wait; it marks as past all uses that were stamped before
 * _begin_settling, and the work before that free. If a later wait has begun in between, _settle
 * leaves the marking to the end of that one. _next_wait: a number for a wait; above 0, and higher
 * than those of the process's earlier waits.
 */
uint64_t ashlar__next_wait(void);
void ashlar__stream_state_begin_settling(ashlar_stream_state *state, uint64_t wait,
                                         uint64_t free_number);
void ashlar__stream_state_settle(ashlar_stream_state *state, uint64_t wait);

/* Whether no request can name the stream any more. */
static inline bool ashlar__stream_state_has_ended(const ashlar_stream_state *state) {
    return state->is_gone || state->is_ended;
}

/* Fail if work queued on a stream would become part of a capture. Call it inside the device's
 * context. Errors: ASHLAR_EINVAL (it would), ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_refuse_captured(ashlar_driver_client *client,
                                                               ashlar_stream stream);

/* Destroy the stream `beside_legacy`, after the last of the client's states has finished. */
void ashlar__stream_states_end(ashlar_driver_client *client);

/* Destroy the state's events. */
void ashlar__stream_state_finish(ashlar_stream_state *state, ashlar_driver_client *client);

#endif /* ASHLAR_STREAM_STATE_H */
