/* task.h - a task: a model and its source of batches, behind one interface; the training loop
 * knows neither (internal).
 *
 * A batch goes from the batch sampler to the gradients in three stages:
 *
 *     next      drawn into page-locked memory, one of two buffers    on the host
 *     upload    copied to that buffer's device memory                on any stream, even if the
 *                                                                    steps run on another
 *     step      forward and backward of one part of it               on the steps' stream
 *
 * Most batches have one part. Truncated back-propagation splits a batch into several, each with its
 * own update of the weights. The loop clears gradients and losses before each part and updates the
 * weights after it; a step only ADDS to gradients and losses.
 *
 * The loop orders the uses of a buffer: it draws into a buffer only after all work queued on the
 * buffer's last batch has run, and it makes each step wait for the upload of its batch.
 *
 * Threads: one at a time per task. */
#ifndef ASHLAR_TASK_H
#define ASHLAR_TASK_H

#include <ashlar/arena.h>

#include "allocator/base/json.h"
#include "rnn/data/batch_sampler.h"
#include "rnn/model/model.h"

enum { ASHLAR_TASK_BUFFERS = 2, ASHLAR_TASK_BLOCKS = 2, ASHLAR_TASK_DATA_BYTES = 128 };

typedef struct ashlar_task ashlar_task;
struct ashlar_metadata;

/* A batch that was drawn. */
typedef struct ashlar_task_batch {
    size_t length; /* of its longest sequence, 1 .. task->max_length */
    size_t tokens; /* of all parts */
    size_t parts;  /* 1 .. task->max_parts */
    double epoch;  /* epochs handed out so far, this batch included */
} ashlar_task_batch;

/* A part of a batch. */
typedef struct ashlar_task_part {
    size_t length; /* time steps, 1 .. task->max_part_length; sizes of buffers depend on it */
    size_t tokens; /* the part's loss is the mean over these, those of other ranks included */
} ashlar_task_part;

/* What an option saves, given as the peak memory that a step would need without the option. */
typedef struct ashlar_task_saving {
    const char *option; /* its name on the command line, without dashes */
    size_t value;       /* the option's value */
    uint64_t bytes;     /* the peak without it */
} ashlar_task_saving;

enum { ASHLAR_TASK_SAVINGS_MAX = 4 };

/* What differs from step to step besides the batch itself. It is copied to device memory with the
 * batch where steps are padded (step_fixed.h), and read there. */
typedef struct ashlar_step_values {
    double rate;      /* the learning rate */
    uint64_t seed;    /* added to the seeds of parts */
    double weights[]; /* [parts] 1 / the part's tokens */
} ashlar_step_values;

