/* optimizer_staging.c - updates of elements whose moments and masters lie in page-locked memory:
 * pieces pass through two slots of device memory, copied there, updated, and copied back. */
#include "arena/optimizer/optimizer_staging.h"

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/soft/soft.h"
#include "arena/layout/arena_impl.h"

/*
 * Piece k is in slot k % SLOTS, a room for each region. While it is updated, the next one is copied
 * there, when the piece before that has been copied back; three streams work at the same time. A
 * step begins behind, and ends before, whatever else is queued on its stream: so whoever reads the
 * state in the order of that stream finds all of it.
 */
enum {
    SLOTS = 2,
    SHARES = 16,               /* pieces of an arena, at least ... */
    PIECE_BYTES_MIN = 1 << 16, /* ... unless that makes them smaller */
    PIECE_BYTES_MAX = 4 << 20,
    FIRST_REGION = ASHLAR_REGION_MOMENT1
};

_Static_assert((int)ASHLAR_REGION_MASTER == (int)FIRST_REGION + ASHLAR_OPTIMIZER_STATES - 1,
               "the regions of the state are neighbours");

typedef struct updating {
    ashlar_optimizer_staging *s;
    const ashlar_optimizer_table *table;
    bool is_sent[SLOTS * ASHLAR_OPTIMIZER_STATES]; /* a piece was copied back from this room */
} updating;

/* ---- its memory ---- */

/* Bytes of a piece, in the storage layout. MUON's matrices are updated as a whole. */
static size_t choose_bytes(const ashlar_arena *arena, bool is_muon) {
    size_t bytes = arena->bytes[ASHLAR_LAYOUT_STORAGE] / SHARES;
    bytes = bytes > PIECE_BYTES_MAX ? PIECE_BYTES_MAX : bytes;
    bytes = bytes < PIECE_BYTES_MIN ? PIECE_BYTES_MIN : bytes;
    for (size_t i = 0; i < arena->tensor_count && is_muon; i++) {
        const ashlar_tensor_info *info = &arena->tensors[i].info;
        bytes = info->rank == 2 && info->bytes > bytes ? info->bytes : bytes;
    }
    return ashlar__round_up(bytes, ASHLAR_ARENA_ALIGN);
}

/* No size here can overflow: slots are smaller than a few times what lies on the host. */
ashlar_status ashlar__optimizer_staging_open(ashlar_optimizer_staging *s, ashlar_arena *arena,
                                             const ashlar_optimizer_rule *rule,
                                             ashlar_stream stream) {
    const bool has_masters = arena->bytes[ASHLAR_LAYOUT_MASTER] > 0; /* of elements half as wide */
    void *rooms;
    s->away.device = ashlar_allocator_device(arena->allocator);
    s->regions = arena->on_host & ashlar__optimizer_regions(&rule->config);
    if (s->regions == 0) {
        return ASHLAR_OK;
    }
    s->piece_bytes = choose_bytes(arena, rule->config.kind == ASHLAR_OPTIMIZER_MUON);
    s->room_bytes = s->piece_bytes * (has_masters ? 2 : 1) + ASHLAR_ARENA_ALIGN;
    ASHLAR_TRY(ashlar_alloc_tagged(arena->allocator,
                                   SLOTS * ASHLAR_OPTIMIZER_STATES * s->room_bytes,
                                   ASHLAR_TAG_MOMENTS, stream, &rooms));
    s->rooms = rooms;
    ashlar__away_need(&s->away, 0, SLOTS * ASHLAR_OPTIMIZER_STATES);
    ASHLAR_TRY(ashlar__away_take(&s->away));
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        s->host_bytes += (s->regions & ASHLAR_REGION_BIT(i)) == 0
                             ? 0
                             : ashlar__arena_region_bytes(arena, (ashlar_region)i);
    }
    ashlar__soft_trace_bytes(s->away.out, "host", s->host_bytes, false);
    return ASHLAR_OK;
}

void ashlar__optimizer_staging_close(ashlar_optimizer_staging *s, ashlar_allocator *allocator) {
    if (s->rooms != NULL) {
        ashlar__soft_trace_bytes(s->away.out, "host", s->host_bytes, true);
        ashlar__away_finish(&s->away);
        ASHLAR_IGNORE(ashlar_free(allocator, s->rooms)); /* as of the optimizer's block */
    }
}

