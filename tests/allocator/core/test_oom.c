/*
 * test_oom.c - fixed workloads in which the n-th call of each driver function, or the n-th host
 * allocation, fails: for every n. Nothing is lost, the next call works, and at the end the device
 * has its memory back.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/limits_fixture.h"

enum { SLOTS = 10, ATTEMPTS = 3 };

/* OFFER: the reclaim callback may give the slot's block. GIVE_REST: what it did not have to. */
typedef enum action {
    TAKE,
    GIVE,
    GIVE_ON,
    GIVE_REST,
    OFFER,
    RECORD,
    RESERVE,
    TRIM,
    LIMIT,
    PEER,
    FORGET,
    WAIT,
    WAIT_ALL
} action;

typedef struct step {
    action act;
    int slot, stream;
    size_t bytes;
} step;

typedef struct workload {
    const char *device;
    const step *steps;
    size_t step_count;
    size_t limit_bytes, whole_bytes; /* whole: to be had in one piece at the end */
    ashlar_guard guard;
    bool may_lack; /* a request may go without a block for good, once a call has failed */
    bool is_long;  /* of calls that the test itself makes most, some are left out */
    bool (*is_complete)(const ashlar_stats *);
    ashlar_driver_fn must_come[12]; /* calls that are to fail in it; the first one ends the list */
} workload;

/* ---- workloads ---- */

/* Of a device of 16 handles, which are all mapped at the end: each step of the ladder. */
static const step ladder_steps[] = {
    {TAKE, 0, 0, 4 * MIB}, /* mapped */
    {TAKE, 1, 0, 1000},    /* mapped, in the zone for small blocks */
    {TAKE, 2, 0, 2000},    /* same stream */
    {GIVE, 0, 0, 0},
    {TAKE, 0, 0, 4 * MIB}, /* same stream */
    {TAKE, 3, 0, 4 * MIB},
    {GIVE_ON, 3, 1, 0},
    {TAKE, 3, 1, 4 * MIB}, /* deferred, taken by the stream that used it last */
    {GIVE, 3, 0, 0},
    {WAIT, 0, 1, 0},
    {TAKE, 3, 0, 4 * MIB}, /* its owner's again */
    {TAKE, 4, 1, 8 * MIB},
    {TAKE, 5, 2, 8 * MIB},
    {TAKE, 6, 3, 4 * MIB},
    {TAKE, 8, 2, 250000},
    {TAKE, 9, 2, 250000}, /* the device is full */
    {GIVE, 3, 0, 0},
    {GIVE, 4, 0, 0},
    {GIVE, 5, 0, 0},
    {TAKE, 5, 3, 8 * MIB}, /* after a wait; all streams were asked, so all have an event */
    {WAIT, 0, 0, 0},
    {WAIT, 0, 2, 0},
    {TAKE, 7, 3, 12 * MIB}, /* gathered */
    {GIVE, 6, 0, 0},
    {GIVE, 7, 0, 0},
    {TAKE, 6, 0, 4 * MIB}, /* after a wait, with a rest */
    {WAIT, 0, 3, 0},
    {TAKE, 7, 1, 12 * MIB}, /* completed: the rest */
    {GIVE, 7, 0, 0},
    {TAKE, 7, 3, 12 * MIB}, /* after a wait, of its own that is deferred */
    {GIVE, 5, 0, 0},
    {GIVE, 6, 0, 0},
    {TAKE, 6, 2, 12 * MIB}, /* after the host has waited for both */
    {OFFER, 7, 0, 0},
    {TAKE, 3, 0, 12 * MIB}, /* reclaimed */
    {GIVE, 8, 0, 0},
    {GIVE, 9, 0, 0},
    {TAKE, 8, 2, 2 * MIB}, /* same stream; drained if there are caches */
    {GIVE, 1, 0, 0},
    {GIVE, 2, 0, 0},
    {GIVE, 3, 0, 0},
    {GIVE_ON, 6, 0, 0},
    {GIVE_REST, 7, 0, 0},
    {GIVE, 8, 0, 0},
    {TAKE, 1, 3, 5000},
    {GIVE, 0, 0, 0},
    {GIVE, 1, 0, 0},
    {WAIT_ALL, 0, 0, 0},
};

