/*
 * fake_nccl_memory.c - memory that is registered with the stand-in for NCCL: what may be, and that
 * it is given back before it is unmapped.
 */
#include "tests/cuda/fake_nccl.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/fake_driver.h"
#include "tests/cuda/libcuda.h"

static cu_result ask(cu_ptr ptr, unsigned int attribute, void *out) {
    cu_result (*get)(void *, unsigned int, cu_ptr);
    fake_find("cuPointerGetAttribute", 4000, &get);
    return get(out, attribute, ptr);
}

/* The driver's allocation at ptr: one mapping. */
static bool find_mapping(cu_ptr ptr, cu_ptr *base, size_t *bytes) {
    unsigned int type = 0;
    return ask(ptr, CU_POINTER_MEMORY_TYPE, &type) == CU_SUCCESS && type == CU_MEMORY_DEVICE &&
           ask(ptr, FAKE_POINTER_MAPPING_BASE, base) == CU_SUCCESS &&
           ask(ptr, FAKE_POINTER_MAPPING_SIZE, bytes) == CU_SUCCESS;
}

bool fake_nccl_is_device(cu_ptr ptr, size_t bytes) {
    for (const cu_ptr end = ptr + bytes; ptr < end;) {
        cu_ptr base = 0;
        size_t mapped = 0;
        if (!find_mapping(ptr, &base, &mapped)) {
            return false;
        }
        ptr = base + mapped;
    }
    return true;
}

/* ---- unmapped while registered ---- */

/* All communicators' buffers; a test has one thread that registers. */
static struct {
    nccl_comm comm;
    fake_buffer *buffer;
} known[FAKE_NCCL_COMMS * FAKE_NCCL_BUFFERS];
static atomic_size_t known_count;

static void see_unmap(cu_ptr ptr, size_t bytes) {
    for (size_t i = 0; i < atomic_load(&known_count); i++) {
        fake_buffer *b = known[i].buffer;
        if (b->is_used && b->base < ptr + bytes && ptr < b->base + b->bytes) {
            atomic_store(&b->is_stale, true);
            (void)fake_nccl_refuse(known[i].comm, NCCL_INVALID_USAGE,
                                   "memory is unmapped that is still registered");
        }
    }
}

static void watch(nccl_comm comm, fake_buffer *buffer) {
    void (*set)(ashlar_fake_unmap_fn *);
    for (size_t i = 0; i < atomic_load(&known_count); i++) {
        if (known[i].buffer == buffer) {
            return;
        }
    }
    known[atomic_load(&known_count)].comm = comm;
    known[atomic_load(&known_count)].buffer = buffer;
    atomic_fetch_add(&known_count, 1);
    fake_find_own("ashlar_fake_on_unmap", &set);
    set(see_unmap);
}

/* ---- registering ---- */

/* Device memory, made to be shared. */
static nccl_result check_memory(nccl_comm comm, cu_ptr ptr, size_t bytes) {
    for (const cu_ptr end = ptr + bytes; ptr < end;) {
        cu_ptr base = 0;
        size_t mapped = 0;
        unsigned long long types = 0;
        if (!find_mapping(ptr, &base, &mapped)) {
            return fake_nccl_refuse(comm, NCCL_INVALID_ARGUMENT, "no device memory at %#llx",
                                    (unsigned long long)ptr);
        }
        if (ask(ptr, FAKE_POINTER_HANDLE_TYPES, &types) != CU_SUCCESS ||
            (types & CU_HANDLE_FILE) == 0) {
            return fake_nccl_refuse(comm, NCCL_INVALID_ARGUMENT,
                                    "the memory at %#llx was made without a handle type",
                                    (unsigned long long)ptr);
        }
        ptr = base + mapped;
    }
    return NCCL_SUCCESS;
}

static nccl_result add(nccl_comm comm, cu_ptr ptr, size_t bytes, fake_buffer **out) {
    for (size_t i = 0; i < FAKE_NCCL_BUFFERS; i++) {
        fake_buffer *b = &comm->buffers[i];
        if (!b->is_used) {
            b->base = ptr;
            b->bytes = bytes;
            b->is_window = false;
            b->flags = 0;
            atomic_store(&b->is_stale, false);
            watch(comm, b);
            b->is_used = true;
            *out = b;
            return NCCL_SUCCESS;
        }
    }
    return fake_nccl_refuse(comm, NCCL_INTERNAL_ERROR, "too much memory is registered");
}

