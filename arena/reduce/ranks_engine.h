/* ranks_engine.h - the engine, a table of functions by which ranks exchange messages and run
 * collectives on the host: one begins an operation, another asks whether it has ended (internal).
 *
 * An engine is a library that is loaded at run time; there is one for each MPI, since their binary
 * interfaces differ. It calls nothing of ashlar, of which the program may have a static or a shared
 * copy. A function that fails returns a text that says why, else NULL. Threads: any, one at a time.
 */
#ifndef ASHLAR_RANKS_ENGINE_H
#define ASHLAR_RANKS_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

enum { ASHLAR_ENGINE_VERSION = 4, ASHLAR_ENGINE_REQUEST_BYTES = 32 };

/* Messages of one kind between two ranks arrive in the order in which they were sent. */
typedef enum ashlar_engine_message {
    ASHLAR_MESSAGE_WORD,   /* to rank 0: which collective the sender is about to run */
    ASHLAR_MESSAGE_ANSWER, /* from rank 0: whether all ranks are about to run the same one */
    ASHLAR_MESSAGE_DATA,
    ASHLAR_MESSAGE_HERE, /* to rank 0, if a collective does not end: the sender waits for it, too */
} ashlar_engine_message;

typedef enum ashlar_engine_collective {
    ASHLAR_ENGINE_BROADCAST,
    ASHLAR_ENGINE_ALL_REDUCE,
    ASHLAR_ENGINE_REDUCE_SCATTER, /* the rank's sums are left at the beginning of `data` */
    ASHLAR_ENGINE_ALL_GATHER,
} ashlar_engine_collective;

/* An operation that was begun, until test() reports its end. */
typedef struct ashlar_engine_request {
    _Alignas(16) char bytes[ASHLAR_ENGINE_REQUEST_BYTES];
} ashlar_engine_request;

typedef struct ashlar_engine {
    uint32_t version; /* ASHLAR_ENGINE_VERSION */
    /* Join the other processes; once per process. *rank, *count: its number, and how many joined */
    const char *(*start)(size_t *rank, size_t *count);
    void (*stop)(void);        /* leave the other processes; waits until they leave, too */
    void (*abort)(int status); /* end this process and all others with this exit status */

    const char *(*send)(size_t to, ashlar_engine_message kind, const void *data, size_t bytes,
                        ashlar_engine_request *request);
    const char *(*receive)(size_t from, ashlar_engine_message kind, void *data, size_t bytes,
                           ashlar_engine_request *request);
    /* In place, as reduce.h says, except for the place of REDUCE_SCATTER's result (see above).
     * `root` is for BROADCAST. `elements` is at most ASHLAR_ENGINE_ELEMENTS; for
     * REDUCE_SCATTER and ALL_GATHER, at most that many for each rank. */
    const char *(*collect)(ashlar_engine_collective kind, void *data, size_t elements,
                           ashlar_dtype dtype, size_t root, ashlar_engine_request *request);
    /* Let begun operations make progress; *is_done: whether that of `request` has ended. */
    const char *(*test)(ashlar_engine_request *request, bool *is_done);
} ashlar_engine;

enum { ASHLAR_ENGINE_ELEMENTS = 1 << 28 };

/* The one function that an engine's library exports. */
#define ASHLAR_ENGINE_SYMBOL "ashlar_ranks_engine"
typedef const ashlar_engine *ashlar_engine_fn(void);

#endif /* ASHLAR_RANKS_ENGINE_H */
