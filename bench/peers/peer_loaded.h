/*
 * peer_loaded.h - peers from shared objects with the two functions of PyTorch's pluggable
 * allocators (internal).
 *
 * The object exports these, with C's names (in C++: extern "C"), or others of the same types:
 *
 *     void *alloc(size_t bytes, int device, cudaStream_t stream);
 *     void free(void *ptr, size_t bytes, int device, cudaStream_t stream);
 *
 * `alloc` returns a block, or NULL if it has none. `device` is the
 * device's number. `free` gets the size that was passed to `alloc`, and the stream. The device's
 * context is current on the calling thread. If a list runs on several threads, they call both
 * functions at the same time. On the software device `stream` is no CUDA stream, so an object that
 * calls CUDA can be measured only with --device cuda.
 *
 * A C file that includes stdlib.h, as cuda_runtime.h does, cannot define another free(); it gives
 * its functions other names. The object shares the process's malloc(), which is jemalloc's if
 * ashlar-bench was built with jemalloc.
 *
 * The object keeps its cache from one list to the next, since the two functions offer no way to
 * empty it; every other subject begins each list with an empty cache.
 */
#ifndef ASHLAR_PEER_LOADED_H
#define ASHLAR_PEER_LOADED_H

#include <ashlar/status.h>

#include "bench/peers/peer.h"

/*
 * Load a peer, for as long as the process lives. The peer's name is the file's, without the leading
 * "lib", and cut off at ".so". The object's symbols stay local (RTLD_LOCAL).
 *
 * text     FILE, or FILE:ALLOC,FREE if the functions have other names
 *
 * Threads: one at a time; meanwhile no other thread may call ashlar__peers() or look up a peer.
 * Errors:  ASHLAR_EINVAL: no such file, not a shared object, no such function, a name that is not
 *          valid or that another subject has, more than ASHLAR_PEERS_LOADED_MAX peers. No peer is
 *          added then.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__peer_load(const char *text);

/* The i-th loaded peer, from 0, in the order of loading; NULL: fewer were loaded. */
const ashlar_peer *ashlar__peer_loaded(size_t i);

bool ashlar__peer_is_loaded(const ashlar_peer *peer);

#endif /* ASHLAR_PEER_LOADED_H */
