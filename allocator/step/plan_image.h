/*
 * plan_image.h - the plans of an allocator as a file holds them: without streams or memory
 * (internal).
 *
 * A file is lines of text, each ended by '\n', of fields between commas; numbers are decimal:
 *
 *     ashlar-plan,1                      name and version of the format
 *     fingerprint,TEXT                   the caller's; the rest of the line
 *     plans,ALIGNMENT,STREAMS,KEYS       alignment of every slot, number of streams, and of keys
 *     key,KEY,STREAM,STEPS,PARTS,ALLOCS  a key: its steps' stream, how many of them were recorded
 *     part,STREAM,PLAN,BOUND             PARTS lines: a stream, the bytes of its plan and bound
 *     alloc,BYTES,TAG,PART,END,OFFSET    ALLOCS lines, in order: an allocation with a slot
 *     alloc,BYTES,TAG,PART               ... or one that is not planned
 *     end,SUM                            FNV-1a of all lines above, 16 hexadecimal digits
 *
 * Streams are numbered from 0 in the order of their first mention. PART is the number of a part
 * line of the key, from 0.
 */
#ifndef ASHLAR_PLAN_IMAGE_H
#define ASHLAR_PLAN_IMAGE_H

#include "allocator/base/parse.h"
#include "allocator/plan/plan.h"

#define ASHLAR_PLAN_FILE_NAME "ashlar-plan"

enum {
    ASHLAR_PLAN_FILE_VERSION = 1,
    ASHLAR_PLAN_FILE_KEYS_MAX = 1 << 16,
};

/*
 * Invariants: stream and streams[stream_idx] < stream_count; streams[] are all different;
 * plan->stream_count == recording.stream_count;  plan->count == recording.count
 */
typedef struct ashlar_image_key {
    uint64_t key;
    uint32_t stream; /* of its steps */
    uint32_t step_count;
    uint32_t streams[ASHLAR_PLAN_STREAMS_MAX]; /* of its allocations */
    ashlar_recording recording;                /* its stream_states are NULL */
    ashlar_plan *plan;                         /* without slot blocks and stream_states */
} ashlar_image_key;

typedef struct ashlar_plan_image {
    char *fingerprint;
    uint32_t stream_count;
    uint32_t key_count;
    ashlar_image_key *keys; /* [key_count] */
} ashlar_plan_image;

void ashlar__plan_image_finish(ashlar_plan_image *image);

/* Errors: ASHLAR_EINVAL (more than ASHLAR_PLAN_FINGERPRINT_MAX bytes, or a control character). */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_check_fingerprint(const char *fingerprint);

/* Errors: those of ashlar__file_create() and ashlar__file_commit(); an old file stays then. */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_image_write(const ashlar_plan_image *image,
                                                         const char *path);

/*
 * Parse an image: check the range of every number, every packing, and the sum.
 *
 * name    the file's, for messages
 * text    not NULL
 * out     given back with ashlar__plan_image_finish(); unchanged on failure
 * Errors: ASHLAR_EFORMAT (the detail begins with NAME:LINE:), ASHLAR_ENOTSUP (another version or
 *         alignment, likewise), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_image_parse(const char *name, const char *text,
                                                         size_t bytes, ashlar_plan_image *out);

/* The same from a file. Errors: also ASHLAR_EIO. */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_image_read(const char *path, ashlar_plan_image *out);

/* The sum of a text that follows another, whose sum is `sum`; and the sum as text. */
#define ASHLAR_PLAN_SUM_OF_NOTHING UINT64_C(0xcbf29ce484222325)
uint64_t ashlar__plan_sum(uint64_t sum, const char *text, size_t bytes);
void ashlar__plan_write_sum(uint64_t sum, char out[static ASHLAR_NUMBER_BYTES]);

#endif /* ASHLAR_PLAN_IMAGE_H */
