/*
 * peer.h - one way to take and give back a block, as the benchmark sees it (internal).
 */
#ifndef ASHLAR_PEER_H
#define ASHLAR_PEER_H

#include <ashlar/allocator.h>

typedef struct ashlar_peer {
    const char *name;
    void *(*take)(void *self, size_t bytes); /* NULL: it could not */
    void (*give)(void *self, void *ptr);
    void *self;
} ashlar_peer;

/* jemalloc's host memory, or a peer without a name where the build has no jemalloc. */
ashlar_peer ashlar_peer_jemalloc(void);

#endif /* ASHLAR_PEER_H */
