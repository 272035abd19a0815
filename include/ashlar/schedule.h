/*
 * schedule.h - the learning rate of every step of a training.
 */
#ifndef ASHLAR_SCHEDULE_H
#define ASHLAR_SCHEDULE_H

#include <stdint.h>

#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

/* Name, text. */
#define ASHLAR_SCHEDULE_MAP(X) \
    X(CONSTANT, "constant")    \
    X(COSINE, "cosine")        \
    X(STEP, "step")

#define ASHLAR_SCHEDULE_ENUM(name, text) ASHLAR_SCHEDULE_##name,
typedef enum ashlar_schedule_kind {
    ASHLAR_SCHEDULE_MAP(ASHLAR_SCHEDULE_ENUM)
    ASHLAR_SCHEDULE_COUNT
} ashlar_schedule_kind;

/*
 * A linear warm-up, then the kind's own course. With w = warmup_steps and u = max(w, 1), step t
 * from 1 has
 *
 *   t <= w     rate t / w
 *   CONSTANT   rate
 *   COSINE     rate (floor + (1 - floor) (1 + cos(pi (t - u) / (total_steps - u))) / 2): the full
 *              rate at t = u, rate floor at total_steps and later (Loshchilov and Hutter 2017)
 *   STEP       rate gamma^((t - w - 1) / step_size), rounded down
 *
 * What a kind does not mention is ignored.
 */
typedef struct ashlar_schedule {
    ashlar_schedule_kind kind;
    double rate;           /* > 0: the highest */
    uint64_t warmup_steps; /* COSINE: at most total_steps */
    uint64_t total_steps;  /* COSINE: at least 1 */
    double floor;          /* COSINE: 0 .. 1, a fraction of the rate */
    uint64_t step_size;    /* STEP: at least 1 */
    double gamma;          /* STEP: > 0, at most 1 */
} ashlar_schedule;

/* "constant" and so on; "unknown" for a value that is no kind. Threads: any. */
ASHLAR_API const char *ashlar_schedule_name(ashlar_schedule_kind kind);

/* Whether every value is in its range. Threads: any. Errors: ASHLAR_EINVAL. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_schedule_check(const ashlar_schedule *schedule);

/*
 * The learning rate of a step, of a schedule that has been checked: 0 .. rate.
 *
 * step   from 1; nothing else is remembered, so a resumed training goes on exactly
 *
 * Threads: any.  Cost: a few multiplications.
 */
ASHLAR_API double ashlar_schedule_rate(const ashlar_schedule *schedule, uint64_t step);

ASHLAR_END_DECLS

#endif /* ASHLAR_SCHEDULE_H */
