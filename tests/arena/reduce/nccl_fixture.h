/*
 * nccl_fixture.h - ranks on CUDA devices for tests, a process each, by the stand-in for NCCL, whose
 * table each may change.
 */
#ifndef ASHLAR_NCCL_FIXTURE_H
#define ASHLAR_NCCL_FIXTURE_H

#include "tests/arena/reduce/ranks_fixture.h"

#include "allocator/device/device_impl.h"
#include "arena/reduce/ranks_impl.h"

enum { ELEMENTS = 24 };

static ashlar_nccl *nccl; /* the table of this process */
static ashlar_nccl real;
static ashlar_allocator *allocator;
static void *memory;
static double host[ELEMENTS];

static inline void open_cuda(uint32_t timeout_ms) {
    const ashlar_nccl *found = NULL;
    char name[32];
    (void)snprintf(name, sizeof name, "cuda:%zu", rank);
    CHECK(ashlar_ranks_open(ENGINE_LIBRARY, timeout_ms, &ranks) == ASHLAR_OK);
    CHECK(ashlar_device_open(name, &device) == ASHLAR_OK);
    CHECK(ashlar_stream_create(device, &stream) == ASHLAR_OK);
    CHECK(ashlar_allocator_create(device, &allocator) == ASHLAR_OK);
    CHECK(ashlar_alloc(allocator, sizeof host, stream, &memory) == ASHLAR_OK);
    CHECK(ashlar__nccl_open(&found) == ASHLAR_OK);
    nccl = (ashlar_nccl *)(uintptr_t)found;
    real = *nccl;
    meet(); /* no rank's timeout runs while another one still begins */
}

static inline void close_cuda(bool has_failed) {
    ashlar_ranks_drop_collectives(ranks, has_failed);
    CHECK(ranks->nccl == NULL && ranks->device == NULL);
    CHECK(ashlar_free(allocator, memory) == ASHLAR_OK);
    ashlar_allocator_destroy(allocator);
    close_soft(has_failed);
    meet(); /* the id is a file of rank 0's */
}

static inline void put(ashlar_dtype dtype) {
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    fill(host, dtype, ELEMENTS, rank);
    CHECK(ashlar_copy_to_device(device, memory, host, sizeof host, stream) == ASHLAR_OK);
}

static inline void expect(ashlar_dtype dtype, size_t first, size_t end, size_t from, bool is_sum) {
    size_t wrong = 0;
    CHECK(ashlar_copy_to_host(device, host, memory, sizeof host, stream) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    CHECK(ashlar_ranks_check(ranks) == ASHLAR_OK);
    for (size_t i = first; i < end; i++) {
        const size_t of = from < world->count ? from : i / (ELEMENTS / world->count);
        wrong += element(host, dtype, i) != (is_sum ? sum_of(i) : number_of(of, i));
    }
    CHECK_ZU(wrong, 0);
}

/* ---- what goes wrong ---- */

static inline nccl_result no_joining(nccl_comm *comm, int count, nccl_id id, int as,
                                     nccl_config *config) {
    (void)id;
    CHECK(count == 2 && as == (int)rank && config->is_blocking == 0);
    *comm = NULL;
    return NCCL_INVALID_USAGE;
}

static inline nccl_result late_error(nccl_comm comm, nccl_result *result) {
    (void)comm;
    *result = NCCL_REMOTE_ERROR;
    return NCCL_SUCCESS;
}

static inline void check_told(ashlar_status status, const char *words) {
    CHECK(status == ASHLAR_EIO);
    CHECK_HAS(ashlar_error_detail(), words);
    CHECK(ashlar_ranks_check(ranks) == ASHLAR_EIO);
}

#endif /* ASHLAR_NCCL_FIXTURE_H */
