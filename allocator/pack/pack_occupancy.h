/*
 * pack_occupancy.h - which addresses are taken in which sections, and the lowest gap in a run of
 * them (internal).
 *
 * A binary tree over the sections. Each node covers a run of sections and holds two sets of
 * addresses:
 *     over     of the items that are live in the node's whole run, but not in all of its parent's
 *     within   of the items that are live somewhere in its run, but not in all of its parent's
 * An item's run of sections is the union of O(log sections) nodes. What is taken in that run is the
 * `within` of these nodes and the `over` of the nodes above them. So finding and adding look at
 * O(log sections) sets, however many items there are. Items without a gap between them are one
 * interval of a set.
 */
#ifndef ASHLAR_PACK_OCCUPANCY_H
#define ASHLAR_PACK_OCCUPANCY_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

typedef struct ashlar_pack_occupancy ashlar_pack_occupancy;

/* Ownership: the caller ends *out with a destroy. section_count > 0. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_occupancy_create(size_t section_count,
                                                              ashlar_pack_occupancy **out);

void ashlar__pack_occupancy_destroy(ashlar_pack_occupancy *occupancy); /* NULL is allowed */

/* Make all addresses free. */
void ashlar__pack_occupancy_clear(ashlar_pack_occupancy *occupancy);

/* The lowest offset at which `bytes` bytes are free in all of the sections [first, end). */
size_t ashlar__pack_occupancy_find(const ashlar_pack_occupancy *occupancy, uint32_t first,
                                   uint32_t end, size_t bytes);

/*
 * Take [offset, offset + bytes) in the sections [first, end), where it has to be free.
 * Errors: ASHLAR_EHOSTMEM; the occupancy can then only be cleared or destroyed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_occupancy_add(ashlar_pack_occupancy *occupancy,
                                                           uint32_t first, uint32_t end,
                                                           size_t offset, size_t bytes);

#endif /* ASHLAR_PACK_OCCUPANCY_H */
