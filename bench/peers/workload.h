/*
 * workload.h - lists of operations, recorded once, that every subject of the benchmark runs
 * (internal).
 *
 * A list has three parts: a prologue that is run once, a body that is run again and again, and an
 * epilogue that gives back what the prologue left. Seeds are fixed, so a list is the same on every
 * machine and in every run.
 *
 * Invariants (tests/bench/peers/test_workload.c runs every list against them):
 *   0 <= body_begin < body_end <= count,  op_count(body) == 2 * body_pairs
 *   a variable is taken only while free and given only while taken; all are free
 *   after the last operation
 *   what is taken at body_end is what was taken at body_begin, variable for variable
 *   peak_bytes == the largest sum of bytes taken at a time, live_max == of variables
 *   steps ascend, steps[i] < body_end; where there are any, one begins at body_begin
 */
#ifndef ASHLAR_WORKLOAD_H
#define ASHLAR_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

typedef struct ashlar_op {
    uint32_t variable;
    uint32_t bytes; /* take so many into the variable; 0: give the variable's block back */
} ashlar_op;

/* Fields are read by all and written by workload*.c. */
typedef struct ashlar_workload {
    const char *name;    /* "one_size", "mix", "random", "rnn_warm", "rnn_cold" */
    const char *variant; /* "4096", "reverse", ...; "" where there is only one */
    ashlar_op *ops;
    size_t count, capacity;
    size_t body_begin, body_end;
    size_t body_pairs;
    size_t variable_count; /* variables are 0 .. variable_count-1 */
    uint64_t peak_bytes;
    size_t live_max;
    size_t *steps; /* [step_count]: where each step begins; it ends where the next one does */
    size_t step_count, step_capacity;
    /* While it is being recorded: */
    uint32_t *taken;          /* bytes by variable; 0: free */
    uint32_t *free_variables; /* a stack */
    size_t variable_capacity;
    size_t free_count;
    uint64_t live_bytes;
    bool has_failed; /* no host memory: nothing is recorded any more */
} ashlar_workload;

/* What can be recorded, and on how many threads it runs where nothing else is asked for. */
typedef struct ashlar_workload_spec {
    const char *name;
    const char *variant;
    bool has_threads; /* the issue is how it scales: on one thread and on two */
    void (*record)(ashlar_workload *w, uint32_t bytes);
    uint32_t bytes; /* for `record` */
} ashlar_workload_spec;

/* All that allocators are compared by, in the order of the report. */
const ashlar_workload_spec *ashlar__workload_specs(size_t *count);

/* Those that a plan is compared with the ordinary path by. They have steps. */
const ashlar_workload_spec *ashlar__workload_plan_specs(size_t *count);

/*
 * Record one.
 *
 * Ownership: the caller ends *out with ashlar__workload_finish().
 * Errors:    ASHLAR_EHOSTMEM; *out is then as it was.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__workload_init(ashlar_workload *out,
                                                      const ashlar_workload_spec *spec);
void ashlar__workload_finish(ashlar_workload *w);

/* How many of the steps are the body's. */
size_t ashlar__workload_body_steps(const ashlar_workload *w);

/* --- for those who record: a failure is kept until the end of ashlar__workload_init() --------- */

/* Take `bytes` > 0 into a free variable, which is returned; the most recently given one first. */
uint32_t ashlar__workload_take(ashlar_workload *w, uint32_t bytes);
void ashlar__workload_give(ashlar_workload *w, uint32_t variable);

/* Where the body begins and ends. Without a call: at the list's beginning and end. */
void ashlar__workload_begin_body(ashlar_workload *w);
void ashlar__workload_end_body(ashlar_workload *w);

/* A step of the program begins here, for subjects that want to know. */
void ashlar__workload_begin_step(ashlar_workload *w);

/* Of the lists of an RNN's training steps. */
enum { ASHLAR_WORKLOAD_RNN_STEPS = 1000, ASHLAR_WORKLOAD_RNN_LENGTH_MAX = 256 };

#endif /* ASHLAR_WORKLOAD_H */
