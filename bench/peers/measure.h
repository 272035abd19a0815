/*
 * measure.h - measures the cost of a workload on each subject, in rounds that take turns
 * (internal).
 *
 * Each subject has its own instance of the peer. The subject runs the prologue, then the body once
 * to count driver calls, then the body in timed rounds (harness/rounds.h).
 */
#ifndef ASHLAR_MEASURE_H
#define ASHLAR_MEASURE_H

#include "bench/peers/peer.h"
#include "bench/peers/workload.h"

typedef struct ashlar_measure_config {
    ashlar_device *device;
    size_t threads; /* 1 .. ASHLAR_PEER_THREADS_MAX; each runs the whole list on streams of its own.
                     * 2 for ASHLAR_WORKLOAD_HANDOFF, 1 for other kinds */
    size_t rounds;  /* 1 .. ASHLAR_ROUNDS_MAX; a very slow subject takes part in fewer */
    double round_ns; /* about how long one subject's turn takes, by repeating the body; 0: a smoke
                      * run, in which each takes one turn, the body's first run */
} ashlar_measure_config;

typedef struct ashlar_measurement {
    double ns_pair; /* median over the rounds of wall time / pairs of one thread, which
                     * is the same for any number of threads if scaling is perfect */
    double ns_pair_low, ns_pair_high; /* the middle half of the rounds lies between them */
    uint64_t driver_calls;     /* in the body's first run; choosing a context is not counted */
    double reserved_over_live; /* peak of reserved bytes / peak of live bytes; NaN: not known */
    /* ASHLAR_WORKLOAD_LATENCY: times of the body's pairs, medians over the rounds, too; NaN: the
     * list is of another kind. */
    double ns_p50, ns_p99, ns_p999, ns_max;
    double host_bytes; /* ASHLAR_WORKLOAD_LIVE: for each live block; NaN: another kind */
} ashlar_measurement;

/* Whether the peer can run a list of this kind. */
bool ashlar__measure_can(const ashlar_workload *workload, const ashlar_peer *peer);

/*
 * Measure `count` peers, each as one subject; all of them can run the list.
 *
 * out       [count], in the order of `peers`; undefined after a failure
 *
 * Errors: those of the peers and of starting threads; ASHLAR_ENOMEM if a peer had no block to give.
 *         Every block has been given back, also after a failure.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__measure(const ashlar_measure_config *config,
                                                const ashlar_workload *workload,
                                                const ashlar_peer *const *peers, size_t count,
                                                ashlar_measurement *out);

/* Run the prologue, then the body `times` times, on one thread: for tools that count instructions.
 * Errors: as for ashlar__measure(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__measure_repeat(ashlar_device *device,
                                                       const ashlar_workload *workload,
                                                       const ashlar_peer *peer, size_t times);

#endif /* ASHLAR_MEASURE_H */
