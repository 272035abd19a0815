/* engine.h - a model as a list of operations on tensors; the table of a walk over that list, which
 * says what each phase does and when each buffer is live (internal). */
#ifndef ASHLAR_ENGINE_H
#define ASHLAR_ENGINE_H

#include <ashlar/model.h>

#include "allocator/base/error.h"
#include "allocator/device/away.h"
#include "rnn/engine/tiers.h"

#define ASHLAR_NO_INDEX SIZE_MAX

typedef struct ashlar_node ashlar_node;

struct ashlar_tensor {
    ashlar_model *model;
    const char *name;  /* the input's, or its operation's */
    ashlar_node *node; /* the operation that makes it; NULL: an input */
    size_t index;      /* of all tensors */
    size_t output;     /* of the outputs; ASHLAR_NO_INDEX: not handed out */
    ashlar_axis axis;
    size_t width;      /* 0: int32 */
    size_t layers;     /* of states [layers, B, width / layers]; 0: an ordinary tensor */
    size_t directions; /* of the layers with such states */
};

/* A weight: a matrix or a vector, or the stack of a recurrent layer. */
typedef struct ashlar_model_weight {
    const char *name;
    ashlar_part_kind kind;
    size_t rows, width;              /* width 0: a vector */
    const ashlar_rnn_layout *layout; /* of a stack; else NULL */
    bool is_bias;                    /* drawn with the weight before it */
    bool is_frozen;
    bool is_elementwise; /* a row is a class's: Muon is to leave it to AdamW */
    size_t tensor;       /* its number in the arena, or its first tensor's */
    size_t tensor_count; /* 0 before commit */
} ashlar_model_weight;

/* An operation in a model, and the tensors it makes. */
struct ashlar_node {
    ashlar_operation operation;
    const char *name; /* for errors and lists: the layer's, or the operation's */
    size_t index;
    size_t input_count, output_count, weight_count;
    ashlar_tensor *inputs[ASHLAR_OPERATION_INPUTS];
    ashlar_tensor outputs[ASHLAR_OPERATION_OUTPUTS];
    size_t weights[ASHLAR_OPERATION_WEIGHTS]; /* numbers of the model's weights */
    const ashlar_model *body;                 /* of a loop; else NULL */
    double loss_factor;                       /* of a loss that a walk in chunks adds up; else 0 */
};

/* ---- the table of a walk ---- */

typedef struct ashlar_walk_phase {
    ashlar_node *node;
    ashlar_phase phase;
} ashlar_walk_phase;

/* Buffers that lie in the walk's block, live in the phases first .. last. One whose `home` is not
 * its own number lies where that one does, which is live as long as both. */
typedef struct ashlar_walk_buffer {
    const ashlar_tensor *tensor; /* of a value or gradient; else NULL */
    const ashlar_node *node;     /* whose it is; NULL: the walk's */
    const char *role;
    size_t first, last;
    size_t home;
    size_t pause, resume; /* of a home: the phases around its longest idle time; equal: none */
} ashlar_walk_buffer;

/* The phase in which an operation writes the gradients of its inputs. */
static inline ashlar_phase ashlar__walk_gradient_phase(const ashlar_node *node) {
    return node->operation.is_loss ? ASHLAR_PHASE_FORWARD : ASHLAR_PHASE_BACKWARD;
}

/* What becomes of the gradient of an input. */
typedef enum ashlar_gradient_use {
    ASHLAR_GRADIENT_NONE,  /* not wanted */
    ASHLAR_GRADIENT_FIRST, /* written */
    ASHLAR_GRADIENT_ADDED, /* written beside the others', and added to them */
} ashlar_gradient_use;

/* What a walk has of an operation: numbers of its phases and buffers, or ASHLAR_NO_INDEX. */
typedef struct ashlar_walk_node {
    bool is_needed, has_backward, has_weight_gradients;
    bool leads_to_loss;    /* a loss that counts has a gradient for its outputs */
    bool leads_to_carried; /* to states that go from one call to the next */
    size_t phases[ASHLAR_PHASE_COUNT];
    size_t kept, work[ASHLAR_PHASE_COUNT];
    size_t losses; /* in chunks: of each position of the batch */
    ashlar_gradient_use uses[ASHLAR_OPERATION_INPUTS];
    size_t beside[ASHLAR_OPERATION_INPUTS];
} ashlar_walk_node;

