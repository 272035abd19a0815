/*
 * measure.h - what a workload costs each subject, in rounds that take turns (internal).
 *
 * Each subject has an instance of its own. It runs the prologue, then the body once to count driver
 * calls, then the body in timed rounds. In each round all subjects take turns, each round beginning
 * with another, so that a noisy machine disturbs all alike.
 */
#ifndef ASHLAR_MEASURE_H
#define ASHLAR_MEASURE_H

#include "bench/peers/peer.h"
#include "bench/peers/workload.h"

typedef struct ashlar_measure_config {
    ashlar_device *device;
    size_t threads;  /* 1 .. ASHLAR_PEER_THREADS_MAX; each has the list and a stream to itself */
    size_t rounds;   /* 1 .. ASHLAR_MEASURE_ROUNDS_MAX; a very slow subject takes part in fewer */
    double round_ns; /* the body is repeated until a round of a subject takes about so long */
} ashlar_measure_config;

enum { ASHLAR_MEASURE_ROUNDS_MAX = 101 };

typedef struct ashlar_measurement {
    double ns_pair;            /* median of the rounds: wall time / pairs of one thread, so that it
                                  stays what it is on one thread where the scaling is perfect */
    uint64_t driver_calls;     /* of the body's first run; picking a context is not counted */
    double reserved_over_live; /* peak of both; 0: not known */
} ashlar_measurement;

/*
 * Measure `count` subjects, one result each.
 *
 * out       count of them, in the order of the subjects; not to be read after a failure
 *
 * Errors: those of the subjects and of threads; ASHLAR_ENOMEM where a subject had no block to give.
 *         Nothing stays taken.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__measure(const ashlar_measure_config *config,
                                                const ashlar_workload *workload,
                                                const ashlar_peer *const *peers, size_t count,
                                                ashlar_measurement *out);

/* Run the body `times` times on one subject and one thread, for tools that count instructions. */
ASHLAR_MUST_CHECK ashlar_status ashlar__measure_repeat(ashlar_device *device,
                                                       const ashlar_workload *workload,
                                                       const ashlar_peer *peer, size_t times);

#endif /* ASHLAR_MEASURE_H */
