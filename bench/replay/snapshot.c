/* snapshot.c - reads snapshots of PyTorch's memory: has python3 turn a pickle into an event file.
 */
#include "bench/replay/events.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/file.h"
#include "allocator/base/host.h"
#include "allocator/base/parse.h"

/* The texts of tools/snapshot_events.py and snapshot_answers.py. */
extern const char ashlar__snapshot_events[], ashlar__snapshot_answers[];

/* The first bytes of a file. */
typedef struct beginning {
    char text[32];
    size_t bytes;
} beginning;

static ashlar_status read_beginning(const char *path, beginning *out) {
    size_t size;
    int fd;
    *out = (beginning){.bytes = 0};
    ASHLAR_TRY(ashlar__file_open(path, &fd, &size));
    const size_t bytes = size < sizeof out->text ? size : sizeof out->text;
    const ashlar_status status = ashlar__file_read_at(fd, path, 0, out->text, bytes);
    out->bytes = status == ASHLAR_OK ? bytes : 0;
    (void)close(fd);
    return status;
}

static bool begins_with(const beginning *b, const char *mark) {
    const size_t bytes = strlen(mark);
    return bytes <= b->bytes && memcmp(b->text, mark, bytes) == 0;
}

static bool is_pickle(const beginning *b) {
    return begins_with(b, "\x80") || begins_with(b, "\x1f\x8b");
}

bool ashlar__snapshot_is(const char *path) {
    beginning b;
    return read_beginning(path, &b) == ASHLAR_OK &&
           (is_pickle(&b) || begins_with(&b, ashlar__events_head));
}

/* Runs the second of the words behind it as a program that can import the first. */
static const char boot[] =
    "import sys, types\n"
    "tool = sys.modules['snapshot_events'] = types.ModuleType('snapshot_events')\n"
    "exec(sys.argv.pop(1), tool.__dict__)\n"
    "exec(sys.argv.pop(1))\n";

/* Start the tool. What it writes goes to a pipe, and so do its errors: it has written nothing else
 * by then. -I: it imports Python's own modules, not those of the folder in which the program runs.
 * Returns 0 or an errno. */
static int start(const char *path, const ashlar_snapshot_job *job, int pipe, pid_t *pid) {
    const char *words[16 + 2 * ASHLAR_SNAPSHOT_ASSERTIONS_MAX] = {
        "python3", "-I", "-c", boot, ashlar__snapshot_events, ashlar__snapshot_answers};
    char *const *given = (char *const *)(uintptr_t)words; /* posix_spawnp() only reads them */
    size_t count = 6;
    posix_spawn_file_actions_t actions;
    if (job->junit != NULL) {
        words[count++] = "--junit";
        words[count++] = job->junit;
    }
    for (size_t i = 0; i < job->assertion_count; i++) {
        words[count++] = "--assert";
        words[count++] = job->assertions[i];
    }
    if (job->before != NULL) {
        words[count++] = "--diff";
        words[count++] = "--";
        words[count++] = job->before;
    } else {
        words[count++] = "--";
    }
    words[count] = path;
    int error = posix_spawn_file_actions_init(&actions);
    if (error == 0) {
        error = posix_spawn_file_actions_adddup2(&actions, pipe, STDOUT_FILENO);
        error = error ? error : posix_spawn_file_actions_adddup2(&actions, pipe, STDERR_FILENO);
        error = error ? error : posix_spawnp(pid, words[0], &actions, NULL, given, environ);
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    return error;
}

/* The tool's one line, or the last one of Python's own. */
static ashlar_status fail_as_told(const char *path, int ended, ashlar_piece told) {
    static const char name[] = "snapshot_events.py: ";
    const bool is_misused = WIFEXITED(ended) && WEXITSTATUS(ended) == 2;
    ashlar_piece last = ashlar__piece_of("it ended without a word");
    while (told.bytes > 0) {
        const ashlar_piece line = ashlar__piece_cut(&told, '\n');
        last = line.bytes > 0 ? line : last;
    }
    if (last.bytes > sizeof name && memcmp(last.text, name, sizeof name - 1) == 0) {
        return ashlar__fail(is_misused ? ASHLAR_EINVAL : ASHLAR_EFORMAT, "%.*s",
                            (int)(last.bytes - sizeof name + 1), last.text + sizeof name - 1);
    }
    return ashlar__fail(ASHLAR_EFORMAT, "%s: python3 could not read it: %.200s", path, last.text);
}

/* Have a pickle turned into the text of an event file. The caller frees *text. */
static ashlar_status convert(const char *path, const ashlar_snapshot_job *job, char **text,
                             size_t *bytes) {
    int ends[2], ended = -1;
    char name[32];
    pid_t pid;
    ASHLAR_FAIL_IF(pipe2(ends, O_CLOEXEC) != 0, ASHLAR_EIO, "%s: no pipe for python3: %s", path,
                   strerror(errno));
    const int error = start(path, job, ends[1], &pid);
    (void)close(ends[1]);
    snprintf(name, sizeof name, "/proc/self/fd/%d", ends[0]);
    ashlar_status status =
        error == 0
            ? ashlar__file_read_stream(name, text, bytes)
            : ashlar__fail(ASHLAR_EIO, "%s: a pickle is read by python3, which does not run: %s",
                           path, strerror(error));
    (void)close(ends[0]);
    while (error == 0 && waitpid(pid, &ended, 0) < 0 && errno == EINTR) {
    }
    if (status == ASHLAR_OK && ended != 0) {
        status = fail_as_told(path, ended, (ashlar_piece){*text, *bytes});
        ashlar__host_free(*text);
        *text = NULL;
    }
    return status;
}

ashlar_status ashlar__snapshot_read(const char *path, const ashlar_snapshot_job *job,
                                    ashlar_events **out) {
    char *text = NULL;
    size_t bytes = 0;
    beginning b;
    const char *const files[] = {job->before, path};
    const bool is_asked = job->before != NULL || job->assertion_count > 0;
    for (size_t i = job->before != NULL ? 0 : 1; i < 2; i++) {
        ASHLAR_TRY(read_beginning(files[i], &b));
        ASHLAR_FAIL_IF(is_asked && b.bytes == 0, ASHLAR_EFORMAT, "%s: empty, and no snapshot",
                       files[i]);
        ASHLAR_FAIL_IF(is_asked && !is_pickle(&b), ASHLAR_EINVAL,
                       "%s: --%s is about snapshots of PyTorch, as it writes them", files[i],
                       job->before != NULL ? "diff" : "assert");
    }
    ashlar_status status = is_pickle(&b) ? convert(path, job, &text, &bytes)
                                         : ashlar__file_read_stream(path, &text, &bytes);
    ASHLAR_THEN(status, ashlar__events_parse(path, text, bytes, out));
    ashlar__host_free(text);
    return status;
}