/* What a walk has of a tensor. */
typedef struct ashlar_walk_tensor {
    bool has_gradient, is_written; /* is_written: somebody has written it before */
    bool is_read;                  /* forward, by an operation that is needed */
    size_t value, gradient;
} ashlar_walk_tensor;

/* Which table: the walk, and what the caller wants of it. */
typedef struct ashlar_table_key {
    uint64_t walk; /* an ashlar_walk; no padding, for keys are compared as bytes */
    uint64_t outputs, input_gradients; /* bit i: the i-th is wanted */
    uint64_t is_cut;                   /* a training in chunks */
} ashlar_table_key;

/* The shape of a batch: all that sizes depend on. */
typedef struct ashlar_walk_shape {
    size_t batch, chunk;
    size_t steps[ASHLAR_AXIS_MAX];
    size_t lengths; /* bit i: the lengths of axis i lie in the walk's block */
    size_t memory;  /* bytes that the block may have, of a training; 0: the batch says nothing */
} ashlar_walk_shape;

/* Where a buffer lies. */
typedef struct ashlar_walk_place {
    size_t offset, bytes; /* 0 bytes: not needed */
    size_t kept_at;       /* is_kept: its offset in what is kept from before the split until behind
                           * it; that may be in the walk's block too, at `offset` (ashlar_walking) */
    bool is_kept;
    uint32_t move; /* 1 + the number of its move; 0: it stays */
} ashlar_walk_place;

/* A buffer that is on the host for a while, in a walk that is not cut: sent behind phase `pause`
 * of its buffer, whose place is free behind phase out_end, and fetched before phase back_begin. */
typedef struct ashlar_walk_move {
    size_t buffer;
    size_t pause, out_end, back_begin, resume; /* phases */
    size_t back_at;                            /* offset from then on */
    size_t host;                               /* offset there */
} ashlar_walk_move;

/* Offsets of the table's buffers for one shape. */
typedef struct ashlar_walk_plan {
    struct ashlar_walk_plan *next; /* in its bucket */
    ashlar_walk_shape shape;
    size_t bytes, bound;
    size_t kept_bytes; /* with a split: of what is used before it and behind it */
    size_t back_bytes; /* of a loop's body: for what is used behind the split; `bytes`: before */
    size_t slots_at, slot_count; /* of chunks: room for what so many others keep */
    size_t host_bytes;           /* page-locked, meanwhile */
    ashlar_walk_move *moves;     /* [move_count] in the order of `resume` */
    size_t move_count;
    ashlar_tiers_choice choice; /* of a walk with moves */
    size_t carried;     /* bytes of a set of carried states */
    size_t *carried_at; /* [nodes] offsets in it; in this block of memory, behind `places` */
    ashlar_walk_place places[]; /* [buffers] */
} ashlar_walk_plan;

enum {
    ASHLAR_PLAN_BUCKETS = 256,
    ASHLAR_PLANS_OF_BUCKET = 32, /* the newest; with the buckets, more lengths than a corpus has */
    ASHLAR_WALK_ALIGN = 256      /* bytes, of every buffer */
};

/* What becomes of what the chunks of a walk keep. */
typedef struct ashlar_walk_tiers {
    struct ashlar_walk_tiers *next;
    size_t batch, chunk, chunk_count, slot_count; /* of the walks */
    ashlar_tiers_choice choice;
    unsigned char of[]; /* [chunk_count] an ashlar_tier */
} ashlar_walk_tiers;

