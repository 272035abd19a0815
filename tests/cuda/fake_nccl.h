/*
 * fake_nccl.h - the inside of the stand-in for NCCL: fake_nccl.c (communicators),
 * fake_nccl_memory.c (registered memory) and fake_nccl_run.c (collectives).
 *
 * It does what NCCL's documentation promises, between processes, and refuses what that forbids,
 * also where NCCL would hang, spoil memory, or be lucky. Each refusal is a line on stderr, with
 * "fake_nccl:" first, and what ncclGetLastError() says. With FAKE_NCCL_TELLS set it writes a line
 * for each piece of memory that is registered. FAKE_NCCL_PATIENCE_MS is how long a rank
 * waits for others before it takes them for gone, as if their connections had broken.
 */
#ifndef ASHLAR_FAKE_NCCL_H
#define ASHLAR_FAKE_NCCL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

#include "arena/reduce/ranks_impl.h"

enum {
    FAKE_NCCL_RANKS = 16,
    FAKE_NCCL_COMMS = 64,
    FAKE_NCCL_BUFFERS = 32,
    FAKE_NCCL_CHUNK = 1 << 16,
    FAKE_NCCL_PAGE = 2 << 20, /* granularity of the software device */
};

typedef enum fake_kind { FAKE_BROADCAST, FAKE_ALL_REDUCE, FAKE_SCATTER, FAKE_GATHER } fake_kind;

/* What must be the same on all ranks. */
typedef struct fake_call {
    uint64_t number;
    size_t elements, offset; /* from the head of registered memory */
    int kind, type, op, root;
    int is_registered;
} fake_call;

/* Memory that the ranks of a communicator share. */
typedef struct fake_shared {
    atomic_uint count;  /* of ranks, as the first said */
    atomic_uint joined; /* all are there when it is `count` */
    struct {
        atomic_bool is_there;
        atomic_int device;
    } members[FAKE_NCCL_RANKS];
    atomic_bool is_broken; /* a rank has refused: the others need not wait */
    atomic_uint arrived, round;
    fake_call calls[FAKE_NCCL_RANKS];
    _Alignas(64) char data[FAKE_NCCL_RANKS][FAKE_NCCL_CHUNK];
} fake_shared;

typedef struct fake_buffer {
    bool is_used;
    atomic_bool is_stale; /* it was unmapped */
    cu_ptr base;
    size_t bytes;
} fake_buffer;

typedef enum fake_state {
    FAKE_NONE,
    FAKE_JOINING,
    FAKE_READY,
    FAKE_FINALIZED,
    FAKE_DESTROYED,
    FAKE_ABORTED
} fake_state;

struct ncclComm {
    _Atomic fake_state state;
    fake_shared *shared;
    unsigned int rank, count;
    uint64_t number;    /* of the next collective */
    atomic_uint queued; /* collectives that have not ended */
    atomic_int failure; /* nccl_result: what asynchronous work has met */
    fake_buffer buffers[FAKE_NCCL_BUFFERS];
};

/* Say why, and return `result`. comm may be NULL. */
nccl_result fake_nccl_refuse(nccl_comm comm, nccl_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether a call may be made with it: it has been joined, and not ended. */
nccl_result fake_nccl_admit(nccl_comm comm, const char *call);

/* Wait for all other ranks. False: this rank has given up, another has refused, or one does not
 * come; `failure` says which. */
bool fake_nccl_meet(nccl_comm comm);

/* The registered memory that has all of [ptr, ptr + bytes), or NULL; a part of it is refused. */
nccl_result fake_nccl_find_buffer(nccl_comm comm, cu_ptr ptr, size_t bytes,
                                  const fake_buffer **out);
/* Whether all of it is memory of a device. */
bool fake_nccl_is_device(cu_ptr ptr, size_t bytes);

#define X(field, symbol, returned, params) ASHLAR_API returned symbol params;
ASHLAR_NCCL_MAP(X)
#undef X

#endif /* ASHLAR_FAKE_NCCL_H */
