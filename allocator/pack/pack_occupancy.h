/*
 * pack_occupancy.h - the addresses taken in each section, and the lowest gap common to a run of
 * sections (internal).
 *
 * A binary tree over the sections. Each node covers a run of sections and holds two sets of
 * addresses:
 *     over     taken by items that are live in the node's whole run, but not in all of its parent's
 *     within   taken by items that are live in some part of its run, but not in all of its parent's
 * The run of an item is the union of O(log sections) nodes. The addresses taken in it are `within`
 * of these nodes and `over` of the nodes above them. So finding a gap or adding an item takes O(log
 * sections) sets, however many items there are. Items without a gap between them are one interval
 * of a set.
 */
#ifndef ASHLAR_PACK_OCCUPANCY_H
#define ASHLAR_PACK_OCCUPANCY_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

typedef struct ashlar_pack_occupancy ashlar_pack_occupancy;

/* section_count > 0. Ownership: the caller destroys *out. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_occupancy_create(size_t section_count,
                                                              ashlar_pack_occupancy **out);

void ashlar__pack_occupancy_destroy(ashlar_pack_occupancy *occupancy); /* NULL is allowed */

/* Make all addresses free. */
void ashlar__pack_occupancy_clear(ashlar_pack_occupancy *occupancy);

/* The lowest offset at which `bytes` bytes are free in all of the sections [first, end). */
size_t ashlar__pack_occupancy_find(const ashlar_pack_occupancy *occupancy, uint32_t first,
                                   uint32_t end, size_t bytes);

/* The lowest gap of at least `bytes` bytes at or above `from` in all of the sections [first, end).
 * Returns where it begins; *gap_end is where it ends, SIZE_MAX if nothing is above it. */
size_t ashlar__pack_occupancy_gap(const ashlar_pack_occupancy *occupancy, uint32_t first,
                                  uint32_t end, size_t from, size_t bytes, size_t *gap_end);

/* Take [offset, offset + bytes) in the sections [first, end); it must be free there. Errors:
 * ASHLAR_EHOSTMEM; then the occupancy can only be cleared or destroyed. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_occupancy_add(ashlar_pack_occupancy *occupancy,
                                                           uint32_t first, uint32_t end,
                                                           size_t offset, size_t bytes);

#endif /* ASHLAR_PACK_OCCUPANCY_H */
