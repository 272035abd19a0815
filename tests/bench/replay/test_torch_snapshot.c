/* test_torch_snapshot.c - that pickles are read by python3, and what is said where that fails. */
#include "bench/replay/events.h"

#include <stdlib.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "tests/bench/replay/events_fixture.h"

#define SNAPSHOT                    \
    "\x80\x02}(U\x08segments]U\x12" \
    "allocator_settings}U\x04nameU\x05valuesu."
#define RUNS_CODE \
    "\x80\x02"    \
    "cos\nsystem\nU\x04true\x85R."
#define WRITE(text) write_snapshot(text, sizeof text - 1)

static ashlar_snapshot_job job; /* nothing more */
static char path[] = "/tmp/ashlar-test-XXXXXX";

static void remove_file(void) {
    (void)unlink(path);
    strcpy(path, "/tmp/ashlar-test-XXXXXX");
}

static void write_snapshot(const char *bytes, size_t count) {
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0 && write(fd, bytes, count) == (ssize_t)count && close(fd) == 0);
    (void)check_at_end(remove_file);
    (void)check_at_end(drop_events);
}

static bool has_python(void) {
    return system("python3 -I -c 1 2>/dev/null") == 0;
}

CASE(a_pickle_is_read_by_python) {
    SKIP_IF(!has_python(), "there is no python3");
    WRITE(SNAPSHOT);
    CHECK(ashlar__snapshot_is(path));
    REQUIRE(ashlar__snapshot_read(path, &job, &events_of) == ASHLAR_OK);
    CHECK(strcmp(events_of->name, path) == 0);
    CHECK_HAS(ashlar__events_setting(events_of, "name"), "value");
}

CASE(an_event_file_is_read_as_it_is) {
    WRITE(SMALL_HISTORY);
    CHECK(ashlar__snapshot_is(path));
    REQUIRE(ashlar__snapshot_read(path, &job, &events_of) == ASHLAR_OK);
    CHECK_ZU(events_of->event_count, 6);
}

CASE(other_files_are_no_snapshots) {
    CHECK(!ashlar__snapshot_is("/nowhere/snapshot.pickle"));
    CHECK_FAILS(ashlar__snapshot_read("/nowhere/snapshot.pickle", &job, &events_of), ASHLAR_EIO,
                "/nowhere");
    WRITE("Thread,Time,Action,Pointer,Size,Stream\n");
    CHECK(!ashlar__snapshot_is(path));
}

CASE(a_pickle_that_names_a_function_gets_one_line) {
    SKIP_IF(!has_python(), "there is no python3");
    WRITE(RUNS_CODE);
    CHECK_FAILS(ashlar__snapshot_read(path, &job, &events_of), ASHLAR_EFORMAT,
                ": it asks for os.system, and a snapshot has no classes; nothing was run");
    CHECK(strncmp(ashlar_error_detail(), path, strlen(path)) == 0);
}

CASE(without_python_a_line_says_so) {
    WRITE(SNAPSHOT);
    char *const kept = strdup(getenv("PATH"));
    setenv("PATH", "/nowhere", 1);
    CHECK_FAILS(ashlar__snapshot_read(path, &job, &events_of), ASHLAR_EIO, "python3");
    setenv("PATH", kept, 1);
    free(kept);
}

RUN_CASES()
