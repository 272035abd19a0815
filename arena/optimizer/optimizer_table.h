/* optimizer_table.h - the runs of an arena that an optimizer updates, and the job for a range of
 * the storage layout (internal). */
#ifndef ASHLAR_OPTIMIZER_TABLE_H
#define ASHLAR_OPTIMIZER_TABLE_H

#include "arena/optimizer/optimizer_impl.h"

/* Where a run lies in the storage layout, in bytes, and the number of elements in earlier runs. */
typedef struct ashlar_optimizer_place {
    size_t begin, end;
    size_t elements_before;
} ashlar_optimizer_place;

/* The runs in address order, without those of frozen tensors. */
typedef struct ashlar_optimizer_table {
    ashlar_optimizer_run *runs; /* [count] the host's copy */
    ashlar_optimizer_place *places;
    size_t count, chunk_count;
    double largest_scale; /* largest rate_scale of all runs; 0 without runs */
} ashlar_optimizer_table;

/* Fill the table. The arena must be committed and have the regions that the rule needs. finish
 * frees the table's memory. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_table_init(ashlar_optimizer_table *table,
                                                             const ashlar_arena *arena,
                                                             const ashlar_optimizer_rule *rule);
void ashlar__optimizer_table_finish(ashlar_optimizer_table *table);

/* Make `job` cover the elements of runs that lie in [offset, offset + bytes) of the storage layout.
 * `runs`: the device's copy of table->runs. */
void ashlar__optimizer_table_select(const ashlar_optimizer_table *table,
                                    const ashlar_optimizer_run *runs, size_t offset, size_t bytes,
                                    ashlar_optimizer_job *job);

#endif /* ASHLAR_OPTIMIZER_TABLE_H */
