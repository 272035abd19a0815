#include "bench/peers/peer_loaded.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/device/device_impl.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

typedef void *(*alloc_fn)(size_t bytes, int device, ashlar_stream stream);
typedef void (*free_fn)(void *ptr, size_t bytes, int device, ashlar_stream stream);

enum { NAME_BYTES = 32 };

static const char name_letters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.";

typedef struct library {
    char name[NAME_BYTES];
    alloc_fn alloc;
    free_fn free;
    ashlar_peer peer;
} library;

/* The two functions on one device. */
typedef struct instance {
    const library *from;
    ashlar_device *device;
    int ordinal;
} instance;

static library libraries[ASHLAR_PEERS_LOADED_MAX];
static size_t library_count;

/* ---- the subject ---- */

static ashlar_status create(ashlar_device *device, void **self) {
    instance *made = ashlar__host_calloc(1, sizeof *made);
    if (made == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a peer");
    }
    *made = (instance){.from = *self, .device = device, .ordinal = device->info.ordinal};
    *self = made;
    return ASHLAR_OK;
}

static void destroy(void *self) {
    ashlar__host_free(self);
}

static ashlar_status enter(void *self, size_t thread) {
    (void)thread;
    return ashlar__device_enter(((const instance *)self)->device);
}

static void leave(void *self) {
    ashlar__device_leave(((const instance *)self)->device);
}

static void *take(void *self, size_t bytes, ashlar_stream stream) {
    const instance *s = self;
    return s->from->alloc(bytes, s->ordinal, stream);
}

static void give_sized(void *self, void *ptr, size_t bytes, ashlar_stream stream) {
    const instance *s = self;
    s->from->free(ptr, bytes, s->ordinal, stream);
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

/* "dir/libNAME.so.1" has the name NAME, which goes into tables, charts and pages as it is. */
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

/* By its real path: dlopen() looks for a name without a slash elsewhere than in this folder. */
static void *open_object(const char *path) {
    char *real = realpath(path, NULL);
    void *object = dlopen(real != NULL ? real : path, RTLD_NOW | RTLD_LOCAL);
    free(real);
    return object;
}

/* Of the object itself: the C library, on which it depends, has a free() too. */
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
    ashlar_status status = take_apart(text, &from);
    if (status == ASHLAR_OK) {
        status = take_name(from.path, out->name);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    void *object = open_object(from.path);
    if (object == NULL) {
        return ashlar__fail(ASHLAR_EINVAL, "--peer: %s", dlerror());
    }
    status = find_functions(&from, object, out);
    if (status != ASHLAR_OK) {
        (void)dlclose(object);
        return status;
    }
    out->peer = (ashlar_peer){.name = out->name,
                              .create = create,
                              .destroy = destroy,
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
