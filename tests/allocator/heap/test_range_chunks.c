/*
 * test_range_chunks.c - unmapping and moving chunks, opening them to peers, and segments.
 */
#include "tests/allocator/heap/range_fixture.h"

static void unmap(size_t idx) {
    CHECK(ashlar__range_unmap(&range, &range.chunks[idx]) == ASHLAR_OK);
    CHECK(range.chunks[idx].is_gone);
    ashlar__range_forget_gone(&range);
    check_range();
}

/* ---- unmapping ---- */

CASE_BOTH_WITH(an_unmapped_chunk_is_the_devices_again, set_up_range("memory=16MiB")) {
    for (size_t i = 0; i < 3; i++) {
        map(i * 2 * MIB, 2 * MIB);
    }
    const size_t middle = range.chunks[1].offset, last = range.chunks[2].offset;
    unmap(1);
    CHECK_ZU(range.chunk_count, 2);
    CHECK_ZU(range.chunks[1].offset, last);
    if (!use_segments) {
        CHECK_ZU(map(middle, 2 * MIB), middle);
    }
    unmap(0);
    CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT); /* as before the case */
}

CASE_BOTH(a_chunk_that_cannot_be_unmapped_stays) {
    static const struct {
        ashlar_driver_fn fn;
        const char *name;
    } steps[] = {
        {ASHLAR_DRIVER_FN_mem_unmap, "cuMemUnmap on"},
        {ASHLAR_DRIVER_FN_mem_release, "cuMemRelease on"}, /* it is mapped again */
        {ASHLAR_DRIVER_FN_mem_free, "cuMemFree on"},
        {ASHLAR_DRIVER_FN_ctx_push_current, "cuCtxPushCurrent on"},
    };
    REQUIRE(set_up_range("memory=16MiB"));
    map(0, 4 * MIB);
    for (size_t i = use_segments ? 2 : 0; i < (use_segments ? 4u : 2u); i++) {
        ashlar__driver_fail_at(driver, (int)steps[i].fn, 1, CU_UNKNOWN);
        CHECK_FAILS(ashlar__range_unmap(&range, &range.chunks[0]), ASHLAR_EDRIVER, steps[i].name);
        ashlar__range_forget_gone(&range);
        CHECK_ZU(range.chunk_count, 1);
        check_range();
    }
    unmap(0);
}

static int refusals; /* how many calls are refused from now on */

static cu_result refuse_map(cu_ptr ptr, size_t bytes, size_t offset, cu_mem_handle handle,
                            unsigned long long flags) {
    return refusals-- > 0 ? CU_UNKNOWN : ashlar__soft_mem_map(ptr, bytes, offset, handle, flags);
}

static cu_result refuse_access(cu_ptr ptr, size_t bytes, const cu_mem_access *access,
                               size_t count) {
    return refusals-- > 0 ? CU_UNKNOWN : ashlar__soft_mem_set_access(ptr, bytes, access, count);
}

CASE(a_chunk_that_cannot_be_mapped_again_either_is_gone) {
    for (int which = 0; which < 2; which++) {
        REQUIRE(set_up_range("memory=16MiB"));
        const ashlar_driver_table table = driver->table;
        map(0, 4 * MIB);
        map(4 * MIB, 2 * MIB);
        refusals = 1;
        if (which == 0) {
            driver->table.mem_map = refuse_map;
        } else {
            driver->table.mem_set_access = refuse_access;
        }
        ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_mem_release, 1, CU_UNKNOWN);
        CHECK_FAILS(ashlar__range_unmap(&range, &range.chunks[0]), ASHLAR_EDRIVER,
                    "cuMemRelease on");
        CHECK(range.chunks[0].is_gone);
        driver->table = table;
        ashlar__range_forget_gone(&range);
        CHECK_ZU(range.chunk_count, 1);
        check_range();
        tear_down_range();
    }
}

/* ---- moving ---- */

