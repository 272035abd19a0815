/*
 * test_limits_oom.c - reserve, trim, limit, record_stream, forget_stream, peers and gathering, in a
 * fixed workload in which the n-th call of each driver function, or the n-th host allocation,
 * fails: for every n, with caches and without, on either back end.
 */
#include "tests/allocator/core/cache_option.h"
#include "tests/allocator/core/limits_fixture.h"

enum { SLOTS = 10, ATTEMPTS = 3 };

typedef enum action { TAKE, GIVE, RECORD, RESERVE, TRIM, LIMIT, PEER, FORGET, WAIT } action;

static const struct {
    action act;
    int slot, stream;
    size_t bytes;
} script[] = {
    {RESERVE, 0, 0, 4 * MIB}, {TAKE, 0, 0, 4 * MIB},  {TAKE, 1, 0, 4 * MIB},
    {PEER, 0, 0, 0},          {TAKE, 2, 1, 4 * MIB},  {TAKE, 3, 0, 4 * MIB},
    {TAKE, 4, 0, 4 * MIB},    {TAKE, 5, 1, 4 * MIB},  {TAKE, 6, 0, 4 * MIB},
    {TAKE, 7, 0, 4 * MIB},    {RECORD, 2, 2, 0},      {RECORD, 4, 3, 0},
    {GIVE, 0, 0, 0},          {GIVE, 2, 0, 0},        {GIVE, 4, 0, 0},
    {GIVE, 6, 0, 0},          {FORGET, 0, 3, 0},      {TRIM, 0, 0, 31 * MIB},
    {WAIT, 0, 0, 0},          {TAKE, 8, 1, 12 * MIB},                         /* gathered */
    {WAIT, 0, 0, 0},          {GIVE, 8, 0, 0},        {TAKE, 8, 2, 14 * MIB}, /* waited for */
    {GIVE, 8, 0, 0},          {TAKE, 9, 3, 1 * MIB},  {GIVE, 9, 0, 0},
    {TRIM, 0, 0, 28 * MIB},   {WAIT, 0, 0, 0},        {TRIM, 0, 0, 20 * MIB},
    {WAIT, 0, 0, 0},          {TRIM, 0, 0, 20 * MIB}, {WAIT, 0, 0, 0},
    {LIMIT, 0, 0, 20 * MIB},  {LIMIT, 0, 0, 0},       {RESERVE, 0, 0, 24 * MIB},
    {GIVE, 1, 0, 0},          {GIVE, 3, 0, 0},        {GIVE, 5, 0, 0},
    {GIVE, 7, 0, 0},          {WAIT, 0, 0, 0},        {TRIM, 0, 0, 0},
    {WAIT, 0, 0, 0},          {TRIM, 0, 0, 0},        {WAIT, 0, 0, 0},
    {TRIM, 0, 0, 0}, /* each waits for the events of the one before */
};
enum { STEPS = sizeof script / sizeof *script };

static struct {
    unsigned char *ptr;
    size_t bytes;
    ashlar_stream stream;
} slots[SLOTS];
static unsigned refusals; /* in this run */
static bool is_armed;     /* some call of this run is to fail */
static bool is_destroyed; /* by FORGET: the handle names nothing */
/* The status of a refusal, besides ENOMEM, which the software device says for host memory too. */
static ashlar_status allowed;

/* ---- steps ---- */

static ashlar_status wait_for_all(void) {
    ashlar_status status = ASHLAR_OK;
    for (int i = 0; i < STREAMS && status == ASHLAR_OK; i++) {
        status = ashlar_stream_synchronize(device, streams[i]);
    }
    return status;
}

/* The end of a stream, and a new one, which may well have its handle. */
static ashlar_status forget(ashlar_stream *stream) {
    ashlar_status status = ASHLAR_OK;
    if (!is_destroyed) {
        status = ashlar_allocator_forget_stream(allocator, *stream);
        if (status == ASHLAR_OK) {
            const ashlar_driver_table *table = &driver->table; /* not counted: it does not fail */
            CHECK(ashlar__device_enter(device) == ASHLAR_OK || is_armed);
            is_destroyed = table->stream_destroy(*stream) == CU_SUCCESS;
            ashlar__device_leave(device);
        }
    }
    if (status == ASHLAR_OK) {
        status = ashlar_stream_create(device, stream);
        is_destroyed = status != ASHLAR_OK;
    }
    return status;
}

static ashlar_status take_slot(int slot, size_t bytes, ashlar_stream stream) {
    void *ptr = NULL;
    const ashlar_status status = ashlar_alloc(allocator, bytes, stream, &ptr);
    CHECK((ptr == NULL) == (status != ASHLAR_OK));
    slots[slot].ptr = ptr;
    slots[slot].bytes = bytes;
    slots[slot].stream = stream;
    return status;
}

