/* buffer_source.h - where the buffers of a step come from, and who is told of them (internal). */
#ifndef ASHLAR_BUFFER_SOURCE_H
#define ASHLAR_BUFFER_SOURCE_H

#include <ashlar/allocator.h>

#include "allocator/base/random.h"

/* What a step asks for. */
typedef struct ashlar_buffer_request {
    const char *name; /* static */
    size_t bytes;
    ashlar_tag tag;
    bool is_backward; /* asked for after the step's forward pass */
} ashlar_buffer_request;

/* What is called in place of ashlar_alloc_tagged() (take) and ashlar_free() (give), with the same
 * contracts. take or give NULL: the allocator's own function is called. */
typedef struct ashlar_buffer_hooks {
    ashlar_status (*take)(void *context, const ashlar_buffer_request *request,
                          ashlar_allocator *allocator, ashlar_stream stream, void **out);
    ashlar_status (*give)(void *context, ashlar_allocator *allocator, void *ptr);
    /* A training step, with the statistics behind it, and once before the first; NULL: not wanted.
     */
    void (*queued)(void *context, size_t step, const ashlar_stats *stats);
    void *context;
} ashlar_buffer_hooks;

/* Where all steps of a task take their buffers from. */
typedef struct ashlar_buffer_source {
    const ashlar_buffer_hooks *hooks; /* NULL: the allocator's own functions */
    uint64_t address_sum;             /* a checksum of the addresses that steps and dry runs got */
} ashlar_buffer_source;

/* Take a buffer. source NULL: by the allocator's own function. */
static inline ASHLAR_MUST_CHECK ashlar_status ashlar__buffer_take(ashlar_buffer_source *source,
                                                                  const ashlar_buffer_request *r,
                                                                  ashlar_allocator *base,
                                                                  ashlar_stream stream,
                                                                  void **out) {
    const ashlar_buffer_hooks *hooks = source != NULL ? source->hooks : NULL;
    const ashlar_status status = hooks != NULL && hooks->take != NULL
                                     ? hooks->take(hooks->context, r, base, stream, out)
                                     : ashlar_alloc_tagged(base, r->bytes, r->tag, stream, out);
    if (status == ASHLAR_OK && source != NULL) {
        source->address_sum = ashlar__random_mix(source->address_sum + (uintptr_t)*out);
    }
    return status;
}

/* Give a buffer back in stream order: queued work may still use it. ptr may be NULL. */
static inline ASHLAR_MUST_CHECK ashlar_status ashlar__buffer_give(ashlar_buffer_source *source,
                                                                  ashlar_allocator *base,
                                                                  void *ptr) {
    const ashlar_buffer_hooks *hooks = source != NULL ? source->hooks : NULL;
    return hooks != NULL && hooks->give != NULL && ptr != NULL
               ? hooks->give(hooks->context, base, ptr)
               : ashlar_free(base, ptr);
}

#endif /* ASHLAR_BUFFER_SOURCE_H */
