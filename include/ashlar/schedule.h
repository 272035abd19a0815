/* schedule.h - the learning rate of every step of a training. */
#ifndef ASHLAR_SCHEDULE_H
#define ASHLAR_SCHEDULE_H

#include <stddef.h>
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
    ASHLAR_SCHEDULE_MAP(ASHLAR_SCHEDULE_ENUM) ASHLAR_SCHEDULE_COUNT
} ashlar_schedule_kind;

/* A linear warm-up, then a course that depends on the kind. With w = warmup_steps and u = max(w,
 * 1), the learning rate of step t >= 1 is
 *
 *   t <= w     rate t / w
 *   CONSTANT   rate
 *   COSINE     rate (floor + (1 - floor) (1 + cos(pi (t - u) / (total_steps - u))) / 2): the full
 *              rate at t = u, rate floor at total_steps and later (Loshchilov and Hutter 2017)
 *   STEP       rate gamma^floor((t - w - 1) / step_size)
 *
 * Fields that a kind does not use are ignored; `rate`, total_steps of COSINE and step_size of STEP
 * must be given. */
typedef struct ashlar_schedule {
    ashlar_schedule_kind kind;
    double rate;           /* > 0: the highest learning rate */
    uint64_t warmup_steps; /* COSINE: at most total_steps */
    uint64_t total_steps;  /* COSINE: at least 1 */
    double floor;          /* COSINE: 0 .. 1, the final rate as a fraction of `rate` */
    uint64_t step_size;    /* STEP: at least 1 */
    double gamma;          /* STEP: > 0, at most 1; 0 stands for 0.1 */
} ashlar_schedule;

/* "constant" and so on; "unknown" for any other value. Threads: any. */
ASHLAR_API const char *ashlar_schedule_name(ashlar_schedule_kind kind);

/* Whether every value is in its range. Threads: any. Errors: ASHLAR_EINVAL. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_schedule_check(const ashlar_schedule *schedule);

/* The learning rate of a step, 0 .. rate. The schedule must have passed ashlar_schedule_check().
 *
 * step   from 1; the rate depends on nothing else, so a resumed training continues exactly
 *
 * Threads: any.  Cost: a few multiplications. */
ASHLAR_API double ashlar_schedule_rate(const ashlar_schedule *schedule, uint64_t step);

ASHLAR_END_DECLS

#endif /* ASHLAR_SCHEDULE_H */
