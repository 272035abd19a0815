/*
 * range.h - device addresses, and the memory that is mapped behind them (internal).
 *
 * Two back ends. With virtual memory management (range_vmm.c) one range of addresses is reserved.
 * Memory comes in handles of one size, which can be mapped at any multiple of that size, unmapped
 * and mapped elsewhere. Without it (range_segments.c) memory comes in segments from cuMemAlloc or
 * cuMemHostAlloc, which lie where the driver puts them; or, to be shared, from cuMemCreate
 * (range_shared.c). Then base is 0, and an offset is an address.
 *
 * Invariants (ashlar__range_is_sound):
 *   mapped_bytes <= memory_bytes,  next_offset <= bytes
 *   spare_count <= spare_capacity,  spare_count * handle_bytes <= mapped_bytes
 *   the device may use all mapped handles, and no other byte of [base, base + bytes)
 */
#ifndef ASHLAR_RANGE_H
#define ASHLAR_RANGE_H

#include "allocator/device/device_impl.h"
#include "allocator/trace/trace.h"

/* One allocator's access to the driver, which counts the allocator's calls. */
typedef struct ashlar_driver_client {
    ashlar_device *device; /* const */
    ashlar_trace *trace;   /* const; records what is mapped and unmapped; NULL: no trace is kept */
    uint64_t calls;        /* Lock: the allocator's, for this and the fields below */
    cu_stream beside_legacy; /* NULL before it is needed; see stream_state.c */
    bool watches_streams;  /* streams may end unannounced: the driver sees a handle only in calls
                              that name it */
    bool has_stream_ids;   /* the driver can tell streams apart that had the same handle */
    bool records_at_calls; /* each call that names a watched stream records an event on it */
    bool is_wanting;       /* a request looks for memory: events recorded now are late */
    uint64_t free_count;   /* deferred frees so far (deferred_free.c) */
} ashlar_driver_client;

/* Make and count one driver call. */
#define ASHLAR_CALL(client, field, args) \
    ((client)->calls++, ASHLAR_DRIVER_CALL((client)->device->driver, field, args))

/*
 * A handle's size by default. A handle is mapped and unmapped as a whole, so one small live block
 * keeps all of it from being used elsewhere; but smaller handles cost more driver calls.
 */
#define ASHLAR_HANDLE_BYTES ((size_t)2 << 20)

enum { ASHLAR_PEERS_MAX = 31 };

typedef enum ashlar_range_kind {
    ASHLAR_RANGE_VIRTUAL,  /* mapped device memory; falls back to segments if the device cannot
                              map */
    ASHLAR_RANGE_SEGMENTS, /* device memory in segments */
    ASHLAR_RANGE_HOST,     /* page-locked host memory in segments, which every device may use */
    ASHLAR_RANGE_SHARED,   /* device memory in segments, each one handle that can be shared */
} ashlar_range_kind;

typedef struct ashlar_segment_calls ashlar_segment_calls;

/* Lock: the allocator's guards every field except those marked const. */
typedef struct ashlar_range {
    ashlar_driver_client *client;         /* const */
    const ashlar_segment_calls *segments; /* const; NULL: with virtual memory */
    cu_ptr base;                          /* const */
    size_t bytes;                         /* const; of addresses */
    size_t handle_bytes;                  /* const; of a handle; segments are multiples of it */
    unsigned handle_shift;                /* const; handle_bytes == 1 << handle_shift */
    ashlar_range_kind kind;               /* const */
    size_t memory_bytes;                  /* const; all physical memory of `kind` */
    size_t limit_bytes;      /* the most that may be taken; lowering it returns no memory */
    size_t growth_min_bytes; /* segments: take at least this much at a time, if there is room */
    size_t mapped_bytes;     /* taken from the driver: mapped memory and spare handles */
    size_t next_offset;      /* addresses from here on are in no window yet */
    cu_mem_handle *spare;    /* [spare_count], handles that are mapped nowhere */
    size_t spare_count;
    size_t spare_capacity;
    int peers[ASHLAR_PEERS_MAX]; /* ordinals of other devices that may use the memory */
    size_t peer_count;
    cu_mem_prop shared;   /* ASHLAR_RANGE_SHARED: how handles are made */
    bool keeps_addresses; /* the driver refused an unmap, and mapped addresses must not be freed */
} ashlar_range;

