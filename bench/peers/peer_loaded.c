/* peer_loaded.c - loads an allocator that is to be compared from a shared object, and before that
 * tries it in a child process, where it may crash. */
#include "bench/peers/peer_loaded.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "allocator/device/device_impl.h"
#include "bench/harness/live_set.h"

typedef void *(*alloc_fn)(size_t bytes, int device, ashlar_stream stream);
typedef void (*free_fn)(void *ptr, size_t bytes, int device, ashlar_stream stream);

enum { NAME_BYTES = 32 };

static const char name_letters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.";

/* A loaded object, and the peer made of it. It has one instance at a time, on one device. */
typedef struct library {
    char name[NAME_BYTES];
    alloc_fn alloc;
    free_fn free;
    ashlar_device *device;
    ashlar_peer peer;
} library;

static library libraries[ASHLAR_PEERS_LOADED_MAX];
static size_t library_count;

/* ---- the subject ---- */

static ashlar_status create(ashlar_device *device, void **self) {
    ((library *)*self)->device = device;
    return ASHLAR_OK;
}

static ashlar_status enter(void *self, size_t thread) {
    (void)thread;
    return ashlar__device_enter(((const library *)self)->device);
}

static void leave(void *self) {
    ashlar__device_leave(((const library *)self)->device);
}

static void *take(void *self, size_t bytes, ashlar_stream stream) {
    const library *s = self;
    return s->alloc(bytes, s->device->info.ordinal, stream);
}

static void give_sized(void *self, void *ptr, size_t bytes, ashlar_stream stream) {
    const library *s = self;
    s->free(ptr, bytes, s->device->info.ordinal, stream);
}

/* ---- loading ---- */

/* "FILE" or "FILE:ALLOC,FREE", taken apart. */
typedef struct spec {
    char path[PATH_MAX];
    char alloc[NAME_BYTES], free[NAME_BYTES];
} spec;

static bool copy(const char *begin, const char *end, char *out, size_t bytes) {
    const size_t count = (size_t)(end - begin);
    if (count == 0 || count >= bytes) {
        return false;
    }
    memcpy(out, begin, count);
    out[count] = '\0';
    return true;
}

static ashlar_status take_apart(const char *text, spec *out) {
    const char *end = text + strlen(text), *colon = strrchr(text, ':');
    const char *comma = colon != NULL ? strchr(colon, ',') : NULL;
    *out = (spec){.alloc = "alloc", .free = "free"};
    const bool is_good = comma == NULL ? copy(text, end, out->path, PATH_MAX)
                                       : copy(text, colon, out->path, PATH_MAX) &&
                                             copy(colon + 1, comma, out->alloc, NAME_BYTES) &&
                                             copy(comma + 1, end, out->free, NAME_BYTES);
    return is_good ? ASHLAR_OK
                   : ashlar__fail(ASHLAR_EINVAL,
                                  "--peer: \"%.80s\" is not FILE.so or FILE.so:ALLOC,FREE (names "
                                  "of 1 to %d letters)",
                                  text, NAME_BYTES - 1);
}

/* "dir/libNAME.so.1" gets the name NAME. Only name_letters are allowed, since tables, charts and
 * pages show the name unescaped. */
static ashlar_status take_name(const char *path, char name[static NAME_BYTES]) {
    const char *slash = strrchr(path, '/');
    const char *begin = slash != NULL ? slash + 1 : path;
    begin += strncmp(begin, "lib", 3) == 0 ? 3 : 0;
    const char *suffix = strstr(begin, ".so");
    const char *end = suffix != NULL ? suffix : begin + strlen(begin);
    if (!copy(begin, end, name, NAME_BYTES) || name[strspn(name, name_letters)] != '\0') {
        return ashlar__fail(ASHLAR_EINVAL,
                            "--peer: %.80s: the file's name is the subject's; give it one of 1 to "
                            "%d letters, digits, '_', '-', '+' and '.', and .so",
                            path, NAME_BYTES - 1);
    }
    return ashlar__peer_find(name) == NULL
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EINVAL,
                              "--peer: %.80s: there is a subject \"%s\" already; rename the file",
                              path, name);
}

/* Open it by its real path: without a slash in the name, dlopen() would not look in this folder. */
static void *open_object(const char *path) {
    char *real = realpath(path, NULL);
    void *object = dlopen(real != NULL ? real : path, RTLD_NOW | RTLD_LOCAL);
    free(real);
    return object;
}

/* A function that the object itself defines: dlsym() would also find the C library's free(). */
static void *find_function(void *object, const char *name) {
    struct link_map *map = NULL;
    Dl_info from;
    void *found = dlsym(object, name);
    const bool is_own = found != NULL && dladdr(found, &from) != 0 &&
                        dlinfo(object, RTLD_DI_LINKMAP, &map) == 0 &&
                        from.dli_fbase == (void *)map->l_addr;
    return is_own ? found : NULL;
}

