/* train_ranks.c - ashlar-train as one of several processes (ranks): joins the others, keeps silent
 * on all ranks but 0, collects the ranks' figures. */
#include "rnn/programs/train_program.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/parse.h"
#include "rnn/programs/options.h"
#include "rnn/programs/program.h"

/* Read a number from the environment that the launcher, Open MPI's or MPICH's, has set. */
static bool read_launchers(const char *const names[2], size_t *out) {
    for (size_t i = 0; i < 2; i++) {
        const char *text = secure_getenv(names[i]);
        uint64_t number = 0;
        if (text != NULL && ashlar__parse_count(ashlar__piece_of(text), &number)) {
            *out = (size_t)number;
            return true;
        }
    }
    return false;
}

/* How many of the processes are on this machine: all, if the launcher does not tell. */
static size_t count_neighbours(const ashlar_ranks *ranks) {
    static const char *const names[2] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};
    size_t count = 0;
    return read_launchers(names, &count) && count > 0 ? count : ashlar_ranks_get_info(ranks).count;
}

/* No two ranks may share a CUDA device: turn "cuda" into the device that has the rank's number on
 * its machine. */
static void choose_device(ashlar_train_command *c) {
    static const char *const names[2] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"};
    static char device[32];
    const char *asked = c->device != NULL ? c->device : secure_getenv("ASHLAR_DEVICE");
    size_t local = ashlar_ranks_get_info(c->train.ranks).rank;
    if (asked != NULL && strcmp(asked, "cuda") == 0) {
        (void)read_launchers(names, &local);
        (void)snprintf(device, sizeof device, "cuda:%zu", local);
        c->device = device;
    }
}

static void share_threads(ashlar_train_command *c, int argc, char **argv) {
    const char *set = secure_getenv("ASHLAR_THREADS");
    if (ashlar__options_given("threads", argc, argv) == NULL && (set == NULL || *set == '\0')) {
        const size_t each = c->threads / count_neighbours(c->train.ranks);
        c->threads = each > 0 ? each : 1;
    }
}

/* Only rank 0 writes files and prints. */
static void be_silent(ashlar_train_command *c) {
    c->is_quiet = true;
    c->json = NULL;
    c->html = NULL;
    c->losses = NULL;
    c->snapshot = NULL;
    c->train.save_file = NULL;
}

static ashlar_status check(ashlar_train_command *c) {
    c->train.shards =
        c->is_reproducible ? ashlar__shards_choose(c->train.batch, c->train.accumulate) : 0;
    return ashlar__shards_check(&c->train);
}

/* Let this rank print a line when it is ended by SIGTERM. While it waits for a rank that has died,
 * its launcher usually ends it before the wait times out. */
static void announce_end(const ashlar_ranks *ranks) {
    static char words[64]; /* written now: a signal handler may not call snprintf() */
    (void)snprintf(words, sizeof words, "ashlar-train: rank %zu was told to end\n",
                   ashlar_ranks_get_info(ranks).rank);
    ashlar__interrupt_announce(words);
}

ashlar_status ashlar__train_ranks_open(ashlar_train_command *c, int argc, char **argv) {
    if (ashlar_ranks_get_info(NULL).count == 1) {
        return check(c);
    }
    const uint32_t timeout_ms = (uint32_t)c->timeout_s * 1000;
    ASHLAR_TRY(ashlar__ranks_start("ashlar-train", timeout_ms, &c->train.ranks));
    announce_end(c->train.ranks);
    share_threads(c, argc, argv);
    choose_device(c);
    if (ashlar_ranks_get_info(c->train.ranks).rank > 0) {
        be_silent(c);
    }
    return check(c);
}

static ashlar_train_rank *rows; /* of ashlar__train_ranks_gather() */

/* Each rank fills in its own row of zeroed ones, and all are summed. */
ashlar_status ashlar__train_ranks_gather(const ashlar_train_command *c,
                                         ashlar_train_report *report) {
    ashlar_ranks *const ranks = c->train.ranks;
    if (ranks == NULL) {
        return ASHLAR_OK;
    }
    report->rank_count = ashlar_ranks_get_info(ranks).count;
    ASHLAR_HOST_NEW(rows, report->rank_count, "no host memory for %zu ranks", report->rank_count);
    report->ranks = rows;
    rows[ashlar_ranks_get_info(ranks).rank] = (ashlar_train_rank){
        .management_calls = (double)report->training.management,
        .seconds = report->seconds,
        .sum_seconds = ashlar_ranks_get_info(ranks).seconds - report->sums_before,
        .live_peak_bytes = (double)report->stats.live_peak_bytes,
    };
    ashlar_ranks_mark(ranks, c->train.steps + 1, 0);
    return ashlar_ranks_sum(ranks, (double *)rows,
                             report->rank_count * (sizeof *rows / sizeof(double)));
}

int ashlar__train_ranks_close(ashlar_train_command *c, int exit_status) {
    fflush(stdout);         /* if this ends all ranks, MPI_Abort() does not flush */
    if (exit_status == 0) { /* if a launcher now ends a slow rank by SIGTERM, say nothing */
        ashlar__interrupt_announce("");
    }
    ashlar_ranks_close(c->train.ranks, exit_status != 0);
    c->train.ranks = NULL;
    ashlar__host_free(rows);
    rows = NULL;
    return exit_status;
}

int ashlar__train_ranks_fail(const ashlar_train_command *c, const char *program,
                             ashlar_status status) {
    const ashlar_ranks *ranks = c->train.ranks;
    return ranks == NULL || ashlar_ranks_get_info(ranks).reports
               ? ashlar__program_fail(program, status)
               : ashlar__program_exit_status(status);
}

/* ---- joining the processes of a launcher ---- */

/* When rank 0 gives up by default, as in reduce.h; how much later the other ranks do. */
enum { USUAL_MS = 120000, OTHERS_MS = 3000 };

static char too_late[160]; /* written before the alarm: a signal handler may not call snprintf() */

/* Whether the launcher's environment says that this rank is not rank 0. */
static bool is_other(void) {
    static const char *const names[2] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    size_t rank = 0;
    return read_launchers(names, &rank) && rank > 0;
}

static void give_up(int number) {
    const ssize_t written = write(STDERR_FILENO, too_late, strlen(too_late));
    (void)number, (void)written;
    _exit(ASHLAR_EXIT_FAILED); /* not exit(): MPI's exit handlers would wait for the other ranks */
}

static void set_alarm(uint64_t ms) {
    const struct itimerval in = {
        .it_value = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000) * 1000}};
    (void)setitimer(ITIMER_REAL, &in, NULL);
}

ashlar_status ashlar__ranks_start(const char *program, uint32_t timeout_ms, ashlar_ranks **out) {
    const uint64_t ms = timeout_ms == 0 ? USUAL_MS : timeout_ms;
    (void)snprintf(too_late, sizeof too_late,
                   "%s: not all of %zu ranks have joined within %g s; one was not started, or has "
                   "ended\n",
                   program, ashlar_ranks_get_info(NULL).count, (double)ms / 1e3);
    (void)signal(SIGALRM, give_up);
    set_alarm(ms + (is_other() ? OTHERS_MS : 0));
    const ashlar_status status = ashlar_ranks_open(NULL, timeout_ms, out);
    set_alarm(0);
    (void)signal(SIGALRM, SIG_DFL);
    return status;
}
