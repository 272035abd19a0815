/* pack_window.h - the cheapest place for an item among fixed items and movable ones (internal). */
#ifndef ASHLAR_PACK_WINDOW_H
#define ASHLAR_PACK_WINDOW_H

#include "allocator/pack/pack_movable.h"

/* Where a placed movable item begins or ends. It shares a section with the item to place. */
typedef struct ashlar_pack_mark {
    size_t at;
    double cost; /* of taking that item out; > 0 */
} ashlar_pack_mark;

/* Placed items may overlap each other. */
typedef struct ashlar_pack_window {
    ashlar_pack_mark *begins, *ends; /* [placed_count], of the same items; sorted here */
    ashlar_pack_mark *scratch;       /* [placed_count] */
    size_t placed_count;
    const ashlar_pack_gap *gaps; /* [gap_count], ascending, where no fixed item is */
    size_t gap_count;
    size_t bytes, capacity; /* size of the item to place; limit to its end */
} ashlar_pack_window;

/* Find the lowest offset at which the items in the way cost least. Returns their cost. 0: none is
 * in the way. Infinity: the item fits in no gap, and *offset is unchanged. */
double ashlar__pack_window_cheapest(const ashlar_pack_window *w, size_t *offset);

#endif /* ASHLAR_PACK_WINDOW_H */
