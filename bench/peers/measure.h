/* measure.h - recorded lists of operations, and what they cost a peer (internal). */
#ifndef ASHLAR_MEASURE_H
#define ASHLAR_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

#include "bench/harness/harness.h"
#include "bench/peers/peer.h"

/*
 * Lists of operations, recorded once, that every subject of the benchmark runs.
 *
 * A list has three parts: a prologue that is run once, a body that is run again and again, and an
 * epilogue that gives back the remaining blocks. Seeds are fixed, so a list is the same on every
 * machine and in every run.
 *
 * Invariants (test_workload.c runs every list against them):
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

enum { ASHLAR_OP_VARIABLE_BITS = 22, ASHLAR_OP_STREAM_BITS = 10 };

typedef struct ashlar_op {
    uint32_t variable : ASHLAR_OP_VARIABLE_BITS;
    uint32_t stream : ASHLAR_OP_STREAM_BITS; /* the block's: an index of the thread's streams */
    uint32_t bytes; /* > 0: take a block of this size into the variable; 0: give its block back */
} ashlar_op;

/* How threads run a list of operations, and what is measured besides time. turn.c has the loops. */
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
    size_t streams; /* the streams of each thread, 1 .. 2^ASHLAR_OP_STREAM_BITS */
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
        uint32_t stream; /* the stream of the variable's block */
        uint32_t free;   /* in the first free_count entries: the stack of free variables */
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
    size_t threads_least, threads_most; /* the list is run on each of these numbers of threads */
    size_t streams;                     /* the streams of each thread; 0: one */
    void (*record)(ashlar_workload *w, uint32_t amount);
    uint32_t amount;       /* the argument of `record`: a size, or what else the variant is */
    uint32_t amount_smoke; /* the same for a smoke run; 0: `amount` */
} ashlar_workload_spec;

/* The i-th list of `alloc` or, with is_of_plans, of `plan`, in the order of the report; NULL: there
 * are fewer. Lists of `plan` have steps. */
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

/* rnn_warm and rnn_cold: the training steps in the body, and the length of the longest sequence. */
enum { ASHLAR_WORKLOAD_RNN_STEPS = 1000, ASHLAR_WORKLOAD_RNN_LENGTH_MAX = 256 };

/* A turn's figures besides the seconds of a body, in ns. */
enum {
    ASHLAR_TURN_P50 = 1, /* times of single pairs, for ASHLAR_WORKLOAD_LATENCY */
    ASHLAR_TURN_P99,
    ASHLAR_TURN_P999,
    ASHLAR_TURN_MAX,
};
_Static_assert((int)ASHLAR_TURN_MAX < (int)ASHLAR_ROUNDS_FIGURES, "a turn's figures are kept");

/* One subject: an instance of a peer, and the blocks that its threads hold. */
typedef struct ashlar_turn_subject {
    const ashlar_peer *peer;
    void *self;
    bool is_created;
    void **variables; /* [threads, ashlar__turn_stride()]: blocks; NULL: the variable is free */
    size_t *sizes;    /* laid out like `variables`: the size of the block in each, in bytes; NULL
                         unless the peer has give_sized */
} ashlar_turn_subject;

/* Operations [begin, end) of the list, `repeats` times. */
typedef struct ashlar_turn {
    const ashlar_workload *workload;
    const ashlar_turn_subject *subject;
    const ashlar_stream *streams; /* [threads, workload->streams] */
    size_t begin, end, repeats;
    double figures[ASHLAR_ROUNDS_FIGURES]; /* zeros before the turn; LATENCY sets [0], the ns that
                                              were timed, and [ASHLAR_TURN_P50] .. */
} ashlar_turn;

/* Variables per thread, padded by two cache lines so that no two threads write into one line. */
static inline size_t ashlar__turn_stride(const ashlar_workload *w) {
    return w->variable_count + 16;
}

/*
 * Run the turn on the threads of the team, by the list's kind: all operations in one timed loop;
 * each timed by itself (LATENCY); or one thread takes the blocks and another gives them back
 * (HANDOFF).
 *
 * wall_ns   time of the turn; for latencies only of its timed parts
 *
 * Errors: those of the peer; ASHLAR_ENOMEM if it had no block to give; ASHLAR_EHOSTMEM. Blocks not
 *         yet given back are in the variables; HANDOFF leaves none.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__turn_run(ashlar_thread_team *team, ashlar_turn *turn,
                                                 double *wall_ns);

/* The same in one timed loop, whatever the list's kind. */
ASHLAR_MUST_CHECK ashlar_status ashlar__turn_list(ashlar_thread_team *team, ashlar_turn *turn,
                                                  double *wall_ns);

