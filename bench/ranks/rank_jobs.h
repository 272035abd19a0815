/* rank_jobs.h - runs a program once or on several ranks, and reads the JSON that it leaves
 * (internal). */
#ifndef ASHLAR_RANK_JOBS_H
#define ASHLAR_RANK_JOBS_H

#include <stdbool.h>

#include <ashlar/status.h>

#include "allocator/base/json.h"

enum { ASHLAR_JOB_PATH_BYTES = 4096, ASHLAR_JOB_WORDS = 40 };

/* Files and programs of the benchmark's jobs. */
typedef struct ashlar_rank_jobs {
    char self[ASHLAR_JOB_PATH_BYTES];  /* this program */
    char train[ASHLAR_JOB_PATH_BYTES]; /* ashlar-train, beside this program */
    char text[ASHLAR_JOB_PATH_BYTES];  /* what is trained on */
    char json[ASHLAR_JOB_PATH_BYTES];  /* what a job leaves */
    const char *no_ranks;              /* why several ranks cannot be started; NULL: they can */
    bool has_torch;                    /* python3 has PyTorch */
} ashlar_rank_jobs;

/* Find the programs, and write `text_bytes` bytes to train on. Lets MPI start ranks as root and on
 * fewer cores than ranks, by the environment. Call ashlar__rank_jobs_finish() also after an error.
 *
 * Errors: ASHLAR_ENOTSUP (no ashlar-train), ASHLAR_EIO. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rank_jobs_init(ashlar_rank_jobs *jobs, size_t text_bytes);
void ashlar__rank_jobs_finish(ashlar_rank_jobs *jobs);

/* Run a program, and read the file jobs->json that it has to write.
 *
 * ranks       1: started as it is; more: by mpirun
 * arguments   up to ASHLAR_JOB_WORDS words and a NULL; the first is the program
 *
 * Ownership: the caller frees *out with ashlar__json_free().
 * Errors:    ASHLAR_EIO (the program fails, and has said why; or it leaves no JSON),
 *            ASHLAR_EFORMAT, ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rank_job_run(const ashlar_rank_jobs *jobs, size_t ranks,
                                                     const char *const *arguments,
                                                     ashlar_json **out);

/* The program torch_ddp.py. */
extern const char ashlar__torch_ddp[];

#endif /* ASHLAR_RANK_JOBS_H */
