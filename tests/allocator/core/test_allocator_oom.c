/*
 * test_allocator_oom.c - one fixed workload on four streams, in which the n-th call of each driver
 * function, or the n-th host allocation, fails: for every n, without and with thread caches.
 * Nothing may be lost, the next call works, and at the end the device has its memory back.
 */
#include "tests/allocator/core/cache_option.h"
#include "tests/allocator/core/allocator_fixture.h"

enum { SLOTS = 10, ATTEMPTS = 3 };

/* OFFER: the reclaim callback may give the slot's block. GIVE_REST: what it did not have to. */
typedef enum action { TAKE, GIVE, GIVE_ON, WAIT, OFFER, GIVE_REST } action;

/* What happens; 32 MiB of device memory, 16 handles, of which all are mapped at the end. */
static const struct {
    action act;
    int slot, stream;
    size_t bytes;
} script[] = {
    {TAKE, 0, 0, 4 * MIB}, /* mapped */
    {TAKE, 1, 0, 1000},    /* mapped, in the zone for small blocks */
    {TAKE, 2, 0, 2000},    /* same stream */
    {GIVE, 0, 0, 0},
    {TAKE, 0, 0, 4 * MIB}, /* same stream */
    {TAKE, 3, 0, 4 * MIB},
    {GIVE_ON, 3, 1, 0},
    {TAKE, 3, 1, 4 * MIB}, /* away, taken by the stream that used it last */
    {GIVE, 3, 0, 0},
    {WAIT, 0, 1, 0},
    {TAKE, 3, 0, 4 * MIB}, /* home again */
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
    {TAKE, 7, 3, 12 * MIB}, /* after a wait, of its own that is away */
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
};
enum { STEPS = sizeof script / sizeof *script };

static unsigned char *slots[SLOTS];
static int slot_values[SLOTS];
static size_t slot_bytes[SLOTS];
static ashlar_stream slot_streams[SLOTS];
static size_t cache_bytes; /* of each allocator */
static unsigned failures; /* refused calls in this run */
static bool is_armed;     /* some call of this run is to fail */
static int offered;       /* the slot whose block may be reclaimed; -1: none */
static unsigned reclaimed; /* blocks that were, in this run */
/* The status of a refusal, besides ENOMEM, which the software device says for host memory too. */
static ashlar_status allowed;

/* A refusal has the status that the cause asks for, and all is as before. */
static void check_refusal(ashlar_status status, const ashlar_stats *before) {
    ashlar_stats after;
    ashlar_allocator_get_stats(allocator, &after);
    failures++;
    CHECK(status == allowed || status == ASHLAR_ENOMEM);
    CHECK(ashlar_error_detail()[0] != '\0');
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    check_equations(&after);
    CHECK(after.alloc_count == before->alloc_count);
    CHECK(after.free_count == before->free_count || reclaimed > 0);
    if (reclaimed == 0) {
        CHECK(after.live_bytes == before->live_bytes && after.block_bytes == before->block_bytes);
    }
}

static ashlar_status act(size_t step) {
    const ashlar_stream stream = streams[script[step].stream];
    unsigned char **slot = &slots[script[step].slot];
    void *ptr = NULL;
    ashlar_status status = ASHLAR_OK;
    switch (script[step].act) {
    case TAKE:
        status = ashlar_alloc(allocator, script[step].bytes, stream, &ptr);
        CHECK((ptr == NULL) == (status != ASHLAR_OK));
        *slot = ptr;
        slot_bytes[script[step].slot] = script[step].bytes;
        slot_streams[script[step].slot] = stream;
        break;
    case GIVE:
        status = ashlar_free(allocator, *slot);
        break;
    case GIVE_ON:
        status = ashlar_free_on(allocator, *slot, stream);
        break;
    case WAIT:
        return ashlar_stream_synchronize(device, stream);
    case OFFER:
        offered = script[step].slot;
        break;
    case GIVE_REST:
        status = ashlar_free(allocator, *slot);
        *slot = NULL;
        break;
    }
    return status;
}

/* Queue work at both ends of a block; a refused launch is tried again. */
static void use_ends(unsigned char *ptr, size_t bytes, ashlar_stream stream, int value,
                     bool write) {
    for (int end = 0; end < 2; end++) {
        const payload p = {ptr + (end ? bytes - 64 : 0), 64, (unsigned char)value};
        ashlar_status status = ASHLAR_EDRIVER;
        for (int i = 0; i < ATTEMPTS && status != ASHLAR_OK; i++) {
            status = ashlar_launch(device, stream, write ? payload_write : payload_verify, &p,
                                   sizeof p);
        }
        CHECK(status == ASHLAR_OK);
    }
}

