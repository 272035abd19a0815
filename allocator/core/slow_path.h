/*
 * slow_path.h - what the public functions call where a thread's cache does not serve (internal).
 */
#ifndef ASHLAR_SLOW_PATH_H
#define ASHLAR_SLOW_PATH_H

#include "allocator/core/allocator_impl.h"

/* As the public functions, for whatever the calling thread's cache does not settle. */
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_slow(ashlar_allocator *allocator, size_t bytes,
                                                   ashlar_tag tag, ashlar_stream stream,
                                                   void **out);
/* The same for a request that the step under way was asked for already. */
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_unplanned(ashlar_allocator *allocator, size_t bytes,
                                                        ashlar_tag tag, ashlar_stream stream,
                                                        void **out);
ASHLAR_MUST_CHECK ashlar_status ashlar__free_slow(ashlar_allocator *allocator, void *ptr);
/* caller   where the public function returns to */
ASHLAR_MUST_CHECK ashlar_status ashlar__free_from(ashlar_allocator *allocator, void *ptr,
                                                  const void *client);

#endif /* ASHLAR_SLOW_PATH_H */
