/* optimizer_cpu.c - runs an optimizer's job on the CPU: the worker threads share its chunks,
 * with the loops of the best instruction set. */
#include <string.h>

#include "allocator/base/check_level.h"
#include "arena/compute/element.h"
#include "arena/compute/workers.h"
#include "arena/optimizer/optimizer_impl.h"

#define SUM(type, set) ashlar__optimizer_sum_##type##_##set
#define MIX(type, set) ashlar__optimizer_mix_##type##_##set
#define UPDATE(type, set) &ashlar__optimizer_updates_##type##_##set
#define DEFINE_SET(set)                                                \
    const ashlar_optimizer_kernels ashlar__optimizer_kernels_##set = { \
        .sum = {[ASHLAR_F32] = SUM(f32, set),                          \
                [ASHLAR_F64] = SUM(f64, set),                          \
                [ASHLAR_F16] = SUM(f16, set),                          \
                [ASHLAR_BF16] = SUM(bf16, set)},                       \
        .mix = {[ASHLAR_F32] = MIX(f32, set),                          \
                [ASHLAR_F64] = MIX(f64, set),                          \
                [ASHLAR_F16] = MIX(f16, set),                          \
                [ASHLAR_BF16] = MIX(bf16, set)},                       \
        .update = {[ASHLAR_F32] = UPDATE(f32, set),                    \
                   [ASHLAR_F64] = UPDATE(f64, set),                    \
                   [ASHLAR_F16] = UPDATE(f16, set),                    \
                   [ASHLAR_BF16] = UPDATE(bf16, set)},                 \
    };
ASHLAR_SETS(DEFINE_SET)
_Static_assert(ASHLAR_DTYPE_COUNT == 4, "a table has a row for each element type");

const ashlar_optimizer_kernels *ashlar__optimizer_kernels_best(void) {
#define ROW(set) &ashlar__optimizer_kernels_##set,
    static const ashlar_optimizer_kernels *const sets[] = {ASHLAR_SETS(ROW)};
    return sets[ashlar__best_set()];
}

/* PIECE_ELEMENTS: the least that is worth waking a thread for, about ten microseconds of work.
 * PIECES_EACH: the most pieces for each thread. With several, all threads end at about the same
 * time; but the more pieces, the more often the processor's prefetching begins anew. */
enum { PIECE_ELEMENTS = 32768, PIECES_EACH = 32 };

/* A job, cut into pieces that the worker threads share; each piece is a range of chunks. */
typedef struct share {
    const ashlar_optimizer_job *job;
    const ashlar_optimizer_kernels *kernels;
    size_t pieces;
    bool applies; /* the second pass of matrices */
} share;

static size_t count_pieces(const ashlar_optimizer_job *job) {
    const size_t chunks = job->end_chunk - job->first_chunk;
    const size_t worth = job->elements / PIECE_ELEMENTS + 1;
    /* Odd, since threads whose pieces lie a power of two apart would read the same memory banks. */
    const size_t most = PIECES_EACH * ashlar__workers_count() - 1;
    const size_t pieces = worth < most ? worth : most;
    return pieces < chunks ? pieces : chunks;
}

/* Piece i of the job has the chunks [*first, *end). */
static void piece_chunks(const share *s, size_t i, size_t *first, size_t *end) {
    const size_t chunks = s->job->end_chunk - s->job->first_chunk;
    const size_t whole = chunks / s->pieces, more = chunks % s->pieces;
    *first = s->job->first_chunk + i * whole + (i < more ? i : more);
    *end = *first + whole + (i < more);
    ASHLAR_CHECK2(*first < *end && *end <= s->job->end_chunk);
}

static void *at(const void *array, size_t first, size_t width) {
    return array == NULL ? NULL : (char *)(uintptr_t)array + first * width;
}

static void sum_piece(void *context, size_t i) {
    const share *s = context;
    size_t chunk, end;
    piece_chunks(s, i, &chunk, &end);
    for (; chunk < end; chunk++) {
        size_t first, count;
        const ashlar_optimizer_run *run =
            &s->job->runs[ashlar__formula_clip(s->job, chunk, &first, &count)];
        const void *values = at(run->gradients, first, ashlar_dtype_bytes(run->dtype));
        s->job->partials[chunk] = run->is_frozen ? 0 : s->kernels->sum[run->dtype](values, count);
    }
}