/* The order that free_on asks of its caller. */
static void order_before(ashlar_stream first) {
    ashlar_status status = ASHLAR_EDRIVER;
    for (int i = 0; i < ATTEMPTS && status != ASHLAR_OK; i++) {
        status = ashlar_stream_synchronize(device, first);
    }
    CHECK(status == ASHLAR_OK);
}

static bool reclaim(void *unused, size_t bytes) {
    (void)unused;
    if (offered < 0 || slots[offered] == NULL) {
        return false;
    }
    const int slot = offered;
    CHECK(bytes > 0);
    offered = -1;
    use_ends(slots[slot], slot_bytes[slot], slot_streams[slot], slot_values[slot], false);
    const ashlar_status status = ashlar_free(allocator, slots[slot]);
    CHECK(status == ASHLAR_OK);
    slots[slot] = NULL;
    reclaimed++;
    return true;
}

/*
 * A block that the script gives back may be missing: where the driver refused an event, another
 * part of the device was mapped instead, and a later request may not find its room in one piece.
 */
static void run_step(size_t step) {
    const int slot = script[step].slot;
    ashlar_stats before;
    ashlar_allocator_get_stats(allocator, &before);
    const bool is_rest = script[step].act == GIVE_REST;
    if (script[step].act == GIVE || script[step].act == GIVE_ON || is_rest) {
        if (slots[slot] == NULL) {
            CHECK(is_armed || is_rest);
            return;
        }
        use_ends(slots[slot], slot_bytes[slot], slot_streams[slot], slot_values[slot], false);
        if (script[step].act == GIVE_ON) {
            order_before(slot_streams[slot]);
        }
    }
    ashlar_status status = act(step);
    for (int i = 1; i < ATTEMPTS && status != ASHLAR_OK; i++) {
        check_refusal(status, &before);
        status = act(step);
    }
    CHECK(status == ASHLAR_OK || (is_armed && status == ASHLAR_ENOMEM));
    if (status == ASHLAR_OK && script[step].act == TAKE) {
        slot_values[slot] = (int)step + 1; /* so that no earlier user's write looks right */
        use_ends(slots[slot], slot_bytes[slot], slot_streams[slot], slot_values[slot], true);
    }
}

/* Nothing has been lost: all of the memory can be had in one piece. */
static void check_whole_device(void) {
    void *whole = NULL;
    ashlar_status status = ASHLAR_EDRIVER;
    for (int i = 0; i < ATTEMPTS && status != ASHLAR_OK; i++) {
        status = ashlar_alloc(allocator, 32 * MIB, streams[0], &whole);
    }
    CHECK(status == ASHLAR_OK);
    CHECK(ashlar_free(allocator, whole) == ASHLAR_OK);
}

/* The whole life of an allocator. */
static void run_script(ashlar_stats *stats) {
    ashlar_config config;
    failures = reclaimed = 0;
    offered = -1;
    atomic_store(&payload_bad_count, 0);
    allocator = NULL;
    ashlar_config_init(&config);
    config.cache_bytes = cache_option(cache_bytes);
    for (int i = 0; i < ATTEMPTS && allocator == NULL; i++) {
        failures += ashlar_allocator_create_with(device, &config, &allocator) != ASHLAR_OK;
    }
    CHECK(allocator != NULL);
    if (allocator == NULL) {
        return;
    }
    ashlar_allocator_set_reclaim(allocator, reclaim, NULL);
    for (size_t step = 0; step < STEPS; step++) {
        run_step(step);
    }
    for (int i = 0; i < STREAMS; i++) {
        order_before(streams[i]);
    }
    ashlar_allocator_get_stats(allocator, stats);
    check_whole_device();
    check_equations(stats);
    CHECK(stats->live_blocks == 0);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    CHECK(atomic_load(&payload_bad_count) == 0);
    ashlar_allocator_destroy(allocator);
}

static bool set_up_script(void) {
    return set_up_device("mode=adversarial,seed=5,memory=32MiB");
}

