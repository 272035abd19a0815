/* replay.c - replays a log's events in order, with a thread for each of the log, and measures. */
#include "bench/replay/replay.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/soft/soft.h"
#include "allocator/soft/soft_state.h"

typedef struct replay replay;

/* One allocation of the log. */
typedef struct block {
    soft_range place; /* its addresses; .bytes is 0 unless the block is live */
    size_t stream;    /* the stream that the block was allocated for */
} block;

/* One thread of the log. */
typedef struct worker {
    replay *replay;
    pthread_t thread;
    size_t last; /* the index of its last event in the log */
} worker;

/* Every event of every pass is a turn. The thread of turn `next`'s event runs it, holding the lock,
 * and may meanwhile change everything here. Invariants: turn_count == config->passes *
 * log->closed_count; next <= turn_count; next == turn_count when the replay is over. */
struct replay {
    const ashlar_rmm_log *log;
    const ashlar_replay_config *config;
    ashlar_replay_result *result;
    ashlar_device *device;
    ashlar_allocator *allocator;
    ashlar_stream *streams; /* [stream_count]; the first is the default stream */
    block *blocks;          /* [block_count] */
    worker *workers;        /* [thread_count] */
    soft_ranges live;       /* the address ranges of live blocks, to find overlaps */
    uint64_t live_bytes;
    pthread_mutex_t lock;
    pthread_cond_t turn; /* signals that the next turn is another thread's, or the replay is over */
    size_t next, turn_count;
    size_t boundary; /* index in plan->steps.boundaries of the next one in this pass */
    bool is_in_step;
    ashlar_status status; /* why the replay ended early, and the error detail */
    char detail[ASHLAR_DETAIL_BYTES];
};

_Static_assert((int)ASHLAR_REPLAY_TEXT_BYTES == (int)ASHLAR_DETAIL_BYTES, "a failure is a detail");

const ashlar_replay_calls ashlar__replay_calls_of_ashlar = {
    .alloc = ashlar_alloc,
    .free = ashlar_free,
    .free_on = ashlar_free_on,
    .check = ashlar_allocator_check,
    .step_begin = ashlar_step_begin,
    .step_end = ashlar_step_end,
};

/* The index in the log of the next turn's event. */
static size_t next_event(const replay *r) {
    return r->next % r->log->closed_count;
}

static size_t next_thread(const replay *r) {
    return r->log->events[next_event(r)].thread;
}

/* End the replay; this thread's error detail says why. */
static void stop_locked(replay *r, ashlar_status status) {
    r->status = status;
    (void)snprintf(r->detail, sizeof r->detail, "%s", ashlar_error_detail());
    r->next = r->turn_count;
}

/* Fail with FILE:LINE before the detail, with the pass if there are several, and with "at the end"
 * for a free that the log does not have. */
static ashlar_status fail_at(const replay *r, size_t line, bool is_end, ashlar_status status) {
    char pass[32] = "";
    if (r->config->passes > 1) {
        (void)snprintf(pass, sizeof pass, "pass %zu: ", r->next / r->log->closed_count + 1);
    }
    return ashlar__fail(status, "%s:%zu: %s%s%s", r->log->name, line, pass,
                        is_end ? "at the end: " : "", ashlar_error_detail());
}

static ashlar_status fail_event(const replay *r, const ashlar_rmm_event *event,
                                ashlar_status status) {
    return fail_at(r, event->line, next_event(r) >= r->log->event_count, status);
}

static ashlar_status note_failure_locked(replay *r, const ashlar_rmm_event *event) {
    const ashlar_status status = fail_event(r, event, ASHLAR_ENOMEM);
    if (r->result->failures++ == 0) {
        (void)snprintf(r->result->failure, sizeof r->result->failure, "%s", ashlar_error_detail());
    }
    return r->config->stops_at_a_failure ? status : ASHLAR_OK;
}

static ashlar_status note_block_locked(replay *r, const ashlar_rmm_event *event, const void *ptr) {
    block *taken = &r->blocks[event->block];
    const uintptr_t address = (uintptr_t)ptr;
    if (address + event->bytes < address ||
        ashlar__soft_ranges_touch(&r->live, address, event->bytes)) {
        const size_t at = ashlar__soft_ranges_after(&r->live, address);
        const soft_range *other = at < r->live.count ? r->live.items[at] : &taken->place;
        (void)ashlar__fail(ASHLAR_EFORMAT,
                           "the block at %p of %zu bytes overlaps a live one of %zu at %p", ptr,
                           event->bytes, other->bytes, (const void *)other->base);
        return fail_event(r, event, ASHLAR_EFORMAT);
    }
    *taken = (block){{.base = address, .bytes = event->bytes}, event->stream};
    if (!ashlar__soft_ranges_insert(&r->live, &taken->place)) {
        taken->place.bytes = 0; /* the end of the replay frees it */
        return ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory for its blocks", r->log->name);
    }
    if (r->config->addresses != NULL) {
        r->config->addresses[event->block] = address;
    }
    r->live_bytes += event->bytes;
    if (r->live_bytes > r->result->peak_live) {
        ashlar_stats stats;
        ashlar_allocator_get_stats(r->allocator, &stats);
        r->result->peak_live = r->live_bytes;
        r->result->reserved_at_peak = stats.reserved_bytes;
    }
    return ASHLAR_OK;
}

