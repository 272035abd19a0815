/*
 * trace_fixture.h - short ways to write events of a trace, for tests.
 */
#ifndef ASHLAR_TRACE_FIXTURE_H
#define ASHLAR_TRACE_FIXTURE_H

#include "allocator/trace/trace.h"

#define TRACE_ALLOC(address_, bytes_, requested_, stream_)                                      \
    { .address = (address_), .bytes = (bytes_), .requested = (requested_), .stream = (stream_), \
      .action = ASHLAR_TRACE_ALLOC }
#define TRACE_FREE(address_, bytes_, requested_, stream_)                                       \
    { .address = (address_), .bytes = (bytes_), .requested = (requested_), .stream = (stream_), \
      .action = ASHLAR_TRACE_FREE }
#define TRACE_MAP(address_, bytes_) \
    { .address = (address_), .bytes = (bytes_), .action = ASHLAR_TRACE_MAP }
#define TRACE_UNMAP(address_, bytes_) \
    { .address = (address_), .bytes = (bytes_), .action = ASHLAR_TRACE_UNMAP }
#define TRACE_OOM(free_, requested_, stream_)                                                   \
    { .bytes = (free_), .requested = (requested_), .stream = (stream_),                         \
      .action = ASHLAR_TRACE_OOM }

#endif /* ASHLAR_TRACE_FIXTURE_H */
