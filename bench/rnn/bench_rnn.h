/* bench_rnn.h - the benchmark `rnn`: RNNs of many shapes, compared with PyTorch (internal). */
#ifndef ASHLAR_BENCH_RNN_H
#define ASHLAR_BENCH_RNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/allocator.h>
#include <ashlar/rnn.h>

#include "bench/harness/harness.h"

/* Runs the network of a benchmark in PyTorch, in a process of its own, for comparison. The process
 * is python3 with torch_rnn.py, which describes its questions and answers. */

typedef struct ashlar_rnn_torch ashlar_rnn_torch;

/* Start python3 with PyTorch on `threads` threads. *out is NULL if there is no PyTorch. Errors:
 * ASHLAR_EHOSTMEM, ASHLAR_EIO. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_torch_start(size_t threads, ashlar_rnn_torch **out);
void ashlar__rnn_torch_stop(ashlar_rnn_torch *torch); /* NULL is allowed */

/* Version and instruction set of the process that was started last, as "PyTorch 2.15.0+cpu,
 * AVX512"; NULL: none was started. */
const char *ashlar__rnn_torch_name(void);

/* Make a network of these sizes, in place of the one before. PyTorch tries its ways (with oneDNN or
 * without, sequences padded or packed), and takes the fastest.
 *
 * lengths   [batch]
 * is_made   false: PyTorch has no such network (LSTM and GRU in fp32, without projection)
 *
 * Errors: ASHLAR_EIO (the process has ended). */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_torch_make(ashlar_rnn_torch *torch,
                                                       const ashlar_rnn_config *config,
                                                       size_t steps, size_t batch,
                                                       const int32_t *lengths, bool is_inference,
                                                       bool *is_made);

/* Run a step, on values that PyTorch's process draws; it also measures the seconds. Errors:
 * ASHLAR_EIO. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_torch_step(ashlar_rnn_torch *torch, double *forward_s,
                                                       double *backward_s);

/* A case. A step's own buffers are its output, reserve, work and the gradient of its input;
 * subjects differ in where these come from. */
typedef struct ashlar_rnn_case {
    const char *name; /* tells the cell and the sizes T, B, I (unless I = H), H, L */
    size_t steps, batch;
    ashlar_rnn_config config;
    bool is_varied;    /* lengths vary from T/4 to T; false: all are T */
    bool is_inference; /* forward only, without a reserve */
    bool is_prepared;  /* ashlar_rnn_prepare() has packed the weights, untimed */
} ashlar_rnn_case;

/* All cases, in the order of the report. */
const ashlar_rnn_case *ashlar__rnn_cases(size_t *count);

/* The least work that a step of a case has to do. */
typedef struct ashlar_rnn_work {
    double flops;       /* multiplications and additions of its matrix products */
    double read_bytes;  /* bytes of weights read: in forward, and in backward over the data, the
                         * recurrent weights in every time step, the others once */
    size_t state_bytes; /* bytes of the recurrent matrix of one layer and direction */
} ashlar_rnn_work;

ashlar_rnn_work ashlar__rnn_case_work(const ashlar_rnn_case *which);

/* The subjects that a case compares. Columns: value, text. */
#define ASHLAR_RNN_SUBJECT_MAP(X)           \
    X(ASHLAR, "ashlar")                     \
    X(TORCH, "torch")                       \
    X(DRIVER_EACH_STEP, "driver_each_step") \
    X(STATIC_BUFFER, "static_buffer")

#define ASHLAR_RNN_SUBJECT_ENUM(name, text) ASHLAR_RNN_SUBJECT_##name,
typedef enum ashlar_rnn_subject {
    ASHLAR_RNN_SUBJECT_MAP(ASHLAR_RNN_SUBJECT_ENUM) ASHLAR_RNN_SUBJECT_COUNT
} ashlar_rnn_subject;

const char *ashlar__rnn_subject_name(ashlar_rnn_subject subject);

/* A step's buffers, in the order in which they are taken. */
enum { ASHLAR_RNN_OUTPUT, ASHLAR_RNN_RESERVE, ASHLAR_RNN_WORK, ASHLAR_RNN_DX, ASHLAR_RNN_TAKEN };

/* Zeroes are an empty setup. */
typedef struct ashlar_rnn_setup {
    const ashlar_rnn_case *which;
    ashlar_device *device;
    bool is_cuda; /* true: leave out PyTorch and the machine's limits, which are the host's */
    ashlar_allocator *allocator;
    ashlar_stream stream;
    ashlar_rnn *rnn;
    ashlar_rnn_torch *torch; /* the caller's; NULL: no PyTorch, or it has no such network */
    int32_t *lengths;        /* [B] */
    size_t bytes[ASHLAR_RNN_TAKEN];
    void *x, *dy;             /* [T, B, I] and [T, B, D*H]; the same for all subjects and steps */
    void *weights, *dweights; /* of the whole stack */
    void *prepared;           /* filled by ashlar_rnn_prepare(); NULL: nothing to prepare */
    void *range;              /* the memory that subject static_buffer uses in all steps */
} ashlar_rnn_setup;

