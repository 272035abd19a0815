/*
 * optimizer_table.h - the runs of an arena that an optimizer goes over, and the ranges of the
 * storage layout that lie in them (internal).
 */
#ifndef ASHLAR_OPTIMIZER_TABLE_H
#define ASHLAR_OPTIMIZER_TABLE_H

#include "arena/optimizer/optimizer_impl.h"

/* Where a run lies in the storage layout, in bytes; and how many elements the runs before have. */
typedef struct ashlar_optimizer_place {
    size_t begin, end;
    size_t elements_before;
} ashlar_optimizer_place;

/* In address order, without frozen tensors. */
typedef struct ashlar_optimizer_table {
    ashlar_optimizer_run *runs; /* the host's copy */
    ashlar_optimizer_place *places;
    size_t count, chunk_count;
    double largest_scale; /* of the learning rate; 0 without runs */
} ashlar_optimizer_table;

/*
 * Requires a committed arena with the regions that the rule needs. finish gives the memory back.
 * Errors: ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_table_init(ashlar_optimizer_table *table,
                                                             const ashlar_arena *arena,
                                                             const ashlar_optimizer_rule *rule);
void ashlar__optimizer_table_finish(ashlar_optimizer_table *table);

/*
 * Make `job` go over the elements of runs in [offset, offset + bytes). `runs`: the device's copy of
 * the table.
 */
void ashlar__optimizer_table_select(const ashlar_optimizer_table *table,
                                    const ashlar_optimizer_run *runs, size_t offset, size_t bytes,
                                    ashlar_optimizer_job *job);

#endif /* ASHLAR_OPTIMIZER_TABLE_H */
