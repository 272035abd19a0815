/* region_pieces.c - queues the copies of a region's pieces between the device and two buffers. */
#include "arena/checkpoint/region_pieces.h"

#include <stdatomic.h>

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"

static atomic_bool is_forced;

void ashlar__region_pieces_force(int forces) {
    atomic_store(&is_forced, forces != 0);
}

bool ashlar__region_pieces_forced(void) {
    return atomic_load(&is_forced);
}

ashlar_status ashlar__region_pieces_init(ashlar_region_pieces *p, ashlar_device *device,
                                         ashlar_stream stream, size_t most) {
    ASHLAR_CHECK2(most > 0);
    *p = (ashlar_region_pieces){
        .device = device,
        .stream = stream,
        .piece_bytes = most < ASHLAR_PIECE_BYTES ? most : ASHLAR_PIECE_BYTES,
    };
    ASHLAR_HOST_NEW(p->buffers, 2 * p->piece_bytes,
                    "checkpoint: no host memory for 2 pieces of %zu bytes", p->piece_bytes);
    return ASHLAR_OK;
}

static ashlar_status wait_for_copies(ashlar_region_pieces *p) {
    if (p->is_pending) { /* still, if the wait fails: finish() tries again */
        ASHLAR_TRY(ashlar_stream_synchronize(p->device, p->stream));
        p->is_pending = false;
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__region_pieces_finish(ashlar_region_pieces *p) {
    const ashlar_status status = wait_for_copies(p);
    ashlar__host_free(p->buffers);
    *p = (ashlar_region_pieces){0};
    return status;
}

void ashlar__region_pieces_open(ashlar_region_pieces *p, void *region, size_t bytes) {
    p->region = region;
    p->bytes = bytes;
    p->held[0] = p->held[1] = 0;
}

char *ashlar__region_pieces_buffer(const ashlar_region_pieces *p, size_t offset, size_t *bytes) {
    ASHLAR_CHECK2(offset % ASHLAR_PIECE_BYTES == 0 && offset < p->bytes);
    const size_t left = p->bytes - offset;
    *bytes = left < ASHLAR_PIECE_BYTES ? left : ASHLAR_PIECE_BYTES;
    ASHLAR_CHECK2(*bytes <= p->piece_bytes);
    return p->buffers + offset / ASHLAR_PIECE_BYTES % 2 * p->piece_bytes;
}

/* Queue the copy of a piece to its buffer. Copies run in order, so one that is still queued for the
 * same buffer does no harm. */
static ashlar_status fetch(ashlar_region_pieces *p, size_t piece) {
    size_t bytes;
    char *const buffer = ashlar__region_pieces_buffer(p, piece * ASHLAR_PIECE_BYTES, &bytes);
    p->held[piece % 2] = 0;
    p->is_pending = true; /* a copy that failed may have begun */
    ASHLAR_TRY(ashlar_copy_to_host(p->device, buffer, p->region + piece * ASHLAR_PIECE_BYTES, bytes,
                                   p->stream));
    p->held[piece % 2] = piece + 1;
    return ASHLAR_OK;
}

ashlar_status ashlar__region_pieces_read(ashlar_region_pieces *p, size_t offset, const char **at,
                                         size_t *bytes) {
    const size_t piece = offset / ASHLAR_PIECE_BYTES, next = piece + 1;
    const bool is_last = next * ASHLAR_PIECE_BYTES >= p->bytes;
    const bool is_held = p->held[piece % 2] == piece + 1;
    ASHLAR_CHECK2(offset < p->bytes);
    ASHLAR_TRY(is_held ? ASHLAR_OK : fetch(p, piece));
    /* The next piece is queued only after this wait: if it is held, so is this one. */
    if (!is_held || is_last || p->held[next % 2] != next + 1) {
        ASHLAR_TRY(wait_for_copies(p));
        ASHLAR_TRY(is_last ? ASHLAR_OK : fetch(p, next));
    }
    size_t piece_bytes;
    const char *buffer = ashlar__region_pieces_buffer(p, piece * ASHLAR_PIECE_BYTES, &piece_bytes);
    *at = buffer + offset % ASHLAR_PIECE_BYTES;
    *bytes = piece_bytes - offset % ASHLAR_PIECE_BYTES;
    return ASHLAR_OK;
}

ashlar_status ashlar__region_pieces_write(ashlar_region_pieces *p, size_t offset) {
    size_t bytes;
    const char *buffer = ashlar__region_pieces_buffer(p, offset, &bytes);
    p->is_pending = true; /* a copy that failed may have begun */
    return ashlar_copy_to_device(p->device, p->region + offset, buffer, bytes, p->stream);
}
