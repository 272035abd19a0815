/*
 * test_cache.c - one thread's cache: its lists and limits, and how it is given up, shut and parted
 * with.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include <pthread.h>
#include <sched.h>

#include "allocator/core/hold.h"
#include "allocator/base/threads.h"

enum { BLOCKS = ASHLAR_CACHE_PENDING_MAX + 2 };

/* A cache that belongs to no allocator, and blocks that are in no heap. */
static ashlar_cache cache;
static ashlar_magazines magazines;
static ashlar_stream_state state;
static ashlar_block blocks[BLOCKS];

static void set_up_alone(size_t limit_small, size_t limit_large) {
    cache = (ashlar_cache){.limit = {limit_small, limit_large},
                           .magazines = &magazines,
                           .thread = ashlar__thread_number()};
    magazines = (ashlar_magazines){.stream_state = &state};
}

static ashlar_block *shape(size_t idx, size_t bytes) {
    blocks[idx] = (ashlar_block){.bytes = bytes,
                                 .stream_state = &state,
                                 .state = ASHLAR_BLOCK_USED,
                                 .list = (uint16_t)ashlar__cache_list(bytes)};
    return &blocks[idx];
}

static bool push(size_t idx, size_t bytes) {
    return ashlar__cache_push(&cache, &magazines, shape(idx, bytes));
}

/* The same of a large block that was the last one taken. */
static bool push_last(size_t idx, size_t bytes) {
    cache.last_large = &blocks[idx];
    return push(idx, bytes);
}

static ashlar_block *pop(size_t bytes) {
    return ashlar__cache_pop(&cache, &magazines, bytes);
}

/* ---- lists and limits ---- */

CASE(a_list_gives_the_newest_block_of_its_class) {
    set_up_alone(MIB, 0);
    CHECK(push(0, 4096) && push(1, 4096) && push(2, 512));
    CHECK_ZU(cache.weight[0], 2 * ashlar__cache_weight(4096) + ashlar__cache_weight(512));
    CHECK(ashlar__cache_check_locked(&cache) == ASHLAR_OK);
    CHECK(pop(4097) == NULL && pop(3584) == NULL);
    CHECK(pop(4096) == &blocks[1]);
    CHECK(pop(3585) == &blocks[0]);
    CHECK(pop(4096) == NULL);
    CHECK(pop(1) == &blocks[2]);
    CHECK_ZU(cache.weight[0], 0);
    CHECK(ashlar__cache_is_empty(&cache));
    CHECK(ashlar__cache_check_locked(&cache) == ASHLAR_OK);
}

CASE(each_class_has_a_list_of_its_own) {
    set_up_alone(4 * MIB, 0);
    for (uint16_t i = 0; i < ASHLAR_SC_COUNT; i++) {
        const size_t bytes = ashlar__sc_bytes((ashlar_sc){i});
        CHECK(push(0, bytes));
        CHECK(magazines.lists[i] == &blocks[0]);
        CHECK(pop(bytes + 1) == NULL);
        CHECK(i == 0 || pop(ashlar__sc_bytes((ashlar_sc){(uint16_t)(i - 1)})) == NULL);
        CHECK(pop(bytes) == &blocks[0]);
    }
}

CASE(a_size_that_there_is_not_finds_nothing) {
    set_up_alone(MIB, MIB);
    CHECK(push(0, 512));
    CHECK(pop(0) == NULL);
    CHECK(pop(SIZE_MAX) == NULL && pop(SIZE_MAX - 511) == NULL);
    CHECK_ZU(cache.weight[0], ashlar__cache_weight(512));
}

CASE(the_limits_bind_to_the_byte) {
    const size_t most = ASHLAR_SC_MAX_BYTES;
    set_up_alone(ashlar__cache_weight(512) + ashlar__cache_weight(most),
                 ashlar__cache_weight(2 * MIB));
    CHECK(push(0, most) && push(1, 512));
    CHECK(!push(2, 512));
    CHECK(push_last(3, 2 * MIB)); /* of the large ones' own limit */
    CHECK(!push_last(4, most + 512));
    CHECK(ashlar__cache_check_locked(&cache) == ASHLAR_OK);
    CHECK(pop(2 * MIB) == &blocks[3]);
    CHECK(!push_last(5, 2 * MIB + 512));
    CHECK(pop(512) == &blocks[1]);
    CHECK(!push(2, 1024));
    CHECK(push(2, 512));
}

