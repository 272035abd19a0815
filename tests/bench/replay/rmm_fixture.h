/*
 * rmm_fixture.h - a log of the case's own and questions about it, for tests.
 */
#ifndef ASHLAR_RMM_FIXTURE_H
#define ASHLAR_RMM_FIXTURE_H

#include "tests/check.h"

#include "allocator/base/error.h"
#include "bench/replay/replay.h"

#define HEADER "Thread,Time,Action,Pointer,Size,Stream\n"

static ashlar_rmm_log *log_of; /* of the case */

static inline void drop_log(void) {
    ashlar__rmm_log_free(log_of);
    log_of = NULL;
}

/* Another log takes the place of the one before. */
static inline ashlar_status parse(const char *text) {
    drop_log();
    (void)check_at_end(drop_log);
    return ashlar__rmm_log_parse("stone.csv", text, strlen(text), &log_of);
}

/* The whole of an event, for one check. */
static inline bool event_is(size_t i, ashlar_rmm_action action, size_t line, size_t block,
                            size_t bytes) {
    const ashlar_rmm_event *e = &log_of->events[i];
    return e->action == action && e->line == line && e->bytes == bytes &&
           (action == ASHLAR_RMM_NOTHING || e->block == block);
}

#endif /* ASHLAR_RMM_FIXTURE_H */
