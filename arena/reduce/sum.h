/* sum.h - adds up gradients elementwise, always to the same bits (internal). */
#ifndef ASHLAR_SUM_H
#define ASHLAR_SUM_H

#include <stddef.h>

#include <ashlar/arena.h>
#include <ashlar/device.h>
#include <ashlar/base.h>

/* to[i] += from[i]. F16 and BF16 are added in F32 and rounded. Except for NaNs, a + b and b + a
 * have the same bits. Threads: any. */
void ashlar__sum_add(ashlar_dtype dtype, void *to, const void *from, size_t count);

/* Queue ashlar__sum_add() on a software device. Errors: those of ashlar_launch(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__sum_queue_add(ashlar_device *device, ashlar_dtype dtype,
                                                      void *to, const void *from, size_t count,
                                                      ashlar_stream stream);

/* Queue the addition of all gradients of an arena on a software device: its gradient region +=
 * `from`, which has the region's layout. Errors: those of ashlar_launch(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__sum_add_gradients(const ashlar_arena *arena,
                                                          const void *from, ashlar_stream stream);

#endif /* ASHLAR_SUM_H */
