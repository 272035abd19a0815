/* test_ranks_start.c - a rank that never joins does not keep the others waiting for ever. */
#include "tests/child.h"

#include <stdlib.h>
#include <time.h>

#include "allocator/base/host.h"
#include "rnn/programs/program.h"
#include "rnn/programs/train_program.h"

static const char *rank_here;

/* The engine of these tests waits for ever in a process that is in none of its worlds. */
static void join(void) {
    ashlar_ranks *ranks = NULL;
    (void)setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    (void)setenv("OMPI_COMM_WORLD_RANK", rank_here, 1);
    (void)setenv("ASHLAR_MPI", "libashlar-mpi.so", 1);
    CHECK(ashlar__ranks_start("ashlar-train", 300, &ranks) == ASHLAR_OK);
}

static void check_end(const char *rank, double least_s, double most_s) {
    rank_here = rank;
    const double start = ashlar__clock_s();
    const int status = run_child(join);
    const double took = ashlar__clock_s() - start;
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == ASHLAR_EXIT_FAILED);
    CHECK(strcmp(child_words, "ashlar-train: not all of 2 ranks have joined within 0.3 s; one was "
                              "not started, or has ended\n") == 0);
    CHECK(took >= least_s && took < most_s);
}

CASE(a_rank_that_never_joins_ends_the_others) {
    check_end("0", 0.3, 3);
    check_end("1", 3.3, 30); /* the launcher ends it before */
}

static void fail_to_join(void) {
    ashlar_ranks *ranks = NULL;
    (void)setenv("ASHLAR_MPI", "/nowhere/libashlar-mpi.so", 1);
    CHECK_FAILS(ashlar__ranks_start("ashlar-train", 300, &ranks), ASHLAR_ENOTSUP, "/nowhere/");
    (void)nanosleep(&(struct timespec){.tv_nsec = 600000000}, NULL);
    CHECK(ranks == NULL);
}

CASE(once_it_is_over_nobody_watches) {
    CHECK(child_passes(fail_to_join));
}

RUN_CASES()
