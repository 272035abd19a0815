/*
 * pattern_check.h - whether device memory still holds one byte value, asked in stream order and
 * answered later (internal).
 *
 * A check is work on a stream: the bytes are copied to page-locked host memory, piece by piece, and
 * a host function compares each piece. So neither the host nor another stream waits; the stream
 * itself waits for the host functions. What they find is kept until it is taken.
 *
 * Pieces share one staging buffer for each stream: in stream order a piece is compared before the
 * next one is copied over it.
 *
 * Invariant: a check is in `queued` until its last host function has run, and in `found` after that
 * if it found a difference.
 */
#ifndef ASHLAR_PATTERN_CHECK_H
#define ASHLAR_PATTERN_CHECK_H

#include <pthread.h>

#include "allocator/guard/free_log.h"
#include "allocator/heap/stream_state.h"

#define ASHLAR_STAGING_BYTES ((size_t)256 << 10) /* of each stream */

/* What was to be checked, in the words of a report. */
typedef struct ashlar_check_subject {
    cu_ptr block;
    size_t requested; /* of the block */
    size_t offset;    /* of the checked bytes in the block */
    size_t bytes;     /* > 0 */
    unsigned char want;
    unsigned char tag;
    bool is_freed;          /* a write after the free; else behind a live block's end */
    ashlar_call_site freed; /* where, if is_freed */
    ashlar_stream stream;
} ashlar_check_subject;

typedef struct ashlar_pattern_check ashlar_pattern_check;
typedef struct ashlar_check_stream ashlar_check_stream;

typedef struct ashlar_checker {
    ashlar_driver_client *client;       /* const */
    ashlar_check_stream *check_streams; /* Lock: the allocator's */
    /* Guards the lists. Whoever holds it calls nothing: host functions take it too. */
    pthread_mutex_t lock;
    ashlar_pattern_check *queued;
    ashlar_pattern_check *found; /* oldest first */
} ashlar_checker;

void ashlar__checker_init(ashlar_checker *checker, ashlar_driver_client *client);

/* No check is queued any more, or its host functions will never run. */
void ashlar__checker_finish(ashlar_checker *checker);

/*
 * Queue a check on the stream. Inside the device's context. Lock: the allocator's.
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_ENOMEM, ASHLAR_EDRIVER; part of the bytes may be checked then.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__checker_queue(ashlar_checker *checker,
                                                      const ashlar_stream_state *state,
                                                      const ashlar_check_subject *subject);

/* Whether there is work on any stream whose answer is still to come. */
bool ashlar__checker_is_waiting(ashlar_checker *checker);

/* The oldest finding that was not taken yet, as ASHLAR_EDAMAGE and its detail; ASHLAR_OK: none. */
ASHLAR_MUST_CHECK ashlar_status ashlar__checker_take(ashlar_checker *checker);

#endif /* ASHLAR_PATTERN_CHECK_H */