/*
 * Open a range with nothing mapped. With virtual memory, this reserves many times as many addresses
 * as the device has memory.
 *
 * handle_bytes   the size of a handle, rounded up to a size the driver supports; 0: the default
 * Errors: as for ashlar_allocator_create().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_init(ashlar_range *range,
                                                   ashlar_driver_client *client,
                                                   ashlar_range_kind kind, size_t handle_bytes);

/* Return the spare handles and the addresses. Everything else must have been returned before. */
void ashlar__range_finish(ashlar_range *range);

/* Bytes that may still be taken under the limit. */
size_t ashlar__range_left(const ashlar_range *range);

/* Whether the invariants at the top hold, except the one about what the device may use. */
bool ashlar__range_is_sound(const ashlar_range *range);

/* ---- handles: only with virtual memory ---- */

/* Make room for `count` spare handles in all. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_reserve_spare(ashlar_range *range, size_t count);

/*
 * Take a new handle from the device; it becomes spare. Room must have been made for it.
 * Errors: ASHLAR_ENOMEM (beyond the limit, found before any driver call; refused by the device),
 *         ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_create(ashlar_range *range);

/* Return the newest spare handle to the device. Errors: ASHLAR_EDRIVER; then it is still spare. */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_release(ashlar_range *range);

/*
 * Map the newest `count` spare handles at `offset`, oldest first; nothing may be mapped there. They
 * stay in `spare`, behind its new end. If this fails, none of them is mapped. Errors:
 * ASHLAR_EDRIVER, ASHLAR_ENOMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_map(ashlar_range *range, size_t offset, size_t count);

/* Unmap the handle that is mapped at `offset`; it becomes spare. Errors: ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_unmap(ashlar_range *range, size_t offset,
                                                    cu_mem_handle handle);

/*
 * Like ashlar__range_unmap(), but without an error: if the driver refuses, nobody keeps the handle,
 * and the range's addresses are never freed.
 */
void ashlar__range_abandon(ashlar_range *range, size_t offset);

/*
 * _open: give a device access to [offset, offset + bytes), which must all be mapped. _close: end
 * it.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_open(ashlar_range *range, size_t offset, size_t bytes,
                                                   int ordinal);
void ashlar__range_close(ashlar_range *range, size_t offset, size_t bytes, int ordinal);

/* ---- segments: only without virtual memory ---- */

/*
 * Take a segment of `bytes`, a multiple of handle_bytes. *offset is where it lies.
 * Errors: ASHLAR_ENOMEM (beyond the limit, found before any driver call; refused by the device),
 *         ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_take_segment(ashlar_range *range, size_t bytes,
                                                           size_t *offset);

/* Return a segment to the driver. Errors: ASHLAR_EDRIVER; then it is as before. */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_free_segment(ashlar_range *range, size_t offset,
                                                           size_t bytes);

/* ---- for the back ends ---- */

/*
 * The calls that take and free segments of one kind of memory. Call them in the device's context.
 */
struct ashlar_segment_calls {
    /* *call: CUDA's name of the call that failed. */
    cu_result (*take)(ashlar_range *range, cu_ptr *ptr, size_t bytes, const char **call);
    cu_result (*free)(ashlar_range *range, cu_ptr ptr, size_t bytes, const char **call);
};

ASHLAR_MUST_CHECK ashlar_status ashlar__range_vmm_init(ashlar_range *range, size_t handle_bytes);
void ashlar__range_vmm_finish(ashlar_range *range);
void ashlar__range_segments_init(ashlar_range *range);
/* Make the range one of segments that can be shared. Call it after
 * ashlar__range_segments_init(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_shared_init(ashlar_range *range);

/* Let the device and its peers use [offset, offset + bytes), all of which is mapped. */
cu_result ashlar__range_open_to_all(ashlar_range *range, size_t offset, size_t bytes);

/* Whether `bytes` more are within the limit. Errors: ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_allows(const ashlar_range *range, size_t bytes);

/* Tell the trace, if there is one, what happened to memory. */
void ashlar__range_trace(const ashlar_range *range, ashlar_trace_action action, size_t offset,
                         size_t bytes);

/* A driver's refusal as a status: `what` is CUDA's name of the call. */
ashlar_status ashlar__range_refuse(const ashlar_range *range, const char *what, cu_result result);

#endif /* ASHLAR_RANGE_H */
