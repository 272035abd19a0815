/* spawn.c - starts other programs with chosen standard files. */
#include "bench/harness/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/check_level.h"

/* Let the program's descriptor `target` be `given`, or lead nowhere. */
static int lead(posix_spawn_file_actions_t *actions, int given, int target) {
    return given >= 0
               ? posix_spawn_file_actions_adddup2(actions, given, target)
               : posix_spawn_file_actions_addopen(actions, target, "/dev/null",
                                                  target == STDIN_FILENO ? O_RDONLY : O_WRONLY, 0);
}

int ashlar__spawn(const char *const *words, ashlar_spawn_files files, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    /* A given descriptor must not be overwritten before it is copied. */
    ASHLAR_ASSERT(files.input != STDOUT_FILENO && files.output != STDIN_FILENO);
    if (error != 0) {
        return error;
    }
    error = lead(&actions, files.input, STDIN_FILENO);
    error = error != 0 ? error : lead(&actions, files.output, STDOUT_FILENO);
    if (error == 0 && !files.has_errors) {
        error = lead(&actions, -1, STDERR_FILENO);
    }
    if (error == 0) {
        char *const *given = (char *const *)(uintptr_t)words; /* nobody writes to them */
        error = posix_spawnp(pid, words[0], &actions, NULL, given, environ);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return error;
}

int ashlar__spawn_wait(pid_t pid) {
    int state = 0;
    while (waitpid(pid, &state, 0) < 0) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}