static ashlar_status allocate_locked(replay *r, const ashlar_rmm_event *event) {
    void *ptr = NULL;
    r->result->allocations++;
    const ashlar_status status =
        r->config->calls->alloc(r->allocator, event->bytes, r->streams[event->stream], &ptr);
    if (status == ASHLAR_ENOMEM) {
        return note_failure_locked(r, event);
    }
    return status == ASHLAR_OK ? note_block_locked(r, event, ptr) : fail_event(r, event, status);
}

/* Free the block; like a program, name the stream only if it is not the block's own. */
static ashlar_status give_back(const replay *r, const block *taken, size_t stream) {
    void *ptr = (void *)taken->place.base;
    return stream == taken->stream
               ? r->config->calls->free(r->allocator, ptr)
               : r->config->calls->free_on(r->allocator, ptr, r->streams[stream]);
}

static ashlar_status free_locked(replay *r, const ashlar_rmm_event *event) {
    block *taken = &r->blocks[event->block];
    if (taken->place.bytes == 0) {
        return ASHLAR_OK; /* the block's allocation failed */
    }
    const ashlar_status status = give_back(r, taken, event->stream);
    if (status != ASHLAR_OK) {
        return fail_event(r, event, status);
    }
    size_t at;
    (void)ashlar__soft_ranges_at(&r->live, taken->place.base, &at);
    ashlar__soft_ranges_remove(&r->live, at, 1);
    ASHLAR_CHECK2(r->live_bytes >= taken->place.bytes);
    r->live_bytes -= taken->place.bytes;
    taken->place.bytes = 0;
    return ASHLAR_OK;
}

/* One key for all steps, so that one plan serves them. */
enum { STEP_KEY = 1 };

static ashlar_status end_step_locked(replay *r, const ashlar_rmm_event *event) {
    if (!r->is_in_step) {
        return ASHLAR_OK;
    }
    r->is_in_step = false;
    const ashlar_status status = r->config->calls->step_end(r->allocator);
    return status == ASHLAR_OK ? ASHLAR_OK : fail_event(r, event, status);
}

/* Called before each event of the thread that the steps belong to. If one or more boundaries lie at
 * this event or before it, end the step under way and begin the next one, if there is one. */
static ashlar_status pass_boundaries_locked(replay *r, const ashlar_rmm_event *event) {
    const ashlar_steps *steps = &r->config->plan->steps;
    const size_t before = r->boundary;
    while (r->boundary <= steps->count && steps->boundaries[r->boundary] <= next_event(r)) {
        r->boundary++;
    }
    if (r->boundary == before) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(end_step_locked(r, event));
    if (r->boundary > steps->count) {
        return ASHLAR_OK;
    }
    const ashlar_status status =
        r->config->calls->step_begin(r->allocator, r->streams[r->config->plan->stream], STEP_KEY);
    r->is_in_step = status == ASHLAR_OK;
    return r->is_in_step ? ASHLAR_OK : fail_event(r, event, status);
}

static ashlar_status do_event_locked(replay *r, const ashlar_rmm_event *event) {
    const bool has_steps = r->config->plan != NULL && r->config->plan->thread == event->thread;
    if (has_steps) {
        ASHLAR_TRY(pass_boundaries_locked(r, event));
    }
    if (event->action == ASHLAR_RMM_ALLOCATE) {
        ASHLAR_TRY(allocate_locked(r, event));
    } else if (event->action == ASHLAR_RMM_FREE) {
        ASHLAR_TRY(free_locked(r, event));
    }
    return has_steps && r->workers[event->thread].last == next_event(r) ? end_step_locked(r, event)
                                                                        : ASHLAR_OK;
}

/* After a pass's last event: nothing may be live, and the allocator must be sound. */
static ashlar_status end_pass_locked(replay *r) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(r->allocator, &stats);
    r->boundary = 0;
    if (r->config->reserved != NULL) {
        r->config->reserved[r->next / r->log->closed_count] = stats.reserved_bytes;
    }
    ashlar_status status = r->config->calls->check(r->allocator);
    if (status == ASHLAR_OK && stats.live_blocks != 0) {
        status = ashlar__fail(ASHLAR_EFORMAT, "%llu blocks live after the last was freed",
                              (unsigned long long)stats.live_blocks);
    }
    const size_t line = r->log->events[next_event(r)].line;
    return status == ASHLAR_OK ? ASHLAR_OK : fail_at(r, line, true, status);
}

static void advance_locked(replay *r) {
    ASHLAR_ASSERT(r->next < r->turn_count);
    ashlar_status status = do_event_locked(r, &r->log->events[next_event(r)]);
    if (status == ASHLAR_OK && next_event(r) + 1 == r->log->closed_count) {
        status = end_pass_locked(r);
    }
    if (status != ASHLAR_OK) {
        stop_locked(r, status);
        return;
    }
    r->next++;
}

