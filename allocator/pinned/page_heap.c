/*
 * page_heap.c - the bins of free runs, the list of segments, and when to take or return a segment.
 */
#include "allocator/pinned/page_heap.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/pinned/report.h"

/* The driver's own tables have this granularity: it takes longer over smaller segments. */
#define SEGMENT_STEP_BYTES ((size_t)2 << 20)
/* A new segment is at least 1/8 of the reserved bytes, so that a few calls reach any size. */
enum { GROW_FRACTION = 8 };

_Static_assert(4 * 63 + 3 < PAGE_HEAP_BINS && PAGE_HEAP_BINS % 64 == 0, "a bin for every size_t");

static bool holds_locked(const ashlar_page_heap *heap);

/* ---- runs and bins ---- */

/* Four bins for each power of two. Every run in a bin is longer than any in an earlier bin. */
static size_t bin_of(size_t page_count) {
    ASHLAR_CHECK2(page_count > 0);
    const unsigned log2 = 63u - (unsigned)__builtin_clzll(page_count);
    const size_t quarter = log2 >= 2 ? page_count >> (log2 - 2) : page_count << (2 - log2);
    return 4 * (size_t)log2 + (quarter & 3);
}

static void put_run(ashlar_page_heap *heap, ashlar_page_run *run, size_t page_count) {
    const size_t bin = bin_of(page_count);
    const ashlar_segment *segment = run->segment;
    ASHLAR_OWNS(&heap->lock);
    ASHLAR_CHECK2(run + page_count <= segment->pages + segment->page_count);
    ASHLAR_CHECK2(run->page_count == 0 && run[page_count - 1].page_count == 0);
    run->page_count = page_count;
    run[page_count - 1].page_count = page_count;
    run->before = NULL;
    run->next = heap->bins[bin];
    if (run->next != NULL) {
        run->next->before = run;
    }
    heap->bins[bin] = run;
    heap->bin_bits[bin / 64] |= UINT64_C(1) << (bin % 64);
}

static void remove_run(ashlar_page_heap *heap, ashlar_page_run *run) {
    const size_t bin = bin_of(run->page_count);
    ASHLAR_OWNS(&heap->lock);
    ASHLAR_CHECK2(run[run->page_count - 1].page_count == run->page_count);
    ASHLAR_CHECK2((heap->bin_bits[bin / 64] >> (bin % 64) & 1) != 0);
    ASHLAR_CHECK2(run->before != NULL ? run->before->next == run : heap->bins[bin] == run);
    if (run->next != NULL) {
        run->next->before = run->before;
    }
    if (run->before != NULL) {
        run->before->next = run->next;
    } else {
        heap->bins[bin] = run->next;
    }
    if (heap->bins[bin] == NULL) {
        heap->bin_bits[bin / 64] &= ~(UINT64_C(1) << (bin % 64));
    }
    run[run->page_count - 1].page_count = 0;
    run->page_count = 0;
}

/*
 * A free run from the first bin that is not empty, beginning with `bin`; NULL: all these bins are
 * empty.
 */
static ashlar_page_run *first_from(const ashlar_page_heap *heap, size_t bin) {
    for (size_t word = bin / 64; word < PAGE_HEAP_BINS / 64; word++) {
        uint64_t bits = heap->bin_bits[word];
        if (word == bin / 64) {
            bits &= ~UINT64_C(0) << (bin % 64);
        }
        if (bits != 0) {
            ashlar_page_run *run = heap->bins[word * 64 + (unsigned)__builtin_ctzll(bits)];
            ASHLAR_CHECK2(run != NULL);
            return run;
        }
    }
    return NULL;
}

/* The shortest sufficient run in the bin for this size; failing that, any run of a later bin. */
static ashlar_page_run *find_run(const ashlar_page_heap *heap, size_t page_count) {
    const size_t bin = bin_of(page_count);
    ashlar_page_run *best = NULL;
    for (ashlar_page_run *run = heap->bins[bin]; run != NULL; run = run->next) {
        if (run->page_count >= page_count && (best == NULL || run->page_count < best->page_count)) {
            best = run;
        }
    }
    return best != NULL ? best : first_from(heap, bin + 1);
}

