/*
 * fake_nccl.c - a libnccl.so.2 for tests: communicators, joined through a file in memory whose
 * process and descriptor are the unique id.
 */
#include "tests/cuda/fake_nccl.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/host.h"
#include "tests/cuda/fake_driver.h"

enum { VERSION = 22809, DEFAULT_PATIENCE_MS = 60000 };

static struct ncclComm comms[FAKE_NCCL_COMMS];
static atomic_uint comm_count;
static _Thread_local char last_error[256];

nccl_result fake_nccl_refuse(nccl_comm comm, nccl_result result, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    if (comm == NULL) {
        (void)fprintf(stderr, "fake_nccl: %s\n", last_error);
    } else {
        (void)fprintf(stderr, "fake_nccl: rank %u: %s\n", comm->rank, last_error);
    }
    return result;
}

nccl_result ncclGetVersion(int *version) {
    *version = VERSION;
    return NCCL_SUCCESS;
}

const char *ncclGetErrorString(nccl_result result) {
    return result == NCCL_INVALID_USAGE ? "invalid usage" : "fake NCCL error";
}

const char *ncclGetLastError(nccl_comm comm) {
    (void)comm;
    return last_error;
}

/* ---- ids ---- */

nccl_result ncclGetUniqueId(nccl_id *id) {
    const int file = memfd_create("fake-nccl", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, sizeof(fake_shared)) != 0) {
        return fake_nccl_refuse(NULL, NCCL_SYSTEM_ERROR, "no memory to share");
    }
    memset(id, 0, sizeof *id);
    (void)snprintf(id->bytes, sizeof id->bytes, "/proc/%ld/fd/%d", (long)getpid(), file);
    return NCCL_SUCCESS;
}

