/*
 * test_peer_trial.c - shared objects that are unfit are told in one line, and bring nothing down.
 * They lie in the folder ASHLAR_TEST_PEERS.
 */
#include "bench/peers/peer_loaded.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"
#include "allocator/base/error.h"
#include "tests/bench/peers/peer_path.h"

static void check_refused(const char *name, const char *word) {
    CHECK_FAILS(ashlar__peer_trial(path_of(name), "soft"), ASHLAR_EINVAL, "--peer: ");
    CHECK_HAS(ashlar_error_detail(), word);
    CHECK(strchr(ashlar_error_detail(), '\n') == NULL);
    CHECK(ashlar__peer_loaded(0) == NULL);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1); /* no child is left */
}

/* The least number that a file could be opened with. */
static int next_file(void) {
    const int file = dup(0);
    CHECK(file > 0 && close(file) == 0);
    return file;
}

CASE(a_good_one_passes_and_is_not_loaded) {
    const int before = next_file();
    CHECK(ashlar__peer_trial(path_of("stone.so"), "soft") == ASHLAR_OK);
    CHECK(ashlar__peer_trial(path_of("half.so:half_take,half_give"), "soft") == ASHLAR_OK);
    CHECK(ashlar__peer_loaded(0) == NULL);
    CHECK(next_file() == before); /* no end of a pipe is left */
}

CASE(what_cannot_be_loaded_is_told_as_by_loading) {
    check_refused("half.so", "has no function \"free\"");
    check_refused("none.so", "none");
}

CASE(blocks_that_are_none_are_found) {
    check_refused("bad.so:none_take,give", "bytes it returned NULL");
    check_refused("bad.so:late_take,give", "bytes it returned NULL");
    CHECK_HAS(ashlar_error_detail(), path_of("bad.so"));
    check_refused("bad.so:odd_take,give", "not aligned to 16 bytes");
    check_refused("bad.so:same_take,give", "shares bytes with one that is in use");
}

CASE(one_that_crashes_is_told) {
    const struct rlimit no_core = {0, 0};
    REQUIRE(setrlimit(RLIMIT_CORE, &no_core) == 0);
    check_refused("bad.so:late_take,crash_give", "when tried ("); /* a sanitizer's status, or */
    check_refused("bad.so:exit_take,give", "it ended the process when tried (status 5)");
    REQUIRE(setenv("BAD_PEER", "load", 1) == 0);
    check_refused("bad.so:none_take,give", "it crashed when tried (signal 9");
    REQUIRE(unsetenv("BAD_PEER") == 0);
}

CASE(a_hang_ends_although_the_signal_is_ignored) {
    void (*before)(int) = signal(SIGALRM, SIG_IGN);
    check_refused("bad.so:slow_take,give", "it did not end within 60 s");
    (void)signal(SIGALRM, before);
}

CASE(without_its_device_that_is_told) {
    CHECK_FAILS(ashlar__peer_trial(path_of("stone.so"), "gpu"), ASHLAR_EINVAL, "gpu");
}

CASE(without_another_process_that_is_told) {
    struct rlimit limit;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const struct rlimit few = {3, limit.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    const ashlar_status status = ashlar__peer_trial(path_of("stone.so"), "soft");
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK_FAILS(status, ASHLAR_EIO, "no pipe");
}

RUN_CASES()