static bool climbs_the_ladder(const ashlar_stats *s) {
    return s->served_mapped > 0 && s->served_waited > 0 && s->served_after_sync > 0 &&
           s->served_reclaimed > 0 && s->reserved_bytes == 32 * MIB &&
           (options.cache_bytes == ASHLAR_CACHE_NONE
                ? s->served_same_stream > 0 && s->served_idle > 0 && s->served_completed > 0 &&
                      s->served_waited >= 3 && s->served_gathered > 0
                : s->served_cached > 0 && s->served_drained > 0);
}

static const workload ladder = {
    .device = "mode=adversarial,seed=5,memory=32MiB",
    .steps = ladder_steps,
    .step_count = sizeof ladder_steps / sizeof *ladder_steps,
    .whole_bytes = 32 * MIB,
    .may_lack = true,
    .is_complete = climbs_the_ladder,
    .must_come = {ASHLAR_DRIVER_FN_mem_address_reserve, ASHLAR_DRIVER_FN_mem_create,
                  ASHLAR_DRIVER_FN_mem_map, ASHLAR_DRIVER_FN_mem_set_access,
                  ASHLAR_DRIVER_FN_mem_unmap, ASHLAR_DRIVER_FN_event_create,
                  ASHLAR_DRIVER_FN_event_record, ASHLAR_DRIVER_FN_event_query,
                  ASHLAR_DRIVER_FN_stream_wait_event, ASHLAR_DRIVER_FN_event_synchronize,
                  ASHLAR_DRIVER_FN_ctx_push_current}};

/* Reserve, trim, limit, record_stream, forget_stream, peers and gathering. */
static const step limits_steps[] = {
    {RESERVE, 0, 0, 4 * MIB}, {TAKE, 0, 0, 4 * MIB},  {TAKE, 1, 0, 4 * MIB},
    {PEER, 0, 0, 0},          {TAKE, 2, 1, 4 * MIB},  {TAKE, 3, 0, 4 * MIB},
    {TAKE, 4, 0, 4 * MIB},    {TAKE, 5, 1, 4 * MIB},  {TAKE, 6, 0, 4 * MIB},
    {TAKE, 7, 0, 4 * MIB},    {RECORD, 2, 2, 0},      {RECORD, 4, 3, 0},
    {GIVE, 0, 0, 0},          {GIVE, 2, 0, 0},        {GIVE, 4, 0, 0},
    {GIVE, 6, 0, 0},          {FORGET, 0, 3, 0},      {TRIM, 0, 0, 31 * MIB},
    {WAIT_ALL, 0, 0, 0},      {TAKE, 8, 1, 12 * MIB},                         /* gathered */
    {WAIT_ALL, 0, 0, 0},      {GIVE, 8, 0, 0},        {TAKE, 8, 2, 14 * MIB}, /* waited for */
    {GIVE, 8, 0, 0},          {TAKE, 9, 3, 1 * MIB},  {GIVE, 9, 0, 0},
    {TRIM, 0, 0, 28 * MIB},   {WAIT_ALL, 0, 0, 0},    {TRIM, 0, 0, 20 * MIB},
    {WAIT_ALL, 0, 0, 0},      {TRIM, 0, 0, 20 * MIB}, {WAIT_ALL, 0, 0, 0},
    {LIMIT, 0, 0, 20 * MIB},  {LIMIT, 0, 0, 0},       {RESERVE, 0, 0, 24 * MIB},
    {GIVE, 1, 0, 0},          {GIVE, 3, 0, 0},        {GIVE, 5, 0, 0},
    {GIVE, 7, 0, 0},          {WAIT_ALL, 0, 0, 0},    {TRIM, 0, 0, 0},
    {WAIT_ALL, 0, 0, 0},      {TRIM, 0, 0, 0},        {WAIT_ALL, 0, 0, 0},
    {TRIM, 0, 0, 0}, /* each waits for the events of the one before */
};

static bool gathers_and_gives_back(const ashlar_stats *s) {
    return s->served_gathered > 0 && s->reserved_bytes == 0 && s->shared_bytes == 0 &&
           s->events_recorded > 0;
}

/* The limit is half the device: room to gather even in half the addresses. */
#define LIMITS_WORKLOAD                                                                \
    .device = "devices=2,mode=adversarial,seed=5,memory=64MiB", .steps = limits_steps, \
    .step_count = sizeof limits_steps / sizeof *limits_steps, .limit_bytes = 32 * MIB, \
    .whole_bytes = 32 * MIB, .is_long = true, .is_complete = gathers_and_gives_back

