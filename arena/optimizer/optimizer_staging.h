/* optimizer_staging.h - updates of elements whose state lies on the host (internal). */
#ifndef ASHLAR_OPTIMIZER_STAGING_H
#define ASHLAR_OPTIMIZER_STAGING_H

#include "allocator/device/away.h"
#include "arena/optimizer/optimizer_impl.h"

/* What it takes if a part of the state lies on the host. _open: take it, if the arena has such
 * regions. _run: queue the UPDATE of a range, piece after piece, each by `launch`. Errors: those of
 * ashlar__away_take(), ashlar_alloc(), the copies and `launch`. */
typedef struct ashlar_optimizer_staging {
    ashlar_away away;
    unsigned regions;  /* on the host, a set of ASHLAR_REGION_BIT()s */
    size_t host_bytes; /* theirs */
    size_t piece_bytes, room_bytes;
    char *rooms; /* device memory; NULL: nothing lies on the host */
} ashlar_optimizer_staging;

typedef ashlar_status ashlar_optimizer_launch_fn(const ashlar_optimizer *optimizer,
                                                 const ashlar_optimizer_job *job,
                                                 ashlar_stream stream);

ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_staging_open(ashlar_optimizer_staging *staging,
                                                               ashlar_arena *arena,
                                                               const ashlar_optimizer_rule *rule,
                                                               ashlar_stream stream);
void ashlar__optimizer_staging_close(ashlar_optimizer_staging *staging,
                                     ashlar_allocator *allocator);
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_staging_run(
    ashlar_optimizer_staging *staging, const ashlar_optimizer_table *table,
    const ashlar_optimizer_run *runs, const ashlar_optimizer_job *whole, size_t offset,
    size_t bytes, ashlar_optimizer_launch_fn *launch, const ashlar_optimizer *optimizer,
    ashlar_stream stream);

#endif /* ASHLAR_OPTIMIZER_STAGING_H */
