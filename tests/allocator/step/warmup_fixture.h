/*
 * warmup_fixture.h - a made-up training step whose sizes go up and down with the length, on several
 * streams, as a step that writes and verifies what it takes, and as its rehearsal.
 */
#ifndef ASHLAR_WARMUP_FIXTURE_H
#define ASHLAR_WARMUP_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include <ashlar/plan.h>

#include "allocator/base/error.h"

enum { LENGTH_MIN = 3, LENGTH_MAX = 40, LAYERS_MAX = 12, CALLS_MAX = 4096 };

#define CACHE_BYTES (64 * MIB)

typedef struct call {
    size_t length;
    bool is_step; /* else a rehearsal */
} call;

/* What the step is like, and what was called so far. */
static struct program {
    size_t stream_count;
    size_t scale;       /* of all sizes */
    bool grows;         /* longer steps have more layers */
    bool is_idle;       /* a real step queues nothing either */
    bool leaks;         /* a block outlives the step */
    size_t extra_bytes; /* of the work of a real step: what its rehearsal did not say */
    size_t fail_at;     /* this call fails, from 1 */
    ashlar_status failure;
    void (*visit)(const call *now); /* called first, unless NULL */
    call calls[CALLS_MAX];
    size_t call_count;
    size_t alloc_count;
    void *leaked[CALLS_MAX];
    size_t leaked_count;
} program;

static inline void program_init(size_t stream_count) {
    memset(&program, 0, sizeof program);
    program.stream_count = stream_count;
    program.scale = 1;
}

static inline size_t layers_of(size_t length) {
    return program.grows ? 2 + length / 8 : 4;
}

/* In proportion to the length; and as a back end's workspace is, which is largest anywhere. */
static inline size_t kept_bytes(size_t layer, size_t length) {
    return (length * 3000 + layer * 5000 + 1) * program.scale;
}

static inline size_t work_bytes(size_t layer, size_t length) {
    return ((length * 7 + layer * 3) % 16 * 40000 + 700) * program.scale;
}

/* A block, written at once if there is work. */
static inline ashlar_status take_for(bool works, size_t bytes, ashlar_tag tag, size_t layer,
                                     void **out) {
    const ashlar_stream stream = streams[layer % program.stream_count];
    const ashlar_status status = ashlar_alloc_tagged(allocator, bytes, tag, stream, out);
    program.alloc_count += status == ASHLAR_OK;
    if (status == ASHLAR_OK && works) {
        queue_write(stream, *out, bytes, (unsigned char)(layer + 1));
    }
    return status;
}

static inline ashlar_status give_back(bool works, void **ptr, size_t bytes, size_t layer) {
    void *block = *ptr;
    *ptr = NULL;
    if (works && block != NULL) {
        const ashlar_stream stream = streams[layer % program.stream_count];
        queue_verify(stream, block, bytes, (unsigned char)(layer + 1));
    }
    return ashlar_free(allocator, block);
}

static inline ashlar_status work_once(bool works, size_t layer, size_t length) {
    void *work = NULL;
    const size_t bytes = work_bytes(layer, length) + (works ? program.extra_bytes : 0);
    const ashlar_status status = take_for(works, bytes, ASHLAR_TAG_WORKSPACE, layer, &work);
    return status == ASHLAR_OK ? give_back(works, &work, bytes, layer) : status;
}

static inline ashlar_status run_layers(bool works, size_t length, void **kept) {
    ashlar_status status = ASHLAR_OK;
    const size_t layers = layers_of(length);
    for (size_t i = 0; i < layers && status == ASHLAR_OK; i++) {
        status = take_for(works, kept_bytes(i, length), ASHLAR_TAG_ACTIVATIONS, i, &kept[i]);
        status = status == ASHLAR_OK ? work_once(works, i, length) : status;
    }
    for (size_t i = layers; i-- > 0 && status == ASHLAR_OK;) {
        status = work_once(works, i, length);
        status = status == ASHLAR_OK ? give_back(works, &kept[i], kept_bytes(i, length), i)
                                     : status;
    }
    return status;
}

static inline ashlar_status run_program(bool is_step, size_t length) {
    void *kept[LAYERS_MAX] = {0};
    ashlar_status status = ASHLAR_OK;
    const bool works = is_step && !program.is_idle;
    const call now = {length, is_step};
    if (program.visit != NULL) {
        program.visit(&now);
    }
    if (program.call_count < CALLS_MAX) {
        program.calls[program.call_count++] = now;
    }
    if (program.leaks) {
        void **leaked = &program.leaked[program.leaked_count++];
        status = take_for(false, 100, ASHLAR_TAG_USER, 0, leaked);
    }
    if (status == ASHLAR_OK) {
        status = run_layers(works, length, kept);
    }
    for (size_t i = 0; i < LAYERS_MAX; i++) { /* what a failure left */
        CHECK(ashlar_free(allocator, kept[i]) == ASHLAR_OK);
    }
    return program.call_count == program.fail_at
               ? ashlar_error_set(program.failure, "the program's own words")
               : status;
}

static inline ashlar_status made_step(void *user, size_t length) {
    CHECK(user == &program);
    return run_program(true, length);
}

static inline ashlar_status made_rehearsal(void *user, size_t length) {
    CHECK(user == &program);
    return run_program(false, length);
}

static inline ashlar_warmup_options made_options(void) {
    return (ashlar_warmup_options){.stream = streams[0],
                                   .min_length = LENGTH_MIN,
                                   .max_length = LENGTH_MAX,
                                   .key = 70,
                                   .step = made_step,
                                   .dry_run = made_rehearsal,
                                   .user = &program};
}

/* A step as after the warm-up. */
static inline void run_later(const ashlar_warmup_options *o, size_t length) {
    CHECK(ashlar_step_begin(allocator, o->stream, ashlar_warmup_key(o, length)) == ASHLAR_OK);
    CHECK(run_program(true, length) == ASHLAR_OK);
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
}

static inline ashlar_plan_stats plans(void) {
    ashlar_plan_stats stats;
    ashlar_plan_get_stats(allocator, &stats);
    return stats;
}

static inline void wait_for_all(void) {
    for (int i = 0; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
}

#endif /* ASHLAR_WARMUP_FIXTURE_H */