/* Three chunks of 2, 4 and 6 MiB at 0, 10 and 20 MiB; the first and the last are chosen. */
static bool set_up_three(void) {
    if (!set_up_range("memory=32MiB")) {
        return false;
    }
    map(0, 2 * MIB);
    map(10 * MIB, 4 * MIB);
    map(20 * MIB, 6 * MIB);
    range.chunks[0].is_chosen = range.chunks[2].is_chosen = true;
    return true;
}

CASE_WITH(chosen_chunks_move_behind_one_another, set_up_three()) {
    const cu_mem_handle first = range.chunks[0].handle, third = range.chunks[2].handle;
    const size_t creates = CALLS(mem_create);
    CHECK(ashlar__range_move(&range, 40 * MIB) == ASHLAR_OK);
    check_range();
    CHECK_ZU(CALLS(mem_create), creates);
    CHECK_ZU(range.chunk_count, 3);
    CHECK_ZU(range.chunks[0].offset, 10 * MIB);
    CHECK(!range.chunks[0].is_chosen);
    CHECK(range.chunks[1].handle == first && range.chunks[1].is_chosen);
    CHECK_ZU(range.chunks[1].offset, 40 * MIB);
    CHECK_ZU(range.chunks[1].moved_from, 0);
    CHECK(range.chunks[2].handle == third && range.chunks[2].is_chosen);
    CHECK_ZU(range.chunks[2].offset, 42 * MIB);
    CHECK_ZU(range.chunks[2].moved_from, 20 * MIB);
    CHECK(is_open(40 * MIB, 8 * MIB) && !is_open(0, 1) && !is_open(20 * MIB, 1));
    memset(ashlar__ptr_out(range.base + 40 * MIB), 1, 8 * MIB);
}

CASE(a_failing_move_leaves_every_chunk_where_it_was) {
    static const struct {
        ashlar_driver_fn fn;
        size_t calls;
        const char *name;
    } steps[] = {
        {ASHLAR_DRIVER_FN_mem_unmap, 2, "cuMemUnmap on"},
        {ASHLAR_DRIVER_FN_mem_map, 2, "cuMemMap on"},
        {ASHLAR_DRIVER_FN_mem_set_access, 1, "cuMemSetAccess on"},
    };
    REQUIRE(set_up_three());
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        for (size_t n = 1; n <= steps[i].calls; n++) {
            ashlar__driver_fail_at(driver, (int)steps[i].fn, n, CU_UNKNOWN);
            CHECK_FAILS(ashlar__range_move(&range, 40 * MIB), ASHLAR_EDRIVER, steps[i].name);
            check_range();
            for (size_t k = 0; k < 3; k++) {
                CHECK_ZU(range.chunks[k].offset, k * 10 * MIB);
                CHECK(!range.chunks[k].is_gone && range.chunks[k].is_chosen == (k != 1));
            }
            CHECK(!is_open(40 * MIB, 1));
        }
    }
    CHECK(ashlar__range_move(&range, 40 * MIB) == ASHLAR_OK);
}

CASE_WITH(a_chunk_that_cannot_be_moved_back_is_gone, set_up_three()) {
    const ashlar_driver_table table = driver->table;
    driver->table.mem_map = refuse_map;
    refusals = 2; /* the first mapping, and the first one back */
    CHECK(ashlar__range_move(&range, 40 * MIB) == ASHLAR_EDRIVER);
    driver->table = table;
    CHECK(range.chunks[0].is_gone && !range.chunks[2].is_gone);
    ashlar__range_forget_gone(&range);
    CHECK_ZU(range.chunk_count, 2);
    check_range();
}

/* ---- peers ---- */

enum { SEEN = 64 };

static struct {
    cu_ptr ptr;
    size_t bytes, count;
    int ids[4];
    unsigned flags;
} seen[SEEN]; /* cuMemSetAccess calls; the software device behind has no peers */

