/* soft_queue.c - the streams' queues of work: what runs next, running it, and the host's waits. */
#include "allocator/soft/soft_state.h"

#include <signal.h>
#include <string.h>

#include "allocator/base/host.h"
#include "allocator/base/random.h"

enum { POLLS_PER_OP = 4 }; /* in adversarial mode, on average one poll in 4 runs an op */

void ashlar__soft_stream_join(soft_stream *stream, soft_device *device, bool is_ordered) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    static uint64_t serials; /* the last serial given; guarded by the state's lock; never reset */
    soft_state *state = &ashlar__soft_state;
    ASHLAR_CHECK2(stream->serial == 0 && stream->head == NULL); /* it is in no list yet */
    stream->device = device;
    stream->is_ordered = is_ordered;
    stream->serial = ++serials;
    stream->prev = state->last_stream;
    *(stream->prev != NULL ? &stream->prev->next : &state->first_stream) = stream;
    state->last_stream = stream;
}

static void free_op(soft_op *op) {
    ashlar__soft_point_drop(op->point);
    ashlar__soft_point_drop(op->awaits);
    ashlar__host_free(op);
}

static soft_op *pop_head(soft_stream *stream) {
    soft_op *op = stream->head;
    stream->head = op->next;
    if (stream->head == NULL) {
        ASHLAR_CHECK2(stream->tail == op);
        stream->tail = NULL;
    }
    return op;
}

void ashlar__soft_stream_delete(soft_stream *stream) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_state *state = &ashlar__soft_state;
    ASHLAR_ASSERT(!stream->is_busy);
    ASHLAR_CHECK2(stream->capture == NULL);
    while (stream->head != NULL) {
        free_op(pop_head(stream));
    }
    *(stream->prev != NULL ? &stream->prev->next : &state->first_stream) = stream->next;
    *(stream->next != NULL ? &stream->next->prev : &state->last_stream) = stream->prev;
    ashlar__soft_clock_clear(&stream->clock);
    ashlar__soft_clock_clear(&stream->captured);
    ashlar__host_free(stream);
}

soft_point *ashlar__soft_point_new(void) {
    soft_point *point = ashlar__host_calloc(1, sizeof *point);
    if (point != NULL) {
        point->user_count = 1;
    }
    return point;
}

void ashlar__soft_point_drop(soft_point *point) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(point == NULL || point->user_count > 0);
    if (point != NULL && --point->user_count == 0) {
        ashlar__soft_clock_clear(&point->clock);
        ashlar__host_free(point);
    }
}

/* ---- what may run ---- */

static bool has_work_up_to(const soft_stream *stream, uint64_t number) {
    return stream->head != NULL && stream->head->number <= number;
}

/* The legacy stream is ordered with each blocking stream of its device; blocking streams are not
 * ordered with each other. */
static bool is_ordered_pair(const soft_stream *a, const soft_stream *b) {
    return a != b && a->device == b->device && a->is_ordered && b->is_ordered &&
           (a == a->device->legacy || b == b->device->legacy);
}

/* Whether the stream's oldest op may run now. */
static bool is_ready(const soft_stream *stream) {
    const soft_op *op = stream->head;
    if (op == NULL || stream->is_busy || (op->awaits != NULL && !op->awaits->is_done)) {
        return false;
    }
    const soft_stream *other = ashlar__soft_state.first_stream;
    for (; other != NULL; other = other->next) {
        if (is_ordered_pair(stream, other) && has_work_up_to(other, op->number)) {
            return false;
        }
    }
    return true;
}

/* A random number in 0 .. below-1, from the generator that `seed` sets up. */
static uint64_t draw(uint64_t below) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(below > 0);
    return ashlar__random_step_below(&ashlar__soft_state.random, below);
}

/* Eager and overlap: the stream whose ready op is the oldest. */
static soft_stream *pick_oldest(void) {
    soft_stream *oldest = NULL;
    for (soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
        if ((oldest == NULL || (s->head != NULL && s->head->number < oldest->head->number)) &&
            is_ready(s)) {
            oldest = s;
        }
    }
    return oldest;
}

