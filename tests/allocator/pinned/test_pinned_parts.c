/*
 * test_pinned_parts.c - what a pool of page-locked memory is made of: runs of pages, batches of
 * pending blocks, the table of live ones.
 */
#include "tests/allocator/pinned/pinned_fixture.h"

#include "allocator/pinned/block_table.h"
#include "allocator/pinned/jemalloc_arena.h"
#include "allocator/pinned/page_heap.h"
#include "allocator/pinned/pending.h"
#include "allocator/base/random.h"

enum { PAGE = 4096, RUNS = 300 };

static ashlar_page_heap heap;

static void tear_down_heap(void) {
    ashlar__page_heap_finish(&heap);
    CHECK_ZU(host_blocks(), 0);
    tear_down_device();
}

static bool set_up_heap(size_t limit_bytes) {
    const bool is_set_up = set_up_device("");
    heap = (ashlar_page_heap){
        .device = device, .page_bytes = PAGE, .limit_bytes = limit_bytes, .grow_bytes = 2 * MIB};
    ashlar__page_heap_init(&heap);
    return is_set_up && check_at_end(tear_down_heap);
}

static unsigned char *take_pages(size_t page_count) {
    void *ptr = ashlar__page_heap_take(&heap, page_count * PAGE);
    if (ptr == NULL) {
        CHECK(ashlar__page_heap_grow(&heap, page_count * PAGE, &ptr) == ASHLAR_OK);
    }
    CHECK(ptr != NULL && (uintptr_t)ptr % PAGE == 0);
    return ptr;
}

static void give_pages(unsigned char *ptr, size_t page_count) {
    ashlar__page_heap_give(&heap, ptr, page_count * PAGE);
}

static uint64_t random_state;

static size_t draw(size_t below) {
    return (size_t)ashlar__random_step_below(&random_state, below);
}

/* Every run is written at both ends and found unchanged, whatever was taken and given between. */
CASE(random_runs_never_overlap_and_always_merge) {
    static struct {
        unsigned char *ptr;
        size_t page_count;
    } runs[RUNS];
    REQUIRE(set_up_heap(SIZE_MAX));
    random_state = 11;
    memset(runs, 0, sizeof runs);
    for (int round = 0; round < 20000; round++) {
        const size_t i = draw(RUNS);
        const unsigned char value = (unsigned char)i;
        if (runs[i].ptr == NULL) {
            runs[i].page_count = 1 + draw(draw(10) == 0 ? 700 : 12);
            runs[i].ptr = take_pages(runs[i].page_count);
            runs[i].ptr[0] = runs[i].ptr[runs[i].page_count * PAGE - 1] = value;
            continue;
        }
        const size_t first = draw(runs[i].page_count); /* in two parts, as jemalloc may */
        CHECK(runs[i].ptr[0] == value && runs[i].ptr[runs[i].page_count * PAGE - 1] == value);
        if (first > 0) {
            give_pages(runs[i].ptr, first);
        }
        give_pages(runs[i].ptr + first * PAGE, runs[i].page_count - first);
        runs[i].ptr = NULL;
        if (draw(200) == 0) {
            (void)ashlar__page_heap_trim(&heap);
        }
        if (draw(20) == 0) {
            CHECK(ashlar__page_heap_holds(&heap));
        }
    }
    for (size_t i = 0; i < RUNS; i++) {
        if (runs[i].ptr != NULL) {
            give_pages(runs[i].ptr, runs[i].page_count);
        }
    }
    CHECK(ashlar__page_heap_holds(&heap));
    CHECK(heap.grower_count == 0 && heap.growing_bytes == 0);
    CHECK(heap.segment_count > 3);
    CHECK(ashlar__page_heap_trim(&heap) && !ashlar__page_heap_trim(&heap));
    CHECK(heap.reserved_bytes == 0 && heap.segment_count == 0);
    CHECK(ashlar__page_heap_holds(&heap));
}

CASE_WITH(the_shortest_run_that_fits_is_taken, set_up_heap(SIZE_MAX)) {
    static const size_t lengths[] = {8, 9, 100}; /* the first two are of one bin */
    unsigned char *runs[3];
    for (int i = 0; i < 3; i++) {
        runs[i] = take_pages(lengths[i]);
        (void)take_pages(1); /* keeps them apart */
    }
    for (int i = 0; i < 3; i++) {
        give_pages(runs[i], lengths[i]);
    }
    CHECK(take_pages(8) == runs[0]);
    CHECK(take_pages(8) == runs[1]);
    CHECK(take_pages(50) == runs[2]); /* not the longer rest of the segment */
    CHECK_ZU(host_blocks(), 1);
}

CASE_WITH(a_run_does_not_reach_into_the_next_segment, set_up_heap(4 * MIB)) {
    unsigned char *a = take_pages(512), *b = take_pages(512);
    void *out = NULL;
    give_pages(a, 512);
    give_pages(b, 512);
    CHECK(ashlar__page_heap_holds(&heap));
    CHECK(ashlar__page_heap_take(&heap, 513 * PAGE) == NULL);
    CHECK(ashlar__page_heap_grow(&heap, PAGE, &out) == ASHLAR_ENOMEM && out == NULL);
    CHECK(heap.grower_count == 0 && heap.growing_bytes == 0);
}

