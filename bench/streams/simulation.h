/* simulation.h - simulates programs of several streams in virtual time, with one of the compared
 * allocators: the allocators' functions, the calls of a program, its figures, and the programs
 * (internal).
 *
 * A program is one thread that calls these functions. It runs on a software device of its own with
 * time=on, from whose clocks all figures come, so that they are the same each time. */
#ifndef ASHLAR_STREAMS_SIMULATION_H
#define ASHLAR_STREAMS_SIMULATION_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/device.h>

/* The functions that the benchmark calls on an allocator. Threads: one. The device's context is
 * current in each call. */
typedef struct ashlar_streams_subject {
    const char *name;
    ashlar_status (*create)(ashlar_device *device, void **self);
    void (*destroy)(void *self);                                   /* also with live blocks */
    void *(*take)(void *self, size_t bytes, ashlar_stream stream); /* NULL: no memory */
    void (*give)(void *self, void *ptr);
    /* As ashlar_record_stream() and ashlar_free_on(). NULL: the subject knows only one stream for
     * each block, so the program makes this stream wait for the others before it gives the block
     * back. */
    ashlar_status (*record)(void *self, void *ptr, ashlar_stream stream);
    ashlar_status (*give_on)(void *self, void *ptr,
                             ashlar_stream stream); /* if NULL: `record` and `give` */
} ashlar_streams_subject;

/* A pool for each stream, in PyTorch's manner: memory is bound to the stream that first took it,
 * until memory runs out and every unused segment goes back to the driver. */
extern const ashlar_streams_subject ashlar__streams_per_stream;

/* The i-th: ashlar, cub in builds that have it, per_stream. False: there are fewer. */
bool ashlar__streams_subject(size_t i, ashlar_streams_subject *out);

enum {
    ASHLAR_SIM_STREAMS_MAX = 8,
    ASHLAR_SIM_LAG_MAX = 8,   /* by how many steps the host may run ahead of a stream */
    ASHLAR_SIM_AWAY_MAX = 64, /* blocks given back that other streams still use */
    ASHLAR_SIM_SETTLE = 2,    /* steps of each stream in which memory is still taken */
};

/* Bytes that a kernel works on per ns; few, as if each byte took much arithmetic. */
#define ASHLAR_SIM_BYTES_PER_NS 25

typedef struct ashlar_sim ashlar_sim;

/* A block of the program. Zeros: no block. */
typedef struct ashlar_sim_block {
    void *ptr;
    size_t bytes;
    size_t owner;        /* the stream it was taken for */
    unsigned uses;       /* bits of the further streams that use it */
    uint64_t use_end_ns; /* when these streams are done with it */
} ashlar_sim_block;

/* A program's figures. */
typedef struct ashlar_sim_figures {
    uint64_t ns;           /* from the first request to the end of all work of device and host */
    uint64_t settled_ns;   /* the same from the end of the first ASHLAR_SIM_SETTLE steps on */
    size_t reserved_bytes; /* most physical memory that was taken from the device */
    /* Sum over the streams of each stream's peak of bytes in blocks. A block that only its own
     * stream uses counts until it is given back, any other until its further streams are done with
     * it. So an allocator without waits needs this much if its streams share no memory. */
    size_t need_bytes;
    /* Waits that delayed a stream's work, and waits of the host for the device, without those of
     * the program itself and of the first steps. */
    double waits_per_step, host_waits_per_step;
} ashlar_sim_figures;

typedef struct ashlar_sim_program {
    size_t streams;  /* 1 .. ASHLAR_SIM_STREAMS_MAX */
    size_t stepping; /* how many of the streams have steps */
    size_t variant;  /* its meaning depends on the program */
    ashlar_status (*run)(ashlar_sim *sim, const struct ashlar_sim_program *program, size_t steps);
} ashlar_sim_program;

/* Configure the software devices anew, with `memory_bytes`, and run a program. Threads: no other
 * thread may use software devices, and none of these may be open. Errors: ASHLAR_ENOMEM (the
 * subject had no memory for a block), ASHLAR_EHOSTMEM, ASHLAR_EDRIVER, ASHLAR_EFORMAT (is_proved: a
 * block was handed out before its earlier uses were over). */
ASHLAR_MUST_CHECK ashlar_status ashlar__sim_run(const ashlar_sim_program *program,
                                                const ashlar_streams_subject *subject, size_t steps,
                                                size_t memory_bytes, bool is_proved,
                                                ashlar_sim_figures *out);

ASHLAR_MUST_CHECK ashlar_status ashlar__sim_take(ashlar_sim *sim, size_t bytes, size_t stream,
                                                 ashlar_sim_block *out);

/* Tell the subject of the block's further streams, then give the block back and set *block to
 * zeros. Zeros are allowed. */
ASHLAR_MUST_CHECK ashlar_status ashlar__sim_give(ashlar_sim *sim, ashlar_sim_block *block);

/* Give a block back on `stream`, whose last work comes after all other uses of the block. */
ASHLAR_MUST_CHECK ashlar_status ashlar__sim_give_on(ashlar_sim *sim, ashlar_sim_block *block,
                                                    size_t stream);

/* Queue a kernel that works on all bytes of the blocks. */
ASHLAR_MUST_CHECK ashlar_status ashlar__sim_kernel(ashlar_sim *sim, size_t stream,
                                                   ashlar_sim_block *const *blocks, size_t count);

/* How long such a kernel takes. */
uint64_t ashlar__sim_kernel_ns(size_t bytes);

/* Keep a stream busy for `ns`. */
ASHLAR_MUST_CHECK ashlar_status ashlar__sim_delay(ashlar_sim *sim, size_t stream, uint64_t ns);

/* Make a stream wait for the work queued on another one, since data is handed on. */
ASHLAR_MUST_CHECK ashlar_status ashlar__sim_follow(ashlar_sim *sim, size_t stream, size_t after);

/* Before a step: the host waits until the stream has ended all but its newest `lag` steps. */
ASHLAR_MUST_CHECK ashlar_status ashlar__sim_begin_step(ashlar_sim *sim, size_t stream, size_t lag);
ASHLAR_MUST_CHECK ashlar_status ashlar__sim_end_step(ashlar_sim *sim, size_t stream);

/* A program of the benchmark (programs.c). */
typedef struct ashlar_streams_case {
    const char *name, *variant;
    ashlar_sim_program program;
    size_t steps, smoke_steps; /* of each stream; their mean if streams differ */
    size_t bytes;              /* of each block; 0: of several sizes */
    double share;              /* device memory as a share of the need; 0: more than enough */
} ashlar_streams_case;

const ashlar_streams_case *ashlar__streams_cases(size_t *count);

#endif /* ASHLAR_STREAMS_SIMULATION_H */
