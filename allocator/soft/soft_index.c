/* soft_index.c - tables that find items by handle, and sorted arrays of address ranges. */
#include "allocator/soft/soft_state.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"

enum { HANDLE_STEP = 16 }; /* leaves room for the kind, and avoids CUDA's handles 1 and 2 */
_Static_assert((int)SOFT_GRAPH_EXEC < (int)HANDLE_STEP, "a kind must not reach into the index");

/* Make room for one more item of `bytes` bytes. Returns the array; NULL: no host memory, and the
 * array and *capacity are unchanged. */
static void *grow(void *items, size_t count, size_t *capacity, size_t bytes) {
    if (count < *capacity) {
        return items;
    }
    const size_t more = *capacity == 0 ? 16 : *capacity * 2;
    void *grown = ashlar__host_realloc(items, more, bytes);
    if (grown != NULL) {
        *capacity = more;
    }
    return grown;
}

bool ashlar__soft_handles_put(soft_handles *handles, soft_kind kind, void *item,
                              uintptr_t *handle) {
    ASHLAR_CHECK2(item != NULL && (int)kind < (int)HANDLE_STEP);
    size_t idx;
    if (handles->first_free != 0) {
        idx = handles->first_free - 1;
        ASHLAR_CHECK2(idx < handles->count && handles->entries[idx].item == NULL);
        handles->first_free = handles->entries[idx].next_free;
    } else {
        soft_handle *grown =
            grow(handles->entries, handles->count, &handles->capacity, sizeof *handles->entries);
        if (grown == NULL) {
            return false;
        }
        handles->entries = grown;
        idx = handles->count++;
    }
    handles->entries[idx] = (soft_handle){.item = item};
    *handle = (uintptr_t)(idx + 1) * HANDLE_STEP + kind;
    ASHLAR_CHECK2(handles->count <= handles->capacity);
    ASHLAR_CHECK2(ashlar__soft_handles_get(handles, kind, *handle) == item);
    return true;
}

void *ashlar__soft_handles_get(const soft_handles *handles, soft_kind kind, uintptr_t handle) {
    const uintptr_t idx = handle / HANDLE_STEP - 1; /* below HANDLE_STEP it wraps: refused below */
    if (handle % HANDLE_STEP != kind || idx >= handles->count) {
        return NULL;
    }
    return handles->entries[idx].item;
}

bool ashlar__soft_handles_had(const soft_handles *handles, soft_kind kind, uintptr_t handle) {
    return handle % HANDLE_STEP == kind && handle / HANDLE_STEP - 1 < handles->count;
}

void ashlar__soft_handles_drop(soft_handles *handles, size_t idx) {
    ASHLAR_CHECK2(idx < handles->count && handles->entries[idx].item != NULL);
    handles->entries[idx] = (soft_handle){.next_free = handles->first_free};
    /* A primary context gets its old handle again, as with CUDA. */
    if (ashlar__soft_state.config.recycle == SOFT_RECYCLE_ON ||
        handles == &ashlar__soft_state.contexts) {
        handles->first_free = idx + 1;
    }
}

void *ashlar__soft_handles_take(soft_handles *handles, soft_kind kind, uintptr_t handle) {
    void *item = ashlar__soft_handles_get(handles, kind, handle);
    if (item != NULL) {
        ashlar__soft_handles_drop(handles, handle / HANDLE_STEP - 1);
    }
    return item;
}

void ashlar__soft_handles_clear(soft_handles *handles) {
    ashlar__host_free(handles->entries);
    *handles = (soft_handles){0};
}

static uintptr_t end_of(const soft_range *range) {
    return range->base + range->bytes;
}

static bool is_in_order(const soft_ranges *ranges) {
    bool in_order = ranges->count <= ranges->capacity;
    for (size_t i = 1; i < ranges->count && in_order; i++) {
        in_order = end_of(ranges->items[i - 1]) <= ranges->items[i]->base;
    }
    return in_order;
}

size_t ashlar__soft_ranges_after(const soft_ranges *ranges, uintptr_t address) {
    size_t low = 0, high = ranges->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (end_of(ranges->items[middle]) > address) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    ASHLAR_CHECK2(low == 0 || end_of(ranges->items[low - 1]) <= address);
    ASHLAR_CHECK2(low == ranges->count || end_of(ranges->items[low]) > address);
    return low;
}

void *ashlar__soft_ranges_at(const soft_ranges *ranges, uintptr_t address, size_t *idx) {
    const size_t found = ashlar__soft_ranges_after(ranges, address);
    if (found == ranges->count || ranges->items[found]->base != address) {
        return NULL;
    }
    *idx = found;
    return ranges->items[found];
}

void *ashlar__soft_ranges_over(const soft_ranges *ranges, uintptr_t address, size_t bytes) {
    ASHLAR_CHECK2(bytes > 0);
    const size_t idx = ashlar__soft_ranges_after(ranges, address);
    if (idx == ranges->count || ranges->items[idx]->base > address) {
        return NULL;
    }
    const soft_range *range = ranges->items[idx];
    return bytes <= end_of(range) - address ? ranges->items[idx] : NULL;
}

bool ashlar__soft_ranges_touch(const soft_ranges *ranges, uintptr_t address, size_t bytes) {
    const size_t idx = ashlar__soft_ranges_after(ranges, address);
    return idx < ranges->count &&
           (ranges->items[idx]->base <= address || ranges->items[idx]->base - address < bytes);
}

bool ashlar__soft_ranges_insert(soft_ranges *ranges, soft_range *item) {
    ASHLAR_CHECK2(end_of(item) > item->base); /* not empty, and does not wrap */
    soft_range **grown =
        grow(ranges->items, ranges->count, &ranges->capacity, sizeof *ranges->items);
    if (grown == NULL) {
        return false;
    }
    ranges->items = grown;
    const size_t idx = ashlar__soft_ranges_after(ranges, item->base);
    ASHLAR_ASSERT(idx == ranges->count || end_of(item) <= grown[idx]->base);
    memmove(grown + idx + 1, grown + idx, (ranges->count - idx) * sizeof *grown);
    grown[idx] = item;
    ranges->count++;
    ASHLAR_CHECK3(is_in_order(ranges));
    return true;
}

void ashlar__soft_ranges_remove(soft_ranges *ranges, size_t idx, size_t count) {
    ASHLAR_ASSERT(idx + count <= ranges->count);
    if (count == 0) {
        return; /* ranges->items may be NULL, which memmove() does not accept */
    }
    memmove(ranges->items + idx, ranges->items + idx + count,
            (ranges->count - idx - count) * sizeof *ranges->items);
    ranges->count -= count;
    ASHLAR_CHECK3(is_in_order(ranges));
}

void ashlar__soft_ranges_clear(soft_ranges *ranges) {
    ashlar__host_free(ranges->items);
    *ranges = (soft_ranges){0};
}