typedef struct ashlar_task_table {
    /* Build the model in device memory: the arena with `regions`, initial weights, buffers. The
     * work is queued on `stream`, as that of all steps is. Sets task->arena. Call it by
     * ashlar__task_open(), and ashlar__task_close() after a failure too. */
    ashlar_status (*open)(ashlar_task *task, ashlar_stream stream, unsigned regions);
    void (*close)(ashlar_task *task);   /* destroy the model, if there is one */
    void (*destroy)(ashlar_task *task); /* the task must be closed, or never have been opened */

    /* Draw the next batch into a buffer. */
    ashlar_task_batch (*next)(ashlar_task *task, size_t buffer);
    /* Make a batch for the warm-up: all its sequences have `length` time steps. */
    void (*make_dummy)(ashlar_task *task, size_t buffer, size_t length);
    ashlar_task_part (*part)(const ashlar_task *task, size_t buffer, size_t index);

    ashlar_status (*upload)(ashlar_task *task, size_t buffer, ashlar_stream stream);
    /* Queue forward and backward of a part of task->shard: add gradients, times *task->loss_scale,
     * to the arena's gradient region, and its share of the mean loss to *loss in device memory.
     * Give back all buffers, also on failure. Parts are queued in order; the weights change between
     * them. With task->values, the calls and their arguments depend only on the batch's padded
     * shape and its buffer.
     *
     * seed   for random draws such as dropout */
    ashlar_status (*step)(ashlar_task *task, size_t buffer, size_t index, uint64_t seed,
                          double *loss);
    /* Take and give back the buffers of the steps on all of this rank's shards of a part of
     * `length`, in the steps' order. */
    ashlar_status (*dry_run)(ashlar_task *task, size_t length);

    /* Queue a restart, from `seed`, of random sequences that go on from step to step: those of
     * cuDNN's dropout. */
    ashlar_status (*restart_dropout)(ashlar_task *task, uint64_t seed);

    /* Compute the peak memory of the largest step and, for each of the *count options in use that
     * lower it, the peak without that option. The function pointer may be NULL: not known. Errors:
     * ASHLAR_EOVERFLOW. */
    ashlar_status (*savings)(const ashlar_task *task, uint64_t *bytes,
                             ashlar_task_saving savings[static ASHLAR_TASK_SAVINGS_MAX],
                             size_t *count);

    /* Add every option (task_options.h). */
    void (*list_options)(const ashlar_task *task, struct ashlar_metadata *metadata);
    /* Print sizes and a checksum of the data: a training is resumed only on the same data. */
    void (*describe_data)(const ashlar_task *task, char text[static ASHLAR_TASK_DATA_BYTES]);

    /* Add the results of tests that followed the training. The pointer may be NULL: no results. */
    void (*put_results)(const ashlar_task *task, ashlar_json_writer *writer);
} ashlar_task_table;

/* The first member of every task's own struct. */
struct ashlar_task {
    const ashlar_task_table *table;
    const char *unit;              /* what a token is, in reports; NULL: a "symbol" */
    size_t max_length;             /* of a batch, in time steps */
    size_t max_part_length;        /* of a part, in time steps; lengths up to this are warmed up */
    size_t max_parts;              /* of a batch */
    size_t batch;                  /* sequences per batch, on all ranks together */
    size_t shard;                  /* which of this rank's shards (shards.h) a step computes, 0..;
                                    * set by the trainer before each step */
    bool drops_alone; /* dropout sees this rank's sequences alone, with the rank's own seeds; set by
                       * the trainer */
    size_t sequences;              /* sequences per epoch */
    ashlar_arena *arena;           /* while open; the task owns it */
    const double *loss_scale;      /* in device memory; set by the trainer before the first step */
    const size_t *padded; /* [max_length + 1] the length that batches of a length are padded to; set
                           * by the trainer before the first is drawn; NULL: none is padded */
    const ashlar_step_values
        *values[ASHLAR_TASK_BUFFERS]; /* in device memory; NULL unless padded */
    ashlar_buffer_source source;      /* of the steps' buffers */
    const char *cannot_pad;        /* why steps cannot be padded; NULL: they can. Set by open() */
    ashlar_batch_sampler *sampler; /* of all batches; its position is the task's */
    char data[ASHLAR_TASK_DATA_BYTES]; /* what describe_data() printed; "": not asked for yet */
    ashlar_allocator *allocator;       /* this and the rest: while open */
    void *host;                        /* page-locked */
    void *blocks[ASHLAR_TASK_BLOCKS];  /* device memory */
};

/* Open a task. ashlar__task_close() gives back all that was taken, also after a failure, or if the
 * task was never opened; no work may be running. */
ASHLAR_MUST_CHECK ashlar_status ashlar__task_open(ashlar_task *task, ashlar_allocator *allocator,
                                                  ashlar_stream stream, unsigned regions);
void ashlar__task_close(ashlar_task *task);

/* For open(): take task->host; take task->blocks[i]. */
ASHLAR_MUST_CHECK ashlar_status ashlar__task_take_host(ashlar_task *task, size_t bytes);
ASHLAR_MUST_CHECK ashlar_status ashlar__task_take_block(ashlar_task *task, size_t i, size_t bytes,
                                                        ashlar_tag tag, ashlar_stream stream);

#endif /* ASHLAR_TASK_H */
