/*
 * test_pinned.c - blocks of page-locked memory, without work in flight: sizes, errors, limits, what
 * goes back to the driver, statistics.
 */
#include "tests/allocator/pinned/pinned_fixture.h"

enum { MANY = 2000 };

CASE_WITH(a_fresh_pool_holds_nothing, set_up_pool("", NULL)) {
    const ashlar_pinned_stats s = pinned_now();
    CHECK(s.reserved_bytes == 0 && s.driver_alloc_count == 0 && s.alloc_count == 0);
    CHECK_ZU(host_blocks(), 0);
    trim_pinned();
    tear_down_pool();
    ashlar_pinned_destroy(NULL);
}

CASE_WITH(blocks_are_aligned_page_locked_and_do_not_overlap, set_up_pool("", NULL)) {
    static unsigned char *blocks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        blocks[i] = take_pinned(1 + i * 7);
        CHECK((uintptr_t)blocks[i] % _Alignof(max_align_t) == 0);
        CHECK(ashlar__soft_ranges_over(&ashlar__soft_state.host_blocks, (uintptr_t)blocks[i],
                                       1 + i * 7) != NULL);
        memset(blocks[i], (int)(i % 251), 1 + i * 7);
    }
    size_t wrong = 0;
    for (size_t i = 0; i < MANY; i++) {
        for (size_t k = 0; k < 1 + i * 7; k++) {
            wrong += blocks[i][k] != i % 251;
        }
        give_pinned(blocks[i]);
    }
    CHECK_ZU(wrong, 0);
}

/* How much larger a block may be than asked: less than 1/4 above 64 bytes. */
static void check_waste(size_t bytes) {
    size_t usable = 0;
    unsigned char *ptr = take_pinned(bytes);
    CHECK(ashlar_pinned_usable_bytes(pool, ptr, &usable) == ASHLAR_OK);
    CHECK(usable >= bytes);
    CHECK(bytes <= 64 ? usable <= bytes + 15 : usable - bytes < (bytes + 3) / 4);
    CHECK(pinned_now().live_bytes == usable);
    give_pinned(ptr);
}

CASE_WITH(no_block_wastes_a_quarter, set_up_pool("", NULL)) {
    for (size_t bytes = 1; bytes <= 20000; bytes += 1 + bytes / 256) {
        check_waste(bytes);
    }
    for (size_t power = 16 * KIB; power <= 64 * MIB; power *= 2) {
        for (size_t quarter = 4; quarter < 8; quarter++) {
            check_waste(power / 4 * quarter);
            check_waste(power / 4 * quarter + 1);
            check_waste(power / 4 * quarter - 1);
        }
    }
}

/* Of many blocks together, what the driver gave is at most a quarter more, and the pages. */
CASE_WITH(many_blocks_reserve_little_more_than_they_are, set_up_pool("", NULL)) {
    static void *blocks[MANY];
    static const size_t sizes[] = {4097, 16 * KIB + 1, 40 * KIB + 1, 80 * KIB, 300000};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const size_t count = 32 * MIB / sizes[k] < MANY ? 32 * MIB / sizes[k] : MANY;
        take_many(blocks, count, sizes[k]);
        const size_t asked = count * sizes[k], pages = count * 4 * KIB;
        CHECK(pinned_now().reserved_bytes <=
              (asked + asked / 4 + pages) * 9 / 8 + 4 * MIB); /* a segment is 1/8 of all */
        give_many(blocks, count);
        trim_pinned();
        CHECK(pinned_now().reserved_bytes == 0);
    }
}

CASE_WITH(the_driver_is_called_rarely, set_up_pool("", NULL)) {
    static void *blocks[MANY];
    for (int round = 0; round < 3; round++) {
        take_many(blocks, MANY, 50 * KIB);
        for (size_t i = 0; i < MANY; i++) {
            give_pinned(blocks[i * 7 % MANY]);
        }
    }
    const ashlar_pinned_stats s = pinned_now();
    CHECK(s.driver_alloc_count > 0 && s.driver_alloc_count < 40); /* of 6000 */
    CHECK_ZU(host_allocs(), s.driver_alloc_count);
    CHECK_ZU(host_blocks(), s.driver_alloc_count);
    CHECK(s.driver_free_count == 0 && host_frees() == 0);
    CHECK(s.reserved_bytes >= MANY * 50 * KIB);
}

CASE_WITH(a_trim_returns_everything_once_all_is_given_back, set_up_pool("", NULL)) {
    static void *blocks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        blocks[i] = take_pinned(1 + i * i % 70000);
    }
    give_many(blocks, MANY);
    CHECK(pinned_now().reserved_bytes > 0);
    const size_t held = host_blocks();
    trim_pinned();
    const ashlar_pinned_stats s = pinned_now();
    CHECK(s.reserved_bytes == 0 && s.driver_free_count == s.driver_alloc_count);
    CHECK_ZU(host_blocks(), 0);
    CHECK_ZU(host_frees(), held);
    CHECK(s.reserved_peak_bytes > 0 && s.live_peak_bytes > 0);
    give_pinned(take_pinned(100));
    CHECK(pinned_now().reserved_bytes == 2 * MIB);
}

