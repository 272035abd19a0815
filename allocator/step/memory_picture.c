/* memory_picture.c - comparing the heap's windows, and the counts of requests, at two moments. */
#include "allocator/step/memory_picture.h"

#include "allocator/base/check_level.h"
#include "allocator/base/random.h"
#include "allocator/core/hold.h"

ashlar_memory_picture ashlar__memory_look(ashlar_allocator *a) {
    ashlar_memory_picture p = {.layout = 0};
    ashlar_allocator_get_stats(a, &p.stats);
    ashlar__allocator_enter(a);
    for (const ashlar_window *w = a->heap.windows; w != NULL; w = w->above) {
        const uint64_t parts[] = {w->offset, (uint64_t)(uintptr_t)w->zone, w->mapped_count};
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            p.layout = ashlar__random_mix(p.layout + parts[i]);
        }
    }
    p.away_frees = a->heap.away_frees;
    p.left_away = a->heap.left_away;
    p.short_count = a->heap.short_count;
    ashlar__allocator_leave(a);
    return p;
}

/* The number of requests that were served without mapping memory or taking another stream's. */
static uint64_t served_in_place(const ashlar_stats *s) {
    return s->served_planned + s->served_cached + s->served_same_stream + s->served_idle;
}

bool ashlar__memory_is_repeated(const ashlar_memory_picture *before,
                                const ashlar_memory_picture *after) {
    ASHLAR_CHECK2(before->stats.alloc_count <= after->stats.alloc_count);
    return before->layout == after->layout && before->short_count == after->short_count &&
           before->left_away == after->left_away &&
           before->stats.reserved_bytes == after->stats.reserved_bytes &&
           after->stats.alloc_count - before->stats.alloc_count ==
               served_in_place(&after->stats) - served_in_place(&before->stats);
}

bool ashlar__memory_is_all_planned(const ashlar_memory_picture *before,
                                   const ashlar_memory_picture *after) {
    return after->stats.alloc_count - before->stats.alloc_count ==
           after->stats.served_planned - before->stats.served_planned;
}
