/*
 * capacity_run.h - runs a drawn program on a software device, and finds the least one that it runs
 * on: for the test, and for the program that wrote the list it reads.
 */
#ifndef ASHLAR_CAPACITY_RUN_H
#define ASHLAR_CAPACITY_RUN_H

#include "tests/allocator/step/capacity_draw.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <ashlar/allocator.h>
#include <ashlar/plan.h>

#include "allocator/soft/soft.h"

enum {
    CAPACITY_ROUNDS = 20,
    CAPACITY_GRAIN_MIB = 2, /* the software device's granularity */
    CAPACITY_MOST_MIB = 4096,
    CAPACITY_TEXT = 512,
};

/*
 * Calls are counted over all rounds. The thread whose call is `next` makes it.
 * Invariant: next <= call_count; next == call_count when the run is over.
 */
typedef struct capacity_run {
    const program *p;
    ashlar_device *device;
    ashlar_allocator *allocator;
    ashlar_stream streams[DRAW_STREAMS];
    ashlar_event event;
    void *blocks[DRAW_BLOCKS]; /* NULL: not live */
    unsigned stream_of[DRAW_BLOCKS];
    size_t live_bytes, live_peak_bytes, bytes_of[DRAW_BLOCKS];
    size_t next, call_count;
    char failure[CAPACITY_TEXT]; /* "": none */
    pthread_mutex_t lock;
    pthread_cond_t turn;
} capacity_run;

static inline const call *next_call(const capacity_run *r) {
    const size_t setup = r->p->setup_count;
    return &r->p->calls[r->next < setup ? r->next
                                        : setup + (r->next - setup) % (r->p->count - setup)];
}

static inline bool note_failure(capacity_run *r, ashlar_status status) {
    if (status != ASHLAR_OK && r->failure[0] == '\0') {
        (void)snprintf(r->failure, sizeof r->failure, "call %zu of %zu: %s", r->next, r->call_count,
                       ashlar_error_detail());
    }
    return status == ASHLAR_OK;
}

static inline void do_nothing(void *args) {
    (void)args;
}

/* Work that is pending where the device is late; where it is not, it would be over at once. */
static inline bool queue_work(capacity_run *r, unsigned stream) {
    return !r->p->is_late ||
           note_failure(r, ashlar_launch(r->device, r->streams[stream], do_nothing, NULL, 0));
}

/* Work on `stream` from now on comes after that on `before`. */
static inline bool order_after(capacity_run *r, unsigned before, unsigned stream) {
    return note_failure(r, ashlar_event_record(r->device, r->event, r->streams[before])) &&
           note_failure(r, ashlar_stream_wait(r->device, r->streams[stream], r->event)) &&
           queue_work(r, stream);
}

static inline bool take_block(capacity_run *r, const call *c) {
    if (!note_failure(
            r, ashlar_alloc(r->allocator, c->bytes, r->streams[c->stream], &r->blocks[c->block]))) {
        return false;
    }
    r->stream_of[c->block] = c->stream;
    r->bytes_of[c->block] = c->bytes;
    r->live_bytes += c->bytes;
    if (r->live_bytes > r->live_peak_bytes) {
        r->live_peak_bytes = r->live_bytes;
    }
    return queue_work(r, c->stream);
}

static inline bool give_block(capacity_run *r, const call *c) {
    void *ptr = r->blocks[c->block];
    const unsigned stream = r->stream_of[c->block];
    if (ptr == NULL) {
        return true;
    }
    r->blocks[c->block] = NULL;
    r->live_bytes -= r->bytes_of[c->block];
    if (c->kind == CALL_GIVE) {
        return queue_work(r, stream) && note_failure(r, ashlar_free(r->allocator, ptr));
    }
    return order_after(r, stream, c->stream) &&
           note_failure(r, ashlar_free_on(r->allocator, ptr, r->streams[c->stream]));
}

/* A plan for which there is no memory is no failure: the step's blocks come by the ordinary path.
 */
static inline bool end_step(capacity_run *r) {
    const ashlar_status status = ashlar_step_end(r->allocator);
    return status == ASHLAR_ENOMEM || note_failure(r, status);
}