CASE(one_large_block_is_kept_for_its_own_size) {
    set_up_alone(0, 64 * MIB);
    CHECK(push_last(0, 2 * MIB));
    CHECK(!push(1, 2 * MIB) && !push(1, 3 * MIB)); /* of any stream, one at most */
    CHECK(pop(2 * MIB + 1) == NULL && pop(2 * MIB - 512) == NULL && pop(0) == NULL);
    CHECK(ashlar__cache_check_locked(&cache) == ASHLAR_OK);
    CHECK(pop(2 * MIB - 511) == &blocks[0]);
    CHECK_ZU(cache.weight[1], 0);
    CHECK(pop(2 * MIB) == NULL);
    CHECK(push_last(1, 3 * MIB) && pop(3 * MIB) == &blocks[1]);
}

/* Then the heap would hand out this very block: keeping it changes no later block's address. */
CASE(a_large_block_is_kept_only_right_after_it_was_taken) {
    set_up_alone(0, 64 * MIB);
    CHECK(!push(0, 2 * MIB)); /* nobody says when it was taken */
    CHECK(push_last(0, 2 * MIB));
    CHECK(pop(2 * MIB) == &blocks[0]);
    CHECK(push(0, 2 * MIB)); /* a hit takes it, too */
    CHECK(pop(2 * MIB) == &blocks[0]);
    CHECK(!push(1, 3 * MIB)); /* another one is freed in between */
    CHECK(!push(0, 2 * MIB));
    CHECK_ZU(cache.weight[1], 0);
}

CASE(a_few_blocks_wait_beside_a_full_cache) {
    set_up_alone(0, 0);
    cache.limit[1] = ASHLAR_CACHE_PENDING_MAX * (size_t)512;
    for (size_t i = 0; i < ASHLAR_CACHE_PENDING_MAX; i++) {
        CHECK(ashlar__cache_add_pending(&cache, shape(i, 512)));
    }
    CHECK_ZU(cache.pending_count, ASHLAR_CACHE_PENDING_MAX);
    CHECK_ZU(ashlar__cache_bytes(&cache), ASHLAR_CACHE_PENDING_MAX * (size_t)512);
    CHECK(ashlar__cache_check_locked(&cache) == ASHLAR_OK);
    cache.limit[1] *= 2;
    CHECK(!ashlar__cache_add_pending(&cache, shape(BLOCKS - 1, 512))); /* too many */
    set_up_alone(0, 2048);
    CHECK(ashlar__cache_add_pending(&cache, shape(0, 1024)));
    CHECK(!ashlar__cache_add_pending(&cache, shape(1, 1536))); /* too large */
    CHECK(ashlar__cache_add_pending(&cache, shape(1, 1024)));
    CHECK_ZU(cache.pending_bytes, 2048);
}

CASE(the_bytes_are_those_of_all_streams_and_of_the_waiting) {
    static ashlar_magazines second;
    set_up_alone(MIB, 4 * MIB);
    second = (ashlar_magazines){.stream_state = &state};
    magazines.next = &second;
    CHECK_ZU(ashlar__cache_bytes(&cache), 0);
    CHECK(push(0, 4096) && push_last(1, 2 * MIB));
    CHECK(ashlar__cache_push(&cache, &second, shape(2, 1024)));
    CHECK(ashlar__cache_add_pending(&cache, shape(3, 512)));
    CHECK_ZU(ashlar__cache_bytes(&cache), 4096 + 2 * MIB + 1024 + 512);
}

/* ---- checks ---- */

static void check_broken(const char *part) {
    CHECK_FAILS(ashlar__cache_check_locked(&cache), ASHLAR_EFORMAT, part);
}

