/* planner_build.c - packing recordings into plans, one or many at once, and installing them. */
#include "allocator/step/step.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/base/host.h"
#include "allocator/base/error.h"
#include "allocator/core/core.h"

/* ---- plans ---- */

bool ashlar__plan_is_busy_locked(const ashlar_allocator *a, const ashlar_plan *plan) {
    ASHLAR_OWNS(&a->lock);
    for (uint32_t stream_idx = 0; plan != NULL && stream_idx < plan->stream_count; stream_idx++) {
        const ashlar_plan_memory *memory =
            ashlar__planner_memory(&a->planner, plan->stream_plans[stream_idx].stream_state);
        if (memory != NULL && memory->is_busy) {
            return true;
        }
    }
    return false;
}

/*
 * The plans to build together. A plan is in `plans` until its key has taken it, or it is freed.
 *
 * Invariant: every key is busy
 */
typedef struct batch {
    ashlar_step_key **keys; /* [count], those of the largest steps first */
    ashlar_plan **plans;    /* [count] */
    size_t count;
    bool is_too_dear; /* some plan was given up, since it would cost more memory than it saves */
} batch;

/* Whether the key can take the plan now. If not, the end of the key's next step tries again. While
 * streams are watched, no step would replay it: step.c declines them. */
static bool is_possible(const ashlar_allocator *a, const ashlar_step_key *key,
                        const ashlar_plan *plan) {
    return !a->client.watches_streams && key->replay_count == 0 && !ashlar__plan_has_ended(plan) &&
           !ashlar__plan_is_busy_locked(a, plan);
}

/* Give up plan i, because there is no memory for it, or it costs more than it saves. The other
 * plans of its streams get plan memories again, now or when one of their steps begins. */
static void give_up(ashlar_allocator *a, ashlar_cache *own, batch *b, size_t i) {
    ashlar_plan *plan = b->plans[i];
    ASHLAR_CHECK2(b->keys[i]->plan == plan && b->keys[i]->replay_count == 0);
    b->keys[i]->plan = b->plans[i] = NULL;
    ASHLAR_IGNORE(ashlar__planner_take_lacking(a, own, plan)); /* else when a step begins */
    ashlar__plan_free(plan);
}

/* The largest of the plans that has no memory; b->count: all have theirs. */
static size_t find_lacking(const ashlar_allocator *a, const batch *b) {
    size_t i = 0;
    while (i < b->count &&
           (b->plans[i] == NULL || !ashlar__planner_lacks_memory(&a->planner, b->plans[i]))) {
        i++;
    }
    return i;
}

/* Take memory for all plans together; while some lack theirs, give up the largest of these, so that
 * most keys get a plan. Returns the first failure. */
static ashlar_status take_memory(ashlar_allocator *a, ashlar_cache *own, batch *b) {
    ashlar_status status = ASHLAR_OK;
    size_t lacking = 0;
    while (lacking < b->count) {
        ashlar_status now = ASHLAR_OK;
        for (size_t i = 0; i < b->count && now == ASHLAR_OK; i++) {
            now = b->plans[i] != NULL ? ashlar__planner_take_lacking(a, own, b->plans[i]) : now;
        }
        lacking = find_lacking(a, b);
        if (lacking < b->count) {
            b->keys[lacking]->is_ordinary = now == ASHLAR_OK;
            b->is_too_dear |= now == ASHLAR_OK;
            status = status == ASHLAR_OK ? now : status;
            give_up(a, own, b, lacking);
        }
    }
    return status;
}

/* Give each key its plan, then take memory for all of them. */
static ashlar_status install(ashlar_allocator *a, ashlar_cache *own, batch *b) {
    if (a->planner.is_installing) {
        return ASHLAR_OK;
    }
    a->planner.is_installing = true;
    for (size_t i = 0; i < b->count; i++) {
        ashlar_step_key *key = b->keys[i];
        if (is_possible(a, key, b->plans[i])) {
            ashlar__step_key_drop_plan(key);
            key->plan = b->plans[i];
            key->is_current = true;
            key->is_ordinary = false;
            ashlar__planner_leave_memory(a, key->plan);
        } else {
            ashlar__plan_free(b->plans[i]);
            b->plans[i] = NULL;
        }
    }
    const ashlar_status status = take_memory(a, own, b);
    memset((void *)b->plans, 0, b->count * sizeof(ashlar_plan *)); /* the keys own them now */
    ashlar__planner_drop_unused_locked(&a->planner, &a->heap);
    ashlar__planner_link_plans(a);
    a->planner.is_installing = false;
    return status;
}

