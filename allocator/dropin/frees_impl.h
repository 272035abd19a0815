/*
 * frees_impl.h - what the three files of frees.h share (internal).
 *
 *   frees.c           the object of each device and context; allocating and freeing
 *   frees_batches.c   events, batches, streams
 *   frees_captures.c  captures
 */
#ifndef ASHLAR_DROPIN_FREES_IMPL_H
#define ASHLAR_DROPIN_FREES_IMPL_H

#include <stdatomic.h>

#include "allocator/base/lock.h"
#include "allocator/dropin/frees.h"

/* The most batches that wait, except when memory has run out. More would not complete sooner. */
enum { ASHLAR_BATCHES_MAX = 8 };

/* An event, in one list at a time. */
typedef struct ashlar_event_node {
    struct ashlar_event_node *next;
    cu_event event;
} ashlar_event_node;

/* Frees that wait for the same events. Invariant: blocks != NULL */
typedef struct ashlar_free_batch {
    struct ashlar_free_batch *next;
    ashlar_block *blocks;
    ashlar_event_node *marks; /* events that may not have completed yet */
} ashlar_free_batch;

typedef struct ashlar_known_stream {
    struct ashlar_known_stream *next;
    ashlar_stream stream;
} ashlar_known_stream;

/* Invariants: batch_count == batches from `first` up to the one whose `next` is *end;
 *             is_host => is_distrusted, so there are no batches */
struct ashlar_frees {
    ashlar_allocator *allocator; /* const */
    ashlar_device *device;       /* const */
    bool is_host;                /* const; for page-locked host memory */
    atomic_bool is_distrusted;   /* there may be streams that we do not know */
    atomic_bool is_trusting;     /* set only by tests */
    atomic_bool is_watching;     /* calls named unknown streams: the allocator watches streams */
    _Atomic size_t batch_count;
    _Atomic uint64_t release_count; /* how often blocks were given back to the allocator */
    ashlar_lock wait_lock;          /* held by a thread that waits on the host and holds blocks */
    ashlar_lock lock;               /* guards all fields below */
    ashlar_known_stream *streams;
    ashlar_event_node *ended; /* marks behind the last work of destroyed streams */
    ashlar_event_node *spare;
    ashlar_free_batch *first; /* the oldest batch */
    ashlar_free_batch **end;
};

/* Whether freed blocks wait in a batch, or to join one. */
bool ashlar__frees_has_pending(const ashlar_frees *frees);

/* Make a batch, if fewer than `batches_max` wait, and return the blocks of completed batches to the
 * allocator. Returns whether any blocks were returned. */
bool ashlar__frees_reap(ashlar_frees *frees, size_t batches_max);

/* Whether a request that found no memory may succeed now, because blocks were returned since the
 * caller read `release_count`, or are pending. Waits for a thread that is returning blocks. */
bool ashlar__frees_has_more(ashlar_frees *frees, uint64_t release_count);

/* Wait on the host for all work of the device. False: not possible now. */
bool ashlar__frees_wait(ashlar_frees *frees);

/* Free the records of events, batches and streams; no thread may use them. */
void ashlar__frees_drop_all(ashlar_frees *frees);

/*
 * Forget the captures of a stream that is about to end; NULL: of all streams. After its end the
 * driver can no longer be asked about them.
 */
void ashlar__frees_drop_captures(const ashlar_frees *frees, const ashlar_stream *stream);

/* An ashlar_reclaim_fn, with an ashlar_frees as `user`: wait for all that is pending. */
bool ashlar__frees_reclaim(void *user, size_t bytes);

#endif /* ASHLAR_DROPIN_FREES_IMPL_H */
