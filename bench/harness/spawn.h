/* spawn.h - starts other programs, and waits for their end (internal). */
#ifndef ASHLAR_SPAWN_H
#define ASHLAR_SPAWN_H

#include <stdbool.h>
#include <sys/types.h>

/* Where a program's standard files lead. */
typedef struct ashlar_spawn_files {
    int input, output; /* descriptors of this process; -1: nowhere */
    bool has_errors;   /* standard error is that of this process; else it leads nowhere */
} ashlar_spawn_files;

/* Start a program.
 *
 * words   its name, which is looked for on the PATH, its arguments, and a NULL
 * pid     out: for ashlar__spawn_wait(); unchanged on failure
 *
 * Threads: any. Returns 0 or an errno: ENOENT, there is no such program. */
int ashlar__spawn(const char *const *words, ashlar_spawn_files files, pid_t *pid);

/* Wait until the program has ended. Returns its exit status; -1: it ended otherwise. */
int ashlar__spawn_wait(pid_t pid);

#endif /* ASHLAR_SPAWN_H */
