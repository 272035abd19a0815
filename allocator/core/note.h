/*
 * note.h - who is told of an allocation and of a free: the counters, the trace, the recordings
 * (internal). Lock: held, for all of it.
 */
#ifndef ASHLAR_NOTE_H
#define ASHLAR_NOTE_H

#include "allocator/core/allocator_impl.h"

/* Note an allocation, or a free, of a step that is being recorded. */
void ashlar_step_note_alloc_locked(ashlar_cache *own, size_t requested, ashlar_block *block);
void ashlar_step_note_free_locked(ashlar_allocator *allocator, const ashlar_block *block,
                                  bool is_planned);

#endif /* ASHLAR_NOTE_H */
