/* ashlar.h - all of libashlar: includes every public header, except those that belong to programs
 * of the CUDA runtime (cuda_dropin.h) and to C++. Programs need C11 or C++11, or any later one. */
#ifndef ASHLAR_ASHLAR_H
#define ASHLAR_ASHLAR_H

#include <ashlar/allocator.h>
#include <ashlar/arena.h>
#include <ashlar/base.h>
#include <ashlar/device.h>
#include <ashlar/model.h>
#include <ashlar/optimizer.h>
#include <ashlar/plan.h>
#include <ashlar/reduce.h>
#include <ashlar/rnn.h>
#include <ashlar/trace.h>

#endif /* ASHLAR_ASHLAR_H */