static const workload limits = {
    LIMITS_WORKLOAD, .must_come = {ASHLAR_DRIVER_FN_mem_release, ASHLAR_DRIVER_FN_mem_create,
                                   ASHLAR_DRIVER_FN_mem_unmap, ASHLAR_DRIVER_FN_event_record,
                                   ASHLAR_DRIVER_FN_device_can_access_peer}};
static const workload limits_of_segments = {
    LIMITS_WORKLOAD, .must_come = {ASHLAR_DRIVER_FN_mem_alloc, ASHLAR_DRIVER_FN_mem_free,
                                   ASHLAR_DRIVER_FN_event_synchronize}};

/* More than the quarantine holds, and more than the device; one block is left to the end. */
static const step guard_steps[] = {
    {TAKE, 0, 0, 80000},
    {TAKE, 1, 1, 1000},
    {TAKE, 2, 0, 1000},
    {TAKE, 3, 1, 80000},
    {TAKE, 4, 0, 1000},
    {TAKE, 5, 1, 1000},
    {GIVE_ON, 0, 0, 0},
    {GIVE, 1, 0, 0},
    {GIVE, 2, 0, 0},
    {GIVE, 3, 0, 0},
    {GIVE_ON, 4, 0, 0},
    {GIVE, 5, 0, 0},
    {TAKE, 0, 0, 80000},
    {TAKE, 1, 1, 1000},
    {TAKE, 2, 0, 1000},
    {TAKE, 3, 1, 80000},
    {TAKE, 4, 0, 1000},
    {TAKE, 5, 1, 1000},
    {GIVE_ON, 0, 0, 0},
    {GIVE, 1, 0, 0},
    {GIVE, 2, 0, 0},
    {GIVE, 3, 0, 0},
    {GIVE_ON, 4, 0, 0},
    {GIVE, 5, 0, 0},
    {TAKE, 6, 2, 4 * MIB - 512},
    {GIVE, 6, 0, 0},
    {TAKE, 7, 0, 5},
};

/* Drained: behind that comes the whole ladder once more. */
static bool empties_the_quarantine(const ashlar_stats *s) {
    return s->served_same_stream > 0 && s->served_mapped > 0 && s->served_waited > 0 &&
           s->served_drained > 0;
}

static const workload guarded = {
    .device = "memory=4MiB,mode=adversarial,seed=5",
    .steps = guard_steps,
    .step_count = sizeof guard_steps / sizeof *guard_steps,
    .guard = ASHLAR_GUARD_FILL,
    .is_complete = empties_the_quarantine,
    .must_come = {ASHLAR_DRIVER_FN_memset_d8_async, ASHLAR_DRIVER_FN_memcpy_dtoh_async,
                  ASHLAR_DRIVER_FN_launch_host_func, ASHLAR_DRIVER_FN_mem_host_alloc}};

/* ---- steps ---- */

static const workload *w; /* that runs */
static struct {
    unsigned char *ptr;
    size_t bytes;
    ashlar_stream stream;
    unsigned char value;
} slots[SLOTS];
static unsigned refusals;     /* in this run */
static unsigned reclaimed;    /* blocks that the callback gave, in this run */
static unsigned report_count; /* findings of the guard, and leaks */
static int offered;           /* the slot whose block may be reclaimed; -1: none */
static bool is_armed;         /* some call of this run is to fail */
static bool is_destroyed;     /* the stream of FORGET, which is to be made again */
/* The status of a refusal, besides ENOMEM, which the software device says for host memory too. */
static ashlar_status allowed;

static void count_report(const char *line, void *unused) {
    (void)line;
    (void)unused;
    report_count++;
}

/* What cannot be refused for good. */
#define TRY_AGAIN(call)                                                 \
    do {                                                                \
        ashlar_status status_ = (call);                                 \
        for (int i_ = 1; i_ < ATTEMPTS && status_ != ASHLAR_OK; i_++) { \
            status_ = (call);                                           \
        }                                                               \
        CHECK(status_ == ASHLAR_OK);                                    \
    } while (0)

