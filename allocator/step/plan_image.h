/*
 * plan_image.h - plans as a file stores them, without streams or memory (internal).
 *
 * A file is lines of text, each ended by '\n', of fields between commas; numbers are decimal:
 *
 *     ashlar-plan,2                      name and version of the format
 *     fingerprint,TEXT                   the caller's text: all the rest of the line
 *     plans,ALIGNMENT,STREAMS,KEYS       bytes each slot is aligned to; how many streams and keys
 *     key,KEY,NUMBERS,STREAM,STEPS,PARTS,ALLOCS
 *                                        a key: its first number, how many it has, the stream and
 *                                        the number of its recorded steps
 *     part,STREAM,PLAN,PEAK              PARTS lines: a stream, the bytes of its plan, and the most
 *                                        that were live in one of the steps
 *     alloc,BYTES,TAG,PART,MARKS,END,OFFSET
 *                                        ALLOCS lines, in order: an allocation that has a slot;
 *                                        MARKS: the sum of 1 if some step left out the one before
 *                                        it, and of 2 if several streams use the block
 *     alloc,BYTES,TAG,PART,MARKS         ... or an allocation that is not planned; MARKS may have 4
 *                                        in its sum then: BYTES and more were refused
 *     end,SUM                            checksum of all lines above: FNV-1a, 16 hexadecimal digits
 *
 * Streams are numbered from 0 in the order of their first mention. PART is the index, from 0, of
 * one of the key's part lines.
 */
#ifndef ASHLAR_PLAN_IMAGE_H
#define ASHLAR_PLAN_IMAGE_H

#include "allocator/base/parse.h"
#include "allocator/plan/plan.h"

#define ASHLAR_PLAN_FILE_NAME "ashlar-plan"

enum {
    ASHLAR_PLAN_FILE_VERSION = 2,
    ASHLAR_PLAN_FILE_KEYS_MAX = 1 << 16,
    ASHLAR_PLAN_FILE_LANDING = 1, /* bits of MARKS */
    ASHLAR_PLAN_FILE_SHARED = 2,
    ASHLAR_PLAN_FILE_REFUSED = 4,
};

/* Invariants: stream and streams[stream_idx] < stream_count; streams[] are all different;
 * plan->stream_count == recording.stream_count;  plan->count == recording.count */
typedef struct ashlar_image_key {
    uint64_t key, number_count;
    uint32_t stream; /* number of the stream on which its steps ran */
    uint32_t step_count;
    uint32_t streams[ASHLAR_PLAN_STREAMS_MAX]; /* the numbers of the streams of its allocations */
    ashlar_recording recording;                /* with all stream_states NULL */
    ashlar_plan *plan;                         /* has no slot blocks and no stream_states yet */
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

/*
 * Write an image to a file. Errors: those of ashlar__file_create() and ashlar__file_commit(); then
 * an existing file is kept.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_image_write(const ashlar_plan_image *image,
                                                         const char *path);

/*
 * Parse an image: check the range of every number, every packing, and the checksum.
 *
 * name    the file's name, for messages
 * text    not NULL
 * out     the caller frees it with ashlar__plan_image_finish(); unchanged on failure
 * Errors: ASHLAR_EFORMAT (the detail begins with NAME:LINE:), ASHLAR_ENOTSUP (another version or
 *         alignment, likewise), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_image_parse(const char *name, const char *text,
                                                         size_t bytes, ashlar_plan_image *out);

/* Like ashlar__plan_image_parse(), but reads the text from a file. Errors: also ASHLAR_EIO. */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_image_read(const char *path, ashlar_plan_image *out);

/*
 * _sum: continue the checksum `sum` of earlier text with `text`. _write_sum: write a checksum as
 * text.
 */
#define ASHLAR_PLAN_SUM_OF_NOTHING UINT64_C(0xcbf29ce484222325)
uint64_t ashlar__plan_sum(uint64_t sum, const char *text, size_t bytes);
void ashlar__plan_write_sum(uint64_t sum, char out[static ASHLAR_NUMBER_BYTES]);

#endif /* ASHLAR_PLAN_IMAGE_H */
