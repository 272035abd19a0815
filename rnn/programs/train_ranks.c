/* train_ranks.c - ashlar-train as one of several processes. */
#include "rnn/programs/train_ranks.h"

#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/parse.h"
#include "rnn/layer/blas.h"
#include "rnn/programs/options.h"
#include "rnn/programs/program.h"
#include "rnn/train/shards.h"

/* How many of the processes are on this machine, as launchers tell; else all. */
static size_t count_neighbours(const ashlar_ranks *ranks) {
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = secure_getenv(names[i]);
        uint64_t count = 0;
        if (text != NULL && ashlar__parse_count(ashlar__piece_of(text), &count) && count > 0) {
            return (size_t)count;
        }
    }
    return ashlar_ranks_count(ranks);
}

static void share_threads(ashlar_train_command *c, int argc, char **argv) {
    const char *set = secure_getenv("ASHLAR_THREADS");
    if (ashlar__options_given("threads", argc, argv) == NULL && (set == NULL || *set == '\0')) {
        const size_t each = c->threads / count_neighbours(c->train.ranks);
        c->threads = each > 0 ? each : 1;
    }
}

/* The files and the words are those of rank 0. */
static void be_silent(ashlar_train_command *c) {
    c->is_quiet = true;
    c->wants_map = false;
    c->wants_memory = false;
    c->json = NULL;
    c->losses = NULL;
    c->snapshot = NULL;
    c->train.save_file = NULL;
    c->train.plan_file = NULL;
}

static ashlar_status check(ashlar_train_command *c) {
    c->train.shards =
        c->is_reproducible ? ashlar__shards_choose(c->train.batch, c->train.accumulate) : 0;
    return ashlar__shards_check(&c->train);
}

ashlar_status ashlar__train_ranks_open(ashlar_train_command *c, int argc, char **argv) {
    if (ashlar_ranks_started() == 1) {
        return check(c);
    }
    const uint32_t timeout_ms = (uint32_t)c->timeout_s * 1000;
    ASHLAR_TRY(ashlar_ranks_open(NULL, timeout_ms, &c->train.ranks));
    share_threads(c, argc, argv);
    if (ashlar_ranks_rank(c->train.ranks) > 0) {
        be_silent(c);
    }
    return check(c);
}

/* What a rank reports. */
enum { CALLS, SECONDS, WAITED, LIVE_PEAK, FIGURES };

static void print_figures(const double *figures, size_t count) {
    printf("\nRank   driver calls after warm-up*   seconds   in sums and waits   live peak, MiB\n");
    for (size_t i = 0; i < count; i++) {
        const double *f = figures + i * FIGURES;
        printf("%4zu   %26.0f   %9.1f   %15.1f %%   %14.2f\n", i, f[CALLS], f[SECONDS],
               f[SECONDS] > 0 ? 100 * f[WAITED] / f[SECONDS] : 0, f[LIVE_PEAK] / 0x1p20);
    }
    printf("* for memory, streams or attributes\n");
}

/* Each rank fills in its own row, and all rows are added up. */
static ashlar_status gather_figures(const ashlar_train_command *c, ashlar_device *device,
                                    const ashlar_train_report *report, double *figures) {
    const ashlar_collectives *table = NULL;
    const size_t all = ashlar_ranks_count(c->train.ranks) * FIGURES;
    double *own = figures + ashlar_ranks_rank(c->train.ranks) * FIGURES;
    own[CALLS] = (double)report->training.management;
    own[SECONDS] = report->seconds;
    own[WAITED] = ashlar_ranks_seconds(c->train.ranks);
    own[LIVE_PEAK] = (double)report->stats.live_peak_bytes;
    ASHLAR_TRY(ashlar_ranks_collectives(c->train.ranks, device, ASHLAR_RANKS_FASTEST, &table));
    ashlar_ranks_mark(c->train.ranks, c->train.steps + 1, 0);
    ashlar_stream stream = NULL;
    ASHLAR_TRY(ashlar_stream_create(device, &stream));
    ashlar_status status = table->all_reduce(table->context, figures, all, ASHLAR_F64, stream);
    ASHLAR_THEN(status, ashlar_stream_synchronize(device, stream));
    ashlar_stream_destroy(device, stream);
    return status == ASHLAR_OK ? ashlar_ranks_check(c->train.ranks) : status;
}

ashlar_status ashlar__train_ranks_report(const ashlar_train_command *c, ashlar_device *device,
                                         const ashlar_train_report *report) {
    if (c->train.ranks == NULL) {
        return ASHLAR_OK;
    }
    const size_t count = ashlar_ranks_count(c->train.ranks);
    double *figures;
    ASHLAR_HOST_NEW(figures, count * FIGURES, "no host memory for %zu ranks", count);
    const ashlar_status status = gather_figures(c, device, report, figures);
    if (status == ASHLAR_OK && !c->is_quiet) {
        print_figures(figures, count);
    }
    ashlar__host_free(figures);
    return status;
}

int ashlar__train_ranks_close(ashlar_train_command *c, int exit_status) {
    fflush(stdout); /* an end of all ranks is sudden */
    ashlar_ranks_close(c->train.ranks, exit_status != 0);
    c->train.ranks = NULL;
    return exit_status;
}

int ashlar__train_ranks_fail(const ashlar_train_command *c, const char *program,
                             ashlar_status status) {
    const ashlar_ranks *ranks = c->train.ranks;
    return ranks == NULL || ashlar_ranks_reports(ranks) ? ashlar__program_fail(program, status)
                                                        : ashlar__program_exit_status(status);
}
