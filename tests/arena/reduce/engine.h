/*
 * engine.h - the world of the tests' engine for ranks.h: memory that a test's processes share, and
 * what they want to go wrong in it.
 */
#ifndef ASHLAR_TESTS_ENGINE_H
#define ASHLAR_TESTS_ENGINE_H

#include <stdatomic.h>

#include "arena/reduce/ranks_engine.h"

enum {
    ENGINE_RANKS = 4,
    ENGINE_MESSAGES = 4,
    ENGINE_BYTES = 1 << 20, /* of the longest message, and of what a collective may have */
    ENGINE_CALLS = 64,
};

/* What an engine is asked to do. */
typedef enum engine_act {
    ENGINE_START,
    ENGINE_SEND,
    ENGINE_RECEIVE,
    ENGINE_COLLECT,
    ENGINE_TEST,
    ENGINE_ACTS
} engine_act;

/* A collective that was begun. */
typedef struct engine_call {
    ashlar_engine_collective kind;
    void *data;
    size_t elements, root;
    ashlar_dtype dtype;
} engine_call;

/* A message on its way: one at a time for each kind and pair of ranks. */
typedef struct engine_slot {
    atomic_bool is_full;
    size_t bytes;
    char data[ENGINE_BYTES];
} engine_slot;

typedef struct engine_world {
    size_t count;
    uint32_t version;
    engine_slot slots[ENGINE_MESSAGES][ENGINE_RANKS][ENGINE_RANKS]; /* of kind, from, to */
    _Atomic uint64_t posted[ENGINE_RANKS], read[ENGINE_RANKS];      /* collectives of each rank */
    char data[ENGINE_RANKS][ENGINE_BYTES];
    atomic_uint arrived; /* at engine_meet() */
    atomic_uint stopped;
    atomic_int aborted[ENGINE_RANKS]; /* with which status; 0: not */
    /* What goes wrong: */
    size_t failing_rank;
    int fails_at[ENGINE_ACTS]; /* the n-th call from now on of that rank; 0: none */
    bool is_dry;               /* collectives are noted, and over at once */
    bool is_stuck;             /* collectives never end */
    bool is_quick;             /* the clock runs fast from the first collective on */
    atomic_bool is_collecting;
    size_t deaf_rank; /* gets no message of deaf_kind: they stay on their way */
    int deaf_kind;    /* -1: none */
} engine_world;

/* A process's own: */
typedef struct engine_self {
    engine_world *world;
    size_t rank;
    engine_call calls[ENGINE_CALLS]; /* the first ones */
    size_t call_count;
} engine_self;

/* What the library exports beside the engine. */
#define ENGINE_SELF "engine_own"
typedef engine_self *engine_self_fn(void);

#endif /* ASHLAR_TESTS_ENGINE_H */