/* Adversarial: a ready stream, drawn at random; without `any`, only one that the host waits for. */
static soft_stream *pick_drawn(bool any) {
    soft_stream *picked = NULL;
    uint64_t ready_count = 0;
    for (soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
        if ((any || has_work_up_to(s, s->wanted)) && is_ready(s) && draw(++ready_count) == 0) {
            picked = s; /* each of n ready streams has probability 1/n */
        }
    }
    return picked;
}

static soft_stream *pick(void) {
    return ashlar__soft_state.config.mode != SOFT_ADVERSARIAL ? pick_oldest() : pick_drawn(false);
}

/* ---- running ---- */

bool ashlar__soft_is_valid(const soft_operand *operand, size_t bytes) {
    const uintptr_t base = (uintptr_t)operand->ptr;
    return operand->place == SOFT_PLACE_DEVICE
               ? ashlar__soft_may_access(operand->device, base, bytes)
               : operand->place == SOFT_PLACE_PAGEABLE ||
                     ashlar__soft_ranges_over(&ashlar__soft_state.host_blocks, base, bytes) != NULL;
}

/* Whether the op's memory is still valid, as it was when the op was queued. Freeing it before the
 * op has run is a bug, which a GPU reports as an illegal address from then on. */
static bool may_touch(const soft_op *op) {
    const bool has_src = op->kind == SOFT_OP_COPY, has_dst = has_src || op->kind == SOFT_OP_FILL;
    return (!has_dst || ashlar__soft_is_valid(&op->dst, op->bytes)) &&
           (!has_src || ashlar__soft_is_valid(&op->src, op->bytes));
}

/* Do what the op is for, such as a copy. Lock: not held. */
static void run_body(const soft_op *op) {
    ASHLAR_CHECK2(!ashlar__lock_is_held(&ashlar__soft_state.lock));
    if (op->kind == SOFT_OP_HOST_FN) {
        ashlar__soft_in_host_fn = true;
        ashlar__soft_mistake = NULL;
        op->fn(op->user_data);
        ashlar__soft_in_host_fn = false;
    } else if (op->kind == SOFT_OP_COPY && ashlar__soft_state.config.has_touch) {
        memmove(op->dst.ptr, op->src.ptr, op->bytes);
    } else if (op->kind == SOFT_OP_FILL && ashlar__soft_state.config.has_touch) {
        memset(op->dst.ptr, op->value, op->bytes);
    }
}

/* Run the head of a ready stream. The only place where an op runs. */
static void run_head(soft_stream *stream) {
    soft_state *state = &ashlar__soft_state;
    soft_op *op = stream->head;
    ASHLAR_CHECK2(is_ready(stream));
    if (stream->device->fault == CU_SUCCESS && !may_touch(op)) {
        stream->device->fault = ashlar__soft_undefined(
            CU_ILLEGAL_ADDRESS, "a %s queued on the stream with id %llu finds its memory gone",
            op->kind == SOFT_OP_FILL ? "fill" : "copy", (unsigned long long)stream->serial);
    }
    if (stream->device->fault == CU_SUCCESS && op->kind != SOFT_OP_RECORD &&
        op->kind != SOFT_OP_WAIT) {
        stream->is_busy = true;
        state->running_count++;
        ashlar__lock_release(&state->lock);
        run_body(op);
        ashlar__lock_acquire(&state->lock);
        ASHLAR_CHECK2(stream->is_busy && stream->head == op && state->running_count > 0);
        state->running_count--;
        stream->is_busy = false;
        if (op->kind == SOFT_OP_HOST_FN && ashlar__soft_mistake != NULL) {
            stream->device->fault = CU_LAUNCH_FAILED;
            atomic_store(&ashlar__soft_fault_text, ashlar__soft_mistake);
        }
    }
    if (op->point != NULL) {
        ASHLAR_CHECK2(op->point->number == op->number && !op->point->is_done);
        op->point->is_done = true;
    }
    free_op(pop_head(stream));
    if (stream->is_destroyed && stream->head == NULL) {
        ashlar__soft_stream_delete(stream);
    }
    pthread_cond_broadcast(&state->op_finished);
}