CASE_WITH(a_trim_returns_whole_driver_allocations_only, set_up_pool("", NULL)) {
    unsigned char *small = take_pinned(100), *large = take_pinned(5 * MIB);
    memset(small, 7, 100);
    CHECK_ZU(host_blocks(), 2);
    trim_pinned();
    CHECK_ZU(host_blocks(), 2);
    give_pinned(large);
    trim_pinned();
    CHECK_ZU(host_blocks(), 1);
    CHECK(pinned_now().reserved_bytes == 2 * MIB);
    CHECK(small[0] == 7 && small[99] == 7);
    give_pinned(small);
    trim_pinned();
    CHECK_ZU(host_blocks(), 0);
}

/* What was given back in pieces is one piece again. */
CASE(free_neighbours_are_merged) {
    const ashlar_pinned_config config = {.limit_bytes = 8 * MIB, .grow_bytes = 8 * MIB};
    void *blocks[100];
    REQUIRE(set_up_pool("", &config));
    for (size_t stride = 1; stride <= 4; stride++) {
        size_t count = 0;
        while (count < 100 && ashlar_pinned_alloc(pool, 100 * KIB, &blocks[count]) == ASHLAR_OK) {
            count++;
        }
        CHECK(count >= 69); /* of 112 KiB and a page */
        for (size_t first = stride; first-- > 0;) {
            for (size_t i = first; i < count; i += stride) {
                give_pinned(blocks[i]);
            }
        }
        CHECK(pinned_now().live_blocks == 0);
        give_pinned(take_pinned(7 * MIB));
    }
    CHECK_ZU(host_allocs(), 1);
}

CASE(freed_memory_of_a_size_serves_other_sizes) {
    const ashlar_pinned_config config = {.limit_bytes = 2 * MIB};
    void *blocks[2000];
    REQUIRE(set_up_pool("", &config));
    for (size_t bytes = 1 * KIB; bytes <= 1 * MIB; bytes *= 2) {
        const size_t count = 1 * MIB / bytes;
        take_many(blocks, count, bytes);
        give_many(blocks, count);
    }
    CHECK(pinned_now().reserved_peak_bytes == 2 * MIB);
}

CASE(more_than_any_object_can_have_is_refused_without_a_limit) {
    const ashlar_pinned_config config = {.limit_bytes = SIZE_MAX};
    void *ptr = &pool;
    REQUIRE(set_up_pool("", &config));
    CHECK_FAILS(ashlar_pinned_alloc(pool, (size_t)PTRDIFF_MAX + 1, &ptr), ASHLAR_ENOMEM,
                "than there can be");
    CHECK(ptr == &pool && host_allocs() == 0);
}

CASE(the_limit_binds_and_is_explained) {
    const ashlar_pinned_config config = {.limit_bytes = 5 * MIB};
    void *ptr = &pool;
    REQUIRE(set_up_pool("", &config));
    CHECK_FAILS(ashlar_pinned_alloc(pool, 6 * MIB, &ptr), ASHLAR_ENOMEM,
                "for 6291456 bytes: 0 live, 0 pending, 0 reserved; more than");
    CHECK(ashlar_pinned_alloc(pool, SIZE_MAX, &ptr) == ASHLAR_ENOMEM);
    CHECK(ptr == &pool && host_allocs() == 0);
    unsigned char *half = take_pinned(2560 * KIB);
    CHECK_FAILS(ashlar_pinned_alloc(pool, 3 * MIB, &ptr), ASHLAR_ENOMEM,
                "2621440 live, 0 pending, 4194304 reserved; limit_bytes "
                "leaves 1048576 bytes");
    CHECK(ptr == &pool);
    give_pinned(take_pinned(768 * KIB));
    give_pinned(half);
    CHECK(pinned_now().reserved_peak_bytes <= 5 * MIB);
}

/* Segments that are too small for a request make room for one that is not. */
CASE(unused_memory_is_returned_where_it_makes_the_room) {
    const ashlar_pinned_config config = {.limit_bytes = 8 * MIB};
    void *blocks[4];
    REQUIRE(set_up_pool("", &config));
    take_many(blocks, 4, 1536 * KIB);
    CHECK(pinned_now().reserved_bytes == 8 * MIB);
    give_many(blocks, 4);
    give_pinned(take_pinned(7 * MIB));
    CHECK(pinned_now().driver_free_count == 4 && pinned_now().reserved_peak_bytes == 8 * MIB);
}

CASE(segments_have_the_size_that_was_asked_for) {
    const ashlar_pinned_config config = {.grow_bytes = 16 * MIB};
    REQUIRE(set_up_pool("", &config));
    give_pinned(take_pinned(1));
    CHECK(pinned_now().reserved_bytes == 16 * MIB);
    give_pinned(take_pinned(20 * MIB));
    CHECK(pinned_now().reserved_bytes == 38 * MIB); /* with a page of jemalloc's */
}

