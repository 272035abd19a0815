/* events_fixture.h - an event file of the case's own, for tests. */
#ifndef ASHLAR_EVENTS_FIXTURE_H
#define ASHLAR_EVENTS_FIXTURE_H

#include "tests/check.h"

#include "bench/replay/events.h"

static ashlar_events *events_of; /* of the case */

static inline void drop_events(void) {
    ashlar__events_free(events_of);
    events_of = NULL;
}

/* Another file takes the place of the one before. */
static inline ashlar_status parse_events(const char *text) {
    drop_events();
    (void)check_at_end(drop_events);
    return ashlar__events_parse("stone.events", text, strlen(text), &events_of);
}

#define HEAD "ashlar-events/1\n"

/* One segment is there from the beginning, one is added; a failed request; what is answered. */
#define SMALL_HISTORY                                                     \
    HEAD "setting\texpandable_segments\t0\n"                              \
         "setting\tPYTORCH_CUDA_ALLOC_CONF\t\n"                           \
         "segment\t0\t0x7f0000000000\t2097152\t0\tsmall\t0:0\t0\n"        \
         "block\t0\t0x7f0000000000\t1024\t1000\tactive\n"                 \
         "block\t0\t0x7f0000000400\t2096128\t0\tinactive\n"               \
         "event\t0\talloc\t0x7f0000000400\t600\t0\t1\t0:0\n"              \
         "event\t0\tsegment_alloc\t0x7f0000200000\t20971520\t0\t1\t0:0\n" \
         "event\t0\talloc\t0x7f0000200000\t3000000\t0\t1\t0:0\n"          \
         "event\t0\tfree_requested\t0x7f0000000000\t1000\t0\t0\t0:0\n"    \
         "event\t0\tfree_completed\t0x7f0000000000\t1000\t0\t0\t0:0\n"    \
         "event\t0\toom\t0x100000\t1073741824\t0\t1\t0:0\n"               \
         "text\tepoch\\t1\\n\n"                                           \
         "failed\tpeak<=1B\n"                                             \
         "answers\t[]\n"

#endif /* ASHLAR_EVENTS_FIXTURE_H */
