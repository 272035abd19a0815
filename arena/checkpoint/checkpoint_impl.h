/* checkpoint_impl.h - what saving and loading share: the regions of an arena, and where they lie
 * (internal). */
#ifndef ASHLAR_CHECKPOINT_IMPL_H
#define ASHLAR_CHECKPOINT_IMPL_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/arena.h>
#include <ashlar/device.h>

/* ---- region pieces ---- */

/*
 * A region of device memory as pieces in host memory, two at a time, so that one
 * is copied while the other is written to a file or read from one (internal).
 *
 * Piece i is the region's bytes from i * ASHLAR_PIECE_BYTES on; the last one may be shorter. A
 * piece is small enough to stay in the processor's caches from one use to the next.
 *
 * Threads: one at a time.
 */

enum { ASHLAR_PIECE_BYTES = 1 << 20 };

/* Starts as zeros. */
typedef struct ashlar_region_pieces {
    ashlar_device *device;
    ashlar_stream stream;
    char *region; /* device, [bytes]; NULL: none is open */
    size_t bytes;
    char *buffers;      /* host, [2, piece_bytes]; piece i lies in buffer i % 2 */
    size_t piece_bytes; /* room of a buffer: ASHLAR_PIECE_BYTES, or less if no region is larger */
    size_t held[2];     /* 1 + the piece in each buffer; 0: none */
    bool is_pending;    /* a copy is queued that nobody has waited for */
} ashlar_region_pieces;

/* Take the two buffers, for regions of up to `most` bytes, 1.. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__region_pieces_init(ashlar_region_pieces *pieces,
                                                           ashlar_device *device,
                                                           ashlar_stream stream, size_t most);

/* Wait for what is queued, and free the buffers. Call it also after a failure, once. The status is
 * that of the wait; ASHLAR_OK for zeros. */
ASHLAR_MUST_CHECK ashlar_status ashlar__region_pieces_finish(ashlar_region_pieces *pieces);

/* Go to another region; every piece of it is as the device has it. */
void ashlar__region_pieces_open(ashlar_region_pieces *pieces, void *region, size_t bytes);

/* Find byte `offset` of the region in host memory. Its piece is copied there if it is not there
 * yet, and the copy of the next piece is queued.
 *
 * at      the byte; valid until the next call
 * bytes   how many bytes follow from there in its piece, 1..
 * Errors: those of ashlar_copy_to_host(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__region_pieces_read(ashlar_region_pieces *pieces,
                                                           size_t offset, const char **at,
                                                           size_t *bytes);

/* For tests: if `forces` is not 0, checkpoints go through pieces on software devices, too, as they
 * do on GPUs. */
void ashlar__region_pieces_force(int forces);

/* Where regions lie in host memory. NULL: not there, or there is none. */
typedef struct ashlar_checkpoint_images {
    char *of[ASHLAR_REGION_COUNT];
} ashlar_checkpoint_images;

#endif /* ASHLAR_CHECKPOINT_IMPL_H */
