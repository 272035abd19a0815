/* free_log.h - who freed which block: an allocator's latest frees, in a guard mode (internal). */
#ifndef ASHLAR_FREE_LOG_H
#define ASHLAR_FREE_LOG_H

#include <stdint.h>

#include "allocator/driver/cuda_abi.h"

/* The caller of a public function. */
typedef struct ashlar_call_site {
    const void *address; /* its return address */
    uint64_t thread;     /* ashlar__thread_number() */
} ashlar_call_site;

typedef struct ashlar_freed {
    cu_ptr ptr;
    ashlar_call_site place;
} ashlar_freed;

enum { ASHLAR_FREE_LOG_ENTRIES = 1024, ASHLAR_CALL_SITE_BYTES = 240 };

/* A ring: free number n, counted from 0, is entry n % ASHLAR_FREE_LOG_ENTRIES until a newer free
 * overwrites it. Lock: the allocator's guards every field. */
typedef struct ashlar_free_log {
    uint64_t count; /* frees so far */
    ashlar_freed entries[ASHLAR_FREE_LOG_ENTRIES];
} ashlar_free_log;

void ashlar__free_log_add(ashlar_free_log *log, cu_ptr ptr, ashlar_call_site place);

/* The newest free of `ptr`; NULL: never freed, or so long ago that the log no longer has it. */
const ashlar_freed *ashlar__free_log_find(const ashlar_free_log *log, cu_ptr ptr);

/* Describe a call site like "thread 2 at 0x55d0c0de in program+0x1c0de (function+0x2e)". Parts that
 * the dynamic linker does not know are left out. */
void ashlar__call_site_write(ashlar_call_site place, char out[static ASHLAR_CALL_SITE_BYTES]);

#endif /* ASHLAR_FREE_LOG_H */
