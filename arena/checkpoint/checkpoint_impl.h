/* checkpoint_impl.h - shared by saving and loading a checkpoint: prefixes of names (internal). */
#ifndef ASHLAR_CHECKPOINT_IMPL_H
#define ASHLAR_CHECKPOINT_IMPL_H

#include <ashlar/checkpoint.h>

/* The prefix that a tensor's name gets in the file for its part of `region`. NULL: not saved. */
const char *ashlar__checkpoint_prefix(ashlar_region region);

#endif /* ASHLAR_CHECKPOINT_IMPL_H */
