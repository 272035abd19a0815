/* pack_window.h - the cheapest place for an item among fixed items and movable ones (internal). */
#ifndef ASHLAR_PACK_WINDOW_H
#define ASHLAR_PACK_WINDOW_H

#include "allocator/pack/pack_movable.h"

/* A placed movable item that lives with the item to place. Obstacles may overlap each other. */
typedef struct ashlar_pack_obstacle {
    size_t begin, end;
    double cost; /* of taking it out; > 0 */
} ashlar_pack_obstacle;

typedef struct ashlar_pack_window {
    ashlar_pack_obstacle *obstacles; /* [obstacle_count]; sorted here */
    ashlar_pack_obstacle *by_end;    /* [obstacle_count], scratch */
    size_t obstacle_count;
    const ashlar_pack_gap *gaps; /* [gap_count], ascending, where no fixed item is */
    size_t gap_count;
    size_t bytes, capacity; /* of the item to place; limit to its end */
} ashlar_pack_window;

/* The lowest offset at which the obstacles in the item's way cost least. Returns their cost; 0:
 * none is in its way; infinity: the item fits in no gap, and *offset is unchanged. */
double ashlar__pack_window_cheapest(const ashlar_pack_window *w, size_t *offset);

#endif /* ASHLAR_PACK_WINDOW_H */