/* Queue work at both ends of a block. */
static void use_ends(int slot, bool writes) {
    const size_t bytes = slots[slot].bytes < 64 ? slots[slot].bytes : 64;
    for (int end = 0; end < 2; end++) {
        const payload p = {slots[slot].ptr + (end ? slots[slot].bytes - bytes : 0), bytes,
                           slots[slot].value};
        TRY_AGAIN(ashlar_launch(device, slots[slot].stream, writes ? payload_write : payload_verify,
                                &p, sizeof p));
    }
}

static bool reclaim(void *unused, size_t bytes) {
    (void)unused;
    CHECK(bytes > 0);
    if (offered < 0 || slots[offered].ptr == NULL) {
        return false;
    }
    const int slot = offered;
    offered = -1;
    use_ends(slot, false);
    CHECK(ashlar_free(allocator, slots[slot].ptr) == ASHLAR_OK);
    slots[slot].ptr = NULL;
    reclaimed++;
    return true;
}

static ashlar_status wait_for_all(void) {
    ashlar_status status = ASHLAR_OK;
    for (int i = 0; i < STREAMS && status == ASHLAR_OK; i++) {
        status = ashlar_stream_synchronize(device, streams[i]);
    }
    return status;
}

/* The end of a stream, and a new one, which may well have its handle. */
static ashlar_status forget(ashlar_stream *stream) {
    if (!is_destroyed) {
        ASHLAR_TRY(ashlar_allocator_forget_stream(allocator, *stream));
        CHECK(ashlar__device_enter(device) == ASHLAR_OK || is_armed);
        is_destroyed = driver->table.stream_destroy(*stream) == CU_SUCCESS;
        ashlar__device_leave(device);
    }
    ASHLAR_TRY(ashlar_stream_create(device, stream));
    is_destroyed = false;
    return ASHLAR_OK;
}

static ashlar_status take_slot(int slot, size_t bytes, ashlar_stream stream) {
    void *ptr = NULL;
    const ashlar_status status = ashlar_alloc(allocator, bytes, stream, &ptr);
    CHECK((ptr == NULL) == (status != ASHLAR_OK));
    slots[slot].ptr = ptr;
    slots[slot].bytes = bytes;
    slots[slot].stream = stream;
    slots[slot].value++; /* so that no earlier user's write looks right */
    return status;
}

static ashlar_status act(const step *s) {
    ashlar_stream *stream = &streams[s->stream];
    ashlar_status status = ASHLAR_OK;
    switch (s->act) {
    case TAKE:
        return take_slot(s->slot, s->bytes, *stream);
    case GIVE:
    case GIVE_REST:
        return ashlar_free(allocator, slots[s->slot].ptr);
    case GIVE_ON:
        return ashlar_free_on(allocator, slots[s->slot].ptr, *stream);
    case OFFER:
        offered = s->slot;
        return ASHLAR_OK;
    case RECORD:
        return ashlar_record_stream(allocator, slots[s->slot].ptr, *stream);
    case RESERVE:
        status = ashlar_allocator_reserve(allocator, s->bytes);
        CHECK(status != ASHLAR_OK || reserved() >= s->bytes);
        return status;
    case TRIM:
        return ashlar_allocator_trim(allocator, s->bytes);
    case LIMIT:
        status = ashlar_allocator_set_limit(allocator, s->bytes);
        CHECK(status != ASHLAR_OK || s->bytes == 0 || reserved() <= s->bytes);
        return status;
    case PEER:
        status = ashlar_allocator_allow_peer(allocator, 1);
        CHECK(use_vmm || status == ASHLAR_ENOTSUP);
        return use_vmm ? status : ASHLAR_OK;
    case FORGET:
        return forget(stream);
    case WAIT:
        return ashlar_stream_synchronize(device, *stream);
    case WAIT_ALL:
        return wait_for_all();
    }
    return status;
}

/* A refusal has the status that the cause asks for, and all is as before. */
static void check_refusal(ashlar_status status, const ashlar_stats *before) {
    const ashlar_stats after = stats_now();
    refusals++;
    CHECK(status == allowed || status == ASHLAR_ENOMEM);
    CHECK(ashlar_error_detail()[0] != '\0');
    CHECK(strstr(ashlar_error_detail(), "this free") == NULL); /* no pointer is to blame */
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    /* A request that its guard refuses has been counted, as taken and as freed. */
    CHECK(after.live_blocks == before->live_blocks || reclaimed > 0);
    CHECK(after.live_bytes == before->live_bytes || reclaimed > 0);
    CHECK(after.block_bytes == before->block_bytes || reclaimed > 0 || w->guard != 0);
}

