/*
 * fit.h - how large a program may be on a device of a given size, found without such a device.
 *
 *     static ashlar_status try_batch(void *user, ashlar_allocator *memory, size_t batch) {
 *         ... take what outlives steps from `memory`, warm up with a dry run, give all back
 *     }
 *     ashlar_fit_options options = {.run = try_batch, .max_value = 4096, .device_bytes = 24 << 30};
 *     ashlar_fit(device, &options, &fit);    a software device of 24 GiB or more
 *
 * The callback does all that takes memory, and none of the work: ashlar_allocator_warmup() with a
 * dry run (warmup.h) goes through every length that way. So a trial takes milliseconds, and the
 * memory need not be there: open the software device with ASHLAR_SOFT=memory=1TiB,touch=off.
 *
 * The result is exact for what an allocator takes, in units of its memory handles. For a CUDA
 * device with cuDNN, whose work spaces have other sizes than on the CPU, it is an estimate.
 */
#ifndef ASHLAR_FIT_H
#define ASHLAR_FIT_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/allocator.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

/*
 * Try a size: take from `allocator` what the program takes at that size, and give all of it back,
 * after a failure too. Return ASHLAR_OK, or ASHLAR_ENOMEM where the memory does not suffice; any
 * other status ends the search.
 */
typedef ashlar_status (*ashlar_fit_fn)(void *user, ashlar_allocator *allocator, size_t value);

typedef struct ashlar_fit_options {
    ashlar_fit_fn run;   /* must be given */
    void *user;          /* passed to `run` */
    size_t min_value;    /* 0 stands for 1 */
    size_t max_value;    /* min_value .. ; must be given */
    size_t device_bytes; /* of the device to fit on, rounded down to 2 MiB; no more than `device`
                          * has. 0: all that `device` has */
} ashlar_fit_options;

typedef struct ashlar_fit_result {
    size_t value;      /* the largest that runs; the next one, unless it is max_value, does not */
    size_t trials;     /* calls of `run` */
    size_t need_bytes; /* the value runs on a device of this size, and not on one 2 MiB smaller */
} ashlar_fit_result;

/*
 * Find the largest value that runs on a device of device_bytes, and what it needs. The search
 * assumes that a larger value needs more. Where that is not so, the value that is found still runs
 * and the next one does not, but a larger one may.
 *
 * To learn what one value needs, give it as min_value and max_value, and a large device.
 *
 * device   a software device, whose memory is not touched; each trial has an allocator of its own
 *          there, with the options of ASHLAR_CONF
 *
 * Threads: any; no other thread may use the device's memory meanwhile.
 * Errors:  ASHLAR_ENOMEM (min_value does not run; the detail is that of its refusal),
 *          ASHLAR_EINVAL (options), ASHLAR_ENOTSUP (no software device), ASHLAR_EHOSTMEM, and what
 *          `run` returns.
 * Cost:    O(log of value and need) calls of `run`.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_fit(ashlar_device *device,
                                                      const ashlar_fit_options *options,
                                                      ashlar_fit_result *out);

ASHLAR_END_DECLS

#endif /* ASHLAR_FIT_H */