CASE(the_walker_finds_what_is_broken) {
    ashlar_stream_state other = {0};
    set_up_alone(MIB, MIB);
    CHECK(push(0, 4096));
    CHECK(ashlar__cache_add_pending(&cache, shape(1, 512)));
    CHECK(ashlar__cache_check_locked(&cache) == ASHLAR_OK);
    blocks[0].stream_state = &other;
    check_broken("wrong magazine");
    blocks[0].stream_state = &state;
    blocks[0].requested = 1;
    check_broken("wrong magazine");
    blocks[0].requested = 0;
    blocks[0].state = ASHLAR_BLOCK_FREE;
    check_broken("wrong magazine");
    blocks[0].state = ASHLAR_BLOCK_USED;
    blocks[0].list++;
    check_broken("wrong magazine");
    blocks[0].list--;
    blocks[0].bytes -= 512;
    check_broken("wrong magazine");
    blocks[0].bytes += 512;
    blocks[1].requested = 1;
    check_broken("not marked as cached");
    blocks[1].requested = 0;
    blocks[1].stream_state = &other; /* blocks of all streams wait together */
    CHECK(ashlar__cache_check_locked(&cache) == ASHLAR_OK);
    cache.weight[0]++;
    check_broken("miscounted");
    cache.weight[0]--;
    cache.weight[1]++;
    check_broken("miscounted");
    cache.weight[1]--;
    cache.pending_count++;
    check_broken("miscounted");
    cache.pending_count--;
    cache.pending_bytes++;
    check_broken("miscounted");
    cache.pending_bytes--;
    cache.outbox = (ashlar_outbox){.newest = shape(2, 512), .oldest = &blocks[2], 1, 512};
    CHECK(ashlar__cache_check_locked(&cache) == ASHLAR_OK);
    cache.outbox.bytes++;
    check_broken("its outbox is miscounted");
    cache.outbox.bytes--;
    blocks[2].older = shape(3, 512);
    blocks[3].older = NULL;
    blocks[3].stream_state = &other;
    cache.outbox.count = 2;
    cache.outbox.bytes += 512;
    check_broken("a block of another stream");
    cache.outbox = (ashlar_outbox){0};
    cache.limit[0] = ashlar__cache_weight(4096) - 1;
    check_broken("more than its limits");
    cache.limit[0]++;
    CHECK(ashlar__cache_check_locked(&cache) == ASHLAR_OK);
}

/* ---- with an allocator ---- */

static ashlar_stats own_stats(void) {
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    return stats_now();
}

/* Two small blocks, a large one, and on another stream a small one: all freed. */
static void fill_own(void) {
    unsigned char *ptrs[4] = {take(4096, streams[0]), take(4096, streams[0]),
                              take(2 * MIB, streams[0]), take(1024, streams[1])};
    for (size_t i = 0; i < 4; i++) {
        give(ptrs[i]);
    }
}

static void flush(void (*how)(ashlar_cache *)) {
    ashlar__lock_acquire(&allocator->lock);
    how(ashlar__cache_recent);
    ashlar__lock_release(&allocator->lock);
}

CASE_WITH(a_flush_gives_all_blocks_to_the_heap, set_up_cached("memory=32MiB", 8 * MIB)) {
    fill_own();
    CHECK_ZU(own_stats().cached_bytes, 2 * 4096 + 2 * MIB + 1024);
    flush(ashlar__cache_flush_large);
    CHECK_ZU(own_stats().cached_bytes, 2 * 4096 + 1024);
    flush(ashlar__cache_flush);
    CHECK_ZU(own_stats().cached_bytes, 0);
    CHECK(ashlar__cache_is_empty(ashlar__cache_recent));
    CHECK_ZU(ashlar__heap_used_bytes(&allocator->heap), 0);
}

/* It would keep memory of a size that hardly any request has from all others. */
CASE_WITH(a_miss_gives_up_the_large_block_alone, set_up_cached("memory=32MiB", 8 * MIB)) {
    unsigned char *rest = take(4 * MIB, streams[0]); /* nothing like the end of a step */
    unsigned char *small = take(4096, streams[1]), *large = take(2 * MIB, streams[1]);
    give(small);
    give(large);
    CHECK_ZU(own_stats().cached_bytes, 4096 + 2 * MIB);
    unsigned char *ptr = take(1024, streams[0]);
    CHECK_ZU(own_stats().cached_bytes, 4096);
    give(ptr);
    give(rest);
}

/* Of the request's stream alone, and of its kind: memory merges only inside a zone. */
CASE_WITH(a_zone_grows_only_after_its_stream_s_cache_is_empty,
          set_up_cached("memory=32MiB", 8 * MIB)) {
    unsigned char *rest = take(4 * MIB, streams[0]);
    unsigned char *below = take(512, streams[0]), *above = take(1024, streams[0]);
    unsigned char *others = take(4096, streams[1]);
    give(below);
    give(above);
    give(others);
    CHECK_ZU(own_stats().cached_bytes, 512 + 1024 + 4096);
    unsigned char *ptr = take(1536, streams[0]);
    CHECK(ptr == below);
    CHECK_ZU(own_stats().cached_bytes, 4096);
    give(ptr);
    give(rest);
}

