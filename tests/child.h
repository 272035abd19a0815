/*
 * child.h - a part of a test in a process of its own, for what may end it.
 *
 * A software device does not work behind a fork, so a test that opens one here opens none itself.
 */
#ifndef ASHLAR_TESTS_CHILD_H
#define ASHLAR_TESTS_CHILD_H

#include "tests/check.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char child_words[1024]; /* what the last child wrote to its standard error */

/* Run `act` and the tear-downs that it registers. The status is as waitpid() gives it: 0 if there
 * were checks and all held; -1: there was no child. */
static inline int run_child(void (*act)(void)) {
    int ends[2];
    if (pipe(ends) != 0) {
        return -1;
    }
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)dup2(ends[1], STDERR_FILENO);
        check_failed = 0;
        check_ran = 0;
        act();
        while (check_end_count > 0) {
            check_ends[--check_end_count]();
        }
        fflush(stdout);
        _exit(check_failed == 0 && check_ran > 0 ? 0 : 1);
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t got;
    while ((got = read(ends[0], child_words + used, sizeof child_words - 1 - used)) > 0) {
        used += (size_t)got;
    }
    child_words[used] = '\0';
    close(ends[0]);
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

static inline bool child_aborts(void (*act)(void)) {
    const int status = run_child(act);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* What goes wrong is shown. */
static inline bool child_passes(void (*act)(void)) {
    const bool passes = run_child(act) == 0 && child_words[0] == '\0';
    if (!passes) {
        printf("# %s\n", child_words);
    }
    return passes;
}

/* What `fn` returns there; -1 where it did not end by itself in time. */
static inline int child_returns(int (*fn)(const void *), const void *arg) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(fn(arg));
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : -1;
}

#endif /* ASHLAR_TESTS_CHILD_H */
