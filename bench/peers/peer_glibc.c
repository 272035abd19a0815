/*
 * peer_glibc.c - the C library's own malloc and free, on host memory that is never touched.
 *
 * They are looked up in the library itself: by their names the program would get jemalloc's, which
 * has them too and stands before the C library where the program is linked with it.
 */
#include "bench/peers/peer.h"

#include <dlfcn.h>
#include <string.h>

#include "allocator/base/error.h"

static void *(*take_host)(size_t bytes);
static void (*give_host)(void *ptr);

static ashlar_status create(ashlar_device *device, void **self) {
    (void)device;
    void *library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *take_symbol = library != NULL ? dlsym(library, "malloc") : NULL;
    void *give_symbol = library != NULL ? dlsym(library, "free") : NULL;
    if (take_symbol == NULL || give_symbol == NULL) {
        return ashlar__fail(ASHLAR_ENOTSUP, "glibc: this program runs on another C library; "
                                            "choose other subjects");
    }
    memcpy(&take_host, &take_symbol, sizeof take_host);
    memcpy(&give_host, &give_symbol, sizeof give_host);
    *self = NULL;
    return ASHLAR_OK;
}

static void *take(void *self, size_t bytes, ashlar_stream stream) {
    (void)self;
    (void)stream;
    return take_host(bytes);
}

static void give(void *self, void *ptr) {
    (void)self;
    give_host(ptr);
}

const ashlar_peer *ashlar__peer_glibc(void) {
    static const ashlar_peer peer = {
        .name = "glibc",
        .create = create,
        .take = take,
        .give = give,
    };
    return &peer;
}
