/* rank_jobs.c - runs programs on one rank, or by mpirun on several, with a text to train on, and
 * reads the JSON file that they leave. */
#include "bench/ranks/rank_jobs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/file_read.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "bench/harness/spawn.h"

/* No blank, newline or % is among the symbols, so the text is one record. */
enum { TEXT_SEED = 11, SYMBOLS = 64, FIRST_SYMBOL = '0' };

/* Run a program without input and output, and return its exit status; -1: it could not be run, or
 * ended otherwise. */
static int run_quietly(const char *const *words, bool has_errors) {
    const ashlar_spawn_files files = {.input = -1, .output = -1, .has_errors = has_errors};
    pid_t pid;
    return ashlar__spawn(words, files, &pid) == 0 ? ashlar__spawn_wait(pid) : -1;
}

/* ---- set-up ---- */

static ashlar_status find_programs(ashlar_rank_jobs *j) {
    static const char *const places[] = {"", "../rnn/"}; /* installed, and as built */
    const ssize_t bytes = readlink("/proc/self/exe", j->self, sizeof j->self - 1);
    ASHLAR_FAIL_IF(bytes < 0, ASHLAR_EIO, "ranks: /proc/self/exe: %s", strerror(errno));
    j->self[bytes] = '\0';
    const int folder = (int)(strrchr(j->self, '/') + 1 - j->self);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const int used =
            snprintf(j->train, sizeof j->train, "%.*s%sashlar-train", folder, j->self, places[i]);
        if (used > 0 && used < (int)sizeof j->train && access(j->train, X_OK) == 0) {
            return ASHLAR_OK;
        }
    }
    return ashlar__fail(ASHLAR_ENOTSUP, "ranks: there is no ashlar-train beside this program; "
                                        "build or install it, too");
}

/* Make an empty file of a new name. */
static ashlar_status make_file(char path[static ASHLAR_JOB_PATH_BYTES], int *fd) {
    const char *folder = secure_getenv("TMPDIR");
    const int bytes = snprintf(path, ASHLAR_JOB_PATH_BYTES, "%s/ashlar-ranks-XXXXXX",
                               folder != NULL && *folder != '\0' ? folder : "/tmp");
    *fd = bytes < ASHLAR_JOB_PATH_BYTES ? mkstemp(path) : -1;
    if (*fd < 0) {
        const ashlar_status status =
            ashlar__fail(ASHLAR_EIO, "ranks: %.200s: %s", path, strerror(errno));
        path[0] = '\0';
        return status;
    }
    return ASHLAR_OK;
}

static ashlar_status write_text(ashlar_rank_jobs *j, size_t bytes) {
    ashlar_random random;
    int fd;
    ASHLAR_TRY(make_file(j->text, &fd));
    FILE *file = fdopen(fd, "w");
    if (file == NULL) {
        (void)close(fd); /* nothing was written */
        return ashlar__fail(ASHLAR_EIO, "ranks: %s: %s", j->text, strerror(errno));
    }
    ashlar__random_init(&random, TEXT_SEED);
    for (size_t i = 0; i < bytes; i++) {
        fputc(FIRST_SYMBOL + (int)ashlar__random_below(&random, SYMBOLS), file);
    }
    const bool is_written = ferror(file) == 0;
    return fclose(file) == 0 && is_written
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EIO, "ranks: %s: cannot be written", j->text);
}

/* Set what `./run train --ranks` sets, too. MPIs other than Open MPI ignore it. */
static void allow_ranks(void) {
    static const char *const settings[][2] = {
        {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
        {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
        {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
        {"OMPI_MCA_mpi_yield_when_idle", "1"},
        {"OMPI_MCA_hwloc_base_binding_policy", "none"},
        {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        (void)setenv(settings[i][0], settings[i][1], 0);
    }
}

ashlar_status ashlar__rank_jobs_init(ashlar_rank_jobs *j, size_t text_bytes) {
    static const char *const launcher[] = {"mpirun", "--version", NULL};
    static const char *const torch[] = {"python3", "-c", "import torch.distributed", NULL};
    int fd;
    *j = (ashlar_rank_jobs){.no_ranks = NULL};
    ASHLAR_TRY(find_programs(j));
    ASHLAR_TRY(make_file(j->json, &fd));
    (void)close(fd); /* empty */
    ASHLAR_TRY(write_text(j, text_bytes));
    allow_ranks();
    if (!ASHLAR_BENCH_HAS_MPI) {
        j->no_ranks = "this build has no MPI";
    } else if (run_quietly(launcher, false) != 0) {
        j->no_ranks = "there is no mpirun on the PATH";
    }
    j->has_torch = run_quietly(torch, false) == 0;
    return ASHLAR_OK;
}

void ashlar__rank_jobs_finish(ashlar_rank_jobs *j) {
    const char *const files[] = {j->text, j->json};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (files[i][0] != '\0') {
            (void)unlink(files[i]);
        }
    }
}

/* ---- a job ---- */

static ashlar_status read_json(const char *path, ashlar_json **out) {
    char *text = NULL;
    size_t bytes = 0;
    ASHLAR_TRY(ashlar__file_read(path, &text, &bytes));
    const ashlar_status status = ashlar__json_parse(text, bytes, out);
    ashlar__host_free(text);
    return status;
}

ashlar_status ashlar__rank_job_run(const ashlar_rank_jobs *j, size_t ranks,
                                   const char *const *arguments, ashlar_json **out) {
    char count[32];
    const char *words[ASHLAR_JOB_WORDS + 4] = {"mpirun", "-n", count};
    size_t used = ranks > 1 ? 3 : 0;
    (void)snprintf(count, sizeof count, "%zu", ranks);
    for (size_t i = 0; arguments[i] != NULL; i++) {
        ASHLAR_ASSERT(i < ASHLAR_JOB_WORDS);
        words[used++] = arguments[i];
    }
    words[used] = NULL;
    ASHLAR_FAIL_IF(truncate(j->json, 0) != 0, ASHLAR_EIO, "ranks: %s: %s", j->json,
                   strerror(errno)); /* else the last job's JSON stays if this one writes none */
    ASHLAR_FAIL_IF(run_quietly(words, true) != 0, ASHLAR_EIO, "ranks: %s failed on %zu of them",
                   arguments[0], ranks);
    return read_json(j->json, out);
}