/* Run the oldest op that is ready; false: there is none. The lock is dropped meanwhile. */
static bool run_oldest(void) {
    soft_stream *next = pick_oldest();
    if (next != NULL) {
        run_head(next);
    }
    return next != NULL;
}

/* ---- mode=overlap: threads that run queued work beside the program, as a GPU does. They live as
 * long as the process, and sleep while there is no work ---- */

enum { WORKERS = 4 };

static int worker_count; /* 0: no thread has been made yet */

static void *work(void *unused) {
    soft_state *state = &ashlar__soft_state;
    (void)unused;
    ashlar__soft_call = ASHLAR_DRIVER_FN_COUNT;
    ashlar__lock_acquire(&state->lock);
    for (;;) {
        if (state->config.mode != SOFT_OVERLAP || !run_oldest()) {
            ashlar__lock_wait(&state->lock, &state->op_finished);
        }
    }
    return NULL;
}

/* Signals are for the program's threads, so the workers block them. */
static void begin_workers(void) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (worker_count < WORKERS && pthread_create(&thread, NULL, work, NULL) == 0) {
        pthread_detach(thread);
        worker_count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Wake the threads, since there may be work; the first call makes them. False: there are none. */
static bool wake_workers(void) {
    if (worker_count == 0) {
        begin_workers();
    }
    pthread_cond_broadcast(&ashlar__soft_state.op_finished);
    return worker_count > 0;
}

void ashlar__soft_workers_halt(void) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (ashlar__soft_state.config.mode == SOFT_OVERLAP) {
        ashlar__soft_state.config.mode = SOFT_EAGER;
        while (ashlar__soft_state.running_count > 0) {
            ashlar__lock_wait(&ashlar__soft_state.lock, &ashlar__soft_state.op_finished);
        }
    }
}

/* ---- queueing ---- */

cu_result ashlar__soft_enqueue(soft_stream *stream, const soft_op *model) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(stream->capture == NULL);
    soft_op *op = ashlar__host_calloc(1, sizeof *op);
    if (op == NULL) {
        ashlar__soft_point_drop(model->point);
        ashlar__soft_point_drop(model->awaits);
        return CU_OUT_OF_MEMORY;
    }
    *op = *model;
    op->next = NULL;
    op->number = ++ashlar__soft_state.submitted;
    ASHLAR_CHECK2(stream->tail == NULL || stream->tail->number < op->number);
    if (op->point != NULL) {
        ASHLAR_CHECK2(op->point->stream == NULL && !op->point->is_done);
        op->point->stream = stream;
        op->point->number = op->number;
    }
    *(stream->tail != NULL ? &stream->tail->next : &stream->head) = op;
    stream->tail = op;
    if (ashlar__soft_hooks.submit != NULL) {
        ashlar__soft_hooks.submit(stream, op);
    }
    ashlar__soft_time_submit(stream, op);
    return CU_SUCCESS;
}

void ashlar__soft_run_ready(void) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    const soft_mode mode = ashlar__soft_state.config.mode;
    if (mode == SOFT_EAGER || (mode == SOFT_OVERLAP && !wake_workers())) {
        while (run_oldest()) {
        }
    }
}

cu_result ashlar__soft_submit(soft_stream *stream, const soft_op *model) {
    SOFT_TRY(ashlar__soft_enqueue(stream, model));
    ashlar__soft_run_ready();
    return CU_SUCCESS;
}

/* ---- waiting ---- */

static void see(const soft_clock *clock) {
    if (ashlar__soft_hooks.see != NULL) {
        ashlar__soft_hooks.see(clock);
    }
}

static bool raise_wanted(soft_stream *stream, uint64_t number) {
    if (stream->wanted >= number || !has_work_up_to(stream, number)) {
        return false;
    }
    stream->wanted = number;
    return true;
}