/* Give back all blocks in the variables of each thread. */
ASHLAR_MUST_CHECK ashlar_status ashlar__turn_give_rest(ashlar_thread_team *team, ashlar_turn *turn);

/* Measures the cost of a workload on each subject: it runs the prologue, then the body once to
 * count driver calls, then the body in timed rounds (harness/rounds.c). */

typedef struct ashlar_measure_config {
    ashlar_device *device;
    size_t threads; /* LIST: 1 .. ASHLAR_PEER_THREADS_MAX, each runs the whole list on its own
                     * streams; HANDOFF: 2; other kinds: 1 */
    size_t rounds;  /* 1 .. ASHLAR_ROUNDS_MAX; a very slow subject takes part in fewer */
    double round_ns; /* about how long one subject's turn takes, which repeats the body; 0: a smoke
                      * run, in which each subject runs the body once */
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
    double host_bytes; /* ASHLAR_WORKLOAD_LIVE: host memory per live block; NaN: another kind */
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

/*
 * The benchmarks `alloc` and `plan`: the host's time for one pair of malloc and free, compared with
 * other allocators, or when a step's plan serves it.
 */

/* The columns of both benchmarks, as in ashlar_rows_column: ashlar-bench(1) says what each means.
 */
#define ASHLAR_ALLOC_COLUMN_MAP(X)                                                 \
    X(WORKLOAD, "workload", "workload", TEXT, 13, 0, 0)                            \
    X(VARIANT, "variant", "variant", TEXT, 16, 0, 0)                               \
    X(THREADS, "threads", "threads", NUMBER, 7, 0, 0)                              \
    X(SUBJECT, "subject", "subject", TEXT, 9, 0, 0)                                \
    X(NS_PAIR, "ns_pair", "ns/pair", NUMBER, 10, 1, 0)                             \
    X(NS_PAIR_LOW, "ns_pair_low", NULL, NUMBER, 0, 0, 0)                           \
    X(NS_PAIR_HIGH, "ns_pair_high", NULL, NUMBER, 0, 0, 0)                         \
    X(DRIVER_CALLS, "driver_calls", "driver calls", NUMBER, 13, 0, 0)              \
    X(RESERVED_OVER_LIVE, "reserved_over_live", "reserved/live", NUMBER, 14, 3, 0) \
    X(OVER_FLOOR, "over_floor", "x floor", NUMBER, 9, 2, 0)                        \
    X(OVER_ASHLAR, "over_ashlar", "x ashlar", NUMBER, 9, 2, 0)                     \
    X(NS_STEP, "ns_step", NULL, OPTIONAL, 0, 0, 0)                                 \
    X(THROUGHPUT, "throughput", "x 1 thread", OPTIONAL, 11, 2, 0)                  \
    X(OVER_ONE_SIZE, "over_one_size", "x 4 KiB", OPTIONAL, 9, 2, 0)                \
    X(NS_P50, "ns_p50", NULL, OPTIONAL, 0, 0, 0)                                   \
    X(NS_P99, "ns_p99", NULL, OPTIONAL, 0, 0, 0)                                   \
    X(NS_P999, "ns_p999", NULL, OPTIONAL, 0, 0, 0)                                 \
    X(NS_MAX, "ns_max", NULL, OPTIONAL, 0, 0, 0)                                   \
    X(HOST_BYTES, "host_bytes", NULL, OPTIONAL, 0, 0, 0)
#define ASHLAR_ALLOC_COLUMN(name, ...) ASHLAR_ALLOC_##name,
enum { ASHLAR_ALLOC_COLUMN_MAP(ASHLAR_ALLOC_COLUMN) ASHLAR_ALLOC_COLUMNS };

extern const ashlar_benchmark ashlar__benchmark_alloc, ashlar__benchmark_plan;

extern const ashlar_rows_form ashlar__alloc_form;

#endif /* ASHLAR_MEASURE_H */
