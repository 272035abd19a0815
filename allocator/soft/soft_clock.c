/* soft_clock.c - vector clocks, kept as sorted arrays. */
#include "allocator/soft/soft_clock.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"

/* Index of the first entry whose serial is at least `serial`; clock->count if there is none. */
static size_t find(const soft_clock *clock, uint64_t serial) {
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
    const size_t i = find(clock, serial);
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

static bool is_sound(const soft_clock *clock) {
    bool sound = clock->count <= clock->capacity;
    for (size_t i = 0; i < clock->count && sound; i++) {
        sound = clock->times[i].number > 0 &&
                (i == 0 || clock->times[i - 1].serial < clock->times[i].serial);
    }
    return sound;
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
    const size_t i = find(clock, serial);
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
    ASHLAR_CHECK3(is_sound(clock));
    return true;
}

bool ashlar__soft_clock_join(soft_clock *clock, const soft_clock *other) {
    if (!make_room(clock, other->count)) {
        return false;
    }
    for (size_t i = 0; i < other->count; i++) {
        raise_in_place(clock, other->times[i].serial, other->times[i].number);
    }
    ASHLAR_CHECK3(is_sound(clock) && ashlar__soft_clock_covers_all(clock, other));
    return true;
}

void ashlar__soft_clock_clear(soft_clock *clock) {
    ashlar__host_free(clock->times);
    *clock = (soft_clock){0};
}
