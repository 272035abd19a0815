/*
 * pattern_check.h - checks that device memory still holds one byte value, made in stream order and
 * answered later (internal).
 *
 * A check is work on a stream: the bytes are copied to page-locked host memory, piece by piece, and
 * a host function compares each piece. So neither the host nor another stream waits; only the
 * stream itself waits for the host functions. Their findings are kept until the caller takes them.
 *
 * All pieces on a stream share one staging buffer: in stream order, a piece is compared before the
 * next one overwrites it. A buffer can serve another stream once its own stream is forgotten and
 * all pieces are compared.
 *
 * Invariants:
 *   a check is in `queued`  =>  at < subject.bytes: its last host function is still to run
 *   a check is in `found`   =>  at == subject.bytes,  damaged < at
 */
#ifndef ASHLAR_PATTERN_CHECK_H
#define ASHLAR_PATTERN_CHECK_H

#include "allocator/base/lock.h"
#include "allocator/heap/stream_state.h"

#define ASHLAR_STAGING_BYTES ((size_t)256 << 10) /* of host memory for each stream */

/* The caller of a public function. */
typedef struct ashlar_call_site {
    const void *address; /* its return address */
    uint64_t thread;     /* ashlar__thread_number() */
} ashlar_call_site;

/* Describe a call site like "thread 2 at 0x55d0c0de in program+0x1c0de (function+0x2e)". Parts that
 * the dynamic linker does not know are left out. */
enum { ASHLAR_CALL_SITE_BYTES = 240 };
void ashlar__call_site_write(ashlar_call_site place, char out[static ASHLAR_CALL_SITE_BYTES]);

/* The bytes to check, and the facts about their block for a report of damage. */
typedef struct ashlar_check_subject {
    cu_ptr block;
    size_t requested;       /* the block's requested bytes */
    size_t offset;          /* offset of the checked bytes in the block */
    size_t bytes;           /* number of bytes to check, > 0 */
    unsigned char want;     /* the value that each of these bytes must have */
    unsigned char tag;      /* the block's, an ashlar_tag */
    bool is_freed;          /* true: the block is freed; false: the bytes are its red zone */
    ashlar_call_site freed; /* who freed the block, if is_freed */
    ashlar_stream stream;
} ashlar_check_subject;

typedef struct ashlar_pattern_check ashlar_pattern_check;
typedef struct ashlar_check_stream ashlar_check_stream;

typedef struct ashlar_checker {
    ashlar_driver_client *client;       /* const */
    ashlar_check_stream *check_streams; /* Lock: the allocator's */
    /* Guards the lists. Host functions take it too, so make no driver call while holding it. */
    ashlar_lock lock;
    ashlar_pattern_check *queued;
    ashlar_pattern_check *found; /* oldest first */
} ashlar_checker;

void ashlar__checker_init(ashlar_checker *checker, ashlar_driver_client *client);

/* Free everything. No host function may run any more. */
void ashlar__checker_finish(ashlar_checker *checker);

/*
 * Queue a check on a stream, inside the device's context. Lock: the allocator's.
 *
 * key   identifies the stream; not its handle, which the driver may use again; not NULL
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_ENOMEM, ASHLAR_EDRIVER; some of the bytes may still be checked.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__checker_queue(ashlar_checker *checker, const void *key,
                                                      ashlar_stream stream,
                                                      const ashlar_check_subject *subject);

/* Queue no further check under this key, which may later stand for another stream. Checks queued so
 * far are still made. Lock: the allocator's. */
void ashlar__checker_forget(ashlar_checker *checker, const void *key);

/* Take the oldest finding and return ASHLAR_EDAMAGE with its detail; ASHLAR_OK: there is none. */
ASHLAR_MUST_CHECK ashlar_status ashlar__checker_take(ashlar_checker *checker);

#endif /* ASHLAR_PATTERN_CHECK_H */