/* Cut `page_count` pages off the front of a free run. */
static void *cut_run_locked(ashlar_page_heap *heap, ashlar_page_run *run, size_t page_count) {
    ashlar_segment *segment = run->segment;
    ASHLAR_OWNS(&heap->lock);
    ASHLAR_CHECK2(page_count > 0 && page_count <= run->page_count);
    ASHLAR_CHECK2(run->page_count <= segment->free_count);
    const size_t rest = run->page_count - page_count;
    remove_run(heap, run);
    if (rest > 0) {
        put_run(heap, run + page_count, rest);
    }
    segment->free_count -= page_count;
    return segment->base + (size_t)(run - segment->pages) * heap->page_bytes;
}

void *ashlar__page_heap_take(ashlar_page_heap *heap, size_t bytes) {
    const size_t page_count = bytes / heap->page_bytes;
    ASHLAR_CHECK2(bytes > 0 && bytes % heap->page_bytes == 0);
    ashlar__lock_acquire(&heap->lock);
    ashlar_page_run *run = find_run(heap, page_count);
    void *ptr = run != NULL ? cut_run_locked(heap, run, page_count) : NULL;
    ASHLAR_CHECK3(holds_locked(heap));
    ashlar__lock_release(&heap->lock);
    return ptr;
}

/* ---- segments ---- */

