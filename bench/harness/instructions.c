/* instructions.c - counts the instructions of one malloc + free pair, by running this program under
 * valgrind. */
#include "bench/harness/benchmark.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "bench/harness/spawn.h"

enum { PATH_BYTES = 4096, ARGUMENT_BYTES = 64 };

static ashlar_status find_self(char path[static PATH_BYTES]) {
    const ssize_t bytes = readlink("/proc/self/exe", path, PATH_BYTES - 1);
    if (bytes < 0) {
        return ashlar__fail(ASHLAR_EIO, "instructions: /proc/self/exe: %s", strerror(errno));
    }
    path[bytes] = '\0';
    return ASHLAR_OK;
}

static ashlar_status run_valgrind(const char *const *words) {
    pid_t pid;
    const int error = ashlar__spawn(
        words, (ashlar_spawn_files){.input = -1, .output = -1, .has_errors = true}, &pid);
    if (error == ENOENT) {
        return ashlar__fail(ASHLAR_ENOTSUP, "--instructions: there is no valgrind on the PATH; "
                                            "install it (Debian: valgrind)");
    }
    ASHLAR_FAIL_IF(error != 0, ASHLAR_EIO, "--instructions: valgrind: %s", strerror(error));
    ASHLAR_FAIL_IF(ashlar__spawn_wait(pid) != 0, ASHLAR_EIO,
                   "--instructions: the program failed under valgrind");
    return ASHLAR_OK;
}

/* Read N from the line "summary: N" of callgrind's output. */
static ashlar_status read_count(const char *path, uint64_t *out) {
    FILE *file = fopen(path, "r");
    char line[256];
    bool is_found = false;
    while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL) {
        is_found = sscanf(line, "summary: %" SCNu64, out) == 1;
    }
    if (file != NULL) {
        (void)fclose(file); /* opened for reading: nothing can be lost */
    }
    return is_found
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EIO, "--instructions: callgrind left no count in %s", path);
}

static ashlar_status count_into(const char *path, const ashlar_instructions_job *job, size_t pairs,
                                uint64_t *out) {
    char self[PATH_BYTES], out_file[PATH_BYTES + ARGUMENT_BYTES], pairs_text[ARGUMENT_BYTES];
    char list[ARGUMENT_BYTES];
    ASHLAR_TRY(find_self(self));
    snprintf(out_file, sizeof out_file, "--callgrind-out-file=%s", path);
    snprintf(pairs_text, sizeof pairs_text, "%zu", pairs);
    snprintf(list, sizeof list, "%s/%s", job->workload.name, job->workload.variant);
    const char *device_option = job->device != NULL ? "--device" : NULL; /* NULL ends the list */
    const char *arguments[] = {"valgrind",  "-q",         "--tool=callgrind", out_file,     self,
                               "alloc",     "--pairs",    pairs_text,         "--workload", list,
                               "--subject", job->subject, device_option,      job->device,  NULL};
    ASHLAR_TRY(run_valgrind(arguments));
    return read_count(path, out);
}

static ashlar_status count_pairs(const ashlar_instructions_job *job, size_t pairs, uint64_t *out) {
    const char *folder = secure_getenv("TMPDIR");
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/ashlar-instructions-XXXXXX", folder != NULL ? folder : "/tmp");
    const int fd = mkstemp(path);
    if (fd < 0) {
        return ashlar__fail(ASHLAR_EIO, "--instructions: %s: %s", path, strerror(errno));
    }
    (void)close(fd);
    const ashlar_status status = count_into(path, job, pairs, out);
    (void)unlink(path);
    return status;
}

ashlar_status ashlar__instructions_of_pair(const ashlar_instructions_job *job, double *out) {
    uint64_t few, many;
    ASHLAR_TRY(count_pairs(job, job->few, &few));
    ASHLAR_TRY(count_pairs(job, job->many, &many));
    *out = ((double)many - (double)few) / (double)(job->many - job->few);
    return ASHLAR_OK;
}
