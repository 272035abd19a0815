/* memory.h - the allocator alone: its public headers, from devices and streams to warm-ups and
 * plans, without the arena and the layers. The library to link is the same. */
#ifndef ASHLAR_MEMORY_H
#define ASHLAR_MEMORY_H

#include <ashlar/allocator.h>
#include <ashlar/config.h>
#include <ashlar/device.h>
#include <ashlar/export.h>
#include <ashlar/fit.h>
#include <ashlar/graph_pool.h>
#include <ashlar/pack.h>
#include <ashlar/plan.h>
#include <ashlar/status.h>
#include <ashlar/trace.h>
#include <ashlar/version.h>
#include <ashlar/warmup.h>

#endif /* ASHLAR_MEMORY_H */
