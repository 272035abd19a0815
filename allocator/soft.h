/*
 * soft.h - the software device, as a program or a test sets it up (internal).
 *
 * The device itself is used through driver.h, like any other. It is described by a line of
 * `key=value` pairs, in the environment variable ASHLAR_SOFT or given by hand:
 *
 *   devices  1..16, default 1
 *   memory   bytes of each device with a unit B, KiB, MiB, GiB or TiB; 2MiB..64TiB, rounded down
 *            to a multiple of 2 MiB; default 4GiB. Host memory is taken only as it is written to.
 *   mode     eager (default)  work runs as soon as stream order allows, on the calling thread
 *            adversarial      work runs only when the host waits for it, and then in an order
 *                             drawn by `seed`: what is not ordered by the program goes wrong
 *   seed     unsigned 64-bit decimal, default 1; the same seed and the same calls of one thread
 *            give the same interleaving
 *
 * for example "devices=2,memory=4GiB,mode=adversarial,seed=7".
 */
#ifndef ASHLAR_SOFT_H
#define ASHLAR_SOFT_H

#include <ashlar/status.h>

/*
 * Start afresh with the devices that `spec` describes: work that has not run is dropped, every
 * stream, event, context, mapping and allocation is gone, and all old handles are dead. The
 * driver of ashlar_driver_open_soft() stays valid.
 *
 * spec    as above; NULL reads ASHLAR_SOFT anew (unset: the defaults), "" means the defaults
 *
 * Threads: no other thread may be in a call to the device.
 * Errors:  ASHLAR_EINVAL (spec, or called inside a host function), ASHLAR_EHOSTMEM; the old
 *          devices then stay as they were.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_soft_configure(const char *spec);

#endif /* ASHLAR_SOFT_H */