typedef struct ashlar_rnn_times {
    double forward_s, backward_s; /* their sum is a step's time, which includes taking its buffers
                                   * and zeroing gradients */
} ashlar_rnn_times;

/* Set up a case on `device`; PyTorch (`torch`; NULL: none) takes part only on a software
 * device. Call ashlar__rnn_setup_finish() even after a failure. Errors: those of the
 * allocator, the RNN and PyTorch's process. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_setup_init(ashlar_rnn_setup *setup,
                                                       ashlar_device *device,
                                                       ashlar_rnn_torch *torch,
                                                       const ashlar_rnn_case *which);
void ashlar__rnn_setup_finish(ashlar_rnn_setup *setup);

/* Whether the subject takes part in this case. */
bool ashlar__rnn_setup_has(const ashlar_rnn_setup *setup, ashlar_rnn_subject subject);

/* Run one step to its end. Errors: those of the subject; nothing stays allocated. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_setup_run(ashlar_rnn_setup *setup,
                                                      ashlar_rnn_subject subject,
                                                      ashlar_rnn_times *times);

/* The machine's two limits on the speed of a network's step: multiply-adds in registers, and reads
 * of a buffer, on all threads that compute. */

typedef enum ashlar_roof {
    ASHLAR_ROOF_FMA,  /* fp32 multiply-adds, in the instruction set that the layers use */
    ASHLAR_ROOF_READ, /* bytes of a buffer; each thread reads a part of its own, again and again */
    ASHLAR_ROOF_COUNT
} ashlar_roof;

/* Run a limit's loop for some milliseconds, on all workers (workers.h). Returns what it does per
 * second: additions plus multiplications, or bytes.
 *
 * buffer  [bytes], only for READ: whole lines of 64 bytes; a buffer that fits the caches is read
 *         from there */
double ashlar__roof_run(ashlar_roof roof, const void *buffer, size_t bytes);

/* The loops for one instruction set (instruction_set.h); meson.build compiles roof_loops.c for each
 * set. Both return a number that depends on all that they did, so no work can be left out. */
typedef struct ashlar_roof_loops {
    float (*multiply)(size_t rounds, float factor); /* `products` multiply-adds in each round */
    float (*read)(const void *buffer, size_t bytes);
    size_t products;
} ashlar_roof_loops;
extern const ashlar_roof_loops ashlar__roof_loops_baseline, ashlar__roof_loops_avx2,
    ashlar__roof_loops_avx512, ashlar__roof_loops_neon;

/* The columns of the rows of `rnn`, as in ashlar_rows_column: medians over the rounds. A ratio is
 * the median of the rounds' ratios of MS_STEP. FLOPS and READ_RATE are the machine's limits,
 * measured in the same rounds, the latter on a buffer as large as one recurrent matrix. OF_PEAK is
 * the step's multiplications and additions per second, over FLOPS. OF_READ is the bytes of weights
 * that a step has to read (read_bytes of ashlar_rnn_work) per second, over READ_RATE. */
#define ASHLAR_RNN_ROW_COLUMN_MAP(X)                           \
    X(CASE, "case", "case", TEXT, 30, 0, 0)                    \
    X(SUBJECT, "subject", "subject", TEXT, 16, 0, 0)           \
    X(MS_FORWARD, "ms_forward", "forward", NUMBER, 9, 3, 0)    \
    X(MS_BACKWARD, "ms_backward", "backward", NUMBER, 9, 3, 0) \
    X(MS_STEP, "ms_step", "ms/step", NUMBER, 9, 3, 0)          \
    X(MS_STEP_LOW, "ms_step_low", NULL, NUMBER, 0, 0, 0)       \
    X(MS_STEP_HIGH, "ms_step_high", NULL, NUMBER, 0, 0, 0)     \
    X(STEPS_PER_S, "steps_per_s", "steps/s", NUMBER, 9, 1, 0)  \
    X(OVER_STATIC, "over_static", "/ static", NUMBER, 8, 3, 0) \
    X(OVER_TORCH, "over_torch", "/ torch", NUMBER, 8, 3, 0)    \
    X(OF_PEAK, "of_peak", "peak %", NUMBER, 6, 0, 100)         \
    X(OF_READ, "of_read", "read %", NUMBER, 6, 0, 100)         \
    X(FLOPS, "flops_per_s", NULL, NUMBER, 0, 0, 0)             \
    X(READ_RATE, "read_bytes_per_s", NULL, NUMBER, 0, 0, 0)
#define ASHLAR_RNN_ROW_COLUMN(name, ...) ASHLAR_RNN_ROW_##name,
enum { ASHLAR_RNN_ROW_COLUMN_MAP(ASHLAR_RNN_ROW_COLUMN) ASHLAR_RNN_ROW_COLUMNS };

extern const ashlar_benchmark ashlar__benchmark_rnn;

#endif /* ASHLAR_BENCH_RNN_H */
