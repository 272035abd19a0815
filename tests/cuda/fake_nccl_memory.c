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

static nccl_result add(nccl_comm comm, cu_ptr ptr, size_t bytes, void **out) {
    for (size_t i = 0; i < FAKE_NCCL_BUFFERS; i++) {
        fake_buffer *b = &comm->buffers[i];
        if (!b->is_used) {
            b->base = ptr;
            b->bytes = bytes;
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
    nccl_result result = fake_nccl_admit(comm, "ncclCommRegister");
    if (result == NCCL_SUCCESS &&
        (ptr % FAKE_NCCL_PAGE != 0 || bytes == 0 || bytes % FAKE_NCCL_PAGE != 0)) {
        result = fake_nccl_refuse(comm, NCCL_INVALID_ARGUMENT,
                                  "%zu bytes at %#llx are not of the granularity, %d", bytes,
                                  (unsigned long long)ptr, FAKE_NCCL_PAGE);
    }
    result = result == NCCL_SUCCESS ? check_memory(comm, ptr, bytes) : result;
    result = result == NCCL_SUCCESS ? add(comm, ptr, bytes, handle) : result;
    if (result == NCCL_SUCCESS && getenv("FAKE_NCCL_TELLS") != NULL) {
        (void)fprintf(stderr, "registered: %zu bytes\n", bytes);
    }
    return result;
}

nccl_result ncclCommDeregister(const nccl_comm comm, void *handle) {
    const char *const call = "ncclCommDeregister";
    const nccl_result result = fake_nccl_admit(comm, call);
    fake_buffer *b = handle;
    if (result != NCCL_SUCCESS) {
        return result;
    }
    if (b < comm->buffers || b >= comm->buffers + FAKE_NCCL_BUFFERS || !b->is_used) {
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
