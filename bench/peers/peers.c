/* peers.c - the list of all peers, the plain ones (ashlar without and with plans, the driver, the
 * empty loop), and those that are loaded from shared objects. */
#include "bench/peers/peer.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include <ashlar/allocator.h>
#include <ashlar/plan.h>

#include "allocator/base/error.h"
#include "allocator/device/device_impl.h"

/* One key for all steps of a list: they differ only in sizes, and the first one is the largest. */
enum { STEP_KEY = 1 };

static ashlar_status create(ashlar_device *device, void **self) {
    ashlar_allocator *allocator = NULL;
    ASHLAR_TRY(ashlar_allocator_create(device, &allocator));
    *self = allocator;
    return ASHLAR_OK;
}

static void destroy(void *self) {
    ashlar_allocator_destroy(self);
}

static void *take(void *self, size_t bytes, ashlar_stream stream) {
    void *ptr = NULL;
    return ashlar_alloc(self, bytes, stream, &ptr) == ASHLAR_OK ? ptr : NULL;
}

static void give(void *self, void *ptr) {
    const ashlar_status status = ashlar_free(self, ptr);
    (void)status; /* cannot fail: take() returned this block */
}

static void usage(void *self, ashlar_peer_usage *out) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(self, &stats);
    *out = (ashlar_peer_usage){stats.reserved_peak_bytes, stats.live_peak_bytes};
}

const ashlar_peer ashlar__peer_ashlar = {
    .name = "ashlar",
    .create = create,
    .destroy = destroy,
    .take = take,
    .give = give,
    .usage = usage,
};

static ashlar_status begin_step(void *self, ashlar_stream stream) {
    return ashlar_step_begin(self, stream, STEP_KEY);
}

static ashlar_status end_step(void *self) {
    return ashlar_step_end(self);
}

const ashlar_peer ashlar__peer_plan = {
    .name = "plan",
    .create = create,
    .destroy = destroy,
    .take = take,
    .give = give,
    .usage = usage,
    .begin_step = begin_step,
    .end_step = end_step,
};

/* --- the driver's plain allocation: one driver call for each take or give --------------------- */

static ashlar_status create_driver(ashlar_device *device, void **self) {
    *self = device;
    return ASHLAR_OK;
}

static ashlar_status enter_driver(void *self, size_t thread) {
    (void)thread;
    return ashlar__device_enter(self);
}

static void leave_driver(void *self) {
    ashlar__device_leave(self);
}

static void *take_driver(void *self, size_t bytes, ashlar_stream stream) {
    ashlar_device *device = self;
    cu_ptr ptr = 0;
    (void)stream;
    const cu_result result = ASHLAR_DRIVER_CALL(device->driver, mem_alloc, (&ptr, bytes));
    return result == CU_SUCCESS ? ashlar__ptr_out(ptr) : NULL;
}

static void give_driver(void *self, void *ptr) {
    ashlar_device *device = self;
    (void)ASHLAR_DRIVER_CALL(device->driver, mem_free, (ashlar__ptr_in(ptr)));
}

const ashlar_peer ashlar__peer_driver = {
    .name = "driver",
    .create = create_driver,
    .enter = enter_driver,
    .leave = leave_driver,
    .take = take_driver,
    .give = give_driver,
    .has_few_blocks = true,
};

/* --- nothing: what the loop itself costs ----------------------------------------------------- */

static char somewhere;

static void *take_none(void *self, size_t bytes, ashlar_stream stream) {
    (void)self;
    (void)bytes;
    (void)stream;
    return &somewhere;
}

static void give_none(void *self, void *ptr) {
    (void)self;
    (void)ptr;
}

const ashlar_peer ashlar__peer_none = {.name = "none", .take = take_none, .give = give_none};

/* --- the list of peers ----------------------------------------------------------------------- */

size_t ashlar__peers(const ashlar_peer *out[ASHLAR_PEERS_MAX]) {
    static const ashlar_peer *const first[] = {
        &ashlar__peer_ashlar,
        &ashlar__peer_floor,
#define X(name) &ashlar__peer_##name,
        ASHLAR_BENCH_PEERS /* from the build: X(cub), X(jemalloc), both or none */
#undef X
            & ashlar__peer_driver,
    };
    size_t count = sizeof first / sizeof first[0];
    const ashlar_peer *loaded;
    memcpy(out, first, sizeof first);
    for (size_t i = 0; (loaded = ashlar__peer_loaded(i)) != NULL; i++) {
        out[count++] = loaded;
    }
    out[count++] = &ashlar__peer_plan;
    out[count++] = &ashlar__peer_none;
    return count;
}

const ashlar_peer *ashlar__peer_find(const char *name) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = ashlar__peers(peers);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(peers[i]->name, name) == 0) {
            return peers[i];
        }
    }
    return NULL;
}

/* ---- an allocator from a shared object ---- */

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

static ashlar_status create_loaded(ashlar_device *device, void **self) {
    ((library *)*self)->device = device;
    return ASHLAR_OK;
}

static ashlar_status enter_loaded(void *self, size_t thread) {
    (void)thread;
    return ashlar__device_enter(((const library *)self)->device);
}

static void leave_loaded(void *self) {
    ashlar__device_leave(((const library *)self)->device);
}

static void *take_loaded(void *self, size_t bytes, ashlar_stream stream) {
    const library *s = self;
    return s->alloc(bytes, s->device->info.ordinal, stream);
}

static void give_sized_loaded(void *self, void *ptr, size_t bytes, ashlar_stream stream) {
    const library *s = self;
    s->free(ptr, bytes, s->device->info.ordinal, stream);
}

/* The parts of the text "FILE" or "FILE:ALLOC,FREE". */
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

/* Open an object by its real path: dlopen() does not look for a name without "/" in this folder. */
static void *open_object(const char *path) {
    char *real = realpath(path, NULL);
    void *object = dlopen(real != NULL ? real : path, RTLD_NOW | RTLD_LOCAL);
    free(real);
    return object;
}

/* Find a function that the object itself defines: dlsym() also finds the C library's free(). */
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
                              .create = create_loaded,
                              .enter = enter_loaded,
                              .leave = leave_loaded,
                              .take = take_loaded,
                              .give_sized = give_sized_loaded,
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
