/*
 * forked_calls.h - every call that a child of fork() may make on its parent's allocators, and what
 * it must be told. Nothing here prints, or takes anything that the parent's threads may have held.
 */
#ifndef ASHLAR_FORKED_CALLS_H
#define ASHLAR_FORKED_CALLS_H

#include <string.h>

#include <ashlar/allocator.h>
#include <ashlar/base.h>
#include <ashlar/plan.h>
#include <ashlar/trace.h>

static int forked_line; /* of the first call that was not answered as it should be; 0: none */

#define FORKED_EXPECT(expr) (forked_line = forked_line == 0 && !(expr) ? __LINE__ : forked_line)
#define FORKED_IS_REFUSED(call) \
    FORKED_EXPECT((call) == ASHLAR_EDRIVER && strstr(ashlar_error_detail(), "forked") != NULL)

static inline ashlar_status forked_step(void *unused, size_t length) {
    (void)unused;
    FORKED_EXPECT(length == 0); /* it is never called */
    return ASHLAR_OK;
}

static inline void forked_call_plans(ashlar_allocator *a, ashlar_stream stream) {
    ashlar_plan_stats stats;
    ashlar_warmup_report report;
    const ashlar_warmup_options warmup = {
        .max_length = 1, .step = forked_step, .without_plan = true};
    FORKED_IS_REFUSED(ashlar_step_begin(a, stream, 1));
    FORKED_IS_REFUSED(ashlar_step_end(a));
    FORKED_IS_REFUSED(ashlar_plan_build(a));
    FORKED_IS_REFUSED(ashlar_plan_drop(a));
    FORKED_IS_REFUSED(ashlar_allocator_warmup(a, &warmup, &report));
    FORKED_IS_REFUSED(ashlar_plan_set_options(a, NULL));
    ashlar_plan_record_next(a, 1);
    ashlar_plan_get_stats(a, &stats);
    FORKED_EXPECT(stats.plan_count == 0);
}

static inline void forked_call_limits(ashlar_allocator *a) {
    FORKED_IS_REFUSED(ashlar_allocator_trim(a, 0));
    FORKED_IS_REFUSED(ashlar_allocator_set_limit(a, (size_t)1 << 20));
    FORKED_IS_REFUSED(ashlar_allocator_reserve(a, (size_t)1 << 20));
    FORKED_IS_REFUSED(ashlar_allocator_allow_peer(a, 0));
    ashlar_allocator_seal(a);
    ashlar_allocator_reset_peaks(a);
    ashlar_allocator_watch_streams(a);
    FORKED_IS_REFUSED(ashlar_allocator_set_seal_policy(a, ASHLAR_SEAL_COUNT, NULL, NULL));
    ashlar_allocator_set_reclaim(a, NULL, NULL);
    ashlar_allocator_set_report(a, NULL, NULL);
}

static inline void forked_call_pools(ashlar_allocator *a, ashlar_stream stream,
                                     ashlar_graph_pool *pool) {
    ashlar_graph_pool *new_pool = NULL;
    FORKED_IS_REFUSED(ashlar_graph_pool_begin(a, stream, &new_pool));
    FORKED_EXPECT(new_pool == NULL);
    if (pool != NULL) {
        FORKED_IS_REFUSED(ashlar_graph_pool_continue(pool, stream));
        ashlar_graph_pool_end(pool);
        FORKED_IS_REFUSED(ashlar_graph_pool_release(pool, stream));
    }
}

/* What the child knows of an allocator: a block of it, a stream that can be captured, and a pool,
 * or NULL. */
typedef struct forked_known {
    void *block;
    ashlar_stream stream;
    ashlar_graph_pool *pool;
} forked_known;

static inline void forked_call_all(ashlar_allocator *a, const forked_known *known) {
    ashlar_stats stats = {.live_blocks = 1};
    ashlar_snapshot *snapshot = NULL;
    const ashlar_stream stream = known->stream;
    void *ptr = NULL;
    size_t bytes = 0;
    FORKED_IS_REFUSED(ashlar_alloc(a, 4096, stream, &ptr));
    FORKED_IS_REFUSED(ashlar_alloc(a, (size_t)9 << 20, NULL, &ptr));
    FORKED_IS_REFUSED(ashlar_record_stream(a, known->block, stream));
    FORKED_IS_REFUSED(ashlar_usable_bytes(a, known->block, &bytes));
    FORKED_IS_REFUSED(ashlar_allocator_check(a));
    FORKED_IS_REFUSED(ashlar_allocator_forget_stream(a, stream));
    FORKED_IS_REFUSED(ashlar_allocator_take_snapshot(a, &snapshot));
    FORKED_IS_REFUSED(ashlar_allocator_write_snapshot(a, "/dev/null"));
    FORKED_IS_REFUSED(ashlar_allocator_write_trace(a, "/dev/null", NULL));
    ashlar_allocator_get_stats(a, &stats);
    FORKED_EXPECT(stats.live_blocks == 0 && ptr == NULL);
    FORKED_EXPECT(ashlar_free(a, known->block) == ASHLAR_OK);
    FORKED_EXPECT(ashlar_free_on(a, known->block, stream) == ASHLAR_OK);
    forked_call_limits(a);
    forked_call_plans(a, stream);
    forked_call_pools(a, stream, known->pool);
}

#endif /* ASHLAR_FORKED_CALLS_H */
