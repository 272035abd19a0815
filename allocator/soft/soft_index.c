/* soft_index.c - sorted arrays: of address ranges, and of the entries of vector clocks. */
#include "allocator/soft/soft_state.h"

#include <string.h>

#include "allocator/base/host.h"

void *ashlar__soft_grow(void *items, size_t count, size_t *capacity, size_t bytes) {
    return ashlar__host_grow(&items, capacity, count, bytes) ? items : NULL;
}

/* ---- address ranges ---- */

static uintptr_t end_of(const soft_range *range) {
    return range->base + range->bytes;
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
        ashlar__soft_grow(ranges->items, ranges->count, &ranges->capacity, sizeof *ranges->items);
    if (grown == NULL) {
        return false;
    }
    ranges->items = grown;
    const size_t idx = ashlar__soft_ranges_after(ranges, item->base);
    ASHLAR_ASSERT(idx == ranges->count || end_of(item) <= grown[idx]->base);
    memmove(grown + idx + 1, grown + idx, (ranges->count - idx) * sizeof *grown);
    grown[idx] = item;
    ranges->count++;
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
}

void ashlar__soft_ranges_clear(soft_ranges *ranges) {
    ashlar__host_free(ranges->items);
    *ranges = (soft_ranges){0};
}

/* ---- vector clocks ---- */

/* Index of the first entry whose serial is at least `serial`; clock->count if there is none. */
static size_t find_serial(const soft_clock *clock, uint64_t serial) {
    size_t low = 0, high = clock->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (clock->times[middle].serial < serial) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool ashlar__soft_clock_covers(const soft_clock *clock, uint64_t serial, uint64_t number) {
    const size_t i = find_serial(clock, serial);
    return number == 0 || (i < clock->count && clock->times[i].serial == serial &&
                           clock->times[i].number >= number);
}

bool ashlar__soft_clock_covers_all(const soft_clock *clock, const soft_clock *part) {
    bool covers = true;
    for (size_t i = 0; i < part->count && covers; i++) {
        covers = ashlar__soft_clock_covers(clock, part->times[i].serial, part->times[i].number);
    }
    return covers;
}

/* Make room for `more` new entries. False: no host memory. */
static bool make_room(soft_clock *clock, size_t more) {
    if (clock->capacity - clock->count >= more) {
        return true;
    }
    const size_t capacity = clock->capacity * 2 + more;
    struct soft_time *times = ashlar__host_realloc(clock->times, capacity, sizeof *times);
    if (times == NULL) {
        return false;
    }
    clock->times = times;
    clock->capacity = capacity;
    ASHLAR_CHECK2(clock->capacity - clock->count >= more);
    return true;
}

/* Raise one entry. There must be room for a new entry. */
static void raise_in_place(soft_clock *clock, uint64_t serial, uint64_t number) {
    const size_t i = find_serial(clock, serial);
    if (i == clock->count || clock->times[i].serial != serial) {
        ASHLAR_CHECK2(clock->count < clock->capacity);
        memmove(clock->times + i + 1, clock->times + i, (clock->count - i) * sizeof *clock->times);
        clock->times[i] = (struct soft_time){serial, 0};
        clock->count++;
    }
    if (clock->times[i].number < number) {
        clock->times[i].number = number;
    }
}

bool ashlar__soft_clock_raise(soft_clock *clock, uint64_t serial, uint64_t number) {
    ASHLAR_CHECK2(serial > 0 && number > 0);
    if (!make_room(clock, 1)) {
        return false;
    }
    raise_in_place(clock, serial, number);
    ASHLAR_CHECK2(ashlar__soft_clock_covers(clock, serial, number));
    return true;
}

bool ashlar__soft_clock_join(soft_clock *clock, const soft_clock *other) {
    if (!make_room(clock, other->count)) {
        return false;
    }
    for (size_t i = 0; i < other->count; i++) {
        raise_in_place(clock, other->times[i].serial, other->times[i].number);
    }
    return true;
}

void ashlar__soft_clock_clear(soft_clock *clock) {
    ashlar__host_free(clock->times);
    *clock = (soft_clock){0};
}