/* A block in each list, then in each but one: none may be overlooked. */
CASE_WITH(a_flush_finds_the_blocks_of_every_class, set_up_cached("memory=256MiB", 512 * MIB)) {
    unsigned char *ptrs[ASHLAR_SC_COUNT];
    for (size_t without = ASHLAR_SC_COUNT; without > 0; without = without < 5 ? 0 : without - 5) {
        for (unsigned i = 0; i < ASHLAR_SC_COUNT; i++) {
            ptrs[i] = take(ashlar__sc_bytes((ashlar_sc){.idx = (uint16_t)i}), streams[0]);
        }
        ashlar_cache *own = ashlar__cache_recent;
        own->limit[0] = SIZE_MAX;
        for (size_t i = 0; i < ASHLAR_SC_COUNT; i++) {
            if (i != without) {
                give(ptrs[i]);
            }
        }
        CHECK(own->pending_count == 0 && own->weight[0] > 0);
        flush(ashlar__cache_flush);
        CHECK(ashlar__cache_is_empty(own));
        if (without < ASHLAR_SC_COUNT) {
            give(ptrs[without]);
            flush(ashlar__cache_flush);
        }
        CHECK_ZU(ashlar__heap_used_bytes(&allocator->heap), 0);
    }
}

static ashlar_stream_state *order_of(ashlar_stream stream) {
    ashlar_stream_state *found = allocator->stream_states;
    while (found != NULL && found->stream != stream) {
        found = found->next;
    }
    return found;
}

/* Where an event was to be recorded, and the stream was not there any more. */
CASE(a_miss_does_not_take_a_stream_that_is_gone_for_its_own) {
    REQUIRE(set_up_cached("memory=32MiB", 8 * MIB));
    for (int i = 0; i < 2; i++) { /* the second time it is the recent stream */
        give(take(4096, streams[0]));
    }
    flush(ashlar__cache_flush);
    ashlar_stream_state *gone = order_of(streams[0]);
    CHECK(gone != NULL && ashlar__cache_recent->recent->stream_state == gone);
    gone->recorded = gone->completed = gone->last_tick + 1;
    gone->is_gone = true;
    atomic_store(&gone->holder, NULL);
    unsigned char *ptr = take(4096, streams[0]);
    CHECK(order_of(streams[0]) != gone);
    const ashlar_block *block =
        ashlar__page_map_get(&allocator->heap.map, (uintptr_t)ptr - allocator->constants.base);
    CHECK(block != NULL && block->stream_state == order_of(streams[0]));
    give(ptr);
}

/* An event recorded while a block was in a cache need not come after its last use. */
CASE(a_flushed_block_is_stamped_with_the_present_tick) {
    REQUIRE(set_up_cached("memory=32MiB", 8 * MIB));
    give(take(4096, streams[0]));
    ashlar_stream_state *of_first = order_of(streams[0]);
    REQUIRE(of_first != NULL);
    ashlar_block *block = ashlar__page_map_get(&allocator->heap.map, 0);
    REQUIRE(block != NULL && block->bytes == 4096);
    ashlar__lock_acquire(&allocator->lock);
    CHECK(ashlar__stream_state_cover(of_first, &allocator->client, of_first->recorded,
                                     &allocator->stats.events_recorded) == ASHLAR_OK);
    ashlar__lock_release(&allocator->lock);
    unsigned char *ptr = take(4096, streams[0]); /* used again, after the event */
    CHECK_ZU(stats_now().served_cached, 1);
    give(ptr);
    flush(ashlar__cache_flush);
    const ashlar_block *gap = ashlar__heap_first(&allocator->heap);
    CHECK(gap->state == ASHLAR_BLOCK_FREE && of_first->recorded == 1);
    CHECK_ZU(ashlar__heap_tick_at(&allocator->heap, gap->window, gap->offset, 4096), 1);
    CHECK_ZU(of_first->last_tick, 1);
}

/* What a hit writes, on lines where no other thread's hit writes. */
CASE(nothing_that_a_hit_writes_shares_a_line) {
    enum { LINE = ASHLAR_CACHE_LINE };
    CHECK(offsetof(ashlar_cache, is_busy) >= LINE);
    CHECK(sizeof(ashlar_cache) - offsetof(ashlar_cache, thread) > LINE);
    CHECK(offsetof(ashlar_magazines, lists) >= LINE);
    CHECK(sizeof(ashlar_magazines) - sizeof magazines.lists >= 2 * (size_t)LINE);
}