/* ---- packing ---- */

/* Remove the streams that have ended from a recording: no request names such a stream, and no
 * memory can be taken for it, so its allocations are not planned. */
static void leave_out_ended(ashlar_recording *recording) {
    for (uint32_t i = 0; i < recording->count; i++) {
        ashlar_recorded *r = &recording->allocs[i];
        if (ashlar__stream_state_has_ended(recording->stream_states[r->stream_idx])) {
            r->end = ASHLAR_NOT_PLANNED;
        }
    }
}

/* Take allocations that several streams use out of all recordings' plans, so that the ordinary path
 * serves them. False: there are none. */
static bool leave_out_shared(const batch *b) {
    bool is_any = false;
    for (size_t i = 0; i < b->count; i++) {
        ashlar_recording *r = &b->keys[i]->recording;
        for (uint32_t k = 0; k < r->count; k++) {
            is_any |= r->allocs[k].is_shared && r->allocs[k].end != ASHLAR_NOT_PLANNED;
            r->allocs[k].end = r->allocs[k].is_shared ? ASHLAR_NOT_PLANNED : r->allocs[k].end;
        }
    }
    return is_any;
}

static int by_step_bytes(const void *left, const void *right) {
    const size_t a = ashlar__recording_held_bytes(&(*(ashlar_step_key *const *)left)->recording);
    const size_t b = ashlar__recording_held_bytes(&(*(ashlar_step_key *const *)right)->recording);
    return a < b ? 1 : -(a > b);
}

/* For each stream of a recording, the bytes of the largest of the first `count` plans. They share
 * their memory with the recording's plan, so a packing that fits into as much is good enough. */
static void find_room(ashlar_plan *const *plans, size_t count, const ashlar_recording *recording,
                      size_t room[static ASHLAR_PLAN_STREAMS_MAX]) {
    memset(room, 0, ASHLAR_PLAN_STREAMS_MAX * sizeof *room);
    for (size_t i = 0; i < count; i++) {
        for (uint32_t theirs = 0; theirs < plans[i]->stream_count; theirs++) {
            const ashlar_stream_plan *p = &plans[i]->stream_plans[theirs];
            for (uint32_t ours = 0; ours < recording->stream_count; ours++) {
                if (recording->stream_states[ours] == p->stream_state &&
                    room[ours] < p->plan_bytes) {
                    room[ours] = p->plan_bytes;
                }
            }
        }
    }
}

/* Pack each key's recording. All of them together take at most `search_ms`, plus the time of the
 * packer's greedy orders. The largest comes first, since the others only have to fit into its
 * memory. */
static ashlar_status pack(batch *b, uint64_t search_ms) {
    const uint64_t began_ns = ashlar__clock_ns();
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < b->count && status == ASHLAR_OK; i++) {
        const uint64_t gone_ms = (ashlar__clock_ns() - began_ns) / 1000000;
        size_t room[ASHLAR_PLAN_STREAMS_MAX];
        find_room(b->plans, i, &b->keys[i]->recording, room);
        status =
            ashlar__plan_make(&b->keys[i]->recording, gone_ms < search_ms ? search_ms - gone_ms : 0,
                              room, &b->plans[i]);
    }
    return status;
}

/* Pack without the lock, since no other thread changes a busy key; then install the plans. */
static ashlar_status pack_and_install(ashlar_allocator *a, ashlar_cache *own, batch *b,
                                      uint64_t search_ms) {
    ashlar__allocator_leave(a);
    const ashlar_status status = pack(b, search_ms);
    ashlar__allocator_enter(a);
    return status == ASHLAR_OK ? install(a, own, b) : status;
}

