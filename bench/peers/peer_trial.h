/*
 * peer_trial.h - whether a shared object is fit to be measured: it is tried in a process of its
 * own, which it may bring down (internal).
 */
#ifndef ASHLAR_PEER_TRIAL_H
#define ASHLAR_PEER_TRIAL_H

#include <ashlar/status.h>

/* What every block of a subject has to be aligned to. */
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

#endif /* ASHLAR_PEER_TRIAL_H */