typedef struct ashlar_walk_table {
    struct ashlar_walk_table *next;
    ashlar_table_key key;
    ashlar_walk_phase *phases;
    size_t phase_count;
    size_t split; /* of a loop's body or of chunks in training: the first phase of the sweep from
                   * the last step, or chunk, to the first; else 0 */
    ashlar_walk_buffer *buffers;
    size_t buffer_count;
    ashlar_walk_node *nodes;                  /* [model->node_count] */
    ashlar_walk_tensor *tensors;              /* [model->tensor_count] */
    size_t lengths[ASHLAR_AXIS_MAX], borders; /* numbers of buffers */
    unsigned char *uses; /* [buffers, phases] while it is made: where a buffer is used */
    ashlar_walk_plan *plans[ASHLAR_PLAN_BUCKETS];
    ashlar_walk_tiers *tiers;
} ashlar_walk_table;

/* ---- the model ---- */

enum {
    ASHLAR_MODEL_OPERANDS = 64
}; /* at most so many inputs, and as many outputs: bits of a key */

typedef struct ashlar_model_tied {
    const char *tensor, *is;
    bool is_used; /* a layer has declared `tensor` since */
} ashlar_model_tied;

/* Values that a loss reads. */
typedef struct ashlar_model_constant {
    struct ashlar_model_constant *next;
    void *device; /* from the commit on */
    size_t bytes;
    char values[]; /* the same on the host, of the model's type */
} ashlar_model_constant;

struct ashlar_model {
    ashlar_model
        *root; /* the model whose weights these are: itself, or that around a loop's body */
    ashlar_device *device;
    ashlar_allocator *allocator;
    ashlar_ops *ops;
    void *ops_work; /* NULL: they need none */
    ashlar_dtype dtype;
    ashlar_arena *arena;
    bool is_committed;
    struct ashlar_loop *loop;         /* of a body; else NULL (loop.c) */
    ashlar_model *bodies, *next_body; /* the bodies of a model's loops */
    bool is_closed;                   /* a body whose loop has ended */
    ashlar_status status;             /* the first error of a declaration ... */
    char detail[ASHLAR_DETAIL_BYTES]; /* ... and its detail */
    ashlar_node **nodes;
    size_t node_count, node_capacity, tensor_count, input_count, output_count;
    size_t site_count, layer_count; /* of the root: dropouts, recurrent layers, also in bodies */
    size_t most_steps;              /* the least of the operations', 0: none has one */
    ashlar_tensor inputs[ASHLAR_MODEL_OPERANDS], *outputs[ASHLAR_MODEL_OPERANDS];
    ashlar_axis axis_count, within[ASHLAR_AXIS_MAX];
    size_t used_axes; /* bit i: a tensor lies on axis i or within it: batches have a length there */
    ashlar_model_weight *weights;
    size_t weight_count, weight_capacity;
    size_t declared_count; /* of the weights: in the arena */
    uint64_t option_changes; /* of the arena, when ashlar__model_check_frozen() looked last */
    char **texts;          /* names, as long as the model lives */
    size_t text_count, text_capacity;
    ashlar_model_tied *ties;
    size_t tie_count, tie_capacity;
    ashlar_model_constant *constants;
    ashlar_model_batch largest;   /* of the warm-up, during it */
    ashlar_warmup_options warmup; /* max_length 0: none; else walks are steps with its keys */
    void *prepared; /* copies of weights that walks read which do not train; NULL: none */
    bool prepares_bf16;
    ashlar_walk_table *tables;
    ashlar_away away;         /* of walks' buffers */
    ashlar_model_rates rates; /* of the root */
};

/* Make a model around `root`'s device and weights; NULL: a model with its own. */
ashlar_model *ashlar__model_new(ashlar_allocator *allocator, ashlar_dtype dtype,
                                ashlar_model *root);

/* Add an input. NULL after a failure. */
ashlar_tensor *ashlar__model_add_input(ashlar_model *model, const char *name, ashlar_axis axis,
                                       size_t width);

/* Keep a declaration's failure, unless one was kept before. */
void ashlar__model_fail(ashlar_model *model, ashlar_status status);

