/* subject.h - what the benchmark of streams asks of an allocator, and the allocators it has
 * (internal). */
#ifndef ASHLAR_STREAMS_SUBJECT_H
#define ASHLAR_STREAMS_SUBJECT_H

#include <ashlar/device.h>

/* Threads: one. The device's context is current in each call. */
typedef struct ashlar_streams_subject {
    const char *name;
    ashlar_status (*create)(ashlar_device *device, void **self);
    void (*destroy)(void *self);                                   /* also with live blocks */
    void *(*take)(void *self, size_t bytes, ashlar_stream stream); /* NULL: no memory */
    void (*give)(void *self, void *ptr);
    /* As ashlar_record_stream() and ashlar_free_on(). NULL: the subject knows one stream for each
     * block, so the program makes that one wait for the others before it gives the block back. */
    ashlar_status (*record)(void *self, void *ptr, ashlar_stream stream);
    ashlar_status (*give_on)(void *self, void *ptr,
                             ashlar_stream stream); /* or `record` and give */
} ashlar_streams_subject;

/* A pool for each stream, in the manner of PyTorch's: memory is bound to the stream that it was
 * first taken for, until none is left and every unused piece goes back to the driver. */
extern const ashlar_streams_subject ashlar__streams_per_stream;

/* The i-th: ashlar, cub in builds that have it, per_stream. False: there are fewer. */
bool ashlar__streams_subject(size_t i, ashlar_streams_subject *out);

#endif /* ASHLAR_STREAMS_SUBJECT_H */
