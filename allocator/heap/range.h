/*
 * range.h - device addresses and the memory behind them, in chunks (internal).
 *
 * Two back ends. With virtual memory management (range_vmm.c) one range of addresses is reserved,
 * and chunks of physical memory are mapped wherever the heap wants them, and can move. Without it
 * (range_segments.c) a chunk is a segment from cuMemAlloc or cuMemHostAlloc, which lies where the
 * driver puts it. Then base is 0, and an offset is an address.
 *
 * Invariants (ashlar__range_is_sound; i and i + 1 are chunks that are not gone):
 *   chunks[i].offset + chunks[i].bytes <= chunks[i + 1].offset,  chunks[i].bytes > 0
 *   the last chunk's offset plus its bytes <= bytes of the range
 *   mapped_bytes == sum of chunks[i].bytes,  chunk_count <= chunk_capacity
 *   the device may use all chunks, and no other byte of [base, base + bytes)
 *   with virtual memory: offsets and bytes of chunks are multiples of granularity
 */
#ifndef ASHLAR_RANGE_H
#define ASHLAR_RANGE_H

#include "allocator/device/device_impl.h"
#include "allocator/trace/trace_ring.h"

/* One allocator's access to the driver, which counts the allocator's calls. */
typedef struct ashlar_driver_client {
    ashlar_device *device; /* const */
    ashlar_trace *trace;   /* const; records what is mapped and unmapped; NULL: no trace is kept */
    uint64_t calls;        /* Lock: the allocator's, as for the fields below */
    unsigned int mode;     /* the thread's capture mode before a call, restored after it */
    cu_result refusal;     /* the driver's error if the call could not even be made */
} ashlar_driver_client;

static inline cu_result ashlar__driver_client_begin(ashlar_driver_client *client) {
    client->calls++;
    client->refusal = ashlar__driver_relax(client->device->driver, &client->mode);
    return client->refusal;
}

static inline cu_result ashlar__driver_client_end(const ashlar_driver_client *client,
                                                  cu_result result) {
    ashlar__driver_unrelax(client->device->driver, client->mode);
    return result;
}

/* One call to the driver. It invalidates no capture of this thread or another. */
#define ASHLAR_CALL(client, field, args)                                                        \
    (ashlar__driver_client_begin(client) == CU_SUCCESS                                          \
         ? ashlar__driver_client_end((client),                                                  \
                                     ASHLAR_DRIVER_CALL((client)->device->driver, field, args)) \
         : (client)->refusal)

/* The size of the largest chunk. A chunk is unmapped whole or not at all, so trim and gather may
 * miss the size that they were asked for by up to this much. */
#define ASHLAR_CHUNK_BYTES ((size_t)32 << 20)

enum { ASHLAR_PEERS_MAX = 31 };

typedef struct ashlar_chunk {
    size_t offset;
    size_t bytes;
    cu_mem_handle handle; /* 0 in a range of segments */
    size_t moved_from;    /* its offset before ashlar__range_move() */
    bool is_chosen;       /* is about to be unmapped or moved */
    bool is_gone;         /* no longer mapped, and about to be forgotten */
} ashlar_chunk;

typedef enum ashlar_range_kind {
    ASHLAR_RANGE_VIRTUAL,  /* device memory, mapped; or in segments if the device cannot map */
    ASHLAR_RANGE_SEGMENTS, /* device memory in segments */
    ASHLAR_RANGE_HOST,     /* page-locked host memory in segments, which every device may use */
} ashlar_range_kind;

typedef struct ashlar_range_ops ashlar_range_ops;
typedef struct ashlar_segment_calls ashlar_segment_calls;

/* Lock: the allocator's guards every field except those marked const. */
typedef struct ashlar_range {
    ashlar_driver_client *client;         /* const */
    const ashlar_range_ops *ops;          /* const */
    const ashlar_segment_calls *segments; /* const; NULL: with virtual memory */
    cu_ptr base;                          /* const */
    size_t bytes;                         /* const; of addresses */
    size_t granularity;                   /* const; of physical memory */
    ashlar_range_kind kind;               /* const */
    size_t memory_bytes;                  /* const; physical memory of `kind`, in all */
    size_t limit_bytes;      /* no more is mapped than this; lowering it unmaps nothing */
    size_t growth_min_bytes; /* map at least this much at once, if there is room */
    size_t mapped_bytes;
    ashlar_chunk *chunks; /* in address order */
    size_t chunk_count;
    size_t chunk_capacity;
    int peers[ASHLAR_PEERS_MAX]; /* ordinals of other devices that may use the memory */
    size_t peer_count;
} ashlar_range;

/* What the two back ends do differently. Before a call, range.c has checked the limit and reserved
 * room for the chunks. */