/* Whether declarations may go on with these tensors: the model has not failed, is not committed,
 * and they are its own. `what` names the operation in errors. NULL tensors without a failure are
 * one. The first `vectors` tensors must have vectors of the model's type, and be no sets of states.
 */
bool ashlar__model_accepts(ashlar_model *model, const char *what, ashlar_tensor *const *tensors,
                           size_t count, size_t vectors);

/* What an operation's functions get as `user`: a copy for ashlar__host_free(). NULL after a
 * failure, which is kept. */
void *ashlar__model_user(ashlar_model *model, const void *user, size_t bytes);

/* Add an operation, which is the model's from then on; the public ashlar_model_operation() is this
 * with checks. Returns NULL after a failure, also if the declarations have one already.
 *
 * layer     its name in errors; NULL: the operation's own
 * weights   their numbers, of ashlar__model_weight() */
ashlar_node *ashlar__model_add(ashlar_model *model, const ashlar_operation *operation,
                               const ashlar_operation_shape *shape, const char *layer,
                               const size_t *weights);

/* The same for one output, or none if it is a loss; NULL after a failure, and for a loss. */
ashlar_tensor *ashlar__model_one(ashlar_model *model, const ashlar_operation *operation,
                                 const char *layer, ashlar_tensor *const *inputs,
                                 size_t input_count, ashlar_axis axis, size_t width,
                                 const size_t *weights, size_t weight_count);

/* Declare a weight, or find the one of that name; ASHLAR_NO_INDEX after a failure. */
size_t ashlar__model_weight(ashlar_model *model, const ashlar_model_weight *weight);

/* Drop the tables, so that all are made anew. */
void ashlar__model_drop_tables(ashlar_model *model);

/* Whether optimizers leave alone what is frozen here: what a program set in the arena since may
 * have undone it. Errors: ASHLAR_EINVAL. */
ASHLAR_MUST_CHECK ashlar_status ashlar__model_check_frozen(ashlar_model *model);

/* Copy values that an operation reads as elements of the model's type. NULL after a failure. */
const ashlar_model_constant *ashlar__model_constant(ashlar_model *model, const double *values,
                                                    size_t count);

/* Give the copies back. Errors: those of ashlar_free(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__model_drop_prepared(ashlar_model *model);

/* Fail with a detail, for a declaration. */
#define ASHLAR_MODEL_FAIL(model, status, ...) \
    ashlar__model_fail((model), ashlar__fail((status), __VA_ARGS__))

/* Fail with ASHLAR_EINVAL if `condition` holds. The caller may go on: ashlar__model_add() adds
 * nothing then. */
#define ASHLAR_MODEL_FAIL_IF(model, condition, ...)                 \
    do {                                                            \
        if (condition) {                                            \
            ASHLAR_MODEL_FAIL((model), ASHLAR_EINVAL, __VA_ARGS__); \
        }                                                           \
    } while (0)

/* The table of a walk, made when it is first asked for. Errors: ASHLAR_EHOSTMEM, ASHLAR_EINVAL
 * (TRAIN without a loss, PREDICT without an output). */
ASHLAR_MUST_CHECK ashlar_status ashlar__walk_table_get(ashlar_model *model,
                                                       const ashlar_table_key *key,
                                                       ashlar_walk_table **out);
void ashlar__walk_table_destroy(ashlar_walk_table *table);

/* Its plan for a shape, packed when it is first asked for. Errors: those of ashlar_pack() and of
 * the operations' sizes(); ASHLAR_EOVERFLOW. */
ASHLAR_MUST_CHECK ashlar_status ashlar__walk_plan_get(ashlar_model *model, ashlar_walk_table *table,
                                                      const ashlar_walk_shape *shape,
                                                      const ashlar_walk_plan **out);

/* How long each axis is in a batch of this shape; lengths are NULL. */
void ashlar__walk_extents(const ashlar_model *model, const ashlar_walk_shape *shape,
                          ashlar_extent extents[ASHLAR_AXIS_MAX]);

