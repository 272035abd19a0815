/* step_record.h - what steps take from their allocator: each buffer of the largest step, and how
 * much each step held (internal). */
#ifndef ASHLAR_STEP_RECORD_H
#define ASHLAR_STEP_RECORD_H

#include "rnn/model/model.h"

/* A buffer of a step. Each take and each give of the step is a moment, counted from 0. The buffer
 * is held in the moments taken .. given - 1. */
typedef struct ashlar_step_box {
    const char *name;
    ashlar_tag tag;
    uintptr_t address;
    size_t bytes;
    size_t taken, given;
} ashlar_step_box;

/* The most boxes of a step. */
enum { ASHLAR_STEP_BOXES = 2000 };

typedef struct ashlar_step_boxes {
    ashlar_step_box list[ASHLAR_STEP_BOXES];
    size_t count;
    size_t left_out; /* buffers beyond these */
    size_t moments;
    size_t backward; /* the first moment of the backward pass; `moments` if there was none */
    uint64_t live_bytes, peak_bytes;
} ashlar_step_boxes;

/* How much device memory a training step held and had at most. */
typedef struct ashlar_step_held {
    size_t step;
    uint64_t live_bytes; /* with what lasts, such as the weights */
    uint64_t reserved_bytes;
    double seconds; /* on the host, from the step before until this one was queued */
} ashlar_step_held;

typedef struct ashlar_step_record ashlar_step_record;

/* Make a record, with hooks that fill it and pass every call on to the hooks `from`, which must
 * outlive the record; NULL: to the allocator. The thread that trains calls them. Errors:
 * ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__step_record_create(const ashlar_buffer_hooks *from,
                                                           ashlar_step_record **out);
void ashlar__step_record_destroy(ashlar_step_record *record); /* NULL is allowed */
const ashlar_buffer_hooks *ashlar__step_record_hooks(const ashlar_step_record *record);

/* The largest training step so far; before the first one, the largest step of the warm-up. */
const ashlar_step_boxes *ashlar__step_record_largest(const ashlar_step_record *record);

/* All training steps so far, unless host memory ran out: then the first ones. */
const ashlar_step_held *ashlar__step_record_held(const ashlar_step_record *record, size_t *count);

#endif /* ASHLAR_STEP_RECORD_H */