static ashlar_status act(size_t step) {
    const int slot = script[step].slot;
    const size_t bytes = script[step].bytes;
    ashlar_stream *stream = &streams[script[step].stream];
    ashlar_status status = ASHLAR_OK;
    switch (script[step].act) {
    case TAKE:
        return take_slot(slot, bytes, *stream);
    case GIVE:
        return ashlar_free(allocator, slots[slot].ptr);
    case RECORD:
        return ashlar_record_stream(allocator, slots[slot].ptr, *stream);
    case RESERVE:
        status = ashlar_allocator_reserve(allocator, bytes);
        CHECK(status != ASHLAR_OK || reserved() >= bytes);
        return status;
    case TRIM:
        return ashlar_allocator_trim(allocator, bytes);
    case LIMIT:
        status = ashlar_allocator_set_limit(allocator, bytes);
        CHECK(status != ASHLAR_OK || bytes == 0 || reserved() <= bytes);
        return status;
    case PEER:
        status = ashlar_allocator_allow_peer(allocator, 1);
        CHECK(use_vmm || status == ASHLAR_ENOTSUP);
        return use_vmm ? status : ASHLAR_OK;
    case FORGET:
        return forget(stream);
    case WAIT:
        return wait_for_all();
    }
    return status;
}

/* ---- a run ---- */

/* Work at both ends of a block; a refused launch is tried again. */
static void use_ends(int slot, ashlar_stream stream, bool write) {
    for (size_t end = 0; end < 2; end++) {
        const payload p = {slots[slot].ptr + (end ? slots[slot].bytes - 64 : 0), 64,
                           (unsigned char)(slot + 1)};
        ashlar_status status = ASHLAR_EDRIVER;
        for (int i = 0; i < ATTEMPTS && status != ASHLAR_OK; i++) {
            status =
                ashlar_launch(device, stream, write ? payload_write : payload_verify, &p, sizeof p);
        }
        CHECK(status == ASHLAR_OK);
    }
}

/* A refusal has the status that the cause asks for, and no block came or went. */
static void check_refusal(ashlar_status status, const ashlar_stats *before) {
    const ashlar_stats after = stats_now();
    refusals++;
    CHECK(status == allowed || status == ASHLAR_ENOMEM);
    CHECK(ashlar_error_detail()[0] != '\0');
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    CHECK(after.alloc_count == before->alloc_count && after.free_count == before->free_count);
    CHECK(after.live_bytes == before->live_bytes && after.block_bytes == before->block_bytes);
}

static void run_step(size_t step) {
    const ashlar_stats before = stats_now();
    const int slot = script[step].slot;
    if (script[step].act == GIVE) {
        use_ends(slot, slots[slot].stream, false);
    }
    ashlar_status status = act(step);
    for (int i = 1; i < ATTEMPTS && status != ASHLAR_OK; i++) {
        check_refusal(status, &before);
        status = act(step);
    }
    CHECK(status == ASHLAR_OK);
    if (status != ASHLAR_OK) {
        printf("# step %zu: %s\n", step, ashlar_error_detail());
    }
    if (script[step].act == TAKE && status == ASHLAR_OK) {
        use_ends(slot, slots[slot].stream, true);
    }
}

/* The whole life of an allocator. */
static void run_script(ashlar_stats *stats) {
    refusals = 0;
    is_destroyed = false;
    allocator = NULL;
    atomic_store(&payload_bad_count, 0);
    for (int i = 0; i < ATTEMPTS && allocator == NULL; i++) {
        refusals += !open_allocator();
    }
    REQUIRE(allocator != NULL);
    for (size_t step = 0; step < STEPS && check_failed == 0; step++) {
        run_step(step);
    }
    if (check_failed != 0) {
        return;
    }
    *stats = stats_now();
    CHECK(stats->live_blocks == 0 && stats->shared_bytes == 0);
    /* Nothing has been lost: all of the memory can be had in one piece. */
    ashlar_status status = take_slot(0, 32 * MIB, streams[0]);
    for (int i = 1; i < ATTEMPTS && status != ASHLAR_OK; i++) {
        status = take_slot(0, 32 * MIB, streams[0]);
    }
    CHECK(status == ASHLAR_OK && ashlar_free(allocator, slots[0].ptr) == ASHLAR_OK);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    if (!is_armed) { /* a snapshot takes host memory too */
        check_snapshot(allocator);
    }
    CHECK(atomic_load(&payload_bad_count) == 0);
    ashlar_allocator_destroy(allocator);
}

/* Failures are tried in the first two ways: each back end, and caches with one of them. */
typedef struct way {
    bool use_vmm;
    uint64_t cache_bytes;
} way;
static const way ways[] = {{true, 16 * MIB}, {false, 0}, {true, 0}, {false, 16 * MIB}};
enum { WAYS = sizeof ways / sizeof *ways, FAILING_WAYS = 2 };