/* Zones take nodes by whole lines. */
CASE_WITH(blocks_of_two_streams_share_no_line, set_up_cached("memory=32MiB", 8 * MIB)) {
    enum { LINE = ASHLAR_CACHE_LINE, EACH = 9 };
    unsigned char *ptrs[2][EACH];
    for (size_t i = 0; i < EACH; i++) {
        ptrs[0][i] = take(4096, streams[0]);
        ptrs[1][i] = take(4096, streams[1]);
    }
    for (const ashlar_block *a = ashlar__heap_first(&allocator->heap); a != NULL;
         a = ashlar__heap_next(a)) {
        for (const ashlar_block *b = a; b != NULL; b = ashlar__heap_next(b)) {
            CHECK(a->window == b->window || (uintptr_t)(a + 1) - 1 < (uintptr_t)b / LINE * LINE ||
                  (uintptr_t)(b + 1) - 1 < (uintptr_t)a / LINE * LINE);
        }
    }
    for (size_t i = 0; i < EACH; i++) {
        give(ptrs[0][i]);
        give(ptrs[1][i]);
    }
}

CASE_WITH(one_streams_blocks_may_be_forgotten_alone, set_up_cached("memory=32MiB", 8 * MIB)) {
    fill_own();
    unsigned char *held = take(4096, streams[0]); /* makes that stream the recent one */
    ashlar__lock_acquire(&allocator->lock);
    ashlar__cache_forget_locked(ashlar__cache_recent, order_of(streams[0]));
    ashlar__lock_release(&allocator->lock);
    CHECK(ashlar__cache_recent->recent == &ashlar__no_magazines);
    CHECK(ashlar__cache_recent->stream != streams[0]);
    CHECK_ZU(own_stats().cached_bytes, 1024);
    const uint64_t served = own_stats().served_cached;
    unsigned char *other = take(1024, streams[1]); /* still there */
    CHECK_ZU(own_stats().served_cached, served + 1);
    unsigned char *again = take(4096, streams[0]); /* not from magazines that are no more */
    CHECK_ZU(own_stats().served_cached, served + 1);
    give(held);
    give(other);
    give(again);
}

CASE_WITH(a_thread_keeps_one_cache_of_each_allocator, set_up_cached("memory=32MiB", 8 * MIB)) {
    ashlar_allocator *second = NULL;
    REQUIRE(ashlar_allocator_create(device, &second) == ASHLAR_OK);
    ashlar_cache *of_first = ashlar__cache_get(allocator);
    ashlar_cache *of_second = ashlar__cache_get(second);
    REQUIRE(of_first != NULL && of_second != NULL);
    CHECK(of_first != of_second && ashlar__cache_recent == of_second);
    CHECK(ashlar__cache_get(allocator) == of_first && ashlar__cache_recent == of_first);
    CHECK(of_first->allocator == allocator && allocator->caches == of_first);
    CHECK_ZU(of_first->limit[0], ashlar__cache_weight(MIB)); /* the least, on a small device */
    CHECK_ZU(of_first->limit[1], ashlar__cache_weight(4 * MIB));
    /* 1/32 of the device, where nobody says. */
    CHECK_ZU(of_second->limit[0], ashlar__cache_weight(512 * KIB));
    ashlar_allocator_destroy(second);
    CHECK(of_second->allocator == NULL);
    CHECK(ashlar__cache_get(allocator) == of_first);
    /* The next one made frees those that no allocator has. */
    REQUIRE(ashlar_allocator_create(device, &second) == ASHLAR_OK);
    CHECK(ashlar__cache_get(second) != NULL);
    CHECK(ashlar__cache_get(second)->next_of_thread == of_first);
    CHECK(of_first->next_of_thread == NULL);
    ashlar_allocator_destroy(second);
}

CASE_WITH(an_allocator_without_caches_gives_none, set_up("memory=32MiB")) {
    CHECK(ashlar__cache_get(allocator) == NULL);
    give(take(4096, streams[0]));
    give(take(4096, streams[0]));
    CHECK(allocator->caches == NULL);
    CHECK_ZU(stats_now().served_cached, 0);
    CHECK_ZU(stats_now().cached_bytes, 0);
}