nccl_result ncclCommRegister(const nccl_comm comm, void *data, size_t bytes, void **handle) {
    const cu_ptr ptr = (uintptr_t)data;
    fake_buffer *made;
    nccl_result result = fake_nccl_admit(comm, "ncclCommRegister");
    if (result == NCCL_SUCCESS &&
        (ptr % FAKE_NCCL_PAGE != 0 || bytes == 0 || bytes % FAKE_NCCL_PAGE != 0)) {
        result = fake_nccl_refuse(comm, NCCL_INVALID_ARGUMENT,
                                  "%zu bytes at %#llx are not of the granularity, %d", bytes,
                                  (unsigned long long)ptr, FAKE_NCCL_PAGE);
    }
    result = result == NCCL_SUCCESS ? check_memory(comm, ptr, bytes) : result;
    result = result == NCCL_SUCCESS ? add(comm, ptr, bytes, &made) : result;
    if (result == NCCL_SUCCESS) {
        *handle = made;
    }
    if (result == NCCL_SUCCESS && getenv("FAKE_NCCL_TELLS") != NULL) {
        (void)fprintf(stderr, "registered: %zu bytes\n", bytes);
    }
    return result;
}

static nccl_result drop(nccl_comm comm, void *handle, bool is_window, const char *call) {
    const nccl_result result = fake_nccl_admit(comm, call);
    fake_buffer *b = handle;
    if (result != NCCL_SUCCESS) {
        return result;
    }
    if (b < comm->buffers || b >= comm->buffers + FAKE_NCCL_BUFFERS || !b->is_used ||
        b->is_window != is_window) {
        return fake_nccl_refuse(comm, NCCL_INVALID_ARGUMENT, "%s: nothing is registered so", call);
    }
    if (atomic_load(&comm->queued) > 0) {
        return fake_nccl_refuse(comm, NCCL_INVALID_USAGE,
                                "%s: collectives that may use it have not ended", call);
    }
    b->is_used = false;
    return atomic_load(&b->is_stale)
               ? fake_nccl_refuse(comm, NCCL_INVALID_USAGE, "%s: it was unmapped before", call)
               : NCCL_SUCCESS;
}

nccl_result ncclCommDeregister(const nccl_comm comm, void *handle) {
    return drop(comm, handle, false, "ncclCommDeregister");
}

/* All ranks come with the same size. */
static nccl_result compare_sizes(nccl_comm comm, size_t bytes) {
    comm->shared->sizes[comm->rank] = bytes;
    if (!fake_nccl_meet(comm)) {
        return fake_nccl_refuse(comm, NCCL_REMOTE_ERROR, "not all ranks register the window");
    }
    bool is_same = true;
    for (unsigned int i = 0; i < comm->count; i++) {
        is_same = is_same && comm->shared->sizes[i] == bytes;
    }
    (void)fake_nccl_meet(comm); /* all have read them */
    return is_same ? NCCL_SUCCESS
                   : fake_nccl_refuse(comm, NCCL_INVALID_USAGE,
                                      "the window has %zu bytes here, and others elsewhere", bytes);
}

nccl_result ncclCommWindowRegister(nccl_comm comm, void *data, size_t bytes, nccl_window *window,
                                   int flags) {
    const cu_ptr ptr = (uintptr_t)data;
    cu_ptr base = 0;
    size_t mapped = 0;
    fake_buffer *made = NULL;
    nccl_result result = fake_nccl_admit(comm, "ncclCommWindowRegister");
    result = result == NCCL_SUCCESS ? check_memory(comm, ptr, bytes) : result;
    if (result == NCCL_SUCCESS &&
        (!find_mapping(ptr, &base, &mapped) || (ptr - base) % FAKE_NCCL_WINDOW != 0)) {
        result = fake_nccl_refuse(comm, NCCL_INVALID_ARGUMENT,
                                  "a window begins %llu bytes behind its handle's beginning",
                                  (unsigned long long)(ptr - base));
    }
    if (result != NCCL_SUCCESS) {
        if (comm != NULL && comm->shared != NULL) {
            atomic_store(&comm->shared->is_broken, true);
        }
        return result;
    }
    result = compare_sizes(comm, bytes);
    result = result == NCCL_SUCCESS ? add(comm, ptr, bytes, &made) : result;
    if (result == NCCL_SUCCESS) {
        made->is_window = true;
        made->flags = flags;
        *window = (nccl_window)(void *)made;
    }
    return result;
}

nccl_result ncclCommWindowDeregister(nccl_comm comm, nccl_window window) {
    return drop(comm, window, true, "ncclCommWindowDeregister");
}

nccl_result fake_nccl_find_buffer(nccl_comm comm, cu_ptr ptr, size_t bytes,
                                  const fake_buffer **out) {
    *out = NULL;
    for (size_t i = 0; i < FAKE_NCCL_BUFFERS; i++) {
        const fake_buffer *b = &comm->buffers[i];
        if (!b->is_used || ptr >= b->base + b->bytes || b->base >= ptr + bytes) {
            continue;
        }
        if (ptr < b->base || ptr + bytes > b->base + b->bytes) {
            return fake_nccl_refuse(comm, NCCL_INVALID_USAGE,
                                    "a part of the data is registered, and a part is not");
        }
        if (atomic_load(&b->is_stale)) {
            return fake_nccl_refuse(comm, NCCL_INVALID_USAGE,
                                    "the data lie in registered memory that was unmapped");
        }
        *out = b;
    }
    return NCCL_SUCCESS;
}
