/* weights.h - a model's weights as one list: declared in an arena, bound to the model's views, and
 * drawn (internal). */
#ifndef ASHLAR_WEIGHTS_H
#define ASHLAR_WEIGHTS_H

#include <ashlar/arena.h>
#include <ashlar/model.h>
#include <ashlar/rnn.h>

/* A matrix [rows, cols], a bias [rows] or a stack of layers. */
typedef struct ashlar_weight {
    const char *name; /* of the tensor; of a stack: a prefix of the cell's name */
    size_t rank;      /* 2: a matrix, 1: a bias, 0: a stack */
    size_t rows, cols;
    const ashlar_rnn *stack;
    ashlar_part_kind kind;        /* how it is drawn; a bias goes with the weight before it */
    void **parameter, **gradient; /* the model's views */
} ashlar_weight;

enum { ASHLAR_WEIGHTS_MAX = 8 };

typedef struct ashlar_weights {
    ashlar_allocator *allocator;
    ashlar_stream stream;
    ashlar_dtype dtype;
    size_t count;
    ashlar_weight list[ASHLAR_WEIGHTS_MAX]; /* in the arena's order */
} ashlar_weights;

/* Create an arena of these weights, and bind the views. After a failure *arena is set, too, if the
 * arena was made by then; the caller destroys it. Errors: those of ashlar_arena_commit(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__weights_open(const ashlar_weights *weights,
                                                     unsigned regions, ashlar_arena **arena);

/* Draw all weights from `seed`, by ASHLAR_INIT_ASHLAR (<ashlar/model.h>). Stream: waits for it.
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__weights_draw(const ashlar_weights *weights,
                                                     ashlar_arena *arena, uint64_t seed);

#endif /* ASHLAR_WEIGHTS_H */
