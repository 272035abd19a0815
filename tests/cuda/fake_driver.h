/*
 * fake_driver.h - what the fake libraries of CUDA want of the fake driver that they stand on.
 */
#ifndef ASHLAR_FAKE_DRIVER_H
#define ASHLAR_FAKE_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include "allocator/driver/cuda_abi.h"

/* Set *function to one of the driver's, which must have it. `version` is of the signature. */
void fake_find(const char *name, int version, void *function);
/* The same for one that only the stand-in has. */
void fake_find_own(const char *name, void *function);

/* Queue fn(job) on a stream. */
cu_result fake_launch(cu_stream stream, cu_host_fn fn, void *job);
/* Zeroed memory for a queued job, until the process ends: a graph may run it again and again. */
void *fake_keep(size_t bytes);
/* Whether the calling thread has a context. */
bool fake_has_context(void);

#endif /* ASHLAR_FAKE_DRIVER_H */
