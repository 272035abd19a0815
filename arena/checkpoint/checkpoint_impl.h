/*
 * checkpoint_impl.h - what saving and loading a checkpoint share: the names' prefixes (internal).
 */
#ifndef ASHLAR_CHECKPOINT_IMPL_H
#define ASHLAR_CHECKPOINT_IMPL_H

#include <ashlar/checkpoint.h>

/* The prefix, before the tensor's own name, of its part of a region. NULL: a region not saved. */
const char *ashlar__checkpoint_prefix(ashlar_region region);

#endif /* ASHLAR_CHECKPOINT_IMPL_H */
