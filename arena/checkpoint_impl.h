/*
 * checkpoint_impl.h - what saving and loading a checkpoint agree on (internal).
 */
#ifndef ASHLAR_CHECKPOINT_IMPL_H
#define ASHLAR_CHECKPOINT_IMPL_H

#include <ashlar/checkpoint.h>

/* What comes before a tensor's name for its part of a region; NULL: the region is not saved. */
const char *ashlar_checkpoint_prefix(ashlar_region region);

/* Whether a tensor of `dtype` has a part in the region, and its type there. */
bool ashlar_checkpoint_has(ashlar_region region, ashlar_dtype dtype);
ashlar_dtype ashlar_checkpoint_dtype(ashlar_region region, ashlar_dtype dtype);

#endif /* ASHLAR_CHECKPOINT_IMPL_H */