static size_t seen_count;
static size_t refuse_at; /* the number of the call, from 1, that is refused; 0: none */

static cu_result note_access(cu_ptr ptr, size_t bytes, const cu_mem_access *access, size_t count) {
    if (seen_count + 1 == refuse_at) {
        refuse_at = 0;
        return CU_UNKNOWN;
    }
    CHECK(seen_count < SEEN && count <= 4);
    seen[seen_count].ptr = ptr - range.base;
    seen[seen_count].bytes = bytes;
    seen[seen_count].count = count;
    seen[seen_count].flags = access[0].flags;
    for (size_t i = 0; i < count; i++) {
        CHECK(access[i].location.type == CU_LOCATION_DEVICE);
        CHECK(access[i].flags == access[0].flags);
        seen[seen_count].ids[i] = access[i].location.id;
    }
    seen_count++;
    return access[0].location.id == 0 ? ashlar__soft_mem_set_access(ptr, bytes, access, 1)
                                      : CU_SUCCESS;
}

/* Chunks [0, 4) and [10, 14) MiB. */
static bool set_up_peers(void) {
    if (!set_up_range("memory=64MiB")) {
        return false;
    }
    map(0, 2 * MIB);
    map(2 * MIB, 2 * MIB);
    map(10 * MIB, 4 * MIB);
    driver->table.mem_set_access = note_access;
    seen_count = 0;
    refuse_at = 0;
    return true;
}

static bool saw(size_t idx, size_t ptr, size_t bytes, unsigned flags, size_t count, int last) {
    return idx < seen_count && seen[idx].ptr == ptr && seen[idx].bytes == bytes &&
           seen[idx].flags == flags && seen[idx].count == count && seen[idx].ids[count - 1] == last;
}

CASE_WITH(a_peer_may_use_what_is_mapped_now_and_later, set_up_device("")) {
    const ashlar_driver_table table = driver->table;
    tear_down_device();
    REQUIRE(set_up_peers());
    CHECK(ashlar__range_allow_peer(&range, 0) == ASHLAR_OK); /* the device itself */
    CHECK_ZU(seen_count, 0);
    CHECK(ashlar__range_allow_peer(&range, 3) == ASHLAR_OK);
    CHECK_ZU(seen_count, 2); /* one for each run of chunks */
    CHECK(saw(0, 0, 4 * MIB, CU_ACCESS_READWRITE, 2, 3));
    CHECK(saw(1, 10 * MIB, 4 * MIB, CU_ACCESS_READWRITE, 2, 3));
    CHECK(ashlar__range_allow_peer(&range, 3) == ASHLAR_OK);
    CHECK_ZU(seen_count, 2);
    map(30 * MIB, 2 * MIB);
    CHECK(saw(2, 30 * MIB, 2 * MIB, CU_ACCESS_READWRITE, 2, 3));
    CHECK(ashlar__range_allow_peer(&range, 1) == ASHLAR_OK);
    CHECK(saw(5, 30 * MIB, 2 * MIB, CU_ACCESS_READWRITE, 3, 1));
    range.chunks[0].is_chosen = true;
    CHECK(ashlar__range_move(&range, 40 * MIB) == ASHLAR_OK);
    CHECK(saw(6, 40 * MIB, 2 * MIB, CU_ACCESS_READWRITE, 3, 1));
    driver->table = table;
}

CASE_WITH(a_peer_that_is_refused_may_use_nothing, set_up_device("")) {
    const ashlar_driver_table table = driver->table;
    tear_down_device();
    for (size_t n = 1; n <= 2; n++) {
        REQUIRE(set_up_peers());
        refuse_at = n;
        CHECK_FAILS(ashlar__range_allow_peer(&range, 3), ASHLAR_EDRIVER, "cuMemSetAccess on");
        CHECK_ZU(range.peer_count, 0);
        CHECK_ZU(seen_count, n == 1 ? 0 : 2);
        CHECK(n == 1 || saw(1, 0, 4 * MIB, CU_ACCESS_NONE, 1, 3)); /* taken back */
        const size_t count = seen_count;
        map(30 * MIB, 2 * MIB);
        CHECK(saw(count, 30 * MIB, 2 * MIB, CU_ACCESS_READWRITE, 1, 0));
        driver->table = table;
        tear_down_range();
    }
}