struct ashlar_range_ops {
    size_t growth_divisor; /* map mapped_bytes / growth_divisor at once, within limits */
    /* As ashlar__range_map(). */
    ashlar_status (*map)(ashlar_range *range, size_t *offset, size_t bytes);
    /* As ashlar__range_unmap(). */
    ashlar_status (*unmap)(ashlar_range *range, ashlar_chunk *chunk);
    /* As ashlar__range_move(); NULL if chunks cannot move. */
    ashlar_status (*move)(ashlar_range *range, size_t offset);
    /* As ashlar__range_allow_peer(), for a device that is no peer yet. */
    ashlar_status (*allow_peer)(ashlar_range *range, int ordinal);
    /* Return everything to the driver. Failures are ignored, since nothing could be done. */
    void (*finish)(ashlar_range *range);
};

/* How segments of one kind of memory are taken and freed. Call them in the device's context. */
struct ashlar_segment_calls {
    const char *take_name; /* CUDA's names of the two calls */
    const char *free_name;
    cu_result (*take)(ashlar_range *range, cu_ptr *ptr, size_t bytes);
    cu_result (*free)(ashlar_range *range, cu_ptr ptr);
};

/*
 * Open a range with nothing mapped. With virtual memory, this reserves addresses, several times as
 * many as the device has memory.
 *
 * Errors: as ashlar_allocator_create().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_init(ashlar_range *range,
                                                   ashlar_driver_client *client,
                                                   ashlar_range_kind kind);

/* Unmap and return everything. The device must no longer use any of it. */
void ashlar__range_finish(ashlar_range *range);

/* How many bytes of new memory are worth mapping at once. */
size_t ashlar__range_growth_bytes(const ashlar_range *range);

/* Bytes that may still be mapped under the limit. */
size_t ashlar__range_left(const ashlar_range *range);

/*
 * Map `bytes` of new memory at *offset, where nothing is mapped. A range of segments ignores
 * *offset, and writes the segment's offset to it. All or nothing.
 *
 * bytes   > 0, a multiple of granularity
 * Errors: ASHLAR_ENOMEM (the limit, before any driver call; the device), ASHLAR_EDRIVER,
 *         ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_map(ashlar_range *range, size_t *offset,
                                                  size_t bytes);

/*
 * Return a chunk's memory to the device. Then the chunk is gone, but its entry stays until
 * ashlar__range_forget_gone(), so that the caller can see what it was.
 *
 * Errors: ASHLAR_EDRIVER. The chunk is as before; or it is gone all the same, if it had been
 *         unmapped and could not be mapped again: is_gone tells.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_unmap(ashlar_range *range, ashlar_chunk *chunk);

/*
 * Move the chosen chunks to lie one behind another from `offset` on, where nothing is mapped. They
 * stay chosen, and moved_from says where they were.
 *
 * Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM; every chunk is as before, or gone as in
 *         ashlar__range_unmap().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_move(ashlar_range *range, size_t offset);

/* Drop the entries of chunks that are gone. */
void ashlar__range_forget_gone(ashlar_range *range);

/*
 * Let device `ordinal` use what is mapped, and all that will be.
 * Errors: ASHLAR_ENOTSUP (segments, too many peers, no such peer), ASHLAR_EDRIVER, ASHLAR_ENOMEM;
 *         then that device may use nothing more than before.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_allow_peer(ashlar_range *range, int ordinal);

/* Whether the invariants above hold, but for what the device may use. O(chunks), for assertions. */
bool ashlar__range_is_sound(const ashlar_range *range);

/* Whether granularity is a power of two, and `bytes` a multiple of it. For assertions. */
static inline bool ashlar__range_is_granular(const ashlar_range *range, size_t bytes) {
    const size_t granularity = range->granularity;
    return granularity > 0 && (granularity & (granularity - 1)) == 0 && bytes % granularity == 0;
}

/* ---- for the back ends ---- */

ASHLAR_MUST_CHECK ashlar_status ashlar__range_vmm_init(ashlar_range *range);
void ashlar__range_segments_init(ashlar_range *range);

/* Note a chunk that is now mapped, in an entry that was reserved for it. */
void ashlar__range_add(ashlar_range *range, size_t offset, size_t bytes, cu_mem_handle handle);

/* Note that a chunk is not mapped any more. */
void ashlar__range_lose(ashlar_range *range, ashlar_chunk *chunk);

/* Tell the trace, if there is one, what happened to memory. */
void ashlar__range_trace(const ashlar_range *range, ashlar_trace_action action, size_t offset,
                         size_t bytes);

/* Put the chunks in address order again. */
void ashlar__range_sort(ashlar_range *range);

/* A driver's refusal as a status: `what` is CUDA's name of the call. */
ashlar_status ashlar__range_refuse(const ashlar_range *range, const char *what, cu_result result);

#endif /* ASHLAR_RANGE_H */
