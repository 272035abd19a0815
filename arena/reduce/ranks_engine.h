/* ranks_engine.h - what a library that joins processes offers to ranks.c: a table of functions that
 * begin an operation, and one that asks whether it has ended (internal).
 *
 * Such a library is loaded at run time, is built for one MPI each (their binary interfaces differ),
 * and needs nothing of ashlar, of which it may meet a static or a shared copy.
 *
 * Each rank begins the same collectives in the same order. Functions that may fail return NULL, or
 * a text that says why. Threads: one at a time for each rank, any. */
#ifndef ASHLAR_RANKS_ENGINE_H
#define ASHLAR_RANKS_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/dtype.h>

enum { ASHLAR_ENGINE_VERSION = 3, ASHLAR_ENGINE_REQUEST_BYTES = 32 };

/* Messages between two ranks of one kind arrive in the order in which they were sent. */
typedef enum ashlar_engine_message {
    ASHLAR_MESSAGE_WORD,   /* what a rank is about to do */
    ASHLAR_MESSAGE_ANSWER, /* whether all are about to do the same */
    ASHLAR_MESSAGE_DATA,
    ASHLAR_MESSAGE_HERE, /* a collective does not end, but not because of me */
} ashlar_engine_message;

typedef enum ashlar_engine_collective {
    ASHLAR_ENGINE_BROADCAST,
    ASHLAR_ENGINE_ALL_REDUCE,
    ASHLAR_ENGINE_REDUCE_SCATTER, /* the rank's sums are left at the beginning of `data` */
    ASHLAR_ENGINE_ALL_GATHER,
    ASHLAR_ENGINE_REDUCE,
} ashlar_engine_collective;

/* An operation that was begun and has not been seen to end. */
typedef struct ashlar_engine_request {
    _Alignas(16) char bytes[ASHLAR_ENGINE_REQUEST_BYTES];
} ashlar_engine_request;

typedef struct ashlar_engine {
    uint32_t version; /* ASHLAR_ENGINE_VERSION */
    /* Join the other processes. Once per process. *self is for the other functions. */
    const char *(*start)(void **self, size_t *rank, size_t *count);
    void (*stop)(void *self);              /* waits for the others to stop, too */
    void (*abort)(void *self, int status); /* ends this process and all others */
    /* NULL, or: when it returns nobody looks at this rank's memory any more, nor will. */
    void (*give_up)(void *self);

    const char *(*send)(void *self, size_t to, ashlar_engine_message kind, const void *data,
                        size_t bytes, ashlar_engine_request *request);
    const char *(*receive)(void *self, size_t from, ashlar_engine_message kind, void *data,
                           size_t bytes, ashlar_engine_request *request);
    /* In place, as reduce.h says but for REDUCE_SCATTER; `root` is for BROADCAST and REDUCE.
     * `elements` at most ASHLAR_ENGINE_ELEMENTS, and of the two with shards that for each rank. */
    const char *(*collect)(void *self, ashlar_engine_collective kind, void *data, size_t elements,
                           ashlar_dtype dtype, size_t root, ashlar_engine_request *request);
    /* Go on with all that was begun. */
    const char *(*test)(void *self, ashlar_engine_request *request, bool *is_done);
} ashlar_engine;

enum { ASHLAR_ENGINE_ELEMENTS = 1 << 28 };

/* The one function that such a library exports. */
#define ASHLAR_ENGINE_SYMBOL "ashlar_ranks_engine"
typedef const ashlar_engine *ashlar_engine_fn(void);

#endif /* ASHLAR_RANKS_ENGINE_H */
