/* ashlar.h - all of libashlar: includes every public header, except those that belong to other
 * libraries and the one for C++. */
#ifndef ASHLAR_ASHLAR_H
#define ASHLAR_ASHLAR_H

#include <ashlar/allocator.h>
#include <ashlar/arena.h>
#include <ashlar/checkpoint.h>
#include <ashlar/config.h>
#include <ashlar/device.h>
#include <ashlar/dtype.h>
#include <ashlar/flatten.h>
#include <ashlar/graph_pool.h>
#include <ashlar/leak_monitor.h>
#include <ashlar/model.h>
#include <ashlar/network.h>
#include <ashlar/optimizer.h>
#include <ashlar/pack.h>
#include <ashlar/plan.h>
#include <ashlar/plan_file.h>
#include <ashlar/plan_list.h>
#include <ashlar/ranks.h>
#include <ashlar/reduce.h>
#include <ashlar/replica.h>
#include <ashlar/rnn.h>
#include <ashlar/schedule.h>
#include <ashlar/status.h>
#include <ashlar/trace.h>
#include <ashlar/warmup.h>

#endif /* ASHLAR_ASHLAR_H */
