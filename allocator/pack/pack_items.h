/*
 * pack_items.h - buffers to pack, with lifetimes as runs of sections (internal).
 *
 * Time is divided into sections: a section is a maximal set of buffers that are all live at once.
 * So there are at most as many sections as buffers, each buffer is live in a run of consecutive
 * sections, and two buffers are live together if and only if they share a section.
 */
#ifndef ASHLAR_PACK_ITEMS_H
#define ASHLAR_PACK_ITEMS_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/pack.h>

/* Invariants: bytes > 0, a multiple of the alignment; first < end <= section_count. */
typedef struct ashlar_pack_item {
    size_t bytes;
    uint32_t first, end; /* live in sections [first, end) */
} ashlar_pack_item;

/*
 * Invariants: section_count <= count;
 *   loads[s] == sum of bytes of the items live in s;  peak_bytes == max of loads (0: no item)
 *   sum of all bytes < SIZE_MAX, so that no sum of sizes or offset of a plan wraps
 */
typedef struct ashlar_pack_items {
    ashlar_pack_item *items; /* [count], in the order of the buffers */
    size_t count;
    size_t *loads; /* [section_count] */
    size_t section_count;
    size_t peak_bytes;
    uint32_t peak_section; /* the first section with that load */
} ashlar_pack_items;

/*
 * alignment   a power of two
 *
 * Ownership: the caller ends *out with ashlar__pack_items_finish().
 * Errors:    ASHLAR_EINVAL, ASHLAR_EOVERFLOW, ASHLAR_EHOSTMEM, as ashlar_pack().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_items_init(ashlar_pack_items *out,
                                                        const ashlar_pack_buffer *buffers,
                                                        size_t count, size_t alignment);

void ashlar__pack_items_finish(ashlar_pack_items *p);

#endif /* ASHLAR_PACK_ITEMS_H */