CASE_WITH(more_peers_than_there_is_room_for_are_refused, set_up_range("memory=16MiB")) {
    for (int i = 1; i <= ASHLAR_PEERS_MAX; i++) {
        CHECK(ashlar__range_allow_peer(&range, i) == ASHLAR_OK); /* nothing is mapped yet */
    }
    CHECK_FAILS(ashlar__range_allow_peer(&range, ASHLAR_PEERS_MAX + 1), ASHLAR_ENOTSUP,
                "peer 32: at most 32 devices");
    CHECK(ashlar__range_allow_peer(&range, ASHLAR_PEERS_MAX) == ASHLAR_OK);
}

/* ---- segments ---- */

CASE(segments_have_no_peers) {
    use_segments = true;
    REQUIRE(set_up_range("memory=16MiB"));
    CHECK_FAILS(ashlar__range_allow_peer(&range, 1), ASHLAR_ENOTSUP,
                "peer 1: device 0 has no virtual memory management");
    CHECK(ashlar__range_allow_peer(&range, 0) == ASHLAR_OK);
    tear_down_range();
    use_segments = false;
}

CASE(a_segment_is_its_address) {
    use_segments = true;
    REQUIRE(set_up_range("memory=16MiB"));
    CHECK(client.calls == 0 && range.base == 0);
    const size_t at = map(77, 4 * MIB);
    CHECK(at != 77);
    memset(ashlar__ptr_out(at), 1, 4 * MIB);
    CHECK(client.calls == 1);
    CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT); /* as before the case */
    tear_down_range();
    use_segments = false;
}

CASE(a_failing_segment_changes_nothing) {
    use_segments = true;
    REQUIRE(set_up_range("memory=16MiB"));
    map(0, 2 * MIB);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_mem_alloc, 1, CU_UNKNOWN);
    check_no_map(0, 2 * MIB, ASHLAR_EDRIVER);
    CHECK_HAS(ashlar_error_detail(), "cuMemAlloc on");
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_ctx_push_current, 1, CU_UNKNOWN);
    check_no_map(0, 2 * MIB, ASHLAR_EDRIVER);
    CHECK_HAS(ashlar_error_detail(), "cuCtxPushCurrent on");
    range.limit_bytes = SIZE_MAX;
    check_no_map(0, 16 * MIB, ASHLAR_ENOMEM);
    tear_down_range();
    use_segments = false;
}

static cu_ptr odd_address;
static int odd_frees;

static cu_result alloc_odd(cu_ptr *ptr, size_t bytes) {
    (void)bytes;
    *ptr = odd_address;
    return CU_SUCCESS;
}

static cu_result free_odd(cu_ptr ptr) {
    odd_frees += ptr == odd_address;
    return CU_SUCCESS;
}

CASE(an_address_that_cannot_be_an_offset_is_given_back) {
    static const cu_ptr odd[] = {256, (cu_ptr)1 << 48, ((cu_ptr)1 << 48) - 512};
    use_segments = true;
    REQUIRE(set_up_range("memory=16MiB"));
    const ashlar_driver_table table = driver->table;
    driver->table.mem_alloc = alloc_odd;
    driver->table.mem_free = free_odd;
    odd_frees = 0;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        odd_address = odd[i];
        check_no_map(0, 2 * MIB, ASHLAR_EDRIVER);
        CHECK_HAS(ashlar_error_detail(), "no multiple of 512 below 2^48");
        CHECK(odd_frees == (int)i + 1);
    }
    driver->table = table;
    tear_down_range();
    use_segments = false;
}

RUN_CASES()
