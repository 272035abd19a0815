/*
 * peer_loaded.h - peers from shared objects with the two functions of PyTorch's pluggable
 * allocators (internal).
 *
 * The object exports these, with C's names (in C++: extern "C"), or others of the same types:
 *
 *     void *alloc(size_t bytes, int device, cudaStream_t stream);
 *     void free(void *ptr, size_t bytes, int device, cudaStream_t stream);
 *
 * `alloc` returns a block that is aligned to 16 bytes at least, or NULL where it has none. `device`
 * is the device's number. `free` gets what was asked for, and the stream that it was asked for on.
 * The device's context is current on the calling thread. Both are called from several threads at
 * once where a list runs on several. On the software device `stream` is one of its own: an object
 * that calls CUDA is for --device cuda.
 *
 * A C file that includes stdlib.h, as cuda_runtime.h does, cannot define another free(); its
 * functions may have any names. malloc() is the process's: where ashlar-bench was built with
 * jemalloc, that one.
 *
 * The object keeps its cache from one list to the next, since these two functions cannot tell it to
 * begin anew; every other subject begins anew with each list.
 */
#ifndef ASHLAR_PEER_LOADED_H
#define ASHLAR_PEER_LOADED_H

#include <ashlar/status.h>

#include "bench/peers/peer.h"

/*
 * Load one, for as long as the process lives. Its name is the file's, without "lib" before and
 * ".so" behind. Its symbols stay its own (RTLD_LOCAL).
 *
 * text     FILE, or FILE:ALLOC,FREE where the functions have other names
 *
 * Threads: one at a time, and none may ask for peers.
 * Errors:  ASHLAR_EINVAL: no such file, not a shared object, no such function, a name that is no
 *          subject's, or is one's already; more than ASHLAR_PEERS_LOADED_MAX. Then nothing is
 *          added.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__peer_load(const char *text);

/* The i-th of those loaded, in that order; NULL: there are no more. */
const ashlar_peer *ashlar__peer_loaded(size_t i);

bool ashlar__peer_is_loaded(const ashlar_peer *peer);

/* The alignment that every block must have. */
enum { ASHLAR_PEER_ALIGNMENT = 16 };

/*
 * Load an object as ashlar__peer_load() does, and have it serve a few thousand blocks of 64 bytes
 * to 1 MiB on one stream, some tens of them at once; what is in them is left alone. In this process
 * nothing is loaded.
 *
 * text     as ashlar__peer_load()'s
 * device   as ashlar_device_open()'s name
 *
 * Threads: one at a time; a process without other threads, which has not opened a CUDA device.
 * Errors:  those of ashlar__peer_load() and ashlar_device_open(); ASHLAR_EINVAL: it returned NULL,
 *          a block that is not aligned, or one that shares bytes with another; it ended the
 *          process, or was at it for a minute. ASHLAR_EIO: there can be no other process.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__peer_trial(const char *text, const char *device);

#endif /* ASHLAR_PEER_LOADED_H */
