/*
 * peer.h - a peer: one way to take and give back blocks that the benchmark compares (internal).
 */
#ifndef ASHLAR_PEER_H
#define ASHLAR_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/device.h>

/* 0 where a peer does not know. */
typedef struct ashlar_peer_usage {
    uint64_t reserved_peak_bytes; /* memory taken from the driver */
    uint64_t live_peak_bytes;     /* asked for and not yet given back */
} ashlar_peer_usage;

/* Threads of one instance are numbered from 0. */
enum { ASHLAR_PEER_THREADS_MAX = 64 };

/*
 * `create` makes an instance with nothing cached. A thread works with it between `enter` and
 * `leave`, always under the same number; a step of the list lies between `begin_step` and
 * `end_step`. NULL members: nothing to do.
 *
 * Threads: take, give and the steps from several at once; the others one at a time.
 */
typedef struct ashlar_peer {
    const char *name;
    const char *version; /* NULL: it has none, or tells none */
    ashlar_status (*create)(ashlar_device *device, void **self); /* *self: `origin` before */
    void (*destroy)(void *self);                                 /* all has been given back */
    ashlar_status (*enter)(void *self, size_t thread);
    void (*leave)(void *self);
    void *(*take)(void *self, size_t bytes, ashlar_stream stream); /* NULL: it could not */
    void (*give)(void *self, void *ptr); /* or, for those that are to be told what was taken: */
    void (*usage)(void *self, ashlar_peer_usage *out);
    ashlar_status (*begin_step)(void *self, ashlar_stream stream);
    ashlar_status (*end_step)(void *self);
    void (*give_sized)(void *self, void *ptr, size_t bytes, ashlar_stream stream);
    void *origin;
    bool hides_calls; /* it calls the driver past our table, so that nobody counts */
} ashlar_peer;

const ashlar_peer *ashlar__peer_ashlar(void);
const ashlar_peer *ashlar__peer_floor(void);
const ashlar_peer *ashlar__peer_cub(void);      /* only in builds with CUB */
const ashlar_peer *ashlar__peer_jemalloc(void); /* only in builds with jemalloc */
const ashlar_peer *ashlar__peer_glibc(void);
const ashlar_peer *ashlar__peer_driver(void);
const ashlar_peer *
ashlar__peer_cuda_async(void); /* for CUDA devices only; whether it serves one: */
bool ashlar__peer_cuda_async_serves(const ashlar_device *device);
const ashlar_peer *ashlar__peer_plan(void); /* ashlar in steps; only where it is asked for */
const ashlar_peer *ashlar__peer_none(void); /* the empty loop; only where it is asked for */

/* Those that there are, in the order of the report: ashlar, floor, the build's others, those that
 * were loaded (peer_loaded.h), plan, none. */
enum { ASHLAR_PEERS_LOADED_MAX = 7, ASHLAR_PEERS_MAX = 9 + ASHLAR_PEERS_LOADED_MAX };
size_t ashlar__peers(const ashlar_peer *out[ASHLAR_PEERS_MAX]);

/* The one of that name; NULL: there is none. */
const ashlar_peer *ashlar__peer_find(const char *name);

#endif /* ASHLAR_PEER_H */