static ashlar_status build(ashlar_allocator *a, ashlar_cache *own, batch *b) {
    const uint64_t chosen_ms = a->planner.options.search_ms;
    const uint64_t search_ms = chosen_ms == ASHLAR_PLAN_SEARCH_NONE ? 0 : chosen_ms;
    qsort((void *)b->keys, b->count, sizeof(ashlar_step_key *), by_step_bytes);
    for (size_t i = 0; i < b->count; i++) {
        ASHLAR_CHECK2(!b->keys[i]->is_busy && b->keys[i]->step_count > 0);
        leave_out_ended(&b->keys[i]->recording);
        b->keys[i]->is_busy = true;
    }
    ashlar_status status = pack_and_install(a, own, b, search_ms);
    /* Blocks that several streams use keep their slots to the end of the step. If that takes too
     * much memory, plan the rest alone. */
    if ((status == ASHLAR_ENOMEM || b->is_too_dear) && leave_out_shared(b)) {
        status = pack_and_install(a, own, b, search_ms);
    }
    for (size_t i = 0; i < b->count; i++) {
        ASHLAR_CHECK2(b->keys[i]->is_busy); /* nobody has changed the key meanwhile */
        b->keys[i]->is_busy = false;
        a->planner.stats.plans_left += b->keys[i]->is_ordinary && b->keys[i]->plan == NULL;
        ashlar__plan_free(b->plans[i]);
    }
    return status;
}

/*
 * Whether steps would leave this plan, as the key's steps left an earlier one: if they left two, or
 * if the recording needs less than 7/8 of the stream's free memory, which is what the steps that
 * left have needed. A step that leaves its plan finds free memory in pieces, and maps more.
 */
static bool would_be_left(const ashlar_allocator *a, const ashlar_step_key *key) {
    enum { PART_LESS = 8 };
    const size_t free = ashlar__plan_free_bytes(a, key->stream_state);
    return key->left_count > 0 &&
           (key->left_count > 1 ||
            ashlar__recording_held_bytes(&key->recording) < free - free / PART_LESS);
}

/* Whether the key waits to be planned. A key whose stream has ended does not: if the program's
 * steps go on, they name another stream, and are recorded there. */
static bool is_waiting(const ashlar_allocator *a, const ashlar_step_key *key) {
    return key->step_count > 0 && (!key->is_current || key->plan == NULL) && !key->is_busy &&
           !a->client.watches_streams && !ashlar__stream_state_has_ended(key->stream_state) &&
           !key->has_apart && !would_be_left(a, key);
}

ashlar_status ashlar__planner_build_locked(ashlar_allocator *a, ashlar_cache *own,
                                           ashlar_step_key *key) {
    ASHLAR_OWNS(&a->lock);
    ashlar_plan *plan = NULL;
    return is_waiting(a, key) ? build(a, own, &(batch){.keys = &key, .plans = &plan, .count = 1})
                              : ASHLAR_OK;
}

ashlar_status ashlar__planner_build_all_locked(ashlar_allocator *a, ashlar_cache *own) {
    ASHLAR_OWNS(&a->lock);
    size_t count = 0;
    batch b = {0};
    for (const ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        count += is_waiting(a, key);
    }
    b.keys = ashlar__host_calloc(count + 1, sizeof(ashlar_step_key *));
    b.plans = ashlar__host_calloc(count + 1, sizeof(ashlar_plan *));
    ashlar_status status =
        b.keys != NULL && b.plans != NULL
            ? ASHLAR_OK
            : ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for %zu plans", count);
    for (ashlar_step_key *key = a->planner.keys; key != NULL && status == ASHLAR_OK;
         key = key->next) {
        if (is_waiting(a, key)) {
            b.keys[b.count++] = key;
        }
    }
    if (status == ASHLAR_OK && count > 0) {
        ASHLAR_CHECK2(b.count == count);
        status = build(a, own, &b);
    }
    ashlar__host_free((void *)b.keys);
    ashlar__host_free((void *)b.plans);
    return status;
}