static fake_shared *open_shared(const nccl_id *id) {
    const int file = memchr(id->bytes, '\0', sizeof id->bytes) == NULL
                         ? -1
                         : open(id->bytes, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        return NULL;
    }
    void *mapped = mmap(NULL, sizeof(fake_shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    (void)close(file);
    return mapped == MAP_FAILED ? NULL : mapped;
}

/* ---- joining ---- */

static nccl_result check_config(const nccl_config *config) {
    if (config == NULL || config->magic != NCCL_CONFIG_MAGIC || config->size < sizeof *config ||
        config->version < NCCL_CONFIG_VERSION) {
        return fake_nccl_refuse(NULL, NCCL_INVALID_ARGUMENT,
                                "the configuration was not initialised");
    }
    return NCCL_SUCCESS;
}

static int current_device(void) {
    cu_result (*get)(cu_device *);
    cu_device device = -1;
    fake_find("cuCtxGetDevice", 2000, &get);
    return get(&device) == CU_SUCCESS ? device : -1;
}

static nccl_result enter_shared(nccl_comm comm, int device) {
    fake_shared *s = comm->shared;
    unsigned int none = 0;
    if (!atomic_compare_exchange_strong(&s->count, &none, comm->count) && none != comm->count) {
        return fake_nccl_refuse(comm, NCCL_INVALID_USAGE, "of %u ranks, and another of %u",
                                comm->count, none);
    }
    if (atomic_exchange(&s->members[comm->rank].is_there, true)) {
        return fake_nccl_refuse(comm, NCCL_INVALID_USAGE, "this id has such a rank already");
    }
    atomic_store(&s->members[comm->rank].device, device + 1);
    for (unsigned int i = 0; i < comm->count; i++) {
        if (i != comm->rank && atomic_load(&s->members[i].device) == device + 1) {
            return fake_nccl_refuse(comm, NCCL_INVALID_USAGE,
                                    "ranks %u and %u have the same device, %d", i, comm->rank,
                                    device);
        }
    }
    atomic_fetch_add(&s->joined, 1);
    return NCCL_SUCCESS;
}

nccl_result ncclCommInitRankConfig(nccl_comm *out, int count, nccl_id id, int rank,
                                   nccl_config *config) {
    const unsigned int number = atomic_fetch_add(&comm_count, 1);
    const int device = current_device();
    nccl_result result = check_config(config);
    if (result != NCCL_SUCCESS) {
        return result;
    }
    if (device < 0) {
        return fake_nccl_refuse(NULL, NCCL_CUDA_ERROR, "no context is current");
    }
    if (count < 1 || count > FAKE_NCCL_RANKS || rank < 0 || rank >= count ||
        number >= FAKE_NCCL_COMMS) {
        return fake_nccl_refuse(NULL, NCCL_INVALID_ARGUMENT, "rank %d of %d", rank, count);
    }
    nccl_comm comm = &comms[number];
    comm->rank = (unsigned int)rank;
    comm->count = (unsigned int)count;
    comm->shared = open_shared(&id);
    if (comm->shared == NULL) {
        return fake_nccl_refuse(comm, NCCL_INVALID_ARGUMENT, "the id is none");
    }
    result = enter_shared(comm, device);
    if (result != NCCL_SUCCESS) {
        atomic_store(&comm->shared->is_broken, true);
        return result;
    }
    atomic_store(&comm->state, FAKE_JOINING);
    *out = comm;
    while (config->is_blocking != 0 && result == NCCL_SUCCESS &&
           atomic_load(&comm->state) == FAKE_JOINING) {
        nccl_result now;
        result = ncclCommGetAsyncError(comm, &now);
        (void)sched_yield();
    }
    return config->is_blocking != 0 ? result : NCCL_IN_PROGRESS;
}

/* ---- the life of a communicator ---- */

static bool is_known(nccl_comm comm) {
    return comm >= comms && comm < comms + FAKE_NCCL_COMMS;
}

nccl_result fake_nccl_admit(nccl_comm comm, const char *call) {
    static const char *const why[] = {
        [FAKE_NONE] = "is none",
        [FAKE_JOINING] = "is not joined yet",
        [FAKE_FINALIZED] = "has been finalized",
        [FAKE_DESTROYED] = "has been destroyed",
        [FAKE_ABORTED] = "has been aborted",
    };
    const fake_state state = is_known(comm) ? atomic_load(&comm->state) : FAKE_NONE;
    return state == FAKE_READY
               ? NCCL_SUCCESS
               : fake_nccl_refuse(is_known(comm) ? comm : NULL, NCCL_INVALID_ARGUMENT,
                                  "%s: the communicator %s", call, why[state]);
}

nccl_result ncclCommGetAsyncError(nccl_comm comm, nccl_result *result) {
    const fake_state state = is_known(comm) ? atomic_load(&comm->state) : FAKE_NONE;
    if (state != FAKE_JOINING && state != FAKE_FINALIZED) {
        const nccl_result admitted = fake_nccl_admit(comm, "ncclCommGetAsyncError");
        if (admitted != NCCL_SUCCESS) {
            return admitted;
        }
    }
    *result = (nccl_result)atomic_load(&comm->failure);
    if (state != FAKE_JOINING) {
        return NCCL_SUCCESS;
    }
    if (atomic_load(&comm->shared->is_broken)) {
        *result = NCCL_REMOTE_ERROR;
    } else if (atomic_load(&comm->shared->joined) == comm->count) {
        atomic_store(&comm->state, FAKE_READY);
    } else {
        *result = NCCL_IN_PROGRESS;
    }
    return NCCL_SUCCESS;
}

static nccl_result check_idle(nccl_comm comm, const char *call) {
    if (atomic_load(&comm->queued) > 0) {
        return fake_nccl_refuse(comm, NCCL_INVALID_USAGE, "%s: %u collectives have not ended", call,
                                atomic_load(&comm->queued));
    }
    for (size_t i = 0; i < FAKE_NCCL_BUFFERS; i++) {
        if (comm->buffers[i].is_used) {
            return fake_nccl_refuse(comm, NCCL_INVALID_USAGE, "%s: memory is still registered",
                                    call);
        }
    }
    return NCCL_SUCCESS;
}

nccl_result ncclCommFinalize(nccl_comm comm) {
    nccl_result result = fake_nccl_admit(comm, "ncclCommFinalize");
    result = result == NCCL_SUCCESS ? check_idle(comm, "ncclCommFinalize") : result;
    if (result == NCCL_SUCCESS) {
        atomic_store(&comm->state, FAKE_FINALIZED);
    }
    return result;
}

nccl_result ncclCommDestroy(nccl_comm comm) {
    const bool is_finalized = is_known(comm) && atomic_load(&comm->state) == FAKE_FINALIZED;
    nccl_result result = is_finalized ? NCCL_SUCCESS : fake_nccl_admit(comm, "ncclCommDestroy");
    result = result == NCCL_SUCCESS ? check_idle(comm, "ncclCommDestroy") : result;
    if (result == NCCL_SUCCESS) {
        atomic_store(&comm->state, FAKE_DESTROYED);
        (void)munmap(comm->shared, sizeof *comm->shared);
    }
    return result;
}

nccl_result ncclCommAbort(nccl_comm comm) {
    const fake_state state = is_known(comm) ? atomic_load(&comm->state) : FAKE_NONE;
    if (state != FAKE_JOINING && state != FAKE_FINALIZED) {
        const nccl_result result = fake_nccl_admit(comm, "ncclCommAbort");
        if (result != NCCL_SUCCESS) {
            return result;
        }
    }
    for (size_t i = 0; i < FAKE_NCCL_BUFFERS; i++) {
        comm->buffers[i].is_used = false;
    }
    atomic_store(&comm->state, FAKE_ABORTED); /* what runs looks at this, and at what is shared */
    return NCCL_SUCCESS;
}

/* ---- waiting for each other ---- */

static uint64_t patience_ns(void) {
    const char *text = getenv("FAKE_NCCL_PATIENCE_MS");
    return (text == NULL ? DEFAULT_PATIENCE_MS : strtoull(text, NULL, 10)) * UINT64_C(1000000);
}

/* As NCCL's kernels do, wait on for a while after the failure is known: until the abort. */
bool fake_nccl_meet(nccl_comm comm) {
    fake_shared *s = comm->shared;
    const unsigned int round = atomic_load(&s->round);
    const uint64_t patience = patience_ns(), start = ashlar__clock_ns();
    if (atomic_fetch_add(&s->arrived, 1) + 1 == comm->count) {
        atomic_store(&s->arrived, 0);
        atomic_fetch_add(&s->round, 1);
    }
    for (size_t turn = 0; atomic_load(&s->round) == round; turn++) {
        const uint64_t waited = ashlar__clock_ns() - start;
        const bool is_over = atomic_load(&s->is_broken) || waited > 4 * patience ||
                             atomic_load(&comm->state) == FAKE_ABORTED;
        if (is_over || waited > patience) {
            int none = NCCL_SUCCESS;
            (void)atomic_compare_exchange_strong(&comm->failure, &none, NCCL_REMOTE_ERROR);
        }
        if (is_over) {
            return false;
        }
        if (turn < 100) {
            (void)sched_yield();
        } else {
            (void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        }
    }
    return true;
}
