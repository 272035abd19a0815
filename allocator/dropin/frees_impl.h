/*
 * frees_impl.h - what the two files of frees.h share (internal).
 *
 *   frees.c           one for each device; memory
 *   frees_batches.c   events, batches, streams
 */
#ifndef ASHLAR_DROPIN_FREES_IMPL_H
#define ASHLAR_DROPIN_FREES_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "allocator/dropin/frees.h"

/* As many batches wait at most, unless memory is out: more would be no sooner over. */
enum { ASHLAR_BATCHES_MAX = 8 };

/* An event, in one list at a time. */
typedef struct ashlar_event_node {
    struct ashlar_event_node *next;
    cu_event event;
} ashlar_event_node;

typedef struct ashlar_free_batch {
    struct ashlar_free_batch *next;
    ashlar_block *blocks;
    ashlar_event_node *marks; /* those not known to have completed */
} ashlar_free_batch;

typedef struct ashlar_known_stream {
    struct ashlar_known_stream *next;
    ashlar_stream stream;
} ashlar_known_stream;

struct ashlar_frees {
    ashlar_allocator *allocator; /* const */
    ashlar_device *device;       /* const */
    bool is_host;                /* const; of page-locked host memory */
    atomic_bool is_distrusted;   /* there may be streams that are not known */
    atomic_bool is_trusting;     /* tests */
    _Atomic size_t batch_count;
    _Atomic uint64_t release_count; /* how often blocks were given back to the allocator */
    pthread_mutex_t wait_lock; /* held by who waits on the host with blocks in hand; taken alone */
    pthread_mutex_t lock;      /* guards what follows; taken before the allocator's */
    ashlar_known_stream *streams;
    ashlar_event_node *ended; /* behind the last work of streams that are gone */
    ashlar_event_node *spare;
    ashlar_free_batch *first; /* oldest first */
    ashlar_free_batch **end;
};

/* Whether blocks wait, in a batch or for one. */
bool ashlar__frees_has_pending(const ashlar_frees *frees);

/*
 * Make a batch, if fewer than `batches_max` wait, and give back to the allocator what is known to
 * be over. True: there was something.
 */
bool ashlar__frees_reap(ashlar_frees *frees, size_t batches_max);

/*
 * Memory was out: may it not be so by now? Blocks have been given back since `release_count` was
 * read, other threads were about to, or there are new ones.
 */
bool ashlar__frees_has_more(ashlar_frees *frees, uint64_t release_count);

/* Wait on the host for all work of the device. False: not possible now. */
bool ashlar__frees_wait(ashlar_frees *frees);

/* Tests: return the host memory of events, batches and streams. */
void ashlar__frees_drop_all(ashlar_frees *frees);

/* As an allocator's reclaim callback, `user` being an ashlar_frees: wait for all that is pending.
 */
bool ashlar__frees_reclaim(void *user, size_t bytes);

#endif /* ASHLAR_DROPIN_FREES_IMPL_H */