/* The elements first .. first + count - 1 of a run, described as a run of its own. */
static ashlar_optimizer_run cut(const ashlar_optimizer_run *run, size_t first, size_t count) {
    const size_t width = ashlar_dtype_bytes(run->dtype);
    const size_t state_width = run->dtype == ASHLAR_F64 ? sizeof(double) : sizeof(float);
    ashlar_optimizer_run piece = *run;
    ASHLAR_CHECK2(count > 0 && first + count <= run->elements);
    piece.parameters = at(piece.parameters, first, width);
    piece.gradients = at(piece.gradients, first, width);
    piece.moment1 = at(piece.moment1, first, state_width);
    piece.moment2 = at(piece.moment2, first, state_width);
    piece.master = at(piece.master, first, sizeof(float));
    piece.elements = count;
    return piece;
}

/* While they are in the cache. Matrices' second pass does not read them. */
static void zero(const share *s, const ashlar_optimizer_run *run, size_t first, size_t count) {
    if (s->job->zeroes && !s->applies) {
        const size_t width = ashlar_dtype_bytes(run->dtype);
        memset(at(run->gradients, first, width), 0, count * width);
    }
}

static void update_piece(void *context, size_t i) {
    const share *s = context;
    const ashlar_optimizer_job *job = s->job;
    const ashlar_optimizer_run *known = NULL; /* the run that `factors` belong to */
    ashlar_optimizer_factors factors;
    size_t chunk, end;
    piece_chunks(s, i, &chunk, &end);
    for (; chunk < end; chunk++) {
        size_t first, count;
        const ashlar_optimizer_run *run =
            &job->runs[ashlar__formula_clip(job, chunk, &first, &count)];
        if (run->is_frozen || (s->applies && !run->is_matrix)) {
            zero(s, run, first, count);
            continue;
        }
        if (run != known) {
            factors =
                run->is_matrix ? ashlar__formula_muon(job, run) : ashlar__formula_factors(job, run);
            known = run;
        }
        ashlar_optimizer_run piece = cut(run, first, count);
        ashlar__formula_stage(job, &piece);
        const ashlar_algorithm algorithm = !run->is_matrix ? job->rule.algorithm
                                           : s->applies    ? ASHLAR_ALGORITHM_MUON_APPLY
                                                           : ASHLAR_ALGORITHM_MUON_DIRECTION;
        (*s->kernels->update[piece.dtype])[algorithm](&factors, &piece);
        zero(s, run, first, count);
    }
}

static void zero_piece(void *context, size_t i) {
    const share *s = context;
    size_t chunk, end;
    piece_chunks(s, i, &chunk, &end);
    for (; chunk < end; chunk++) {
        size_t first, count;
        const size_t run = ashlar__formula_clip(s->job, chunk, &first, &count);
        zero(s, &s->job->runs[run], first, count);
    }
}

static void add_partials(const ashlar_optimizer_job *job) {
    double sum = 0;
    for (size_t chunk = job->first_chunk; chunk < job->end_chunk; chunk++) {
        sum += job->partials[chunk];
    }
    ashlar__formula_add_sum(job, sum);
}

void ashlar__optimizer_cpu_run_with(const ashlar_optimizer_job *job,
                                    const ashlar_optimizer_kernels *kernels) {
    ASHLAR_CHECK2(job->passes != 0 && job->first_chunk <= job->end_chunk);
    ASHLAR_CHECK2((job->run_count == 0) == (job->first_chunk == job->end_chunk));
    share s = {.job = job, .kernels = kernels, .pieces = count_pieces(job)};
    if (ashlar__formula_is_stale(job)) {
        s.pieces = 0;
    }
    if ((job->passes & ASHLAR_OPTIMIZER_SUM) != 0) {
        ashlar__workers_run(s.pieces, sum_piece, &s);
        add_partials(job);
    }
    if ((job->passes & ASHLAR_OPTIMIZER_DECIDE) != 0) {
        ashlar__formula_decide(&job->rule.config, job->rule.algorithm, job->gradient_scale,
                               job->scalars);
        ashlar__formula_correct(job, 0, 1);
    }
    if ((job->passes & ASHLAR_OPTIMIZER_UPDATE) != 0 && job->scalars->state.is_skipped != 0) {
        ashlar__workers_run(job->zeroes ? s.pieces : 0, zero_piece, &s);
    } else if ((job->passes & ASHLAR_OPTIMIZER_UPDATE) != 0) {
        ashlar__workers_run(s.pieces, update_piece, &s);
        if (s.pieces > 0 && job->matrix_dtypes != 0) {
            ashlar__muon_run(job, kernels);
            s.applies = true;
            ashlar__workers_run(s.pieces, update_piece, &s);
        }
    }
    if ((job->passes & ASHLAR_OPTIMIZER_FOLLOW) != 0) {
        ashlar__formula_follow(job);
    }
}

void ashlar__optimizer_cpu_run(void *job) {
    ashlar__optimizer_cpu_run_with(job, ashlar__optimizer_kernels_best());
}