/* Mark as wanted all ops that the stream's wanted ops depend on. True: some mark has risen. */
static bool spread_wanted(soft_stream *stream) {
    bool risen = false;
    for (const soft_op *op = stream->head; op != NULL && op->number <= stream->wanted;
         op = op->next) {
        if (op->number <= stream->spread) {
            continue;
        }
        stream->spread = op->number;
        if (op->awaits != NULL && !op->awaits->is_done) {
            risen |= raise_wanted(op->awaits->stream, op->awaits->number);
        }
        for (soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
            risen |= is_ordered_pair(stream, s) && raise_wanted(s, op->number - 1);
        }
    }
    return risen;
}

/* Mark as wanted the stream's ops up to `number`, and all that they depend on. Marks are never
 * taken back: a wanted op stays wanted until some thread has run it. */
static void want(soft_stream *stream, uint64_t number) {
    bool risen = raise_wanted(stream, number);
    while (risen) {
        risen = false;
        for (soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
            risen |= spread_wanted(s);
        }
    }
}

/* Run one op that is ready. If none is, or in mode=overlap, other threads run the ops that this
 * thread's wait depends on: sleep until some op has finished. */
static void make_progress(void) {
    const bool is_theirs = ashlar__soft_state.config.mode == SOFT_OVERLAP && wake_workers();
    soft_stream *next = is_theirs ? NULL : pick();
    if (next != NULL) {
        run_head(next);
    } else {
        ASHLAR_ASSERT(is_theirs || ashlar__soft_state.running_count > 0);
        ashlar__lock_wait(&ashlar__soft_state.lock, &ashlar__soft_state.op_finished);
    }
}

/* Of the points that are done, the one that was done first in virtual time; NULL: none is. */
static const soft_point *first_done(soft_point *const *points, size_t count) {
    const soft_point *first = NULL;
    for (size_t i = 0; i < count; i++) {
        if (points[i]->is_done && (first == NULL || points[i]->time_ns < first->time_ns)) {
            first = points[i];
        }
    }
    return first;
}

void ashlar__soft_wait_points(soft_point *const *points, size_t count) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    for (size_t i = 0; i < count; i++) {
        const soft_point *point = points[i];
        ASHLAR_CHECK2(point->user_count > 0 && (point->is_done || point->stream != NULL));
        if (!point->is_done) {
            want(point->stream, point->number);
        }
    }
    const soft_point *done = first_done(points, count);
    while (done == NULL) {
        make_progress();
        done = first_done(points, count);
    }
    see(&done->clock);
    ashlar__soft_time_see(done->time_ns);
}

/* A stream that is waited for and still has an op up to `number`; NULL: the wait is over. Looked up
 * anew each time, since streams come and go while the lock is dropped. */
static soft_stream *find_pending(const soft_device *device, uint64_t serial, uint64_t number) {
    soft_stream *s = ashlar__soft_state.first_stream;
    while (s != NULL && !(s->device == device && (serial == 0 || s->serial == serial) &&
                          has_work_up_to(s, number))) {
        s = s->next;
    }
    return s;
}

void ashlar__soft_wait_device(const soft_device *device, uint64_t serial) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    const uint64_t number = ashlar__soft_state.submitted;
    uint64_t end_ns = serial == 0 ? device->end_ns : 0;
    soft_clock seen = {0}; /* the work queued until now, without what is queued during the wait */
    if (ashlar__soft_hooks.snapshot != NULL) {
        ashlar__soft_hooks.snapshot(device, serial, &seen);
    }
    for (soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
        if (s->device == device && (serial == 0 || s->serial == serial)) {
            want(s, number);
            end_ns = s->tail_ns > end_ns ? s->tail_ns : end_ns;
        }
    }
    while (find_pending(device, serial, number) != NULL) {
        make_progress();
    }
    see(&seen);
    ashlar__soft_time_see(end_ns);
    ashlar__soft_clock_clear(&seen);
}

void ashlar__soft_poll(void) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (ashlar__soft_state.config.mode != SOFT_ADVERSARIAL) {
        return;
    }
    soft_stream *stream = draw(POLLS_PER_OP) == 0 ? pick_drawn(true) : NULL;
    if (stream != NULL) {
        run_head(stream);
    }
}
