/*
 * task.h - a task: a model and its source of batches, behind one interface; the training loop
 * knows neither (internal).
 *
 * The way of a batch from the batch sampler to the gradients:
 *
 *     next      drawn into page-locked memory, one of two buffers    on the host
 *     upload    copied to that buffer's device memory                on a stream that may differ
 *                                                                    from the steps'
 *     step      forward and backward of one part of it               on the steps' stream
 *
 * Most batches have one part. Truncated back-propagation splits a batch into several, each with an
 * update of the weights. The loop clears gradients and losses before each part and updates the
 * weights after it; a step only ADDS to both.
 *
 * The loop orders uses of a buffer: it draws into it only once everything queued with its last
 * batch has run, and makes a step wait for its upload.
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

/* What an option saves: the peak memory of a step without it. */
typedef struct ashlar_task_saving {
    const char *option; /* as the command line has it */
    size_t value;
    uint64_t bytes;
} ashlar_task_saving;

enum { ASHLAR_TASK_SAVINGS_MAX = 4 };

typedef struct ashlar_task_table {
    /*
     * Build the model in device memory: the arena with these regions, initial weights, buffers. All
     * is queued on `stream`, on which all steps run. Sets task->arena. The caller calls close()
     * after a failure too.
     */
    ashlar_status (*open)(ashlar_task *task, ashlar_allocator *allocator, ashlar_stream stream,
                          unsigned regions);
    void (*close)(ashlar_task *task);   /* give back what open took; no work is running */
    void (*destroy)(ashlar_task *task); /* closed, or never opened */

    /* Draw the next batch into a buffer. */
    ashlar_task_batch (*next)(ashlar_task *task, size_t buffer);
    /* Make a batch of one part for the warm-up, all its sequences of that length. */
    void (*make_dummy)(ashlar_task *task, size_t buffer, size_t length);
    ashlar_task_part (*part)(const ashlar_task *task, size_t buffer, size_t index);

    ashlar_status (*upload)(ashlar_task *task, size_t buffer, ashlar_stream stream);
    /*
     * Queue forward and backward of a part: add gradients, times *task->loss_scale, to the arena's
     * gradient region, and the mean loss to *loss in device memory. Give back all buffers, also on
     * failure. Parts come in order; the weights change between them.
     *
     * seed   of random draws such as dropout's
     */
    ashlar_status (*step)(ashlar_task *task, size_t buffer, size_t index, uint64_t seed,
                          double *loss);
    /* Take and give back the buffers of a step on a part of that length, in the step's order. */
    ashlar_status (*dry_run)(ashlar_task *task, size_t length);

    /*
     * Compute the peak memory of the largest step, and what it would be without each option in use
     * that lowers it (*count of them). NULL: not known. Errors: ASHLAR_EOVERFLOW.
     */
    ashlar_status (*savings)(const ashlar_task *task, uint64_t *bytes,
                             ashlar_task_saving savings[static ASHLAR_TASK_SAVINGS_MAX],
                             size_t *count);

    /* Tell a listener of every option (task_options.h). */
    void (*list_options)(const ashlar_task *task, ashlar_task_listener *listener);
    /* Describe the data by a checksum: a training goes on with the same data only. */
    void (*add_data)(ashlar_task *task, ashlar_metadata *metadata);
    /* Describe the batch sampler's position. Skipping `batches` batches from the beginning leads to
     * the same position as drawing them. */
    void (*position)(const ashlar_task *task, ashlar_metadata *metadata);
    void (*skip)(ashlar_task *task, uint64_t batches);

    /* Add what was found out about the model after its run; NULL: nothing. */
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
    ashlar_arena *arena;      /* while open; the task owns it */
    const double *loss_scale; /* device memory; the loop sets it before the first step */
};

#endif /* ASHLAR_TASK_H */
