/*
 * checkpoint_impl.h - what saving and loading a checkpoint agree on (internal).
 */
#ifndef ASHLAR_CHECKPOINT_IMPL_H
#define ASHLAR_CHECKPOINT_IMPL_H

#include <ashlar/checkpoint.h>

/* What comes before a tensor's name for its part of a region; NULL: the region is not saved. */
const char *ashlar__checkpoint_prefix(ashlar_region region);

#endif /* ASHLAR_CHECKPOINT_IMPL_H */