/* A thread of the replay. It ends after its last event of the last pass, as the program's did. */
static void *work(void *arg) {
    const worker *w = arg;
    replay *r = w->replay;
    const size_t self = (size_t)(w - r->workers);
    const size_t last = r->turn_count - r->log->closed_count + w->last;
    pthread_mutex_lock(&r->lock);
    while (r->next <= last) {
        if (next_thread(r) != self) {
            pthread_cond_wait(&r->turn, &r->lock);
            continue;
        }
        advance_locked(r);
        if (r->next == r->turn_count || next_thread(r) != self) {
            pthread_cond_broadcast(&r->turn);
        }
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static void run_threads(replay *r) {
    size_t started = 0;
    for (size_t i = 0; i < r->log->closed_count; i++) {
        r->workers[r->log->events[i].thread].last = i;
    }
    pthread_mutex_lock(&r->lock); /* so that the threads begin together */
    for (; started < r->log->thread_count; started++) {
        worker *w = &r->workers[started];
        w->replay = r;
        if (pthread_create(&w->thread, NULL, work, w) != 0) {
            stop_locked(r,
                        ashlar__fail(ASHLAR_EHOSTMEM, "a thread for the replay cannot be started"));
            break;
        }
    }
    pthread_mutex_unlock(&r->lock);
    for (size_t i = 0; i < started; i++) {
        pthread_join(r->workers[i].thread, NULL);
    }
}

static ashlar_status open_device(replay *r) {
    char spec[64];
    (void)snprintf(spec, sizeof spec, "memory=%zuB", r->config->memory_bytes);
    ASHLAR_TRY(ashlar__soft_configure(spec));
    ASHLAR_TRY(ashlar_device_open("soft", &r->device));
    for (size_t i = 1; i < r->log->stream_count; i++) {
        ASHLAR_TRY(ashlar_stream_create(r->device, &r->streams[i]));
    }
    ASHLAR_TRY(ashlar_allocator_create(r->device, &r->allocator));
    ashlar_allocator_set_report(r->allocator, r->config->report, NULL);
    return ASHLAR_OK;
}

static ashlar_status set_up(replay *r) {
    const ashlar_rmm_log *log = r->log;
    const size_t block_count = log->block_count > 0 ? log->block_count : 1;
    pthread_mutex_init(&r->lock, NULL); /* this and the next call cannot fail on Linux */
    pthread_cond_init(&r->turn, NULL);
    r->streams = ashlar__host_calloc(log->stream_count, sizeof *r->streams);
    r->blocks = ashlar__host_calloc(block_count, sizeof *r->blocks);
    r->workers = ashlar__host_calloc(log->thread_count, sizeof *r->workers);
    ASHLAR_FAIL_IF(r->streams == NULL || r->blocks == NULL || r->workers == NULL, ASHLAR_EHOSTMEM,
                   "%s: no host memory to replay it", log->name);
    return open_device(r);
}

/* Destroy the allocator before the streams that it uses. */
static void tear_down(replay *r) {
    ashlar_allocator_destroy(r->allocator);
    for (size_t i = 1; r->streams != NULL && i < r->log->stream_count; i++) {
        ashlar_stream_destroy(r->device, r->streams[i]);
    }
    ashlar_device_close(r->device);
    ashlar__soft_ranges_clear(&r->live);
    ashlar__host_free(r->workers);
    ashlar__host_free(r->blocks);
    ashlar__host_free(r->streams);
    pthread_cond_destroy(&r->turn);
    pthread_mutex_destroy(&r->lock);
}

static void read_figures(const replay *r) {
    ashlar_replay_result *result = r->result;
    ashlar_stats stats;
    ashlar_allocator_get_stats(r->allocator, &stats);
    const uint64_t misses = stats.served_mapped + stats.served_drained + stats.served_reclaimed +
                            stats.served_after_sync + stats.served_gathered;
    result->peak_reserved = stats.reserved_peak_bytes;
    result->driver_calls = stats.driver_calls;
    result->hit_rate = (double)(stats.alloc_count - misses) / (double)stats.alloc_count;
    ashlar_plan_get_stats(r->allocator, &result->plan);
}

ashlar_status ashlar__replay_run(const ashlar_rmm_log *log, const ashlar_replay_config *config,
                                 ashlar_replay_result *result) {
    ashlar_replay_result fresh = {0};
    replay r = {.log = log,
                .config = config,
                .result = &fresh,
                .turn_count = config->passes * log->closed_count};
    ashlar_status status = set_up(&r);
    if (status == ASHLAR_OK) {
        run_threads(&r);
        status = r.status == ASHLAR_OK ? ASHLAR_OK : ashlar__fail(r.status, "%s", r.detail);
    }
    if (status == ASHLAR_OK) {
        read_figures(&r);
    }
    tear_down(&r);
    if (status == ASHLAR_OK) {
        *result = fresh;
    }
    return status;
}
