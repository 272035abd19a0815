/* peer.h - peers: the allocators that are compared, ashlar among them (internal). */
#ifndef ASHLAR_PEER_H
#define ASHLAR_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/device.h>
#include <ashlar/base.h>

/* Peaks since the instance was created; a figure that the peer does not know is 0. */
typedef struct ashlar_peer_usage {
    uint64_t reserved_peak_bytes; /* taken from the driver */
    uint64_t live_peak_bytes;     /* allocated by callers and not yet freed */
} ashlar_peer_usage;

/* Threads of one instance are numbered from 0. */
enum { ASHLAR_PEER_THREADS_MAX = 64 };

/*
 * `create` makes an instance whose cache is empty. A thread uses the instance between `enter` and
 * `leave`, always under the same thread number. Each step of a list is between `begin_step` and
 * `end_step`. A peer without a function, such as `enter`, has NULL for it. A peer has either `give`
 * or `give_sized`.
 *
 * Threads: take, give, give_sized, mark, begin_step and end_step may run in several threads at
 * once; the other functions in one at a time.
 */
typedef struct ashlar_peer {
    const char *name;
    const char *version;                                         /* NULL: not known */
    ashlar_status (*create)(ashlar_device *device, void **self); /* in: *self == origin */
    void (*destroy)(void *self); /* only after every block has been given back */
    ashlar_status (*enter)(void *self, size_t thread);
    void (*leave)(void *self);
    void *(*take)(void *self, size_t bytes, ashlar_stream stream); /* NULL: no block */
    void (*give)(void *self, void *ptr); /* NULL if the peer has give_sized */
    void (*usage)(void *self, ashlar_peer_usage *out);
    ashlar_status (*begin_step)(void *self, ashlar_stream stream);
    ashlar_status (*end_step)(void *self);
    void (*give_sized)(void *self, void *ptr, size_t bytes, ashlar_stream stream); /* as taken */
    void *origin;     /* passed to `create`: the library of a loaded peer; else NULL */
    bool hides_calls; /* it calls the driver directly, so its driver calls cannot be counted */
    /* A thread reuses only blocks that it gave back itself, so blocks cannot be handed over. */
    bool is_per_thread;
    /* Each block costs a driver allocation or is written to, so a list of a million is too long. */
    bool has_few_blocks;
} ashlar_peer;

extern const ashlar_peer ashlar__peer_ashlar;
extern const ashlar_peer ashlar__peer_plan; /* ashlar with steps; usual only for plans */
extern const ashlar_peer ashlar__peer_floor;
extern const ashlar_peer ashlar__peer_cub;      /* only in builds with CUB */
extern const ashlar_peer ashlar__peer_jemalloc; /* only in builds with jemalloc */
extern const ashlar_peer ashlar__peer_driver;
extern const ashlar_peer ashlar__peer_none; /* the empty loop; measured only if it is named */

/* All available peers, in the order of the report: ashlar, floor, cub and jemalloc if the build has
 * them, driver, loaded peers, plan, none. Returns their number. */
enum { ASHLAR_PEERS_LOADED_MAX = 7, ASHLAR_PEERS_MAX = 7 + ASHLAR_PEERS_LOADED_MAX };
size_t ashlar__peers(const ashlar_peer *out[ASHLAR_PEERS_MAX]);

/* For CUB: choose the one device that the functions of CUDA's runtime in cudart.c act on from now
 * on. Call this before any of them, and while no other thread is in one of them. */
void ashlar__cudart_use(ashlar_device *device);

/* The peer called `name`; NULL: there is none. */
const ashlar_peer *ashlar__peer_find(const char *name);

/*
 * Load a peer with the two functions of PyTorch's pluggable allocators, for as long as the process
 * lives. Its symbols stay local, and the peer's name is the file's, without "lib" and cut off at
 * ".so". It keeps its cache from one list to the next, since the two functions offer no way to
 * empty it; every other subject begins each list with an empty cache.
 *
 * text     FILE, or FILE:ALLOC,FREE if the functions are not called alloc and free
 *
 * Threads: one at a time; meanwhile no other thread may call ashlar__peers() or look up a peer.
 * Errors:  ASHLAR_EINVAL; no peer is added then.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__peer_load(const char *text);

/* The i-th loaded peer, from 0, in the order of loading; NULL: fewer were loaded. */
const ashlar_peer *ashlar__peer_loaded(size_t i);

bool ashlar__peer_is_loaded(const ashlar_peer *peer);

#endif /* ASHLAR_PEER_H */