static inline bool make_call(capacity_run *r) {
    const call *c = next_call(r);
    switch (c->kind) {
    case CALL_TAKE:
        return take_block(r, c);
    case CALL_USE_ON:
        return order_after(r, r->stream_of[c->block], c->stream) &&
               note_failure(r, ashlar_record_stream(r->allocator, r->blocks[c->block],
                                                    r->streams[c->stream]));
    case CALL_WAIT_FOR:
        return note_failure(r, ashlar_stream_synchronize(r->device, r->streams[c->stream]));
    case CALL_BEGIN:
        return note_failure(r, ashlar_step_begin(r->allocator, r->streams[c->stream], c->bytes));
    case CALL_END:
        return end_step(r);
    default:
        return give_block(r, c);
    }
}

typedef struct capacity_worker {
    capacity_run *run;
    unsigned thread;
    pthread_t id;
} capacity_worker;

static void *make_calls(void *arg) {
    const capacity_worker *w = arg;
    capacity_run *r = w->run;
    pthread_mutex_lock(&r->lock);
    while (r->next < r->call_count) {
        if (next_call(r)->thread != w->thread) {
            pthread_cond_broadcast(&r->turn);
            pthread_cond_wait(&r->turn, &r->lock);
            continue;
        }
        r->next = make_call(r) ? r->next + 1 : r->call_count;
    }
    pthread_cond_broadcast(&r->turn);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* The first thread is the caller's. */
static inline void make_all_calls(capacity_run *r) {
    capacity_worker workers[DRAW_STREAMS];
    for (unsigned i = 0; i < r->p->threads; i++) {
        workers[i] = (capacity_worker){.run = r, .thread = i};
    }
    for (unsigned i = 1; i < r->p->threads; i++) {
        if (pthread_create(&workers[i].id, NULL, make_calls, &workers[i]) != 0) {
            abort();
        }
    }
    (void)make_calls(&workers[0]);
    for (unsigned i = 1; i < r->p->threads; i++) {
        pthread_join(workers[i].id, NULL);
    }
}

static inline bool open_run(capacity_run *r, size_t capacity_mib) {
    static const ashlar_plan_options options = {.search_ms = ASHLAR_PLAN_SEARCH_NONE,
                                                .build_after = 1}; /* no clock */
    char spec[128];
    (void)snprintf(spec, sizeof spec, "memory=%zuMiB,mode=%s,vmm=%s", capacity_mib,
                   r->p->is_late ? "adversarial" : "eager", r->p->has_vmm ? "on" : "off");
    if (!note_failure(r, ashlar__soft_configure(spec)) ||
        !note_failure(r, ashlar_device_open("soft", &r->device)) ||
        !note_failure(r, ashlar_event_create(r->device, &r->event)) ||
        !note_failure(r, ashlar_allocator_create(r->device, &r->allocator))) {
        return false;
    }
    CHECK(ashlar_plan_set_options(r->allocator, &options) == ASHLAR_OK);
    for (unsigned i = 0; i < r->p->streams; i++) {
        if (!note_failure(r, ashlar_stream_create(r->device, &r->streams[i]))) {
            return false;
        }
    }
    return true;
}

static inline void close_run(capacity_run *r) {
    ashlar_allocator_destroy(r->allocator);
    for (unsigned i = 0; i < r->p->streams; i++) {
        if (r->streams[i] != NULL) {
            ashlar_stream_destroy(r->device, r->streams[i]);
        }
    }
    if (r->event != NULL) {
        ashlar_event_destroy(r->device, r->event);
    }
    ashlar_device_close(r->device);
}

/* Run the program. False: a call failed, and r->failure says which. */
static inline bool run_program(capacity_run *r, const program *p, size_t capacity_mib) {
    memset(r, 0, sizeof *r);
    r->p = p;
    r->call_count = p->setup_count + CAPACITY_ROUNDS * (p->count - p->setup_count);
    pthread_mutex_init(&r->lock, NULL); /* these cannot fail on Linux */
    pthread_cond_init(&r->turn, NULL);
    if (open_run(r, capacity_mib)) {
        make_all_calls(r);
        if (r->failure[0] == '\0') {
            (void)note_failure(r, ashlar_allocator_check(r->allocator));
        }
    }
    close_run(r);
    pthread_cond_destroy(&r->turn);
    pthread_mutex_destroy(&r->lock);
    return r->failure[0] == '\0';
}

/* The least capacity from `least_mib` on at which the program runs; 0: none up to `most_mib`. */
static inline size_t find_capacity(capacity_run *r, const program *p, size_t least_mib,
                                   size_t most_mib) {
    for (size_t mib = least_mib; mib <= most_mib; mib += CAPACITY_GRAIN_MIB) {
        if (run_program(r, p, mib)) {
            return mib;
        }
    }
    return 0;
}

#endif /* ASHLAR_CAPACITY_RUN_H */
