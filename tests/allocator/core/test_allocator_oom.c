/*
 * test_allocator_oom.c - one fixed workload on four streams, in which the n-th call of each driver
 * function, or the n-th host allocation, fails: for every n, without and with thread caches.
 * Nothing may be lost, the next call works, and at the end the device has its memory back.
 */
#include "tests/allocator/core/allocator_fixture.h"

enum { SLOTS = 8, ATTEMPTS = 3 };

typedef enum action { TAKE, GIVE, GIVE_ON, WAIT } action;

/* What happens; 32 MiB of device memory, of which all is mapped at the end. */
static const struct {
    action act;
    int slot, stream;
    size_t bytes;
} script[] = {
    {TAKE, 0, 0, 4 * MIB},       /* mapped */
    {TAKE, 1, 0, 1000},          /* mapped, and more than that */
    {TAKE, 2, 1, 2000},          /* idle */
    {GIVE, 0, 0, 0},             {TAKE, 0, 0, 4 * MIB}, /* same stream */
    {TAKE, 3, 0, 4 * MIB},       {TAKE, 4, 0, 2 * MIB},  {TAKE, 5, 0, 4 * MIB},
    {GIVE, 3, 0, 0},             {GIVE, 5, 0, 0},
    {TAKE, 3, 1, 4 * MIB},       /* after a wait, with the stream's first event */
    {WAIT, 0, 1, 0},
    {TAKE, 5, 2, 4 * MIB},       /* completed */
    {GIVE, 0, 0, 0},             {TAKE, 0, 3, 3 * MIB},  /* after a wait, with a rest */
    {TAKE, 6, 0, 8 * MIB},       {TAKE, 7, 1, 8 * MIB},  /* the device is full */
    {GIVE_ON, 6, 3, 0},          {GIVE, 7, 0, 0},
    {TAKE, 6, 2, 16 * MIB},      /* after the host has waited */
    {GIVE, 1, 0, 0},             {GIVE, 2, 0, 0},        {GIVE, 3, 0, 0},
    {GIVE, 4, 0, 0},             {GIVE, 5, 0, 0},        {GIVE_ON, 6, 0, 0},
    {TAKE, 1, 3, 5000},          {GIVE, 0, 0, 0},        {GIVE, 1, 0, 0},
};
enum { STEPS = sizeof script / sizeof *script };

static unsigned char *slots[SLOTS];
static int slot_values[SLOTS];
static size_t slot_bytes[SLOTS];
static ashlar_stream slot_streams[SLOTS];
static size_t cache_bytes; /* of each allocator */
static unsigned failures; /* refused calls in this run */
static bool is_armed;     /* some call of this run is to fail */
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
    CHECK(after.alloc_count == before->alloc_count && after.free_count == before->free_count);
    CHECK(after.live_bytes == before->live_bytes && after.block_bytes == before->block_bytes);
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

/*
 * A block that the script gives back may be missing: where the driver refused an event, another
 * part of the device was mapped instead, and a later request may not find its room in one piece.
 */
static void run_step(size_t step) {
    const int slot = script[step].slot;
    ashlar_stats before;
    ashlar_allocator_get_stats(allocator, &before);
    if (script[step].act == GIVE || script[step].act == GIVE_ON) {
        if (slots[slot] == NULL) {
            CHECK(is_armed);
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
    failures = 0;
    atomic_store(&payload_bad_count, 0);
    allocator = NULL;
    ashlar_config_init(&config);
    config.cache_bytes = cache_bytes;
    for (int i = 0; i < ATTEMPTS && allocator == NULL; i++) {
        failures += ashlar_allocator_create_with(device, &config, &allocator) != ASHLAR_OK;
    }
    CHECK(allocator != NULL);
    if (allocator == NULL) {
        return;
    }
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
    CHECK(s.served_waited > 0 && s.served_mapped > 0 && s.served_after_sync > 0);
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
    strict_unless(fn == ASHLAR_DRIVER_FN_mem_unmap, ADDRESSES_ARE_FREED_WHILE_MAPPED);
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
    static const ashlar_driver_fn must_come[] = {
        ASHLAR_DRIVER_FN_mem_address_reserve, ASHLAR_DRIVER_FN_mem_create,
        ASHLAR_DRIVER_FN_mem_map,             ASHLAR_DRIVER_FN_mem_set_access,
        ASHLAR_DRIVER_FN_event_create,        ASHLAR_DRIVER_FN_event_record,
        ASHLAR_DRIVER_FN_event_query,         ASHLAR_DRIVER_FN_stream_wait_event,
        ASHLAR_DRIVER_FN_event_synchronize,   ASHLAR_DRIVER_FN_ctx_push_current};
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
    CHECK(s.served_after_sync > 0);
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
