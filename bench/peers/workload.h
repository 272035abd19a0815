/*
 * workload.h - lists of operations, recorded once, that every subject of the benchmark runs
 * (internal).
 *
 * A list has three parts: a prologue that is run once, a body that is run again and again, and an
 * epilogue that gives back the remaining blocks. Seeds are fixed, so a list is the same on every
 * machine and in every run.
 *
 * Invariants (tests/bench/peers/test_workload.c runs every list against them):
 *   0 <= body_begin < body_end <= count,  op_count(body) == 2 * body_pairs
 *   a variable is taken only while free and given only while taken; all variables are free after
 *   the last operation
 *   at body_end each variable holds a block of the same size as at body_begin, or none at both
 *   peak_bytes == the largest sum of bytes taken at a time
 *   live_max == the largest number of variables taken at a time
 *   steps ascend, steps[i] < body_end; if there are steps, one begins at body_begin
 *   an operation's stream is below `streams`; an operation that gives a block back has the stream
 *   that the block was taken for
 */
#ifndef ASHLAR_WORKLOAD_H
#define ASHLAR_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

enum { ASHLAR_OP_VARIABLE_BITS = 22, ASHLAR_OP_STREAM_BITS = 10 };

typedef struct ashlar_op {
    uint32_t variable : ASHLAR_OP_VARIABLE_BITS;
    uint32_t stream : ASHLAR_OP_STREAM_BITS; /* the block's: an index of the thread's streams */
    uint32_t bytes; /* > 0: take a block of this size into the variable; 0: give its block back */
} ashlar_op;

/* How threads run a list of operations, and what is measured besides time. turn.h has the loops. */
typedef enum ashlar_workload_kind {
    ASHLAR_WORKLOAD_LIST,    /* each thread runs it on streams of its own */
    ASHLAR_WORKLOAD_LIVE,    /* the same; also measures the host memory of the prologue's blocks */
    ASHLAR_WORKLOAD_LATENCY, /* each operation is timed by itself */
    ASHLAR_WORKLOAD_HANDOFF, /* one thread takes the blocks, a second one gives them back */
    ASHLAR_WORKLOAD_KINDS
} ashlar_workload_kind;

/* Only workload.c writes the fields; everybody may read them. */
typedef struct ashlar_workload {
    const char *name;    /* "one_size", "mix", "random", "rnn_warm", "streams_64", ... */
    const char *variant; /* "4096", "reverse", ...; "" if the workload has only one variant */
    ashlar_workload_kind kind;
    size_t streams; /* that each thread has, 1 .. 2^ASHLAR_OP_STREAM_BITS */
    ashlar_op *ops;
    size_t count, capacity;
    size_t body_begin, body_end;
    size_t body_pairs;
    size_t variable_count; /* variables are 0 .. variable_count-1 */
    uint64_t peak_bytes;
    size_t live_max;
    size_t *steps; /* [step_count]: index of the first operation of each step */
    size_t step_count, step_capacity;
    /* The fields below are used only while the list is recorded. */
    struct {
        uint32_t taken;  /* size of the variable's block; 0: free */
        uint32_t stream; /* of the variable's block */
        uint32_t free;   /* of the first free_count entries: a stack of free variables */
    } * variables;       /* [variable_count] */
    size_t variable_capacity;
    size_t free_count;
    uint64_t live_bytes;
    bool has_failed; /* host memory ran out; from then on nothing is recorded */
} ashlar_workload;

/* How to record a list, and on how many threads it runs by default. */
typedef struct ashlar_workload_spec {
    const char *name;
    const char *variant;
    ashlar_workload_kind kind;
    size_t threads_least, threads_most; /* it runs once on each of these numbers of threads */
    size_t streams;                     /* 0: one */
    void (*record)(ashlar_workload *w, uint32_t amount);
    uint32_t amount;       /* the argument of `record`: a size, or another property of the
                            * variant */
    uint32_t amount_smoke; /* the same for a smoke run; 0: no other amount */
} ashlar_workload_spec;

/* The i-th list, in the order of the report, that compares allocators or, with is_of_plans, a plan
 * with the ordinary path; NULL: there are fewer. Lists for plans have steps. */
const ashlar_workload_spec *ashlar__workload_spec(bool is_of_plans, size_t i);

/*
 * Record the list of a spec, or (is_smoke) a short one of the same kind.
 *
 * Ownership: the caller ends *out with ashlar__workload_finish().
 * Errors:    ASHLAR_EHOSTMEM; *out is then unchanged.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__workload_init(ashlar_workload *out,
                                                      const ashlar_workload_spec *spec,
                                                      bool is_smoke);
void ashlar__workload_finish(ashlar_workload *w);

/* How many steps begin in the body. */
size_t ashlar__workload_body_steps(const ashlar_workload *w);

/* --- for a spec's `record`; ashlar__workload_init() reports failures of these ---------------- */

/* Take `bytes` > 0 bytes into a free variable, preferably the one given back last, and return it.
 * The block is for the thread's first stream; _on: for stream number `stream`. */
uint32_t ashlar__workload_take(ashlar_workload *w, uint32_t bytes);
uint32_t ashlar__workload_take_on(ashlar_workload *w, uint32_t bytes, uint32_t stream);
void ashlar__workload_give(ashlar_workload *w, uint32_t variable);

/* The body begins or ends here; by default, the body is the whole list. */
void ashlar__workload_begin_body(ashlar_workload *w);
void ashlar__workload_end_body(ashlar_workload *w);

/* A step of the program begins here, for peers that have begin_step(). */
void ashlar__workload_begin_step(ashlar_workload *w);

/* rnn_warm and rnn_cold: the training steps in the body, and the length of the longest sequence. */
enum { ASHLAR_WORKLOAD_RNN_STEPS = 1000, ASHLAR_WORKLOAD_RNN_LENGTH_MAX = 256 };

#endif /* ASHLAR_WORKLOAD_H */
