/*
 * program_random.h - what the files of program_random share: the program's memory, streams,
 * contexts and graphs, as it knows them, and the acts it is made of.
 *
 * An act that makes no sense at the moment, or that CUDA would not allow, does nothing.
 */
#ifndef ASHLAR_TESTS_PRELOAD_PROGRAM_RANDOM_H
#define ASHLAR_TESTS_PRELOAD_PROGRAM_RANDOM_H

#include <stdint.h>
#include <stdlib.h>

#include "driver_calls.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum {
    CONTEXTS = 4,
    STREAMS = 5,
    BLOCKS = 64,
    HANDLES = 8,
    MODULES = 3,
    DEVICES = 2,
    NOWHERE = -1
};

/* How the program ends. */
enum { END_WELL, END_USAGE = 2, END_REFUSED = 3, END_ERROR = 4, END_OVERWRITTEN = 5 };

typedef enum block_kind { PLAIN, PITCHED, MANAGED, ON_STREAM, FROM_POOL, BLOCK_KINDS } block_kind;

/* A block's uses come one after another: the last is on the stream `on` of its context, or before
 * the event `after`, or over. It holds `value` at its stamps; NOWHERE: nothing was written. */
typedef struct block {
    cu_ptr ptr; /* 0: none */
    size_t bytes;
    block_kind kind;
    int context, on, value;
    int graph_value; /* what it holds once the graph was launched */
    cu_event after;
    bool is_in_graph; /* of the capture or the graph: its value and its address stay */
} block;

/* Stream 0 of a context is its legacy stream. */
typedef struct own_stream {
    cu_stream handle;
    bool is_there, is_blocking, has_allocated;
} own_stream;

typedef struct context {
    cu_context handle; /* NULL: none */
    cu_device device;
    bool is_made; /* by cuCtxCreate: it can end */
    own_stream streams[STREAMS];
} context;

typedef struct physical {
    cu_mem_handle handle; /* 0: none */
    size_t bytes;
    cu_device device;
} physical;

/* One capture or graph at a time. */
typedef struct graph_state {
    bool is_capturing;
    unsigned int mode;
    int context, stream, thread;
    cu_graph graph;     /* NULL: none */
    cu_graph_exec exec; /* NULL: none */
} graph_state;

/* What was drawn for an act: any of these may be taken modulo anything. */
typedef struct draw {
    uint64_t kind, a, b, c, where;
} draw;

typedef struct program {
    driver_calls cu;
    context contexts[CONTEXTS];
    block blocks[BLOCKS];
    physical handles[HANDLES];
    graph_state g;
    cu_module modules[CONTEXTS][MODULES]; /* of each context; NULL: none */
    void *own_pool;                       /* of device 0; NULL: none */
    int device_count;
    bool has_any_sizes;                    /* else whole pages of 2 MiB, and small blocks */
    bool is_plain;                         /* no memory in the order of streams, and no pools */
    bool has_no_captures, has_no_contexts; /* none but the devices' own */
    bool goes_on;                          /* after a request that is refused */
    bool is_hasty;                         /* it waits seldom */
    bool is_relaxed;                       /* the second thread minds no captures */
    int thread, now;                       /* the thread and the context of this act */
    size_t live_bytes[DEVICES], peak_bytes[DEVICES];
    size_t refused, done;
    int zones; /* the most that a caching allocator needs addresses of their own for */
    uint64_t number;
} program;

extern program p;

/* ---- results (program_random.c) ---- */

/* Say what an act did. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A call that must succeed: anything else ends the program. */
#define MUST(call) must((call), #call)
void must(cu_result result, const char *what);

/* A request that may be refused for memory, which ends the program unless it goes on. */
#define SERVED(call) served((call), #call)
bool served(cu_result result, const char *what);

void count_zones(void);

/* ---- what may be done now (program_random.c) ---- */

/* Calls that no capture can record: what takes memory, or waits. */
bool may_call_unsafe(void);
bool is_captured(int context, int stream);
/* Work on this stream of the current context would be captured, or would spoil a capture. */
bool may_queue(int stream);
/* The stream that `number` means. */
int pick_stream(uint64_t number);
/* A block of the current context; NULL: there is none. */
block *pick_block(uint64_t number);

/* ---- acts: memory (random_memory.c) ---- */

void act_alloc(const draw *d);
void act_free(const draw *d);
void act_create(const draw *d);
void act_release(const draw *d);
void act_info(const draw *d);
void act_pool(const draw *d);
void free_block(block *b, int stream);
void count_live(cu_device device, size_t bytes, bool is_more);
void release_handle(physical *h);

/* ---- acts: work (random_work.c) ---- */

void act_work(const draw *d);
void act_wait(const draw *d);
void act_wait_all(const draw *d);
void act_event(const draw *d);
void act_stream(const draw *d);
void act_context(const draw *d);
/* Have what is queued on the stream from now on come after the block's last use. */
void order(block *b, int stream);
/* Read and write the block's stamps on the stream. work_on: or fill it, if that may be done now. */
void use_block(block *b, int stream);
void work_on(block *b, int stream, bool fills);
void end_stream(int stream);
int overwritten(void);

/* ---- acts: captures, graphs and modules (random_graphs.c) ---- */

void act_begin(const draw *d);
void act_end(const draw *d);
void act_launch(const draw *d);
void act_destroy(const draw *d);
void act_module(const draw *d);

#endif /* ASHLAR_TESTS_PRELOAD_PROGRAM_RANDOM_H */