/* ---- a piece ---- */

static char *array_of(const ashlar_optimizer_run *run, size_t state) {
    void *const arrays[ASHLAR_OPTIMIZER_STATES] = {run->moment1, run->moment2, run->master};
    return arrays[state];
}

/* What the job's elements have in a region, from the first to the last. False: nothing. */
static bool find_place(const updating *u, const ashlar_optimizer_job *job, size_t room,
                       ashlar_away_place *out) {
    const size_t state = room % ASHLAR_OPTIMIZER_STATES;
    char *begin = NULL, *end = NULL;
    if ((u->s->regions & ASHLAR_REGION_BIT(FIRST_REGION + state)) == 0) {
        return false;
    }
    for (size_t i = 0; i < job->run_count; i++) {
        const ashlar_optimizer_run *run = &u->table->runs[job->first_run + i];
        const size_t width = run->dtype == ASHLAR_F64 ? sizeof(double) : sizeof(float);
        char *const array = array_of(run, state);
        if (array != NULL) {
            begin = begin != NULL ? begin : array + width * (i == 0 ? job->first : 0);
            end = array + width * (i + 1 == job->run_count ? job->end : run->elements);
        }
    }
    if (begin == NULL) {
        return false;
    }
    *out = (ashlar_away_place){.device = u->s->rooms + room * u->s->room_bytes +
                                         (uintptr_t)begin % ASHLAR_ARENA_ALIGN,
                               .host = begin,
                               .bytes = (size_t)(end - begin),
                               .event = u->s->away.events[room]};
    ASHLAR_CHECK2((uintptr_t)begin % ASHLAR_ARENA_ALIGN + out->bytes <= u->s->room_bytes);
    return true;
}

static ashlar_status update_piece(updating *u, ashlar_optimizer_job *job, size_t number,
                                  ashlar_optimizer_launch_fn *launch,
                                  const ashlar_optimizer *optimizer, ashlar_stream stream) {
    const size_t first = number % SLOTS * ASHLAR_OPTIMIZER_STATES;
    ashlar_away_place places[ASHLAR_OPTIMIZER_STATES];
    bool has[ASHLAR_OPTIMIZER_STATES];
    for (size_t i = 0; i < ASHLAR_OPTIMIZER_STATES; i++) {
        job->staged[i] = 0;
        has[i] = find_place(u, job, first + i, &places[i]);
        if (has[i]) {
            job->staged[i] = (uintptr_t)places[i].device - (uintptr_t)places[i].host;
            ASHLAR_TRY(ashlar__away_fetch(&u->s->away, &places[i], u->is_sent[first + i]));
            ASHLAR_TRY(ashlar__away_wait(&u->s->away, stream, places[i].event));
        }
    }
    ASHLAR_TRY(launch(optimizer, job, stream));
    for (size_t i = 0; i < ASHLAR_OPTIMIZER_STATES; i++) {
        u->is_sent[first + i] |= has[i];
        ASHLAR_TRY(has[i] ? ashlar__away_send(&u->s->away, &places[i], stream) : ASHLAR_OK);
    }
    return ASHLAR_OK;
}

ashlar_status
ashlar__optimizer_staging_run(ashlar_optimizer_staging *s, const ashlar_optimizer_table *table,
                              const ashlar_optimizer_run *runs, const ashlar_optimizer_job *whole,
                              size_t offset, size_t bytes, ashlar_optimizer_launch_fn *launch,
                              const ashlar_optimizer *optimizer, ashlar_stream stream) {
    const size_t stop = offset + bytes;
    updating u = {.s = s, .table = table};
    ashlar_status status = ashlar__away_follow(&s->away, stream);
    for (size_t at = offset, end, number = 0; at < stop && status == ASHLAR_OK; at = end) {
        ashlar_optimizer_job job = *whole;
        end = ashlar__optimizer_table_piece(table, at, stop, s->piece_bytes);
        ashlar__optimizer_table_select(table, runs, at, end - at, &job);
        if (job.run_count > 0) {
            status = update_piece(&u, &job, number++, launch, optimizer, stream);
        }
    }
    return ashlar__away_join(&s->away, stream, status);
}
