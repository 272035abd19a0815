/*
 * cudart.h - the few functions of CUDA's runtime that CUB's allocator calls, on an ashlar_device,
 * which may be a software device (internal).
 *
 * They let the benchmark measure CUB on the same device as the other subjects. They are linked
 * statically into the benchmark and never installed; cuda_runtime_api.h declares them.
 */
#ifndef ASHLAR_CUDART_H
#define ASHLAR_CUDART_H

#include <ashlar/device.h>

ASHLAR_BEGIN_DECLS

/* Choose the one device that the runtime's functions act on from now on. Call this before any of
 * them, and while no other thread is in one of them. */
void ashlar__cudart_use(ashlar_device *device);

ASHLAR_END_DECLS

#endif /* ASHLAR_CUDART_H */
