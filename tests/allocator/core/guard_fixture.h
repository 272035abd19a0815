/*
 * guard_fixture.h - an allocator in a guard mode, and the lines that it reports, for tests.
 */
#ifndef ASHLAR_GUARD_FIXTURE_H
#define ASHLAR_GUARD_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"
#include "allocator/core/core.h"

enum { REPORTS_MAX = 64, REPORT_BYTES = 1024 };

static char reports[REPORTS_MAX][REPORT_BYTES];
static int report_count;

static inline void keep_report(const char *line, void *user) {
    CHECK(user == &report_count);
    CHECK(strchr(line, '\n') == NULL);
    if (report_count < REPORTS_MAX) {
        (void)snprintf(reports[report_count], REPORT_BYTES, "%s", line);
    }
    report_count++;
}

/* On a device that is there. The cache asked for must not be made in a guard mode. */
static inline ashlar_status make_guarded(ashlar_guard guard, bool reports_leaks) {
    ashlar_config config = {0};
    config.guard = guard;
    config.report_leaks = reports_leaks;
    config.cache_bytes = MIB;
    return ashlar_allocator_create_with(device, &config, &allocator);
}

static inline bool set_up_guarded(const char *spec, ashlar_guard guard) {
    report_count = 0;
    if (!set_up_device(spec) || make_guarded(guard, false) != ASHLAR_OK) {
        return false;
    }
    ashlar_allocator_set_report(allocator, keep_report, &report_count);
    return check_at_end(tear_down);
}

/* Write one byte, in the stream's order. */
static inline void poke(ashlar_stream stream, unsigned char *at, unsigned char value) {
    queue_write(stream, at, 1, value);
}

#endif /* ASHLAR_GUARD_FIXTURE_H */
