/*
 * test_nvtx.c - nvtx=on: what a tool that listens is told is exactly what is live, whatever has
 * happened; and nothing is told without the option.
 */
#include "tests/allocator/step/step_fixture.h"

#include <dlfcn.h>

#include "tests/allocator/trace/nvtx_tool.h"

static nvtx_tool_state tool(void) {
    nvtx_tool_state_fn get_state = NULL;
    void *handle = dlopen(getenv("NVTX_INJECTION64_PATH"), RTLD_NOW); /* as NVTX does */
    *(void **)&get_state = handle != NULL ? dlsym(handle, NVTX_TOOL_STATE) : NULL;
    CHECK(get_state != NULL);
    return get_state != NULL ? get_state() : (nvtx_tool_state){0};
}

static void tear_down_told(void) {
    tear_down();
    CHECK_ZU(tool().heap_count, 0);
    CHECK_ZU(tool().region_count, 0);
    CHECK(tool().broken_rules == 0);
}

static ashlar_config told_config(void) {
    ashlar_config config = steps_config();
    config.tells_nvtx = 1;
    return config;
}

static bool set_up_told(const char *spec, const ashlar_config *config) {
    return set_up_device(spec) &&
           ashlar_allocator_create_with(device, config, &allocator) == ASHLAR_OK &&
           check_at_end(tear_down_told);
}

static bool set_up_eager(void) {
    const ashlar_config config = told_config();
    return set_up_told("memory=256MiB", &config);
}

/* ---- what is live ---- */

typedef struct owned {
    unsigned char *ptr; /* NULL: none */
    size_t bytes;
    ashlar_tag tag;
} owned;

enum { OWNED = 200 };
static owned all[OWNED];

/* The block's regions follow each other from its begin to its end, under its tag's name. */
static void check_told(const nvtx_tool_state *state, const owned *block) {
    uint64_t at = (uintptr_t)block->ptr;
    const uint64_t end = at + block->bytes;
    size_t low = 0, high = state->region_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (state->regions[middle].address < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < state->region_count && at < end; low++) {
        const nvtx_tool_range *region = &state->regions[low];
        CHECK(region->address == at && region->bytes <= end - at);
        CHECK(region->name != NULL && strcmp(region->name, ashlar_tag_name(block->tag)) == 0);
        at += region->bytes;
    }
    CHECK(at == end);
}

static void check_all_told(void) {
    const nvtx_tool_state state = tool();
    uint64_t live = 0, told = 0, taken = 0;
    for (size_t i = 0; i < OWNED; i++) {
        if (all[i].ptr != NULL) {
            check_told(&state, &all[i]);
            live += all[i].bytes;
        }
    }
    for (size_t i = 0; i < state.region_count; i++) {
        told += state.regions[i].bytes;
    }
    for (size_t i = 0; i < state.heap_count; i++) {
        taken += state.heaps[i].bytes;
    }
    const ashlar_stats stats = stats_now();
    CHECK(told == live);
    CHECK(taken == stats.reserved_bytes - stats.spare_bytes);
    CHECK(state.broken_rules == 0);
}

/* ---- random work ---- */

static void take_any(owned *block) {
    static const size_t most[] = {600, 9000, 100000, 5000000};
    void *ptr = NULL;
    const size_t bytes = 1 + draw(most[draw(100) == 0 ? 3 : draw(3)]);
    const ashlar_tag tag = (ashlar_tag)draw(ASHLAR_TAG_COUNT);
    if (ashlar_alloc_tagged(allocator, bytes, tag, streams[draw(STREAMS)], &ptr) == ASHLAR_OK) {
        *block = (owned){ptr, bytes, tag};
    }
}

static void give_any(owned *block) {
    const ashlar_stream other = streams[draw(STREAMS)];
    const size_t how = draw(8);
    if (how == 0) {
        CHECK(ashlar_record_stream(allocator, block->ptr, other) == ASHLAR_OK);
    }
    CHECK((how == 1 ? ashlar_free_on(allocator, block->ptr, other)
                    : ashlar_free(allocator, block->ptr)) == ASHLAR_OK);
    block->ptr = NULL;
}

/* A step that is the same each time, so that later ones are on their plan. */
static void run_step(void) {
    void *ptrs[6];
    begin(3);
    for (size_t i = 0; i < 6; i++) {
        CHECK(ashlar_alloc(allocator, 1000 + 70000 * i, streams[0], &ptrs[i]) == ASHLAR_OK);
        if (i % 2 == 1) {
            CHECK(ashlar_free(allocator, ptrs[i - 1]) == ASHLAR_OK);
        }
    }
    for (size_t i = 1; i < 6; i += 2) {
        CHECK(ashlar_free(allocator, ptrs[i]) == ASHLAR_OK);
    }
    end();
}

