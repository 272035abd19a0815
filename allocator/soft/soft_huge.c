/* soft_huge.c - the host's huge pages behind device memory that is in use. */
#include "allocator/soft/soft_state.h"

#include <errno.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE /* Linux 6.1; C libraries learned the name later */
#define MADV_COLLAPSE 25
#endif

enum {
    FIRST_WAIT = 8,     /* before that, a program may still be setting up */
    PAGES_AT_ONCE = 32, /* that one wait of the host looks at */
    HOST_PAGES = SOFT_PAGE_BYTES / 4096
};

/* The first page at or behind `from` with a mapping; 0: there is none. */
static uintptr_t next_page(uintptr_t from) {
    const soft_ranges *reservations = &ashlar__soft_state.reservations;
    for (size_t i = 0; i < reservations->count; i++) {
        const soft_reservation *one = (const soft_reservation *)reservations->items[i];
        const uintptr_t base = one->range.base, end = base + one->range.bytes;
        for (uintptr_t at = from > base ? from : base; at < end; at += SOFT_PAGE_BYTES) {
            if (soft_mapping_at(one, at) != NULL) {
                return at;
            }
        }
    }
    return 0;
}

/* Whether the host has memory behind half of a page or more. Where its pages are larger than 4 KiB,
 * the call fills less of `resident`, and the answer is no: such pages need no gathering. */
static bool is_in_use(void *page) {
    unsigned char resident[HOST_PAGES] = {0};
    size_t count = 0;
    if (mincore(page, SOFT_PAGE_BYTES, resident) != 0) {
        return false;
    }
    for (size_t i = 0; i < HOST_PAGES; i++) {
        count += resident[i] & 1;
    }
    return count >= HOST_PAGES / 2;
}

/*
 * A memory file gets pages of 4 KiB, unless the machine's owner has chosen otherwise, and loops
 * over tens of MiB of device memory then spend 1 to 4 % of their time on the translation of
 * addresses. The kernel puts a huge page in place of small ones on request. A huge page where
 * little is used would be host memory spent in vain; so device memory is looked through when it has
 * been used for a while: at the host's 8th wait, the 16th, the 32nd and so on, a piece at each wait
 * from then on, so that none takes long (a huge page takes up to 1 ms, once). Where the kernel
 * cannot, all stays as it is.
 */
void ashlar__soft_gather(void) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_state *state = &ashlar__soft_state;
    const int error = errno;
    const uint64_t wait = ++state->wait_count;
    if (wait >= FIRST_WAIT && (wait & (wait - 1)) == 0) {
        state->gather_from = SOFT_PAGE_BYTES;
    }
    for (size_t i = 0; state->gather_from != 0 && i < PAGES_AT_ONCE; i++) {
        const uintptr_t at = next_page(state->gather_from);
        if (at != 0 && is_in_use((void *)at)) {
            (void)madvise((void *)at, SOFT_PAGE_BYTES, MADV_COLLAPSE);
        }
        state->gather_from = at == 0 ? 0 : at + SOFT_PAGE_BYTES;
    }
    errno = error;
}