/* It asks for no pages then, so what these were refused for before is no reason. */
CASE_WITH(jemalloc_may_refuse_by_itself, set_up_heap(4 * MIB)) {
    ashlar_jemalloc_arena *arena = NULL;
    void *out = NULL;
    REQUIRE(ashlar__jemalloc_arena_create(&heap, &arena) == ASHLAR_OK);
    CHECK(ashlar__jemalloc_take_growing(arena, 8 * MIB, &out) == ASHLAR_ENOMEM);
    CHECK_FAILS(ashlar__jemalloc_take_growing(arena, (size_t)PTRDIFF_MAX, &out), ASHLAR_EHOSTMEM,
                "jemalloc has no memory");
    CHECK(out == NULL && host_blocks() == 0);
    ashlar__jemalloc_arena_destroy(arena);
}

/* What a failing call has announced is taken back. */
CASE_WITH(growing_that_fails_leaves_nothing_behind, set_up_heap(4 * MIB)) {
    void *out = NULL;
    ashlar__host_fail_at(1); /* the list of segments; their records are tried for twice */
    CHECK(ashlar__page_heap_grow(&heap, PAGE, &out) == ASHLAR_EHOSTMEM);
    CHECK(heap.grower_count == 0 && heap.growing_bytes == 0);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_mem_host_alloc, 1, CU_UNKNOWN);
    CHECK(ashlar__page_heap_grow(&heap, 2 * MIB, &out) == ASHLAR_EDRIVER && out == NULL);
    CHECK(heap.grower_count == 0 && heap.growing_bytes == 0);
    CHECK(ashlar__page_heap_holds(&heap) && host_blocks() == 0);
    CHECK(ashlar__page_heap_grow(&heap, 4 * MIB, &out) == ASHLAR_OK && out != NULL);
}

static void check_finds(size_t *field, size_t wrong) {
    const size_t right = *field;
    *field = wrong;
    CHECK(!ashlar__page_heap_holds(&heap));
    *field = right;
    CHECK(ashlar__page_heap_holds(&heap));
}

CASE_WITH(the_walker_knows_the_runs, set_up_heap(8 * MIB)) {
    unsigned char *a = take_pages(512);
    (void)take_pages(512);
    give_pages(a, 100);
    REQUIRE(heap.segment_count == 2 && ashlar__page_heap_holds(&heap));
    check_finds(&heap.segment_capacity, 1);
    check_finds(&heap.growing_bytes, heap.limit_bytes);
    check_finds(&heap.reserved_peak_bytes, heap.reserved_bytes - 1);
    check_finds(&heap.segments[0]->free_count, heap.segments[0]->free_count + 1);
    check_finds(&heap.segments[0]->page_count, 513);
    /* As if one were being returned, with its bytes and without. */
    heap.alloc_calls++;
    CHECK(!ashlar__page_heap_holds(&heap));
    heap.reserved_bytes += PAGE, heap.reserved_peak_bytes += PAGE;
    CHECK(!ashlar__page_heap_holds(&heap));
    heap.alloc_calls--;
    CHECK(!ashlar__page_heap_holds(&heap));
    heap.reserved_bytes -= PAGE;
    ashlar_segment *const first = heap.segments[0];
    for (int i = 0; i < 2; i++) { /* in the wrong order, and back */
        heap.segments[0] = heap.segments[1];
        heap.segments[1] = first;
        CHECK(ashlar__page_heap_holds(&heap) == (heap.segments[0]->base < first->base));
        heap.segments[1] = heap.segments[0];
        heap.segments[0] = first;
    }
}

CASE_WITH(the_walker_knows_the_bins, set_up_heap(8 * MIB)) {
    unsigned char *a = take_pages(512);
    give_pages(a, 100);
    for (size_t bin = 0; bin < PAGE_HEAP_BINS; bin++) {
        ashlar_page_run *const run = heap.bins[bin];
        if (run != NULL) {
            check_finds(&run->page_count, run->page_count * 2);
            check_finds(&run[run->page_count - 1].page_count, run->page_count + 1);
            heap.bins[bin] = NULL;
            CHECK(!ashlar__page_heap_holds(&heap));
            heap.bins[bin] = run;
        }
    }
    CHECK(ashlar__page_heap_holds(&heap));
}

/* ---- pending ---- */

static ashlar_block_table table;
static ashlar_pending pending;

static void tear_down_pending(void) {
    ashlar__pending_finish(&pending);
    ashlar__block_table_finish(&table);
    CHECK_ZU(live_events(), 0);
    tear_down_device();
}