static bool set_up_way(const way *w) {
    use_vmm = w->use_vmm;
    if (!set_up_options("devices=2,mode=adversarial,seed=5,memory=64MiB")) {
        return false;
    }
    options.cache_bytes = cache_option(w->cache_bytes);
    options.limit_bytes = 32 * MIB; /* half the device: room to gather even in half the addresses */
    is_armed = false;
    return true;
}

CASE(the_workload_makes_every_call) {
    for (size_t i = 0; i < WAYS; i++) {
        ashlar_stats s = {0};
        REQUIRE(set_up_way(&ways[i]));
        run_script(&s);
        CHECK(refusals == 0);
        CHECK(s.served_gathered > 0 && s.reserved_bytes == 0 && s.events_recorded > 0);
        tear_down_device();
    }
}

/* What destroy() cannot return where the driver will not take it, or gives no context to do so. */
static bool returns_memory(int fn) {
    return (fn == ASHLAR_DRIVER_FN_ctx_push_current && !use_vmm) ||
           fn == ASHLAR_DRIVER_FN_mem_unmap || fn == ASHLAR_DRIVER_FN_mem_release ||
           fn == ASHLAR_DRIVER_FN_mem_address_free || fn == ASHLAR_DRIVER_FN_mem_free;
}

/* True where the armed call came. */
static bool run_with_failing_call(const way *w, int fn, uint64_t n, cu_result result) {
    ashlar_stats stats = {0};
    if (!set_up_way(w)) {
        CHECK(false);
        return false;
    }
    is_armed = true;
    allowed = result == CU_OUT_OF_MEMORY ? ASHLAR_ENOMEM : ASHLAR_EDRIVER;
    ashlar__driver_fail_at(driver, fn, n, result);
    run_script(&stats);
    const bool has_fired = atomic_load(&driver->fail_countdown) == 0;
    ashlar__driver_fail_at(driver, fn, 0, CU_SUCCESS);
    if (check_failed == 0 && has_fired && returns_memory(fn)) {
        ashlar_device_close(device);
        check_forget(tear_down_device);
    } else if (check_failed == 0) {
        tear_down_device();
    }
    if (check_failed != 0) {
        printf("# call %llu of %s, vmm %d, cache %llu\n", (unsigned long long)n,
               ashlar__driver_fn_name((ashlar_driver_fn)fn), w->use_vmm,
               (unsigned long long)w->cache_bytes);
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
    return is_often ? n + 1 + n / (use_vmm ? 4 : 2) : n + 1;
}

CASE(every_driver_call_may_fail) {
    static const cu_result results[] = {CU_OUT_OF_MEMORY, CU_UNKNOWN};
    static const ashlar_driver_fn must_come[] = {
        ASHLAR_DRIVER_FN_mem_create,        ASHLAR_DRIVER_FN_mem_map,
        ASHLAR_DRIVER_FN_mem_unmap,         ASHLAR_DRIVER_FN_mem_release,
        ASHLAR_DRIVER_FN_mem_set_access,    ASHLAR_DRIVER_FN_mem_alloc,
        ASHLAR_DRIVER_FN_mem_free,          ASHLAR_DRIVER_FN_event_create,
        ASHLAR_DRIVER_FN_event_record,      ASHLAR_DRIVER_FN_event_query,
        ASHLAR_DRIVER_FN_event_synchronize, ASHLAR_DRIVER_FN_device_can_access_peer};
    uint64_t reached[ASHLAR_DRIVER_FN_COUNT] = {0};
    for (size_t i = 0; i < 2 * FAILING_WAYS; i++) {
        for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT && check_failed == 0; fn++) {
            uint64_t n = 1;
            while (run_with_failing_call(&ways[i / 2], fn, n, results[i % 2])) {
                n = after(fn, n);
            }
            reached[fn] += n - 1;
        }
    }
    for (size_t i = 0; i < sizeof must_come / sizeof *must_come; i++) {
        CHECK(reached[must_come[i]] > 0);
    }
}

CASE(every_host_allocation_may_fail) {
    unsigned seen = 0;
    for (size_t i = 0; i < FAILING_WAYS; i++) {
        bool is_over = false;
        for (unsigned long n = 1; !is_over; n += 1 + n / (use_vmm ? 64 : 8)) {
            ashlar_stats stats = {0};
            REQUIRE(set_up_way(&ways[i]));
            is_armed = true;
            allowed = ASHLAR_EHOSTMEM;
            ashlar__host_fail_at(n);
            run_script(&stats);
            is_over = is_still_armed(n);
            seen += refusals;
            if (check_failed != 0) {
                printf("# host allocation %lu, way %zu\n", n, i);
                return;
            }
            tear_down_device();
        }
    }
    CHECK(seen > 10);
}

RUN_CASES()