static ashlar_status find_functions(const spec *from, void *object, library *out) {
    void *alloc = find_function(object, from->alloc), *give = find_function(object, from->free);
    if (alloc == NULL || give == NULL) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "--peer: %.80s has no function \"%s\"; it needs %s, with C's names",
                            from->path, alloc == NULL ? from->alloc : from->free,
                            alloc == NULL ? "void *alloc(size_t, int, cudaStream_t)"
                                          : "void free(void *, size_t, int, cudaStream_t)");
    }
    memcpy(&out->alloc, &alloc, sizeof out->alloc);
    memcpy(&out->free, &give, sizeof out->free);
    return ASHLAR_OK;
}

ashlar_status ashlar__peer_load(const char *text) {
    spec from;
    if (library_count == ASHLAR_PEERS_LOADED_MAX) {
        return ashlar__fail(ASHLAR_EINVAL, "--peer: %.80s: there is room for %d only", text,
                            (int)ASHLAR_PEERS_LOADED_MAX);
    }
    library *out = &libraries[library_count];
    ASHLAR_TRY(take_apart(text, &from));
    ASHLAR_TRY(take_name(from.path, out->name));
    void *object = open_object(from.path);
    if (object == NULL) {
        return ashlar__fail(ASHLAR_EINVAL, "--peer: %s", dlerror());
    }
    const ashlar_status status = find_functions(&from, object, out);
    if (status != ASHLAR_OK) {
        (void)dlclose(object);
        return status;
    }
    out->peer = (ashlar_peer){.name = out->name,
                              .create = create,
                              .enter = enter,
                              .leave = leave,
                              .take = take,
                              .give_sized = give_sized,
                              .origin = out,
                              .hides_calls = true};
    library_count++;
    return ASHLAR_OK;
}

const ashlar_peer *ashlar__peer_loaded(size_t i) {
    return i < library_count ? &libraries[i].peer : NULL;
}

bool ashlar__peer_is_loaded(const ashlar_peer *peer) {
    return peer->origin != NULL;
}

enum { BLOCKS = 64, OPERATIONS = 4000, SECONDS = 60, SIZE_MIN = 64, SIZE_POWERS = 14 };

/* What the trial's process tells its parent through the pipe. */
typedef struct verdict {
    ashlar_status status;
    char detail[400];
} verdict;

typedef struct trial {
    const char *text; /* the argument of --peer, for messages */
    const ashlar_peer *peer;
    void *self;
    ashlar_stream stream;
    ashlar_live_set live;
    ashlar_live_block blocks[BLOCKS]; /* bytes == 0: not taken */
} trial;

/* ---- in the trial's process ---- */

static ashlar_status try_take(trial *t, ashlar_live_block *block, size_t bytes) {
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

static void try_give(trial *t, ashlar_live_block *block) {
    ashlar__live_set_remove(&t->live, block);
    t->peer->give_sized(t->self, (void *)block->address, block->bytes, t->stream);
    block->bytes = 0;
}

/* Take blocks of 64 bytes to 1 MiB, and give them back in a random order. */
static ashlar_status take_and_give(trial *t) {
    ashlar_random random;
    ashlar_status status = ASHLAR_OK;
    ashlar__random_init(&random, 1);
    for (size_t i = 0; i < OPERATIONS && status == ASHLAR_OK; i++) {
        ashlar_live_block *block = &t->blocks[ashlar__random_below(&random, BLOCKS)];
        if (block->bytes != 0) {
            try_give(t, block);
        } else {
            const uint64_t least =
                SIZE_MIN * (UINT64_C(1) << ashlar__random_below(&random, SIZE_POWERS));
            status = try_take(t, block, (size_t)(least + ashlar__random_below(&random, least)));
        }
    }
    for (size_t i = 0; i < BLOCKS && status == ASHLAR_OK; i++) {
        if (t->blocks[i].bytes != 0) {
            try_give(t, &t->blocks[i]);
        }
    }
    return status;
}

/* Destroys nothing, since the process ends after this and destroying could crash. */
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

/* The child's part: try the peer, write the verdict to the pipe `out`, and exit. SIGALRM ends a
 * trial that hangs. Its default action is set first: the child of a process that ignores SIGALRM
 * ignores it, too. */
static void serve(int out, const char *text, const char *device) {
    verdict v = {0};
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(SECONDS);
    v.status = try_here(text, device);
    if (v.status != ASHLAR_OK) {
        (void)snprintf(v.detail, sizeof v.detail, "%s", ashlar_error_detail());
    }
    /* One write() suffices: the verdict is smaller than PIPE_BUF. */
    const ssize_t written = write(out, &v, sizeof v);
    _exit(written != (ssize_t)sizeof v);
}

/* ---- in the parent process ---- */

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
