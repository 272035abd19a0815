/* test_share.c - share=on: segments of one handle each, as NCCL registers them. */
#include "tests/allocator/core/allocator_fixture.h"

#include "allocator/core/core.h"

static ashlar_status make(const char *conf, ashlar_allocator **out) {
    ashlar_config config = {0};
    const ashlar_status status = ashlar_config_parse(&config, conf, "test");
    return status == ASHLAR_OK ? ashlar_allocator_create_with(device, &config, out) : status;
}

static bool set_up_shared(const char *spec) {
    atomic_store(&payload_bad_count, 0);
    return set_up_device(spec) && make("share=on,cache=0", &allocator) == ASHLAR_OK &&
           check_at_end(tear_down);
}

/* ---- segments ---- */

CASE_WITH(a_large_block_has_one_handle_to_itself, set_up_shared("memory=256MiB")) {
    unsigned char *blocks[3];
    const size_t sizes[] = {17 * MIB, 40 * MIB + 1, 2 * MIB}; /* large, or of whole granules */
    const size_t kept = CALLS(mem_create) - CALLS(mem_release);
    for (size_t i = 0; i < 3; i++) {
        const size_t made = CALLS(mem_create), mapped = CALLS(mem_map);
        blocks[i] = take(sizes[i], streams[0]);
        void *base = NULL;
        size_t bytes = 0;
        CHECK(ashlar_segment(allocator, blocks[i] + sizes[i] - 1, &base, &bytes) == ASHLAR_OK);
        CHECK(base == blocks[i] && bytes >= sizes[i] && bytes < sizes[i] + 2 * MIB);
        CHECK_ZU(bytes % (2 * MIB), 0);
        CHECK_ZU(CALLS(mem_create) - made, 1);
        CHECK_ZU(CALLS(mem_map) - mapped, 1);
    }
    CHECK_ZU(CALLS(mem_create) - CALLS(mem_release), kept); /* no handle is */
    for (size_t i = 0; i < 3; i++) {
        give(blocks[i]);
    }
}

/* ---- what drivers refuse ---- */

CASE_WITH(memory_is_made_to_be_shared, set_up_shared("memory=256MiB")) {
    const cu_mem_prop *prop = &allocator->heap.range.shared;
    CHECK_ZU(prop->handle_types, CU_HANDLE_FILE);
    CHECK_ZU(prop->flags.rdma_capable, 1);
}

CASE_WITH(a_failing_call_leaves_nothing, set_up_shared("memory=64MiB")) {
    static const struct {
        ashlar_driver_fn fn;
        const char *name;
    } calls[] = {
        {ASHLAR_DRIVER_FN_mem_address_reserve, "cuMemAddressReserve"},
        {ASHLAR_DRIVER_FN_mem_create, "cuMemCreate"},
        {ASHLAR_DRIVER_FN_mem_map, "cuMemMap"},
        {ASHLAR_DRIVER_FN_mem_set_access, "cuMemSetAccess"},
    };
    const size_t all = free_memory_of(device);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        void *block = NULL;
        DRIVER_FAILS_AT(calls[i].fn, 1, CU_UNKNOWN,
                        CHECK_FAILS(ashlar_alloc(allocator, 20 * MIB, streams[0], &block),
                                    ASHLAR_EDRIVER, calls[i].name));
        CHECK_ZU(free_memory_of(device), all);
        check_all();
    }
    give(take(20 * MIB, streams[0]));
}

CASE_WITH(an_unmap_that_is_refused_keeps_the_segment, set_up_shared("memory=64MiB")) {
    give(take(20 * MIB, streams[0]));
    wait_for(streams[0]);
    DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_mem_unmap, 1, CU_UNKNOWN,
                    CHECK_FAILS(ashlar_allocator_trim(allocator, 0), ASHLAR_EDRIVER, "cuMemUnmap"));
    check_all();
    CHECK(stats_now().reserved_bytes == 20 * MIB);
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    CHECK(stats_now().reserved_bytes == 0);
}

CASE_WITH(what_cannot_be_shared_is_said, set_up_device("memory=64MiB")) {
    ashlar_allocator *made = NULL;
    CHECK_FAILS(make("share=on,vmm=off", &made), ASHLAR_EINVAL, "vmm=off; choose one");
    REQUIRE(make("", &made) == ASHLAR_OK);
    void *block = NULL, *base = NULL;
    size_t bytes = 0;
    REQUIRE(ashlar_alloc(made, MIB, streams[0], &block) == ASHLAR_OK);
    CHECK_FAILS(ashlar_segment(made, block, &base, &bytes), ASHLAR_ENOTSUP, "share=on");
    CHECK(ashlar_free(made, block) == ASHLAR_OK);
    ashlar_allocator_destroy(made);
}

CASE_WITH(a_device_that_cannot_map_is_refused, set_up_device("memory=64MiB,vmm=off")) {
    ashlar_allocator *made = NULL;
    CHECK_FAILS(make("share=on", &made), ASHLAR_ENOTSUP, "leave it off");
}

CASE_WITH(pointers_without_a_block_are_refused, set_up_shared("memory=64MiB")) {
    void *base = NULL;
    size_t bytes = 0;
    unsigned char *block = take(MIB, streams[0]);
    CHECK_FAILS(ashlar_segment(allocator, &base, &base, &bytes), ASHLAR_EPOINTER,
                "in no live block");
    give(block);
    CHECK_FAILS(ashlar_segment(allocator, block, &base, &bytes), ASHLAR_EPOINTER,
                "in no live block");
    CHECK(base == NULL && bytes == 0);
}

RUN_CASES()
