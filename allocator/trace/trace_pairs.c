#include "allocator/trace/trace_pairs.h"

#include <stdbool.h>
#include <stdlib.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"

static bool is_of_block(const ashlar_trace_event *event) {
    return event->action == ASHLAR_TRACE_ALLOC || event->action == ASHLAR_TRACE_FREE;
}

/* By address, then by position. */
static int compare(const void *a, const void *b, void *context) {
    const size_t i = *(const size_t *)a, j = *(const size_t *)b;
    const ashlar_trace_event *events = context;
    if (events[i].address != events[j].address) {
        return events[i].address < events[j].address ? -1 : 1;
    }
    return (i > j) - (i < j);
}

/* `state`: the positions of one address's events after the other's, each in ascending order. */
static void pair_sorted(const ashlar_trace_event *events, const size_t *state, size_t count,
                        ashlar_trace_pairs *p) {
    for (size_t k = 0; k < count; k++) {
        const size_t i = state[k];
        const bool has_next = k + 1 < count && events[state[k + 1]].address == events[i].address;
        if (events[i].action == ASHLAR_TRACE_FREE) {
            /* An ALLOC of its own would have set it. */
            p->unpaired_count += p->partners[i] == ASHLAR_TRACE_UNPAIRED;
        } else if (!has_next) {
            p->partners[i] = ASHLAR_TRACE_LIVE;
        } else if (events[state[k + 1]].action == ASHLAR_TRACE_FREE) {
            p->partners[i] = state[k + 1];
            p->partners[state[k + 1]] = i;
        } else {
            p->unpaired_count++;
        }
    }
}

ashlar_status ashlar__trace_pairs_find(const ashlar_trace_event *events, size_t count,
                                       ashlar_trace_pairs *out) {
    size_t *partners = ashlar__host_calloc(count + 1, sizeof *partners); /* count may be 0 */
    size_t *state = ashlar__host_calloc(count + 1, sizeof *state);
    if (partners == NULL || state == NULL) {
        ashlar__host_free(partners);
        ashlar__host_free(state);
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to pair the %zu events of a trace",
                            count);
    }
    *out = (ashlar_trace_pairs){.partners = partners};
    size_t order_count = 0;
    for (size_t i = 0; i < count; i++) {
        partners[i] = ASHLAR_TRACE_UNPAIRED;
        if (is_of_block(&events[i])) {
            state[order_count++] = i;
        }
    }
    qsort_r(state, order_count, sizeof *state, compare, (void *)(uintptr_t)events);
    pair_sorted(events, state, order_count, out);
    ashlar__host_free(state);
    return ASHLAR_OK;
}

void ashlar__trace_pairs_finish(ashlar_trace_pairs *pairs) {
    ashlar__host_free(pairs->partners);
    *pairs = (ashlar_trace_pairs){0};
}
