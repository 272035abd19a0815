/* optimizer_cpu.c - runs a job on the CPU: the workers share its chunks. */
#include "allocator/base/check_level.h"
#include "arena/optimizer/optimizer_formula.h"
#include "arena/optimizer/optimizer_kernels.h"
#include "arena/compute/workers.h"

enum { PIECE_ELEMENTS = 32768 /* worth waking a thread: about ten microseconds of work */ };

/* A job as the workers see it. */
typedef struct share {
    const ashlar_optimizer_job *job;
    const ashlar_optimizer_kernels *kernels;
    size_t pieces;
} share;

/* The elements of one chunk that the job covers. */
typedef struct clipped_chunk {
    const ashlar_optimizer_run *run;
    size_t first, count; /* elements of the run */
} clipped_chunk;

/* The part of `chunk` that the job covers. *run: any run up to the chunk's; becomes the chunk's. */
static clipped_chunk clip_chunk(const ashlar_optimizer_job *job, size_t chunk, size_t *run) {
    while (*run + 1 < job->run_count && job->runs[*run + 1].first_chunk <= chunk) {
        ++*run;
    }
    const ashlar_optimizer_run *r = &job->runs[*run];
    size_t first = (chunk - r->first_chunk) * ASHLAR_OPTIMIZER_CHUNK;
    size_t end = first + ASHLAR_OPTIMIZER_CHUNK;
    const size_t low = *run == 0 ? job->first : 0;
    const size_t high = *run + 1 == job->run_count ? job->end : r->elements;
    first = first > low ? first : low;
    end = end < high ? end : high;
    ASHLAR_CHECK2(r->first_chunk <= chunk && first < end && end <= r->elements);
    return (clipped_chunk){.run = r, .first = first, .count = end - first};
}

/* Piece i of the job has the chunks [*first, *end). */
static void piece_chunks(const share *s, size_t i, size_t *first, size_t *end) {
    const size_t chunks = s->job->end_chunk - s->job->first_chunk;
    const size_t whole = chunks / s->pieces, more = chunks % s->pieces;
    *first = s->job->first_chunk + i * whole + (i < more ? i : more);
    *end = *first + whole + (i < more);
    ASHLAR_CHECK2(*first < *end && *end <= s->job->end_chunk);
    ASHLAR_CHECK2(i + 1 < s->pieces || *end == s->job->end_chunk);
}

static void *at(const void *array, size_t first, size_t width) {
    return array == NULL ? NULL : (char *)(uintptr_t)array + first * width;
}

static void sum_piece(void *context, size_t i) {
    const share *s = context;
    size_t chunk, end;
    piece_chunks(s, i, &chunk, &end);
    for (size_t run = ashlar__formula_find_run(s->job, chunk); chunk < end; chunk++) {
        const clipped_chunk p = clip_chunk(s->job, chunk, &run);
        const void *values = at(p.run->gradients, p.first, ashlar_dtype_bytes(p.run->dtype));
        s->job->partials[chunk] = s->kernels->sum[p.run->dtype](values, p.count);
    }
}

static void update_chunk(const share *s, const clipped_chunk *p,
                         const ashlar_optimizer_factors *factors) {
    const size_t width = ashlar_dtype_bytes(p->run->dtype);
    ASHLAR_CHECK2(p->run->parameters != NULL && p->run->gradients != NULL);
    const size_t state_width = p->run->dtype == ASHLAR_F64 ? sizeof(double) : sizeof(float);
    ashlar_optimizer_run piece = *p->run;
    piece.parameters = at(piece.parameters, p->first, width);
    piece.gradients = at(piece.gradients, p->first, width);
    piece.moment1 = at(piece.moment1, p->first, state_width);
    piece.moment2 = at(piece.moment2, p->first, state_width);
    piece.master = at(piece.master, p->first, sizeof(float));
    piece.elements = p->count;
    (*s->kernels->update[piece.dtype])[s->job->rule.algorithm](factors, &piece);
}

static void update_piece(void *context, size_t i) {
    const share *s = context;
    const ashlar_optimizer_job *job = s->job;
    const ashlar_optimizer_run *known = NULL; /* the run whose factors these are */
    ashlar_optimizer_factors factors;
    size_t chunk, end;
    piece_chunks(s, i, &chunk, &end);
    for (size_t run = ashlar__formula_find_run(job, chunk); chunk < end; chunk++) {
        const clipped_chunk p = clip_chunk(job, chunk, &run);
        if (p.run != known) {
            factors = ashlar__formula_factors(&job->rule, job->scalars, p.run, job->learning_rate);
            known = p.run;
        }
        update_chunk(s, &p, &factors);
    }
}

static void add_partials(const ashlar_optimizer_job *job) {
    double sum = 0;
    for (size_t chunk = job->first_chunk; chunk < job->end_chunk; chunk++) {
        sum += job->partials[chunk];
    }
    job->scalars->sum = sum;
}

void ashlar__optimizer_cpu_run_with(const ashlar_optimizer_job *job,
                                    const ashlar_optimizer_kernels *kernels) {
    const size_t chunks = job->end_chunk - job->first_chunk;
    ASHLAR_CHECK2(job->passes != 0 && job->first_chunk <= job->end_chunk);
    ASHLAR_CHECK2((job->run_count == 0) == (chunks == 0));
    const size_t pieces = job->elements / PIECE_ELEMENTS + 1;
    share s = {.job = job, .kernels = kernels, .pieces = pieces < chunks ? pieces : chunks};
    if ((job->passes & ASHLAR_OPTIMIZER_SUM) != 0) {
        ashlar__workers_run(s.pieces, sum_piece, &s);
        add_partials(job);
    }
    if ((job->passes & ASHLAR_OPTIMIZER_DECIDE) != 0) {
        ashlar__formula_decide(&job->rule.config, job->rule.algorithm, job->gradient_scale,
                               job->scalars);
    }
    if ((job->passes & ASHLAR_OPTIMIZER_UPDATE) != 0 && job->scalars->state.is_skipped == 0) {
        ashlar__workers_run(s.pieces, update_piece, &s);
    }
}

void ashlar__optimizer_cpu_run(void *job) {
    ashlar__optimizer_cpu_run_with(job, ashlar__optimizer_kernels_best());
}
