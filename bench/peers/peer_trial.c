#include "bench/peers/peer_trial.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/device/device_impl.h"
#include "allocator/base/error.h"
#include "bench/harness/live_set.h"
#include "bench/peers/peer_loaded.h"
#include "allocator/base/random.h"

enum { BLOCKS = 64, OPERATIONS = 4000, SECONDS = 60, SIZE_MIN = 64, SIZE_POWERS = 14 };

/* What the other process has to say. */
typedef struct verdict {
    ashlar_status status;
    char detail[400];
} verdict;

typedef struct trial {
    const char *text; /* as it was asked for */
    const ashlar_peer *peer;
    void *self;
    ashlar_stream stream;
    ashlar_live_set live;
    ashlar_live_block blocks[BLOCKS]; /* of 0 bytes: not taken */
} trial;

/* ---- in the other process ---- */

static ashlar_status take(trial *t, ashlar_live_block *block, size_t bytes) {
    const void *ptr = t->peer->take(t->self, bytes, t->stream);
    const char *wrong = NULL;
    *block = (ashlar_live_block){.address = (uintptr_t)ptr, .bytes = bytes};
    if (ptr == NULL) {
        wrong = "NULL";
    } else if (block->address % ASHLAR_PEER_ALIGNMENT != 0) {
        wrong = "a block that is not aligned to 16 bytes";
    } else if (ashlar__live_set_insert(&t->live, block) != NULL) {
        wrong = "a block that shares bytes with one that is in use";
    }
    return wrong == NULL
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EINVAL, "--peer: %.200s: asked for %zu bytes it returned %s",
                              t->text, bytes, wrong);
}

static void give(trial *t, ashlar_live_block *block) {
    ashlar__live_set_remove(&t->live, block);
    t->peer->give_sized(t->self, (void *)block->address, block->bytes, t->stream);
    block->bytes = 0;
}

/* Sizes of all magnitudes, in blocks that are freed in another order than they were taken. */
static ashlar_status take_and_give(trial *t) {
    ashlar_random random;
    ashlar_status status = ASHLAR_OK;
    ashlar__random_init(&random, 1);
    for (size_t i = 0; i < OPERATIONS && status == ASHLAR_OK; i++) {
        ashlar_live_block *block = &t->blocks[ashlar__random_below(&random, BLOCKS)];
        if (block->bytes != 0) {
            give(t, block);
        } else {
            const uint64_t least =
                SIZE_MIN * (UINT64_C(1) << ashlar__random_below(&random, SIZE_POWERS));
            status = take(t, block, (size_t)(least + ashlar__random_below(&random, least)));
        }
    }
    for (size_t i = 0; i < BLOCKS && status == ASHLAR_OK; i++) {
        if (t->blocks[i].bytes != 0) {
            give(t, &t->blocks[i]);
        }
    }
    return status;
}

/* The process ends behind this, so that nothing is taken down that could fail once more. */
static ashlar_status try_on(trial *t, ashlar_device *device) {
    t->self = t->peer->origin;
    ASHLAR_TRY(ashlar_stream_create(device, &t->stream));
    ASHLAR_TRY(t->peer->create(device, &t->self));
    ASHLAR_TRY(t->peer->enter(t->self, 0));
    return take_and_give(t);
}

static ashlar_status try_here(const char *text, const char *device_name) {
    static trial t;
    ashlar_device *device = NULL;
    ASHLAR_TRY(ashlar__peer_load(text));
    ASHLAR_TRY(ashlar_device_open(device_name, &device));
    t.text = text;
    t.peer = ashlar__peer_loaded(0);
    return try_on(&t, device);
}

/* A signal that the parent ignores would not end this process either. */
static void serve(int out, const char *text, const char *device) {
    verdict v = {0};
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(SECONDS);
    v.status = try_here(text, device);
    if (v.status != ASHLAR_OK) {
        (void)snprintf(v.detail, sizeof v.detail, "%s", ashlar_error_detail());
    }
    /* At once: it is shorter than what a pipe takes whole. */
    const ssize_t written = write(out, &v, sizeof v);
    _exit(written != (ssize_t)sizeof v);
}

/* ---- in this one ---- */

static ashlar_status judge(const char *text, const verdict *said, bool has_said, int how) {
    if (has_said) {
        return said->status == ASHLAR_OK ? ASHLAR_OK
                                         : ashlar__fail(said->status, "%s", said->detail);
    }
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM) {
        return ashlar__fail(ASHLAR_EINVAL, "--peer: %.200s: it did not end within %d s when tried",
                            text, (int)SECONDS);
    }
    if (WIFSIGNALED(how)) {
        return ashlar__fail(ASHLAR_EINVAL, "--peer: %.200s: it crashed when tried (signal %d, %s)",
                            text, WTERMSIG(how), strsignal(WTERMSIG(how)));
    }
    return ashlar__fail(ASHLAR_EINVAL,
                        "--peer: %.200s: it ended the process when tried (status %d)", text,
                        WEXITSTATUS(how));
}

ashlar_status ashlar__peer_trial(const char *text, const char *device) {
    int ends[2], how = 0;
    verdict said;
    if (pipe(ends) != 0) {
        return ashlar__fail(ASHLAR_EIO, "--peer: %.200s: no pipe to try it with", text);
    }
    const pid_t child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        serve(ends[1], text, device);
    }
    (void)close(ends[1]);
    const bool has_said = child > 0 && read(ends[0], &said, sizeof said) == (ssize_t)sizeof said;
    (void)close(ends[0]);
    if (child < 0 || waitpid(child, &how, 0) != child) {
        return ashlar__fail(ASHLAR_EIO, "--peer: %.200s: no process to try it in", text);
    }
    return judge(text, &said, has_said, how);
}
