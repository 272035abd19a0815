/*
 * peer_jemalloc.c - jemalloc, on host memory that is never touched.
 *
 * In a program that is linked with jemalloc, malloc() is jemalloc's and not the C library's. This
 * file calls malloc() rather than jemalloc's mallocx(), which has no short path for a hit. (In a
 * build with a sanitizer, malloc() is the sanitizer's.)
 */
#include "bench/peers/peer.h"

#include <jemalloc/jemalloc.h>
#include <stdlib.h>

#define TEXT_OF(x) #x
#define VERSION_OF(major, minor, fix) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(fix)
#define VERSION VERSION_OF(JEMALLOC_VERSION_MAJOR, JEMALLOC_VERSION_MINOR, JEMALLOC_VERSION_BUGFIX)

static void *take(void *self, size_t bytes, ashlar_stream stream) {
    (void)self;
    (void)stream;
    return malloc(bytes);
}

static void give(void *self, void *ptr) {
    (void)self;
    free(ptr);
}

const ashlar_peer ashlar__peer_jemalloc = {
    .name = "jemalloc", .version = VERSION, .take = take, .give = give};
