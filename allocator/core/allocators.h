/*
 * allocators.h - all allocators of the process: what one has to tell or to ask the others
 * (internal).
 *
 * Idle memory of a device belongs to the process. Whoever is refused memory by the driver has the
 * others give idle memory back, by ashlar__allocators_give_back(): an allocator on its ladder, the
 * device's other users by ashlar__device_has_room(), the drop-ins for calls that they pass on.
 */
#ifndef ASHLAR_ALLOCATORS_H
#define ASHLAR_ALLOCATORS_H

#include "allocator/core/allocator_impl.h"

/* What the list's functions do with one allocator. (They may not call the rest of this room, which
 * calls them.) */
struct ashlar_allocator_acts {
    void (*end_stream)(ashlar_allocator *allocator, ashlar_stream stream);
    void (*begin_wait)(ashlar_allocator *allocator, ashlar_stream stream, uint64_t wait);
    void (*end_wait)(ashlar_allocator *allocator, ashlar_stream stream, uint64_t wait);
    /* Give at least `bytes` bytes back; adds to *others what is held afterwards. */
    bool (*give_back)(ashlar_allocator *allocator, size_t bytes, bool may_wait,
                      ashlar_others *others);
};

/* _enlist: add the allocator to the process's list; `acts` lives as long as the process. _delist:
 * remove it; waits for threads that have it give memory back. */
void ashlar__allocator_enlist(ashlar_allocator *allocator, const ashlar_allocator_acts *acts);
void ashlar__allocator_delist(ashlar_allocator *allocator);

/*
 * Have the allocators of a device, in all contexts, give at least `bytes` bytes of idle memory back
 * to the driver, if they have so much.
 *
 * driver, ordinal  the device
 * except           an allocator that is not asked; NULL: ask all
 * may_wait         false: only memory that no work uses any more. true: also call the reclaim
 *                  callbacks, wait on the host for work, and give up idle plans
 * others           if not NULL: set to what the asked ones hold afterwards
 *
 * Returns whether any memory was given back. A sealed allocator that may take no memory again keeps
 * what it has. Threads: any; the caller holds no lock.
 */
bool ashlar__allocators_give_back(const ashlar_driver *driver, int ordinal,
                                  const ashlar_allocator *except, size_t bytes, bool may_wait,
                                  ashlar_others *others);

#endif /* ASHLAR_ALLOCATORS_H */