CASE_WITH(the_workload_climbs_every_step_of_the_ladder, set_up_script()) {
    ashlar_stats s;
    run_script(&s);
    CHECK(failures == 0);
    CHECK(s.served_same_stream > 0 && s.served_idle > 0 && s.served_completed > 0);
    CHECK(s.served_waited >= 3 && s.served_mapped > 0 && s.served_after_sync > 0);
    CHECK(s.served_gathered > 0 && s.served_reclaimed > 0);
    CHECK_ZU(s.reserved_bytes, 32 * MIB);
}

/* What destroy() cannot return where the driver will not take it. */
static bool returns_memory(int fn) {
    return fn == ASHLAR_DRIVER_FN_mem_unmap || fn == ASHLAR_DRIVER_FN_mem_release ||
           fn == ASHLAR_DRIVER_FN_mem_address_free;
}

/* True where the armed call came. */
static bool run_with_failing_call(int fn, uint64_t n, cu_result result) {
    ashlar_stats stats;
    const bool is_set_up = set_up_script();
    CHECK(is_set_up);
    if (!is_set_up) {
        return false;
    }
    is_armed = true;
    allowed = result == CU_OUT_OF_MEMORY ? ASHLAR_ENOMEM : ASHLAR_EDRIVER;
    ashlar__driver_fail_at(driver, fn, n, result);
    run_script(&stats);
    const bool has_fired = atomic_load(&driver->fail_countdown) == 0;
    ashlar__driver_fail_at(driver, fn, 0, CU_SUCCESS);
    if (has_fired && returns_memory(fn)) {
        ashlar_device_close(device);
        check_forget(tear_down_device);
    } else {
        tear_down_device();
    }
    return has_fired;
}

CASE(every_driver_call_may_fail) {
    static const cu_result results[] = {CU_OUT_OF_MEMORY, CU_UNKNOWN};
    static const ashlar_driver_fn must_come[] = {ASHLAR_DRIVER_FN_mem_address_reserve,
                                                 ASHLAR_DRIVER_FN_mem_create,
                                                 ASHLAR_DRIVER_FN_mem_map,
                                                 ASHLAR_DRIVER_FN_mem_set_access,
                                                 ASHLAR_DRIVER_FN_mem_unmap,
                                                 ASHLAR_DRIVER_FN_event_create,
                                                 ASHLAR_DRIVER_FN_event_record,
                                                 ASHLAR_DRIVER_FN_event_query,
                                                 ASHLAR_DRIVER_FN_stream_wait_event,
                                                 ASHLAR_DRIVER_FN_event_synchronize,
                                                 ASHLAR_DRIVER_FN_ctx_push_current};
    uint64_t reached[ASHLAR_DRIVER_FN_COUNT] = {0};
    for (size_t i = 0; i < 2; i++) {
        for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
            uint64_t n = 1;
            while (run_with_failing_call(fn, n, results[i])) {
                n++;
            }
            reached[fn] = n - 1;
        }
    }
    for (size_t i = 0; i < sizeof must_come / sizeof *must_come; i++) {
        CHECK(reached[must_come[i]] > 0);
    }
}

CASE(every_host_allocation_may_fail) {
    bool is_over = false;
    unsigned long n = 0, seen = 0;
    while (!is_over) {
        ashlar_stats stats;
        n++;
        REQUIRE(set_up_script());
        is_armed = true;
        allowed = ASHLAR_EHOSTMEM;
        ashlar__host_fail_at(n);
        run_script(&stats);
        is_over = is_still_armed(n);
        seen += failures;
        tear_down_device();
    }
    CHECK(n > 50 && seen > 5);
}

/* A block of 8 MiB fits, and the rest of the device is too little for what the script wants. */
CASE(the_workload_uses_the_cache) {
    ashlar_stats s;
    cache_bytes = 16 * MIB;
    REQUIRE(set_up_script());
    run_script(&s);
    CHECK(failures == 0);
    CHECK(s.served_cached > 0 && s.served_mapped > 0 && s.served_waited > 0);
    CHECK(s.served_drained > 0 && s.served_reclaimed > 0 && s.served_after_sync > 0);
}

CASE(every_driver_call_may_fail_beside_caches) {
    cache_bytes = 16 * MIB;
    every_driver_call_may_fail();
}

CASE(every_host_allocation_may_fail_beside_caches) {
    cache_bytes = 16 * MIB;
    every_host_allocation_may_fail();
}

RUN_CASES()