/* Index of the first segment that begins after `ptr`. */
static size_t segments_behind(const ashlar_page_heap *heap, const void *ptr) {
    size_t low = 0, high = heap->segment_count;
    ASHLAR_OWNS(&heap->lock);
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((uintptr_t)heap->segments[middle]->base <= (uintptr_t)ptr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Make used pages a free run, joined with its free neighbours. */
static void join_free_neighbours(ashlar_page_heap *heap, ashlar_segment *segment, size_t first,
                                 size_t page_count) {
    const size_t end = first + page_count;
    if (end < segment->page_count && segment->pages[end].page_count != 0) {
        page_count += segment->pages[end].page_count;
        remove_run(heap, &segment->pages[end]);
    }
    if (first > 0 && segment->pages[first - 1].page_count != 0) {
        const size_t before = segment->pages[first - 1].page_count;
        ASHLAR_CHECK2(before <= first);
        first -= before;
        page_count += before;
        remove_run(heap, &segment->pages[first]);
    }
    put_run(heap, &segment->pages[first], page_count);
}

void ashlar__page_heap_give(ashlar_page_heap *heap, void *ptr, size_t bytes) {
    const size_t page_count = bytes / heap->page_bytes;
    ASHLAR_CHECK2(bytes > 0 && bytes % heap->page_bytes == 0);
    ashlar__lock_acquire(&heap->lock);
    const size_t behind = segments_behind(heap, ptr);
    ASHLAR_ASSERT(behind > 0);
    ashlar_segment *segment = heap->segments[behind - 1];
    const size_t offset = (size_t)((unsigned char *)ptr - segment->base);
    const size_t first = offset / heap->page_bytes;
    ASHLAR_CHECK2(offset % heap->page_bytes == 0);
    ASHLAR_ASSERT(first + page_count <= segment->page_count);
    ASHLAR_CHECK2(segment->free_count + page_count <= segment->page_count); /* not freed twice */
    join_free_neighbours(heap, segment, first, page_count);
    segment->free_count += page_count;
    ASHLAR_CHECK3(holds_locked(heap));
    ashlar__lock_release(&heap->lock);
}

/* Make room for one more entry in `segments`. False: no host memory. */
static bool keep_room_locked(ashlar_page_heap *heap) {
    ASHLAR_OWNS(&heap->lock);
    const size_t wanted = heap->segment_count + heap->grower_count + 1;
    if (wanted <= heap->segment_capacity) {
        return true;
    }
    const size_t capacity = 2 * wanted;
    ashlar_segment **segments = ashlar__host_realloc(heap->segments, capacity, sizeof *segments);
    if (segments == NULL) {
        return false;
    }
    heap->segments = segments;
    heap->segment_capacity = capacity;
    return true;
}

/* The size of the next segment: at least `least` bytes, more if the limit allows. */
static size_t segment_bytes_locked(const ashlar_page_heap *heap, size_t least, size_t room) {
    ASHLAR_OWNS(&heap->lock);
    size_t wanted = heap->reserved_bytes / GROW_FRACTION;
    wanted = wanted > heap->grow_bytes ? wanted : heap->grow_bytes;
    wanted = wanted > least ? wanted : least;
    if (!ashlar__align_up(wanted, SEGMENT_STEP_BYTES, &wanted) || wanted > room) {
        wanted = room & ~(heap->page_bytes - 1);
    }
    ASHLAR_CHECK2(least <= wanted && wanted <= room && wanted % heap->page_bytes == 0);
    return wanted;
}

/* Announce a segment of at least `least` bytes; *bytes is its size. */
static ashlar_status begin_growing(ashlar_page_heap *heap, size_t least, size_t *bytes) {
    ashlar_status status = ASHLAR_OK;
    ashlar__lock_acquire(&heap->lock);
    ASHLAR_CHECK2(heap->reserved_bytes + heap->growing_bytes <= heap->limit_bytes);
    const size_t room = heap->limit_bytes - heap->reserved_bytes - heap->growing_bytes;
    if (least > room) {
        status = ashlar__pinned_fail(ASHLAR_ENOMEM, "limit_bytes leaves %zu bytes", room);
    } else if (!keep_room_locked(heap)) {
        status = ashlar__pinned_fail(ASHLAR_EHOSTMEM, "no host memory for the list of segments");
    } else {
        *bytes = segment_bytes_locked(heap, least, room);
        heap->grower_count++;
        heap->growing_bytes += *bytes;
        ASHLAR_CHECK2(heap->segment_count + heap->grower_count <= heap->segment_capacity);
    }
    ashlar__lock_release(&heap->lock);
    return status;
}

static void insert_locked(ashlar_page_heap *heap, ashlar_segment *segment) {
    ASHLAR_OWNS(&heap->lock);
    const size_t idx = segments_behind(heap, segment->base);
    ASHLAR_CHECK2(heap->segment_count < heap->segment_capacity);
    memmove(heap->segments + idx + 1, heap->segments + idx,
            (heap->segment_count - idx) * sizeof *heap->segments);
    heap->segments[idx] = segment;
    heap->segment_count++;
    heap->reserved_bytes += segment->page_count * heap->page_bytes;
    if (heap->reserved_bytes > heap->reserved_peak_bytes) {
        heap->reserved_peak_bytes = heap->reserved_bytes;
    }
    heap->alloc_calls++;
    put_run(heap, segment->pages, segment->page_count);
}

/* Add the announced segment, and cut *out from it. `segment` is NULL if making it failed. */
static void end_growing(ashlar_page_heap *heap, size_t announced_bytes, ashlar_segment *segment,
                        size_t bytes, void **out) {
    ashlar__lock_acquire(&heap->lock);
    ASHLAR_CHECK2(heap->grower_count > 0 && announced_bytes <= heap->growing_bytes);
    heap->grower_count--;
    heap->growing_bytes -= announced_bytes;
    if (segment != NULL) {
        insert_locked(heap, segment);
        *out = cut_run_locked(heap, segment->pages, bytes / heap->page_bytes);
    }
    ASHLAR_CHECK3(holds_locked(heap));
    ashlar__lock_release(&heap->lock);
}

static ashlar_status make_segment(const ashlar_page_heap *heap, size_t bytes,
                                  ashlar_segment **out) {
    void *base = NULL;
    const size_t page_count = bytes / heap->page_bytes;
    ashlar_segment *segment;
    ASHLAR_CHECK2(sizeof *segment->pages < heap->page_bytes); /* so the product is below `bytes` */
    segment = ashlar__host_calloc(1, sizeof *segment + page_count * sizeof *segment->pages);
    if (segment == NULL) {
        return ashlar__pinned_fail(ASHLAR_EHOSTMEM, "no host memory for a segment's pages");
    }
    ashlar_status status = ashlar_device_host_alloc(heap->device, bytes, &base);
    if (status != ASHLAR_OK) {
        ashlar__host_free(segment);
        return status;
    }
    segment->base = base;
    segment->page_count = page_count;
    segment->free_count = page_count;
    for (size_t i = 0; i < page_count; i++) {
        segment->pages[i].segment = segment;
    }
    *out = segment;
    return ASHLAR_OK;
}

ashlar_status ashlar__page_heap_grow(ashlar_page_heap *heap, size_t bytes, void **out) {
    size_t segment_bytes = 0;
    ashlar_status status = begin_growing(heap, bytes, &segment_bytes);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_segment *segment = NULL;
    status = make_segment(heap, segment_bytes, &segment);
    if (status != ASHLAR_OK && segment_bytes > bytes) {
        status = make_segment(heap, bytes, &segment); /* retry with no more than needed */
    }
    end_growing(heap, segment_bytes, segment, bytes, out);
    return status;
}

/* Take a wholly free segment out of the lists; NULL: there is none. */
static ashlar_segment *unlink_free_locked(ashlar_page_heap *heap) {
    ASHLAR_OWNS(&heap->lock);
    for (size_t i = heap->segment_count; i-- > 0;) {
        ashlar_segment *segment = heap->segments[i];
        if (segment->free_count == segment->page_count) {
            ASHLAR_CHECK2(segment->pages->page_count == segment->page_count); /* one free run */
            remove_run(heap, segment->pages);
            heap->segment_count--;
            memmove(heap->segments + i, heap->segments + i + 1,
                    (heap->segment_count - i) * sizeof *heap->segments);
            return segment;
        }
    }
    return NULL;
}

bool ashlar__page_heap_trim(ashlar_page_heap *heap) {
    bool is_any = false;
    ashlar__lock_acquire(&heap->lock);
    ashlar_segment *segment;
    while ((segment = unlink_free_locked(heap)) != NULL) {
        ashlar__lock_release(&heap->lock);
        const size_t bytes = segment->page_count * heap->page_bytes;
        ashlar_device_host_free(heap->device, segment->base);
        ashlar__host_free(segment);
        is_any = true;
        ashlar__lock_acquire(&heap->lock);
        ASHLAR_CHECK2(bytes <= heap->reserved_bytes);
        heap->reserved_bytes -= bytes; /* only now, since the limit counts all memory that the
                                        * driver has not got back */
        heap->free_calls++;
        ASHLAR_CHECK2(heap->alloc_calls - heap->free_calls >= heap->segment_count);
    }
    ashlar__lock_release(&heap->lock);
    return is_any;
}

void ashlar__page_heap_init(ashlar_page_heap *heap) {
    ASHLAR_CHECK2((heap->page_bytes & (heap->page_bytes - 1)) == 0 && heap->segments == NULL);
    ashlar__lock_init(&heap->lock, ASHLAR_RANK_PINNED_PAGES);
}

void ashlar__page_heap_finish(ashlar_page_heap *heap) {
    ASHLAR_CHECK2(heap->grower_count == 0);
    for (size_t i = 0; i < heap->segment_count; i++) {
        ashlar_device_host_free(heap->device, heap->segments[i]->base);
        ashlar__host_free(heap->segments[i]);
    }
    ashlar__host_free(heap->segments);
    ashlar__lock_finish(&heap->lock);
}

/* ---- check ---- */

/* The number of pages in the bins; SIZE_MAX: a bin is broken. */
static size_t pages_in_bins(const ashlar_page_heap *heap) {
    size_t page_count = 0;
    for (size_t bin = 0; bin < PAGE_HEAP_BINS; bin++) {
        const bool is_marked = (heap->bin_bits[bin / 64] >> (bin % 64) & 1) != 0;
        if (is_marked != (heap->bins[bin] != NULL)) {
            return SIZE_MAX;
        }
        for (const ashlar_page_run *run = heap->bins[bin]; run != NULL; run = run->next) {
            if (bin_of(run->page_count) != bin ||
                run[run->page_count - 1].page_count != run->page_count) {
                return SIZE_MAX;
            }
            page_count += run->page_count;
        }
    }
    return page_count;
}

static bool holds_locked(const ashlar_page_heap *heap) {
    size_t bytes = 0, free_count = 0;
    ASHLAR_OWNS(&heap->lock);
    bool holds = heap->segment_count + heap->grower_count <= heap->segment_capacity;
    for (size_t i = 0; i < heap->segment_count; i++) {
        bytes += heap->segments[i]->page_count * heap->page_bytes;
        free_count += heap->segments[i]->free_count;
        holds = holds && (i == 0 || heap->segments[i - 1]->base < heap->segments[i]->base);
    }
    const bool is_all_there = heap->alloc_calls - heap->free_calls == heap->segment_count;
    return holds && bytes <= heap->reserved_bytes &&
           (bytes == heap->reserved_bytes) == is_all_there && free_count == pages_in_bins(heap) &&
           heap->reserved_bytes <= heap->reserved_peak_bytes &&
           heap->reserved_bytes + heap->growing_bytes <= heap->limit_bytes;
}

bool ashlar__page_heap_holds(ashlar_page_heap *heap) {
    ashlar__lock_acquire(&heap->lock);
    const bool holds =
        holds_locked(heap) && heap->alloc_calls - heap->free_calls == heap->segment_count;
    ashlar__lock_release(&heap->lock);
    return holds;
}