/* Without host memory for a cache, or for a stream's magazines, all works as without caches. */
CASE_WITH(no_host_memory_means_no_cache, set_up_cached("memory=32MiB", 8 * MIB)) {
    ashlar__host_fail_at(1);
    CHECK(ashlar__cache_get(allocator) == NULL);
    CHECK(allocator->caches == NULL);
    ashlar__host_fail_at(3);
    unsigned char *ptr = take(4096, streams[0]); /* makes the cache, the stream's state, ... */
    CHECK(allocator->caches != NULL && allocator->caches->magazines == NULL);
    ashlar__host_fail_at(1);
    give(ptr); /* and no magazines for the stream */
    CHECK_ZU(stats_now().cached_bytes, 0);
    give(take(4096, streams[0]));
    CHECK_ZU(stats_now().cached_bytes, 4096);
}

/* ---- shutting out ---- */

CASE(an_owner_that_is_shut_out_may_not_enter) {
    set_up_alone(MIB, MIB);
    CHECK(ashlar__cache_enter(&cache));
    CHECK(atomic_load(&cache.is_busy) == 1);
    ashlar__cache_leave(&cache);
    CHECK(atomic_load(&cache.is_busy) == 0);
    atomic_store(&cache.attention, ASHLAR_CACHE_CLAIMED);
    CHECK(!ashlar__cache_enter(&cache));
    CHECK(atomic_load(&cache.is_busy) == 0); /* or the claimer would wait forever */
    atomic_store(&cache.attention, ASHLAR_CACHE_BYPASSED);
    CHECK(!ashlar__cache_enter(&cache));
}

enum { SHUT_OUT = 1, NOT_SHUT_OUT };
static atomic_bool is_claimed, is_owner_inside, owner_may_end;
static atomic_int owner_found;

/* Enter, wait until the claim has begun, and stay a little: the claim must not end before. */
static void *stay_inside(void *unused) {
    enum { YIELDS = 200 };
    ashlar_cache *mine = ashlar__cache_get(allocator);
    (void)unused;
    if (mine == NULL || !ashlar__cache_enter(mine)) {
        return NULL;
    }
    atomic_store(&is_owner_inside, true);
    while (atomic_load(&mine->attention) == 0 && !atomic_load(&is_claimed)) {
        sched_yield();
    }
    bool is_shut = true;
    for (int i = 0; i < YIELDS; i++) {
        is_shut = is_shut && !atomic_load(&is_claimed);
        sched_yield();
    }
    ashlar__cache_leave(mine);
    while (!atomic_load(&is_claimed)) {
        sched_yield();
    }
    is_shut = is_shut && !ashlar__cache_enter(mine);
    atomic_store(&owner_found, is_shut ? SHUT_OUT : NOT_SHUT_OUT);
    while (!atomic_load(&owner_may_end)) {
        sched_yield();
    }
    return ashlar__cache_enter(mine) ? mine : NULL;
}

CASE_WITH(a_claim_waits_for_an_owner_that_is_inside, set_up_cached("memory=32MiB", 8 * MIB)) {
    pthread_t owner;
    void *entered = NULL;
    if (!ashlar__barrier_init()) {
        tear_down();
        SKIP("this kernel has no membarrier(2)");
    }
    REQUIRE(pthread_create(&owner, NULL, stay_inside, NULL) == 0);
    while (!atomic_load(&is_owner_inside)) {
        sched_yield();
    }
    ashlar_cache *own = ashlar__cache_get(allocator); /* the newer one: first of the list */
    REQUIRE(own != NULL && own->next != NULL);
    ashlar__lock_acquire(&allocator->lock);
    ashlar__caches_claim_locked(allocator, own);
    atomic_store(&is_claimed, true);
    CHECK(atomic_load(&own->attention) == 0); /* not shut out of its own */
    while (atomic_load(&owner_found) == 0) {
        sched_yield();
    }
    ashlar__caches_release_locked(allocator, own);
    ashlar__lock_release(&allocator->lock);
    atomic_store(&owner_may_end, true);
    REQUIRE(pthread_join(owner, &entered) == 0);
    CHECK(entered != NULL);
    CHECK(atomic_load(&owner_found) == SHUT_OUT);
    CHECK(allocator->caches == own && own->next == NULL); /* the other one went with its thread */
}

RUN_CASES()
