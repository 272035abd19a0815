/*
 * task.h - a task: a model and its source of batches, behind one interface; the training loop
 * knows neither (internal).
 *
 * Where a batch is on its way from the batch sampler to the gradients:
 *
 *     next      drawn into page-locked memory, one of two buffers    on the host
 *     upload    copied to that buffer's device memory                on a stream that may be
 *                                                                    another one than the steps'
 *     step      forward and backward of one part of it               on the steps' stream
 *
 * Most batches have one part. A batch of several is as many steps of the optimizer, one after the
 * other: that is how back-propagation is truncated. The loop clears gradients and losses before
 * each part, and updates the weights behind it; a step only ADDS to both.
 *
 * The loop orders what shares a buffer: it draws into one only when everything that was queued with
 * its last batch has run, and queues a step behind its upload.
 *
 * Threads: one at a time per task.
 */
#ifndef ASHLAR_TASK_H
#define ASHLAR_TASK_H

#include <ashlar/arena.h>

#include "allocator/base/json.h"

enum { ASHLAR_TASK_BUFFERS = 2 };

typedef struct ashlar_task ashlar_task;
typedef struct ashlar_task_listener ashlar_task_listener; /* task_options.h */
typedef struct ashlar_metadata ashlar_metadata;           /* task_options.h */

/* A batch that was drawn. */
typedef struct ashlar_task_batch {
    size_t length; /* of its longest sequence, 1 .. task->max_length */
    size_t tokens; /* of all parts */
    size_t parts;  /* 1 .. task->max_parts */
    double epoch;  /* handed out so far, this batch included, in epochs */
} ashlar_task_batch;

/* A part of it. */
typedef struct ashlar_task_part {
    size_t length; /* what its buffers depend on, 1 .. task->max_part_length */
    size_t tokens; /* its loss is the mean over them */
} ashlar_task_part;

/* What an option is for: the memory of a step at its peak would be so much without it. */
typedef struct ashlar_task_saving {
    const char *option; /* as the command line has it */
    size_t value;
    uint64_t bytes;
} ashlar_task_saving;

enum { ASHLAR_TASK_SAVINGS_MAX = 4 };

typedef struct ashlar_task_table {
    /*
     * Build the model in device memory: the arena with these regions, weights at their initial
     * values, and what a buffer needs. All is queued on `stream`, which is that of all steps. Sets
     * task->arena. After a failure, close is called.
     */
    ashlar_status (*open)(ashlar_task *task, ashlar_allocator *allocator, ashlar_stream stream,
                          unsigned regions);
    void (*close)(ashlar_task *task);   /* give back what open took; nothing is running then */
    void (*destroy)(ashlar_task *task); /* after close, or never opened */

    /* Draw the next batch into a buffer. */
    ashlar_task_batch (*next)(ashlar_task *task, size_t buffer);
    /* A dummy batch of one part of that length, all sequences as long, for the warm-up. */
    void (*make_dummy)(ashlar_task *task, size_t buffer, size_t length);
    ashlar_task_part (*part)(const ashlar_task *task, size_t buffer, size_t index);

    ashlar_status (*upload)(ashlar_task *task, size_t buffer, ashlar_stream stream);
    /*
     * Queue forward and backward of a part: gradients, times *task->loss_scale, are added to the
     * arena's gradient region, the mean loss to *loss in device memory. All buffers it takes, it
     * gives back, also when it fails. Parts come in their order; the weights change in between.
     *
     * seed   of what the step draws, such as dropout
     */
    ashlar_status (*step)(ashlar_task *task, size_t buffer, size_t index, uint64_t seed,
                          double *loss);
    /* Take and give back what the step of a part of that length does, in its order. */
    ashlar_status (*dry_run)(ashlar_task *task, size_t length);

    /*
     * Computed, not measured: the memory of the largest step at its peak, and for each option in
     * use that lowers it what it would be without; *count of them. NULL: nothing is to be
     * said. Errors: ASHLAR_EOVERFLOW.
     */
    ashlar_status (*savings)(const ashlar_task *task, uint64_t *bytes,
                             ashlar_task_saving savings[static ASHLAR_TASK_SAVINGS_MAX],
                             size_t *count);

    /* Tell one who asks of every option that concerns it (task_options.h). */
    void (*list_options)(const ashlar_task *task, ashlar_task_listener *listener);
    /* What the data is, told by a sum: it must be the same for a training to go on. */
    void (*add_data)(ashlar_task *task, ashlar_metadata *metadata);
    /* Where the batch sampler is. A sampler that passes over `batches` batches from its beginning
     * has the same place as one that handed them out. */
    void (*position)(const ashlar_task *task, ashlar_metadata *metadata);
    void (*skip)(ashlar_task *task, uint64_t batches);

    /* Add what was found out about the model after its run; NULL: nothing was. */
    void (*put_results)(const ashlar_task *task, ashlar_json_writer *writer);
} ashlar_task_table;

/* The head of every task. */
struct ashlar_task {
    const ashlar_task_table *table;
    const char *unit;       /* what a token is, in reports; NULL: a "symbol" */
    size_t max_length;      /* of a sequence of the batch sampler */
    size_t max_part_length; /* what is warmed up */
    size_t max_parts;
    size_t batch;             /* sequences of a batch */
    size_t sequences;         /* of an epoch */
    ashlar_arena *arena;      /* while it is open: the task's, watched by the loop */
    const double *loss_scale; /* device memory; the loop sets it before the first step */
};

#endif /* ASHLAR_TASK_H */
