/* ranks_mpi.c - ashlar-mpi: the functions of ranks_engine.h by MPI; a library of its own, built for
 * each MPI, and the only file that includes mpi.h. */
#include <mpi.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "arena/compute/convert.h"
#include "arena/reduce/ranks_engine.h"

enum {
    ABORT_S = 2, /* for MPI to end all processes, this one included */
    PAUSE_S = 1  /* before MPI_Finalize(); see wait_for_finalize() */
};

_Static_assert(sizeof(MPI_Request) <= ASHLAR_ENGINE_REQUEST_BYTES, "a request fits");

static struct {
    MPI_Comm world; /* our own, so that a program's messages and ours never meet */
    MPI_Op sum_f16, sum_bf16;
    int rank, count;
    char error[MPI_MAX_ERROR_STRING + 64];
} state;

static const char *check(int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS) {
        return NULL;
    }
    (void)MPI_Error_string(code, text, &length);
    (void)snprintf(state.error, sizeof state.error, "%s: %s", what, text);
    return state.error;
}

/* MPI has no 16-bit floating-point types: F16 and BF16 travel as integers, and are added by these
 * two functions, with the rounding of ashlar__sum_add(). */
static void add_f16(void *from, void *to, int *count, MPI_Datatype *unused) {
    const uint16_t *a = from;
    uint16_t *b = to;
    (void)unused;
    for (int i = 0; i < *count; i++) {
        b[i] = ashlar__f16_from_float(ashlar__float_from_f16(a[i]) + ashlar__float_from_f16(b[i]));
    }
}

static void add_bf16(void *from, void *to, int *count, MPI_Datatype *unused) {
    const uint16_t *a = from;
    uint16_t *b = to;
    (void)unused;
    for (int i = 0; i < *count; i++) {
        b[i] =
            ashlar__bf16_from_float(ashlar__float_from_bf16(a[i]) + ashlar__float_from_bf16(b[i]));
    }
}

static const char *start(size_t *rank, size_t *count) {
    int provided = MPI_THREAD_SINGLE, is_initialized = 0;
    (void)MPI_Initialized(&is_initialized);
    if (is_initialized) {
        (void)MPI_Query_thread(&provided);
    } else if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
        return "MPI_Init_thread failed";
    }
    if (provided < MPI_THREAD_SERIALIZED) {
        return "this MPI allows calls on one thread only; ashlar needs MPI_THREAD_SERIALIZED";
    }
    if (MPI_Comm_dup(MPI_COMM_WORLD, &state.world) != MPI_SUCCESS) {
        return "MPI_Comm_dup failed";
    }
    (void)MPI_Comm_set_errhandler(state.world, MPI_ERRORS_RETURN);
    (void)MPI_Comm_rank(state.world, &state.rank);
    (void)MPI_Comm_size(state.world, &state.count);
    *rank = (size_t)state.rank;
    *count = (size_t)state.count;
    const char *error = check(MPI_Op_create(add_f16, 1, &state.sum_f16), "MPI_Op_create");
    return error != NULL ? error
                         : check(MPI_Op_create(add_bf16, 1, &state.sum_bf16), "MPI_Op_create");
}

/* In MPI_Finalize(), MPICH before 4.2 over UCX sends a last message to each rank, waits until all
 * are acknowledged, and then acknowledges no more (MPICH's change 6596). Over TCP a rank that is
 * still in an earlier call may acknowledge; when it finalizes later, it waits for ever for those
 * that have left. So all ranks meet in a barrier, then pause without a call until the others have
 * left it, too, even if TCP must send again twice. */
static void wait_for_finalize(void) {
#if defined MPICH_NUMVERSION && MPICH_NUMVERSION < 40200000
    const struct timespec pause = {.tv_sec = PAUSE_S};
    MPI_Comm host;
    int count = 0;
    if (MPI_Comm_split_type(state.world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host) ==
        MPI_SUCCESS) {
        (void)MPI_Comm_size(host, &count);
        (void)MPI_Comm_free(&host);
    }
    if (count < state.count && MPI_Barrier(state.world) == MPI_SUCCESS) {
        (void)nanosleep(&pause, NULL);
    }
#endif
}

