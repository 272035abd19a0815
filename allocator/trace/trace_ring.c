/* trace_ring.c - the ring of an allocator's newest events: putting and reading without locks. */
#include "allocator/trace/trace_ring.h"

#include <stdbool.h>

#include "allocator/base/check_level.h"
#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/threads.h"

#define CAPACITY_MAX (UINT64_C(1) << 32)

/* In an entry's last word: the bit positions of the action and the tag, above the thread. */
enum { ACTION_SHIFT = 32, TAG_SHIFT = 40 };
_Static_assert(ACTION_SHIFT >= 8 * sizeof(((ashlar_trace_event *)0)->thread), "above the thread");
_Static_assert(TAG_SHIFT >= ACTION_SHIFT + 8 && TAG_SHIFT + 8 <= 64, "above the action, in a word");
_Static_assert((int)ASHLAR_TRACE_ACTION_COUNT <= UINT8_MAX, "an action is one byte");

uint32_t ashlar__trace_thread(void) {
    return ashlar__thread_number() - 1;
}

ashlar_status ashlar__trace_init(ashlar_trace *trace, size_t capacity) {
    size_t entry_count = 1;
    if (capacity == 0 || capacity > CAPACITY_MAX) {
        return ashlar__fail(ASHLAR_EINVAL, "trace: a ring of %zu events; give 1 .. %llu", capacity,
                            (unsigned long long)CAPACITY_MAX);
    }
    while (entry_count < capacity) {
        entry_count *= 2;
    }
    ashlar_trace_entry *entries = ashlar__host_calloc(entry_count, sizeof *entries);
    if (entries == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a trace of %zu events; keep fewer",
                            entry_count);
    }
    ASHLAR_CHECK2(capacity <= entry_count && (entry_count & (entry_count - 1)) == 0);
    trace->entries = entries;
    trace->capacity = entry_count;
    trace->now_ns = NULL;
    atomic_init(&trace->next, 0);
    return ASHLAR_OK;
}

void ashlar__trace_finish(ashlar_trace *trace) {
    ashlar__host_free(trace->entries);
    trace->entries = NULL;
    trace->capacity = 0;
}

static ashlar_trace_entry *entry_of(const ashlar_trace *trace, uint64_t sequence) {
    return &trace->entries[sequence & (trace->capacity - 1)];
}

/* Mark the entry as being written. False: another writer is writing to it, or a writer of a later
 * lap has written to it. */
static bool enter(ashlar_trace_entry *entry, uint64_t sequence) {
    uint64_t mark = atomic_load_explicit(&entry->mark, memory_order_relaxed);
    do {
        if (mark % 2 == 1 || mark > 2 * sequence) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&entry->mark, &mark, 2 * sequence + 1,
                                                    memory_order_acquire, memory_order_relaxed));
    return true;
}

static void append(ashlar_trace *trace, const ashlar_trace_event *event) {
    const uint64_t words[ASHLAR_TRACE_WORDS] = {
        event->time_ns,
        event->address,
        event->bytes,
        event->requested,
        event->stream,
        event->thread | (uint64_t)event->action << ACTION_SHIFT | (uint64_t)event->tag << TAG_SHIFT,
    };
    /* Release: a reader that sees this number taken also sees the thread's earlier events. */
    const uint64_t sequence = atomic_fetch_add_explicit(&trace->next, 1, memory_order_release);
    ashlar_trace_entry *entry = entry_of(trace, sequence);
    if (!enter(entry, sequence)) {
        return;
    }
    /* Release: a reader that copies one of these words then finds the odd mark, or a later one. */
    for (int i = 0; i < ASHLAR_TRACE_WORDS; i++) {
        atomic_store_explicit(&entry->words[i], words[i], memory_order_release);
    }
    ASHLAR_CHECK2(atomic_load_explicit(&entry->mark, memory_order_relaxed) == 2 * sequence + 1);
    atomic_store_explicit(&entry->mark, 2 * sequence + 2, memory_order_release);
}

void ashlar__trace_put(ashlar_trace *trace, const ashlar_trace_event *given) {
    ashlar_trace_event event = *given;
    event.time_ns = trace->now_ns != NULL ? trace->now_ns() : ashlar__clock_ns();
    event.thread = ashlar__trace_thread();
    for (int i = 0; i < ASHLAR_TRACE_LISTENERS; i++) {
        if (trace->listeners[i].tell != NULL) {
            trace->listeners[i].tell(trace->listeners[i].self, &event);
        }
    }
    if (trace->capacity > 0) {
        append(trace, &event);
    }
}

/* Copy event `sequence`. Returns the entry's mark after the copy. If the mark is not
 * 2 * sequence + 2, the copy is not this event. */
static uint64_t copy_event(const ashlar_trace *trace, uint64_t sequence,
                           ashlar_trace_event *event) {
    const ashlar_trace_entry *entry = entry_of(trace, sequence);
    const uint64_t mark = atomic_load_explicit(&entry->mark, memory_order_acquire);
    if (mark != 2 * sequence + 2) {
        return mark;
    }
    uint64_t words[ASHLAR_TRACE_WORDS];
    for (int i = 0; i < ASHLAR_TRACE_WORDS; i++) {
        words[i] = atomic_load_explicit(&entry->words[i], memory_order_acquire);
    }
    *event = (ashlar_trace_event){
        .sequence = sequence,
        .time_ns = words[0],
        .address = words[1],
        .bytes = words[2],
        .requested = words[3],
        .stream = words[4],
        .thread = (uint32_t)words[5],
        .action = (uint8_t)(words[5] >> ACTION_SHIFT),
        .tag = (uint8_t)(words[5] >> TAG_SHIFT),
    };
    return atomic_load_explicit(&entry->mark, memory_order_relaxed);
}

size_t ashlar__trace_read(const ashlar_trace *trace, ashlar_trace_event *events, size_t capacity,
                          uint64_t *lost) {
    const uint64_t end = atomic_load_explicit(&trace->next, memory_order_acquire);
    uint64_t span = end < trace->capacity ? end : trace->capacity;
    span = span < capacity ? span : capacity;
    ASHLAR_CHECK2(span <= end);
    size_t count = 0;
    for (uint64_t n = end - span; n != end; n++) {
        const uint64_t mark = copy_event(trace, n, &events[count]);
        if (mark == 2 * n + 2) {
            count++;
        } else if (mark > 2 * n + 2) {
            count = 0; /* event n is overwritten; keeping older ones would leave a gap */
        }
    }
    ASHLAR_CHECK2(count <= span);
    *lost = end - count;
    return count;
}