/* Bytes of a tensor; SIZE_MAX: more than can be addressed. */
size_t ashlar__walk_tensor_bytes(const ashlar_tensor *tensor,
                                 const ashlar_extent extents[ASHLAR_AXIS_MAX]);

/* The tiers of the chunks of a training walk, chosen when they are first asked for. Errors: those
 * of ashlar__tiers_choose(). */
struct ashlar_walking;
ASHLAR_MUST_CHECK ashlar_status ashlar__walk_tiers_get(const struct ashlar_walking *walking,
                                                       const ashlar_walk_tiers **out);
ASHLAR_MUST_CHECK ashlar_status ashlar__walk_tiers_tell(const struct ashlar_walking *walking,
                                                        ashlar_model_tiers *out);

/* ---- a walk ---- */

typedef struct ashlar_walking {
    ashlar_model *model;
    ashlar_model_batch batch; /* ASHLAR_AXIS_TIME is among its axes, too */
    ashlar_walk_table *table;
    const ashlar_walk_plan *plan;
    ashlar_stream stream;
    char *block, *kept; /* where places lie; kept: those that are kept across the split. NULL: in
                         * the block */
    uint64_t seed;
    ashlar_extent extents[ASHLAR_AXIS_MAX]; /* of the whole batch; then of the present chunk */
    int32_t *clipped;                       /* [rows] host lengths of the present chunk */
    /* The present chunk; without chunks the only one. */
    size_t chunk, chunk_count, first_step;
    size_t phase;  /* the present one, where buffers move */
    bool is_early; /* its phases before the split alone; the states behind it are wanted */
} ashlar_walking;

/* A walk that is no step of the allocator by itself. */
ASHLAR_MUST_CHECK ashlar_status ashlar__model_walk(ashlar_model *model, ashlar_walk walk,
                                                   const ashlar_model_batch *batch,
                                                   ashlar_stream stream);

/* Where a buffer lies; NULL: it is not needed. */
static inline void *ashlar__walk_at(const ashlar_walking *w, size_t buffer) {
    const ashlar_walk_place *place = buffer == ASHLAR_NO_INDEX ? NULL : &w->plan->places[buffer];
    const ashlar_walk_move *move =
        place == NULL || place->move == 0 ? NULL : &w->plan->moves[place->move - 1];
    return place == NULL || place->bytes == 0             ? NULL
           : move != NULL && w->phase >= move->back_begin ? w->block + move->back_at
           : place->is_kept && w->kept != NULL            ? w->kept + place->kept_at
                                                          : w->block + place->offset;
}

/* Plan a training walk that is not cut in the memory of its shape, which is less than it takes; the
 * plan has its places without moves (moves.c). Errors: ASHLAR_ENOMEM, and those of ashlar_pack().
 * _least: the least memory of such a plan. _queue: queue such a walk (moves_walk.c). */
ASHLAR_MUST_CHECK ashlar_status ashlar__moves_plan(const ashlar_model *model,
                                                   const ashlar_walk_table *table,
                                                   ashlar_walk_plan *plan);
ASHLAR_MUST_CHECK ashlar_status ashlar__moves_least(const ashlar_walking *walking, size_t *bytes,
                                                    size_t *resident);
ASHLAR_MUST_CHECK ashlar_status ashlar__moves_queue(ashlar_walking *walking);

/* What phases take in a device's time, in nanoseconds; the rates of its copies (costs.c). */
uint64_t ashlar__walk_phases_ns(const ashlar_model *model, const ashlar_walk_table *table,
                                const ashlar_walk_plan *plan, size_t first, size_t end);
void ashlar__walk_copy_rates(const ashlar_model *model, ashlar_tiers_table *out);

/* Queue a walk of several chunks (chunks.c). */
ASHLAR_MUST_CHECK ashlar_status ashlar__walk_chunks(ashlar_walking *walking);

/* Queue the phases first .. end - 1. */
ASHLAR_MUST_CHECK ashlar_status ashlar__walk_queue(const ashlar_walking *walking, size_t first,
                                                   size_t end);

#endif /* ASHLAR_ENGINE_H */
