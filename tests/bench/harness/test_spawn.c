/*
 * test_spawn.c - programs that the benchmarks start: their standard files, and how they end.
 */
#include "bench/harness/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"

static int run(const char *script, ashlar_spawn_files files) {
    const char *const words[] = {"sh", "-c", script, NULL};
    pid_t pid = 0;
    return ashlar__spawn(words, files, &pid) == 0 ? ashlar__spawn_wait(pid) : -2;
}

static const ashlar_spawn_files NOWHERE = {.input = -1, .output = -1};

CASE(the_exit_status_is_told) {
    CHECK(run("exit 0", NOWHERE) == 0);
    CHECK(run("exit 7", NOWHERE) == 7);
    CHECK(run("kill -9 $$", NOWHERE) == -1);
}

CASE(a_program_that_is_not_there_is_an_error) {
    static const char *const words[] = {"/no/such/program", NULL};
    pid_t pid = 5;
    CHECK(ashlar__spawn(words, NOWHERE, &pid) == ENOENT);
    CHECK(pid == 5);
    CHECK(ashlar__spawn_wait(-5) == -1); /* no child of this process */
}

CASE(what_leads_nowhere_is_empty_and_takes_all) {
    CHECK(run("read -r line && exit 1; echo a && echo b >&2", NOWHERE) == 0);
}

/* The same pipe's ends for input and output of one program after the other. */
CASE(given_descriptors_become_the_standard_files) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    CHECK(run("echo spoken; echo unheard >&2", (ashlar_spawn_files){-1, ends[1], false}) == 0);
    (void)close(ends[1]);
    CHECK(run("read -r line && [ \"$line\" = spoken ] && ! read -r line",
              (ashlar_spawn_files){ends[0], -1, false}) == 0);
    (void)close(ends[0]);
}

CASE(standard_error_is_kept_where_it_is_wanted) {
    char text[16] = "";
    int ends[2];
    const int kept = dup(STDERR_FILENO);
    REQUIRE(kept >= 0 && pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    const int hidden = run("echo hidden >&2", NOWHERE);
    const int shown =
        run("echo shown >&2", (ashlar_spawn_files){.input = -1, .output = -1, .has_errors = true});
    (void)dup2(kept, STDERR_FILENO);
    (void)close(kept);
    (void)close(ends[1]);
    CHECK(hidden == 0 && shown == 0);
    CHECK(read(ends[0], text, sizeof text - 1) == 6 && strcmp(text, "shown\n") == 0);
    (void)close(ends[0]);
}

RUN_CASES()