static void stop(void) {
    wait_for_finalize();
    (void)MPI_Op_free(&state.sum_f16);
    (void)MPI_Op_free(&state.sum_bf16);
    (void)MPI_Comm_free(&state.world);
    (void)MPI_Finalize();
}

static void *end_late(void *status) {
    (void)sleep(ABORT_S);
    _exit((int)(intptr_t)status);
}

/* End all processes. MPICH waits for its launcher to end this one, even if it cannot reach the
 * launcher, so a thread ends it after ABORT_S. */
static void abort_all(int status) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, end_late, (void *)(intptr_t)status) == 0) {
        (void)pthread_detach(thread);
    }
    (void)MPI_Abort(MPI_COMM_WORLD, status);
}

static void keep(ashlar_engine_request *request, const MPI_Request *from) {
    memcpy(request->bytes, from, sizeof *from);
}

static const char *send(size_t to, ashlar_engine_message kind, const void *data, size_t bytes,
                        ashlar_engine_request *request) {
    MPI_Request begun;
    const char *error =
        check(MPI_Isend(data, (int)bytes, MPI_BYTE, (int)to, (int)kind, state.world, &begun),
              "MPI_Isend");
    keep(request, &begun);
    return error;
}

static const char *receive(size_t from, ashlar_engine_message kind, void *data, size_t bytes,
                           ashlar_engine_request *request) {
    MPI_Request begun;
    const char *error =
        check(MPI_Irecv(data, (int)bytes, MPI_BYTE, (int)from, (int)kind, state.world, &begun),
              "MPI_Irecv");
    keep(request, &begun);
    return error;
}

static MPI_Datatype type_of(ashlar_dtype dtype) {
    return dtype == ASHLAR_F32 ? MPI_FLOAT : dtype == ASHLAR_F64 ? MPI_DOUBLE : MPI_UINT16_T;
}

static MPI_Op sum_of(ashlar_dtype dtype) {
    return dtype == ASHLAR_F16 ? state.sum_f16 : dtype == ASHLAR_BF16 ? state.sum_bf16 : MPI_SUM;
}

static const char *collect(ashlar_engine_collective kind, void *data, size_t elements,
                           ashlar_dtype dtype, size_t root, ashlar_engine_request *request) {
    const MPI_Datatype type = type_of(dtype);
    const int all = (int)elements, each = (int)(elements / (size_t)state.count);
    MPI_Request begun = MPI_REQUEST_NULL;
    int code = MPI_ERR_OP;
    switch (kind) {
    case ASHLAR_ENGINE_BROADCAST:
        code = MPI_Ibcast(data, all, type, (int)root, state.world, &begun);
        break;
    case ASHLAR_ENGINE_ALL_REDUCE:
        code = MPI_Iallreduce(MPI_IN_PLACE, data, all, type, sum_of(dtype), state.world, &begun);
        break;
    case ASHLAR_ENGINE_REDUCE_SCATTER:
        code = MPI_Ireduce_scatter_block(MPI_IN_PLACE, data, each, type, sum_of(dtype), state.world,
                                         &begun);
        break;
    case ASHLAR_ENGINE_ALL_GATHER:
        code = MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, each, type, state.world,
                              &begun);
        break;
    }
    keep(request, &begun);
    return check(code, "MPI");
}

static const char *test(ashlar_engine_request *request, bool *is_done) {
    MPI_Request begun;
    int done = 0;
    memcpy(&begun, request->bytes, sizeof begun);
    const char *error = check(MPI_Test(&begun, &done, MPI_STATUS_IGNORE), "MPI_Test");
    keep(request, &begun);
    *is_done = done != 0;
    return error;
}

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const ashlar_engine *
ashlar_ranks_engine(void);

const ashlar_engine *ashlar_ranks_engine(void) {
    static const ashlar_engine engine = {
        .version = ASHLAR_ENGINE_VERSION,
        .start = start,
        .stop = stop,
        .abort = abort_all,
        .send = send,
        .receive = receive,
        .collect = collect,
        .test = test,
    };
    return &engine;
}