static void run_random(long ops) {
    for (long op = 0; op < ops; op++) {
        owned *block = &all[draw(OWNED)];
        if (block->ptr == NULL) {
            take_any(block);
        } else {
            give_any(block);
        }
        if (op % 10000 == 0) {
            run_step();
            check_all_told();
        }
        if (op % (ops / 20) == ops / 20 - 1) {
            CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
        }
    }
    for (size_t i = 0; i < OWNED; i++) {
        if (i % 2 == 0 && all[i].ptr != NULL) { /* the others are live to the end */
            give_any(&all[i]);
        }
    }
    check_all_told();
}

CASE(the_tool_knows_what_is_live_after_many_operations) {
    random_state = 1;
    REQUIRE(set_up_eager());
    const long ops = CHECK_SANITIZED(1000000, 100000);
    run_random(ops);
    CHECK(stats_now().served_planned > 0);
    CHECK((long)tool().regions_seen > ops / 2 && tool().heaps_seen > 20);
    memset(all, 0, sizeof all);
}

CASE(so_it_does_while_work_is_late_and_memory_short) {
    const ashlar_config config = told_config();
    random_state = 2;
    REQUIRE(set_up_told("memory=24MiB,mode=adversarial,seed=3", &config));
    run_random(30000);
    memset(all, 0, sizeof all);
}

CASE(without_virtual_memory_segments_are_heaps) {
    ashlar_config config = told_config();
    config.without_virtual_memory = true;
    config.trace_events = 64; /* beside a trace */
    random_state = 3;
    REQUIRE(set_up_told("memory=256MiB", &config));
    run_random(30000);
    memset(all, 0, sizeof all);
}

CASE_WITH(a_block_over_several_handles_is_a_region_in_each, set_up_eager()) {
    owned *block = &all[0];
    *block = (owned){take(5 * MIB, streams[0]), 5 * MIB, ASHLAR_TAG_USER};
    check_all_told();
    CHECK_ZU(tool().region_count, 3);
    CHECK_ZU(tool().heap_count, 3);
    give_any(block);
}

CASE(zeros_are_written_to_what_was_asked_for_alone) {
    ashlar_config config = told_config();
    config.zero_blocks = true;
    REQUIRE(set_up_told("memory=64MiB", &config));
    unsigned char *ptr = take(1000, streams[0]);
    queue_write(streams[0], ptr, 1024, 7); /* the block's, behind what was asked for */
    give(ptr);
    CHECK(take(1000, streams[0]) == ptr);
    queue_verify(streams[0], ptr, 1000, 0);
    queue_verify(streams[0], ptr + 1000, 24, 7);
    wait_for(streams[0]);
    CHECK(atomic_load(&payload_bad_count) == 0);
    give(ptr);
}

CASE_WITH(nothing_is_told_without_the_option, set_up("memory=64MiB")) {
    const nvtx_tool_state before = tool();
    give(take(1000, streams[0]));
    CHECK(tool().heaps_seen == before.heaps_seen && tool().regions_seen == before.regions_seen);
}

CASE(a_guard_is_refused_beside_it) {
    ashlar_config config = told_config();
    config.guard = ASHLAR_GUARD_FILL;
    REQUIRE(set_up_device("memory=64MiB"));
    CHECK_FAILS(ashlar_allocator_create_with(device, &config, &allocator), ASHLAR_EINVAL, "nvtx");
    tear_down_device();
}

CASE(no_host_memory_at_any_call_leaves_blocks_untold_and_nothing_else) {
    const ashlar_config config = told_config();
    for (unsigned long n = 1; n < 60; n++) {
        REQUIRE(set_up_device("memory=64MiB"));
        ashlar__host_fail_at(n);
        const ashlar_status status = ashlar_allocator_create_with(device, &config, &allocator);
        if (status == ASHLAR_OK) {
            void *ptr = NULL;
            if (ashlar_alloc(allocator, 5 * MIB, streams[0], &ptr) == ASHLAR_OK) {
                CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
            }
            ashlar__host_fail_at(0);
            CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
            ashlar_allocator_destroy(allocator);
        }
        ashlar__host_fail_at(0);
        CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM);
        CHECK(tool().broken_rules == 0 && tool().heap_count == 0 && tool().region_count == 0);
        tear_down_device();
    }
}

RUN_CASES()
