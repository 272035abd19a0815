/*
 * cudart.h - the few functions of CUDA's runtime that CUB's allocator calls, on a device of ours
 * (internal).
 *
 * For the benchmark, where CUB is to be compared on the same device; linked statically and never
 * installed. The functions are cuda_runtime_api.h's own.
 */
#ifndef ASHLAR_CUDART_H
#define ASHLAR_CUDART_H

#include <ashlar/device.h>

ASHLAR_BEGIN_DECLS

/*
 * The one device that the runtime's functions act on from now on; it must be chosen before the
 * first call of any. Threads: no other may be in a call.
 */
void ashlar__cudart_use(ashlar_device *device);

ASHLAR_END_DECLS

#endif /* ASHLAR_CUDART_H */