/*
 * A block that the script gives back may be missing: where the driver refused an event, another
 * part of the device was mapped instead, and a later request may not find its room in one piece.
 */
static void run_step(const step *s) {
    const ashlar_stats before = stats_now();
    if (s->act == GIVE || s->act == GIVE_ON || s->act == GIVE_REST) {
        if (slots[s->slot].ptr == NULL) {
            CHECK((is_armed && w->may_lack) || s->act == GIVE_REST);
            return;
        }
        use_ends(s->slot, false);
        if (s->act == GIVE_ON && slots[s->slot].stream != streams[s->stream]) {
            TRY_AGAIN(ashlar_stream_synchronize(device, slots[s->slot].stream));
        }
    }
    ashlar_status status = act(s);
    for (int i = 1; i < ATTEMPTS && status != ASHLAR_OK; i++) {
        check_refusal(status, &before);
        status = act(s);
    }
    CHECK(status == ASHLAR_OK || (is_armed && w->may_lack && status == ASHLAR_ENOMEM));
    if (s->act == TAKE && status == ASHLAR_OK) {
        use_ends(s->slot, true);
    } else if (s->act == GIVE_REST) {
        slots[s->slot].ptr = NULL;
    }
}

/* ---- a run ---- */

/* Nothing is lost, and the guard has found nothing but the block that was left. */
static void check_end(ashlar_stats *stats) {
    TRY_AGAIN(w->guard == ASHLAR_GUARD_OFF ? wait_for_all() : ASHLAR_OK);
    *stats = stats_now();
    CHECK_ZU(stats->live_blocks, w->guard != ASHLAR_GUARD_OFF);
    if (w->whole_bytes > 0) {
        TRY_AGAIN(take_slot(0, w->whole_bytes, streams[0]));
        CHECK(ashlar_free(allocator, slots[0].ptr) == ASHLAR_OK);
    }
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    if (!is_armed) { /* a snapshot takes host memory too */
        check_snapshot(allocator);
    }
    CHECK(atomic_load(&payload_bad_count) == 0 && report_count == 0);
    ashlar_allocator_destroy(allocator);
    CHECK(w->guard == ASHLAR_GUARD_OFF ? report_count == 0
                                       : report_count == 1 || report_count == 2);
}

/* The whole life of an allocator. */
static void run_script(ashlar_stats *stats) {
    refusals = reclaimed = report_count = 0;
    offered = -1;
    is_destroyed = false;
    atomic_store(&payload_bad_count, 0);
    allocator = NULL;
    for (int i = 0; i < ATTEMPTS && allocator == NULL; i++) {
        const ashlar_status status = ashlar_allocator_create_with(device, &options, &allocator);
        CHECK((status == ASHLAR_OK) == (allocator != NULL));
        refusals += status != ASHLAR_OK;
    }
    REQUIRE(allocator != NULL);
    ashlar_allocator_set_reclaim(allocator, reclaim, NULL);
    ashlar_allocator_set_report(allocator, count_report, NULL);
    for (size_t i = 0; i < w->step_count && check_failed == 0; i++) {
        run_step(&w->steps[i]);
        if (check_failed != 0) {
            printf("# step %zu: %s\n", i, ashlar_error_detail());
        }
    }
    if (check_failed == 0) {
        check_end(stats);
    }
}

static bool set_up_run(uint64_t cache_bytes) {
    if (!set_up_options(w->device)) {
        CHECK(false);
        return false;
    }
    options.cache_bytes = cache_option(cache_bytes);
    options.limit_bytes = w->limit_bytes;
    options.guard = w->guard;
    options.report_leaks = w->guard != ASHLAR_GUARD_OFF;
    return true;
}

/* What destroy() cannot return where the driver will not take it, or gives no context to do so. */
static bool returns_memory(int fn) {
    return (fn == ASHLAR_DRIVER_FN_ctx_push_current && !use_vmm) ||
           fn == ASHLAR_DRIVER_FN_mem_unmap || fn == ASHLAR_DRIVER_FN_mem_release ||
           fn == ASHLAR_DRIVER_FN_mem_address_free || fn == ASHLAR_DRIVER_FN_mem_free;
}

