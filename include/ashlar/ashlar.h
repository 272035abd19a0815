/* ashlar.h - all of libashlar: includes every public header, except those that belong to programs
 * of the CUDA runtime (cuda_dropin.h) and to C++. Programs need C11 or C++11, or any later one. */
#ifndef ASHLAR_ASHLAR_H
#define ASHLAR_ASHLAR_H

#include <ashlar/arena.h>
#include <ashlar/checkpoint.h>
#include <ashlar/dtype.h>
#include <ashlar/flatten.h>
#include <ashlar/memory.h>
#include <ashlar/model.h>
#include <ashlar/network.h>
#include <ashlar/optimizer.h>
#include <ashlar/ranks.h>
#include <ashlar/reduce.h>
#include <ashlar/replica.h>
#include <ashlar/rnn.h>
#include <ashlar/rnn_layout.h>
#include <ashlar/schedule.h>

#endif /* ASHLAR_ASHLAR_H */