static bool set_up_pending(void) {
    const bool is_set_up = set_up_device("mode=adversarial,seed=3");
    table = (ashlar_block_table){.live_bytes = 0};
    pending = (ashlar_pending){.device = device};
    ashlar__pending_init(&pending);
    return ashlar__block_table_init(&table) == ASHLAR_OK && is_set_up &&
           check_at_end(tear_down_pending);
}

/* A block that is an address only. */
static void add_block(uintptr_t address, size_t bytes, const ashlar_stream *users, size_t count) {
    ashlar_pinned_block *block = ashlar__host_calloc(1, sizeof *block);
    CHECK(block != NULL);
    block->ptr = (void *)address;
    block->bytes = bytes;
    ashlar__block_table_put(&table, block);
    CHECK(ashlar__pending_add(&pending, &table, block->ptr, users, count) == ASHLAR_OK);
}

static size_t poll_pending(void) {
    size_t count = 0;
    ashlar_pinned_block *released = NULL;
    CHECK(ashlar__pending_poll(&pending, &released) == ASHLAR_OK);
    while (released != NULL) {
        ashlar_pinned_block *next = released->next;
        ashlar__host_free(released);
        released = next;
        count++;
    }
    return count;
}

CASE_WITH(streams_that_come_and_go_leave_no_records, set_up_pending()) {
    for (uintptr_t i = 1; i <= 20; i++) {
        ashlar_stream stream = NULL;
        REQUIRE(ashlar_stream_create(device, &stream) == ASHLAR_OK);
        add_block(64 * i, 64, &stream, 1);
        wait_for(stream);
        size_t released = 0;
        for (int k = 0; k < 1000 && released == 0; k++) {
            released = poll_pending();
        }
        CHECK_ZU(released, 1);
        CHECK(pending.streams == NULL);
        ashlar_stream_destroy(device, stream);
    }
}

/* A batch has room made for one of the two only. */
CASE_WITH(a_stream_named_twice_is_one_stream, set_up_pending()) {
    for (uintptr_t i = 1; i <= BATCH_BLOCKS; i++) {
        const ashlar_stream twice[] = {streams[0], streams[0]};
        add_block(64 * i, 64, twice, 2);
    }
    CHECK(pending.streams->first == pending.streams->last);
    CHECK(pending.streams->last->block_count == BATCH_BLOCKS);
    CHECK(pending.events_recorded == 1 && pending.pending_bytes == 64 * BATCH_BLOCKS);
    wait_for(streams[0]);
    CHECK_ZU(poll_pending(), BATCH_BLOCKS);
}

CASE_WITH(a_full_batch_without_an_event_takes_no_more, set_up_pending()) {
    for (uintptr_t i = 1; i < BATCH_BLOCKS; i++) {
        add_block(64 * i, 64, streams, 1);
    }
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_record, 1, CU_UNKNOWN);
    add_block(64 * BATCH_BLOCKS, 64, streams, 1);
    CHECK(pending.events_recorded == 0);
    add_block(64 * (BATCH_BLOCKS + 1), 64, streams, 1);
    CHECK(pending.streams->first->block_count == BATCH_BLOCKS);
    CHECK(pending.streams->last->block_count == 1);
    CHECK(ashlar__pending_forget_stream(&pending, streams[0]) == ASHLAR_OK);
    CHECK(pending.events_recorded == 2);
    wait_for(streams[0]);
    CHECK_ZU(poll_pending(), BATCH_BLOCKS + 1);
}

/* Its event would else be recorded behind work that came later. */
CASE_WITH(a_look_records_an_open_batch_behind_one_that_is_not_over, set_up_pending()) {
    queue_verify(streams[0], NULL, 0, 0);
    add_block(64, BATCH_BYTES, streams, 1);
    queue_verify(streams[0], NULL, 0, 0);
    add_block(128, 64, streams, 1);
    CHECK(pending.events_recorded == 1);
    CHECK_ZU(poll_pending(), 0);
    CHECK(pending.events_recorded == 2);
    wait_for(streams[0]);
    CHECK_ZU(poll_pending(), 2);
}

/* ---- table ---- */

CASE(the_table_grows_with_its_blocks) {
    static ashlar_pinned_block blocks[5000];
    ashlar_pinned_block *out = NULL;
    table = (ashlar_block_table){.live_bytes = 0};
    REQUIRE(ashlar__block_table_init(&table) == ASHLAR_OK);
    for (size_t i = 0; i < 5000; i++) {
        blocks[i] = (ashlar_pinned_block){.ptr = &blocks[i], .bytes = i};
        ashlar__block_table_put(&table, &blocks[i]);
    }
    for (int i = 0; i < TABLE_SHARDS; i++) {
        CHECK(table.shards[i].block_count > 100);
        CHECK(table.shards[i].block_count <= table.shards[i].chain_count);
    }
    for (size_t i = 0; i < 5000; i++) {
        CHECK(ashlar__block_table_take(&table, &blocks[i], &out) == ASHLAR_OK);
        CHECK(out == &blocks[i]);
    }
    CHECK(table.live_bytes == 0);
    ashlar__block_table_finish(&table);
}

RUN_CASES()