/* True where the armed call came. */
static bool run_with_failing_call(uint64_t cache_bytes, int fn, uint64_t n, cu_result result) {
    ashlar_stats stats = {0};
    if (!set_up_run(cache_bytes)) {
        return false;
    }
    allowed = result == CU_OUT_OF_MEMORY ? ASHLAR_ENOMEM : ASHLAR_EDRIVER;
    ashlar__driver_fail_at(driver, fn, n, result);
    run_script(&stats);
    const bool has_fired = atomic_load(&driver->fail_countdown) == 0;
    ashlar__driver_fail_at(driver, fn, 0, CU_SUCCESS);
    if (check_failed != 0) {
        printf("# call %llu of %s\n", (unsigned long long)n,
               ashlar__driver_fn_name((ashlar_driver_fn)fn));
    } else if (has_fired && returns_memory(fn)) {
        ashlar_device_close(device);
        check_forget(tear_down_device);
    } else {
        tear_down_device();
    }
    return has_fired && check_failed == 0;
}

/*
 * The test's own work and waits make most calls of these; the allocator's do not differ. A run with
 * segments takes ten times as long as one without.
 */
static uint64_t after(int fn, uint64_t n) {
    const bool is_often =
        fn == ASHLAR_DRIVER_FN_ctx_push_current || fn == ASHLAR_DRIVER_FN_ctx_pop_current ||
        fn == ASHLAR_DRIVER_FN_stream_synchronize || fn == ASHLAR_DRIVER_FN_launch_host_func;
    return w->is_long && is_often ? n + 1 + n / (use_vmm ? 4 : 2) : n + 1;
}

static void fail_driver_calls(uint64_t cache_bytes) {
    static const cu_result results[] = {CU_OUT_OF_MEMORY, CU_UNKNOWN};
    bool has_come[ASHLAR_DRIVER_FN_COUNT] = {false};
    for (size_t i = 0; i < 2; i++) {
        for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT && check_failed == 0; fn++) {
            uint64_t n = 1;
            while (run_with_failing_call(cache_bytes, fn, n, results[i])) {
                n = after(fn, n);
            }
            has_come[fn] |= n > 1;
        }
    }
    for (size_t i = 0; w->must_come[i] != 0; i++) {
        CHECK(has_come[w->must_come[i]] || check_failed != 0);
    }
}

static void fail_host_allocations(uint64_t cache_bytes) {
    unsigned seen = 0;
    bool is_over = false;
    unsigned long n = 1;
    for (; !is_over && check_failed == 0; n += w->is_long ? 1 + n / (use_vmm ? 64 : 8) : 1) {
        ashlar_stats stats = {0};
        REQUIRE(set_up_run(cache_bytes));
        allowed = ASHLAR_EHOSTMEM;
        ashlar__host_fail_at(n);
        run_script(&stats);
        is_over = is_still_armed(n);
        seen += refusals;
        if (check_failed != 0) {
            printf("# host allocation %lu\n", n);
            return;
        }
        tear_down_device();
    }
    CHECK(n > 30 && seen > 5);
}

static void check_workload(const workload *of, uint64_t cache_bytes) {
    ashlar_stats stats = {0};
    w = of;
    is_armed = false;
    REQUIRE(set_up_run(cache_bytes));
    run_script(&stats);
    CHECK(refusals == 0 && w->is_complete(&stats));
    tear_down_device();
    is_armed = true;
    fail_driver_calls(cache_bytes);
    if (check_failed == 0) {
        fail_host_allocations(cache_bytes);
    }
}

CASE(any_call_may_fail_on_the_ladder) {
    check_workload(&ladder, 0);
}

/* A block of 8 MiB fits, and the rest of the device is too little for what the script wants. */
CASE(any_call_may_fail_on_the_ladder_beside_caches) {
    check_workload(&ladder, 16 * MIB);
}

CASE(any_call_may_fail_where_memory_is_limited_and_given_back) {
    check_workload(&limits, 16 * MIB);
}

CASE(any_call_may_fail_where_it_comes_in_segments) {
    use_vmm = false;
    check_workload(&limits_of_segments, 0);
    use_vmm = true;
}

CASE(any_call_may_fail_where_blocks_are_guarded) {
    check_workload(&guarded, MIB);
}

RUN_CASES()
