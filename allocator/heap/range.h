/*
 * range.h - device addresses and the memory behind them, in chunks (internal).
 *
 * Two back ends. With virtual memory management (range_vmm.c) one range of addresses is reserved,
 * chunks of physical memory are mapped wherever the heap wants them, and can move. Without it
 * (range_segments.c) a chunk is a segment of cuMemAlloc or cuMemHostAlloc, which lies where the
 * driver puts it: base is 0 then, and an offset is an address.
 *
 * Invariants:
 *   mapped_bytes == sum of the chunks' bytes <= the largest limit_bytes there was
 *   the chunks are in address order and do not overlap; all of them are accessible, and no byte of
 *   [base, base + bytes) besides
 *   with virtual memory, a chunk's offset and bytes are multiples of granularity
 */
#ifndef ASHLAR_RANGE_H
#define ASHLAR_RANGE_H

#include "allocator/device/device_impl.h"
#include "allocator/trace/trace_ring.h"

/* The driver as one allocator sees it: every call counted twice, for the process and for it. */
typedef struct ashlar_driver_client {
    ashlar_device *device; /* const */
    ashlar_trace *trace;   /* const; told of what is mapped and unmapped; NULL: none is kept */
    uint64_t calls;        /* Lock: the allocator's, as for what follows */
    unsigned int mode;     /* the thread's way with captures, to be given back after the call */
    cu_result refusal;     /* why a call was not even made */
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

/* One call, which spoils no capture of this thread or another. */
#define ASHLAR_CALL(client, field, args)                                                        \
    (ashlar__driver_client_begin(client) == CU_SUCCESS                                          \
         ? ashlar__driver_client_end((client),                                                  \
                                     ASHLAR_DRIVER_CALL((client)->device->driver, field, args)) \
         : (client)->refusal)

/* A mapping can only be unmapped whole: the largest chunk is what trim and gather can miss by. */
#define ASHLAR_CHUNK_BYTES ((size_t)32 << 20)

enum { ASHLAR_PEERS_MAX = 31 };

typedef struct ashlar_chunk {
    size_t offset;
    size_t bytes;
    cu_mem_handle handle; /* 0 in a range of segments */
    size_t moved_from;    /* its offset before ashlar__range_move() */
    bool is_chosen;       /* to be unmapped or moved */
    bool is_gone;         /* no longer mapped: to be forgotten */
} ashlar_chunk;

typedef enum ashlar_range_kind {
    ASHLAR_RANGE_VIRTUAL,  /* device memory, mapped; in segments where the device cannot do that */
    ASHLAR_RANGE_SEGMENTS, /* device memory in segments */
    ASHLAR_RANGE_HOST,     /* page-locked host memory in segments, which every device may use */
} ashlar_range_kind;

typedef struct ashlar_range_ops ashlar_range_ops;
typedef struct ashlar_segment_calls ashlar_segment_calls;

/* Lock: the allocator's guards every field except those marked const. */
typedef struct ashlar_range {
    ashlar_driver_client *client;         /* const */
    const ashlar_range_ops *ops;          /* const */
    const ashlar_segment_calls *segments; /* const; NULL: chunks are no segments */
    cu_ptr base;                          /* const */
    size_t bytes;                         /* const; of addresses */
    size_t granularity;                   /* const; of physical memory */
    ashlar_range_kind kind;               /* const */
    size_t memory_bytes;                  /* const; physical memory of that kind */
    size_t limit_bytes;      /* anyone may set it; memory above it stays until trimmed */
    size_t growth_min_bytes; /* growth is as large as this, where there is room */
    size_t mapped_bytes;
    ashlar_chunk *chunks; /* in address order */
    size_t chunk_count;
    size_t chunk_capacity;
    int peers[ASHLAR_PEERS_MAX]; /* ordinals of other devices that may use the memory */
    size_t peer_count;
} ashlar_range;

/* What the two back ends do differently. range.c has checked limits and reserved entries. */
struct ashlar_range_ops {
    size_t growth_divisor; /* growth is this part of what is mapped */
    /* Take `bytes` at *offset, or put where they are into *offset. All or nothing. */
    ashlar_status (*map)(ashlar_range *range, size_t *offset, size_t bytes);
    /* As ashlar__range_unmap(). */
    ashlar_status (*unmap)(ashlar_range *range, ashlar_chunk *chunk);
    /* As ashlar__range_move(); NULL where chunks cannot move. */
    ashlar_status (*move)(ashlar_range *range, size_t offset);
    /* As ashlar__range_allow_peer(), for a device that is new. */
    ashlar_status (*allow_peer)(ashlar_range *range, int ordinal);
    /* Return everything. Failures are past mending. */
    void (*finish)(ashlar_range *range);
};

/* How segments of one sort of memory are taken and returned; the device's context is current. */
struct ashlar_segment_calls {
    const char *take_name; /* CUDA's, of the two calls */
    const char *free_name;
    cu_result (*take)(ashlar_range *range, cu_ptr *ptr, size_t bytes);
    cu_result (*free)(ashlar_range *range, cu_ptr ptr);
};

/*
 * Prepare to map; reserve addresses, several times the device's memory, for ASHLAR_RANGE_VIRTUAL.
 *
 * Errors: as ashlar_allocator_create().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_init(ashlar_range *range,
                                                   ashlar_driver_client *client,
                                                   ashlar_range_kind kind);

/* Unmap and return everything. The device must be done with it. */
void ashlar__range_finish(ashlar_range *range);

/* How much new memory is worth taking at once. */
size_t ashlar__range_growth_bytes(const ashlar_range *range);

/* What may still be mapped. */
size_t ashlar__range_left(const ashlar_range *range);

/*
 * Map `bytes` of new memory at *offset, where nothing is mapped; a range of segments writes to
 * *offset where they are. All or nothing.
 *
 * bytes   a multiple of granularity
 * Errors: ASHLAR_ENOMEM (the limit, before any driver call; the device), ASHLAR_EDRIVER,
 *         ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_map(ashlar_range *range, size_t *offset,
                                                  size_t bytes);

/*
 * Return a chunk's memory to the device. The chunk is gone then: its entry stays, for the caller
 * to note what it was, until ashlar__range_forget_gone().
 *
 * Errors: ASHLAR_EDRIVER; the chunk is as before, or gone all the same where it could not be
 *         mapped again: is_gone says which.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_unmap(ashlar_range *range, ashlar_chunk *chunk);

/*
 * Map the chosen chunks one behind another from `offset` on, where nothing is mapped, and nowhere
 * else. They stay chosen, and say in moved_from where they were. Contents are lost to the heap.
 *
 * Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM; every chunk is as before, or gone as above.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_move(ashlar_range *range, size_t offset);

void ashlar__range_forget_gone(ashlar_range *range);

/*
 * Let device `ordinal` use what is mapped, and all that will be.
 * Errors: ASHLAR_ENOTSUP (segments, too many peers, no such peer), ASHLAR_EDRIVER, ASHLAR_ENOMEM;
 *         then that device may use nothing more than before.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_allow_peer(ashlar_range *range, int ordinal);

/* ---- for the back ends ---- */

ASHLAR_MUST_CHECK ashlar_status ashlar__range_vmm_init(ashlar_range *range);
void ashlar__range_segments_init(ashlar_range *range);

/* Note a chunk that is now mapped; there is an entry for it. */
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