/* Enough of the first is left for the second. */
CASE(a_refused_large_segment_is_tried_at_the_size_needed) {
    const ashlar_pinned_config config = {.grow_bytes = 64 * MIB};
    REQUIRE(set_up_pool("", &config));
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_mem_host_alloc, 1, CU_OUT_OF_MEMORY);
    unsigned char *ptr = take_pinned(1 * MIB);
    CHECK(pinned_now().reserved_bytes == 1 * MIB + 4 * KIB);
    CHECK(pinned_now().driver_alloc_count == 1);
    give_pinned(ptr);
    trim_pinned();
    CHECK(pinned_now().reserved_bytes == 0);
}

CASE_WITH(pointers_that_are_no_live_block_are_refused, set_up_pool("", NULL)) {
    unsigned char *ptr = take_pinned(1000);
    size_t usable = 7;
    int local;
    void *const wrong[] = {&local, ptr + 16, ptr - 16, (void *)(uintptr_t)1};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(ashlar_pinned_free(pool, wrong[i]) == ASHLAR_EPOINTER);
        CHECK(ashlar_pinned_free_on(pool, wrong[i], streams[0]) == ASHLAR_EPOINTER);
        CHECK(ashlar_pinned_usable_bytes(pool, wrong[i], &usable) == ASHLAR_EPOINTER);
    }
    CHECK(usable == 7);
    CHECK_HAS(ashlar_error_detail(), "not a live block of this pool");
    give_pinned(ptr);
    CHECK(ashlar_pinned_free(pool, ptr) == ASHLAR_EPOINTER);
    CHECK(ashlar_pinned_free_on(pool, ptr, streams[0]) == ASHLAR_EPOINTER);
    ptr = take_pinned(1000);
    give_pinned_on(ptr, streams[0]);
    CHECK(ashlar_pinned_free(pool, ptr) == ASHLAR_EPOINTER);
    CHECK(ashlar_pinned_free_on(pool, ptr, streams[1]) == ASHLAR_EPOINTER);
    CHECK(ashlar_pinned_usable_bytes(pool, ptr, &usable) == ASHLAR_EPOINTER);
    const ashlar_pinned_stats s = pinned_now();
    CHECK(s.free_count == 2 && s.alloc_count == 2);
}

CASE_WITH(null_and_zero_are_what_the_header_says, set_up_pool("", NULL)) {
    void *ptr = &pool;
    CHECK(ashlar_pinned_free(pool, NULL) == ASHLAR_OK);
    CHECK(ashlar_pinned_free_on(pool, NULL, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_pinned_free_on_all(pool, NULL, streams, 2) == ASHLAR_OK);
    CHECK(pinned_now().free_count == 0);
    CHECK(ashlar_pinned_alloc(pool, 0, &ptr) == ASHLAR_EINVAL && ptr == &pool);
    CHECK_HAS(ashlar_error_detail(), "bytes: 0");
    CHECK(ashlar_pinned_free_on_all(pool, take_pinned(5), NULL, 0) == ASHLAR_OK);
    CHECK(pinned_now().free_count == 1 && pinned_now().deferred_count == 0);
}

CASE_WITH(two_pools_do_not_share_memory, set_up_pool("", NULL)) {
    ashlar_pinned *other = NULL, *first = pool;
    REQUIRE(ashlar_pinned_create(device, NULL, &other) == ASHLAR_OK);
    unsigned char *mine = take_pinned(100);
    CHECK(ashlar_pinned_free(other, mine) == ASHLAR_EPOINTER);
    give_pinned(mine);
    pool = other;
    unsigned char *theirs = take_pinned(100);
    CHECK_ZU(host_blocks(), 2); /* what the first has cached is not the second's */
    give_pinned(theirs);
    ashlar_pinned_destroy(other);
    pool = first;
    CHECK_ZU(host_blocks(), 1);
    memset(take_pinned(100), 1, 100);
}

/* Neither of this pool nor of the ones before it does malloc get anything. */
CASE(malloc_never_gets_page_locked_memory) {
    for (int round = 0; round < 3; round++) {
        REQUIRE(set_up_pool("", NULL));
        for (int i = 0; i < 300; i++) {
            give_pinned(take_pinned(96));
        }
        for (int i = 0; i < 300; i++) {
            void *ptr = malloc(96);
            CHECK(ashlar__soft_ranges_over(&ashlar__soft_state.host_blocks, (uintptr_t)ptr, 96) ==
                  NULL);
            free(ptr);
        }
        take_pinned(5000); /* still live when the pool goes */
        tear_down_pool();
    }
}

/* More than jemalloc has arenas for at once. */
CASE_WITH(pools_come_and_go_without_end, set_up_device("")) {
    bool is_good = true;
    for (int i = 0; i < 4200 && is_good; i++) {
        pool = NULL;
        is_good = ashlar_pinned_create(device, NULL, &pool) == ASHLAR_OK;
        ashlar_pinned_destroy(pool);
    }
    CHECK(is_good);
}

RUN_CASES()
