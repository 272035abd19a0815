/* rnn_torch.c - starts the process that runs PyTorch for `ashlar-bench rnn`, and asks it line by
 * line. */
#include "bench/rnn/bench_rnn.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"

extern const char ashlar__torch_rnn[]; /* the text of torch_rnn.py */

enum { NAME_BYTES = 64, LINE_BYTES = 256, QUESTION_BYTES = 2048 };

struct ashlar_rnn_torch {
    pid_t pid; /* 0: not started */
    int socket;
    FILE *answers;
};

static char name[NAME_BYTES];

const char *ashlar__rnn_torch_name(void) {
    return name[0] != '\0' ? name : NULL;
}

/* Start python3, with its error messages discarded. It talks over a socket, not pipes, so that a
 * question to a process that has ended gives an error and no SIGPIPE. Returns 0 or an errno. */
static int start(ashlar_rnn_torch *t, size_t threads, int theirs) {
    char count[24];
    const char *const words[] = {"python3", "-c", ashlar__torch_rnn, count, NULL};
    char *const *given = (char *const *)(uintptr_t)words; /* posix_spawnp() only reads them */
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0) {
        return error;
    }
    snprintf(count, sizeof count, "%zu", threads);
    error = posix_spawn_file_actions_adddup2(&actions, theirs, STDIN_FILENO);
    error = error ? error : posix_spawn_file_actions_adddup2(&actions, theirs, STDOUT_FILENO);
    error =
        error ? error
              : posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    error = error ? error : posix_spawnp(&t->pid, words[0], &actions, NULL, given, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Read a line, without its end. False: there is none. */
static bool read_line(ashlar_rnn_torch *t, char *line, int bytes) {
    if (fgets(line, bytes, t->answers) == NULL) {
        return false;
    }
    line[strcspn(line, "\n")] = '\0';
    return true;
}

static ashlar_status fail_ended(void) {
    return ashlar__fail(ASHLAR_EIO,
                        "bench: PyTorch's process has ended; leave it out by --subject, or run "
                        "bench/rnn/torch_rnn.py by hand");
}

/* Send a question, and read the one line that answers it. */
static ashlar_status ask(ashlar_rnn_torch *t, const char *question,
                         char answer[static LINE_BYTES]) {
    for (size_t sent = 0, bytes = strlen(question); sent < bytes;) {
        const ssize_t n = send(t->socket, question + sent, bytes - sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) {
            return fail_ended();
        }
        sent += n > 0 ? (size_t)n : 0;
    }
    return read_line(t, answer, LINE_BYTES) ? ASHLAR_OK : fail_ended();
}

/* Start the process. *is_there: it has answered with PyTorch's name, so there is a PyTorch. */
static ashlar_status open_process(ashlar_rnn_torch *t, size_t threads, bool *is_there) {
    int ends[2];
    ASHLAR_FAIL_IF(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0, ASHLAR_EIO,
                   "bench: no socket for PyTorch: %s", strerror(errno));
    const int error = start(t, threads, ends[1]);
    (void)close(ends[1]);
    t->socket = ends[0];
    t->answers = fdopen(ends[0], "r");
    if (t->answers == NULL) {
        (void)close(ends[0]);
        return ashlar__fail(ASHLAR_EHOSTMEM, "bench: no host memory for PyTorch's answers");
    }
    *is_there = error == 0 && read_line(t, name, sizeof name);
    return ASHLAR_OK;
}

ashlar_status ashlar__rnn_torch_start(size_t threads, ashlar_rnn_torch **out) {
    ashlar_rnn_torch *t;
    bool is_there = false;
    name[0] = '\0';
    ASHLAR_HOST_NEW(t, 1, "bench: no host memory for PyTorch's process");
    *t = (ashlar_rnn_torch){.socket = -1};
    const ashlar_status status = open_process(t, threads, &is_there);
    if (!is_there) {
        ashlar__rnn_torch_stop(t);
        t = NULL;
    }
    if (status == ASHLAR_OK) {
        *out = t;
    }
    return status;
}

void ashlar__rnn_torch_stop(ashlar_rnn_torch *t) {
    if (t == NULL) {
        return;
    }
    if (t->answers != NULL) {
        (void)fclose(t->answers); /* the process reads the end of its input, and ends */
    }
    while (t->pid > 0 && waitpid(t->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    ashlar__host_free(t);
}

static const char *cell_name(const ashlar_rnn_config *c) {
    const bool is_plain = c->dtype == ASHLAR_F32 && c->projection == 0;
    return !is_plain                    ? NULL
           : c->cell == ASHLAR_RNN_LSTM ? "lstm"
           : c->cell == ASHLAR_RNN_GRU  ? "gru"
                                        : NULL;
}

ashlar_status ashlar__rnn_torch_make(ashlar_rnn_torch *t, const ashlar_rnn_config *c, size_t steps,
                                     size_t batch, const int32_t *lengths, bool is_inference,
                                     bool *is_made) {
    char question[QUESTION_BYTES], answer[LINE_BYTES];
    const char *const cell = cell_name(c);
    int used = snprintf(question, sizeof question, "case %s %zu %zu %zu %zu %zu %zu %d",
                        cell != NULL ? cell : "", steps, batch, (size_t)c->input, (size_t)c->hidden,
                        (size_t)c->layers, (size_t)c->directions, is_inference);
    for (size_t b = 0; b < batch && used < QUESTION_BYTES; b++) {
        const size_t left = (size_t)(QUESTION_BYTES - used);
        used +=
            snprintf(question + used, left, " %d%s", (int)lengths[b], b + 1 == batch ? "\n" : "");
    }
    *is_made = cell != NULL && used < QUESTION_BYTES;
    return *is_made ? ask(t, question, answer) : ASHLAR_OK;
}

ashlar_status ashlar__rnn_torch_step(ashlar_rnn_torch *t, double *forward_s, double *backward_s) {
    char answer[LINE_BYTES];
    ASHLAR_TRY(ask(t, "step\n", answer));
    ASHLAR_FAIL_IF(sscanf(answer, "%lf %lf", forward_s, backward_s) != 2, ASHLAR_EIO,
                   "bench: PyTorch's process says '%s' of a step", answer);
    return ASHLAR_OK;
}
