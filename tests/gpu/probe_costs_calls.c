/* probe_costs_calls.c - what the calls around a call for memory cost on the host, and those that
 * queue work: each made many times in a row, on a stream of its own. */
#include "tests/gpu/probe.h"

#include <stdio.h>

#include "allocator/base/host.h"

enum { REPEATS = 1000, SMOKE_REPEATS = 20, COPIED = 64, ROUNDS_MAX = 64 };

typedef struct calls {
    const ashlar_driver_table *cuda;
    cu_context context;
    cu_stream stream;
    cu_event event;    /* past */
    cu_function empty; /* NULL: no kernel could be loaded */
    cu_ptr ptr;
    void *locked;
} calls;

static cu_result push_and_pop(const calls *c) {
    cu_context popped;
    const cu_result result = c->cuda->ctx_push_current(c->context);
    return result == CU_SUCCESS ? c->cuda->ctx_pop_current(&popped) : result;
}

static cu_result relax_and_back(const calls *c) {
    unsigned int mode = CU_CAPTURE_RELAXED;
    const cu_result result = c->cuda->thread_exchange_capture_mode(&mode);
    return result == CU_SUCCESS ? c->cuda->thread_exchange_capture_mode(&mode) : result;
}

static cu_result ask_id(const calls *c) {
    unsigned long long id;
    return c->cuda->stream_get_id(c->stream, &id);
}

static cu_result ask_capture(const calls *c) {
    unsigned int status;
    return c->cuda->stream_is_capturing(c->stream, &status);
}

static cu_result ask_locked(const calls *c) {
    unsigned int type;
    return c->cuda->pointer_get_attribute(&type, CU_POINTER_MEMORY_TYPE,
                                          (cu_ptr)(uintptr_t)c->locked);
}

static cu_result ask_pageable(const calls *c) {
    unsigned int type;
    (void)c->cuda->pointer_get_attribute(&type, CU_POINTER_MEMORY_TYPE, (cu_ptr)(uintptr_t)&type);
    return CU_SUCCESS;
}

static cu_result ask_event(const calls *c) {
    return c->cuda->event_query(c->event);
}

static cu_result ask_stream(const calls *c) {
    return c->cuda->stream_query(c->stream);
}

static cu_result record(const calls *c) {
    return c->cuda->event_record(c->event, c->stream);
}

static cu_result wait_in_stream(const calls *c) {
    return c->cuda->stream_wait_event(c->stream, c->event, 0);
}

static cu_result fill(const calls *c) {
    return c->cuda->memset_d8_async(c->ptr, 1, COPIED, c->stream);
}

static cu_result copy_locked(const calls *c) {
    return c->cuda->memcpy_htod_async(c->ptr, c->locked, COPIED, c->stream);
}

static cu_result copy_pageable(const calls *c) {
    static const unsigned char bytes[COPIED];
    return c->cuda->memcpy_htod_async(c->ptr, bytes, COPIED, c->stream);
}

static cu_result launch(const calls *c) {
    return c->cuda->launch_kernel(c->empty, 1, 1, 1, 32, 1, 1, 0, c->stream, NULL, NULL);
}

static const struct {
    const char *name;
    cu_result (*call)(const calls *c);
    size_t bytes;
} kinds[] = {
    {"cuCtxPushCurrent and cuCtxPopCurrent", push_and_pop, 0},
    {"cuThreadExchangeStreamCaptureMode, twice", relax_and_back, 0},
    {"cuStreamGetId", ask_id, 0},
    {"cuStreamIsCapturing", ask_capture, 0},
    {"cuPointerGetAttribute, page-locked", ask_locked, 0},
    {"cuPointerGetAttribute, pageable", ask_pageable, 0},
    {"cuEventQuery, past", ask_event, 0},
    {"cuStreamQuery, idle", ask_stream, 0},
    {"cuEventRecord", record, 0},
    {"cuStreamWaitEvent, past", wait_in_stream, 0},
    {"cuMemsetD8Async", fill, COPIED},
    {"cuMemcpyHtoDAsync, page-locked", copy_locked, COPIED},
    {"cuMemcpyHtoDAsync, pageable", copy_pageable, COPIED},
    {"cuLaunchKernel", launch, 0},
};

/* A driver compiles this for its device. Stand-ins load no PTX. */
static cu_function load_empty(const ashlar_driver_table *cuda) {
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .entry empty() { ret; }\n";
    cu_module module;
    cu_function empty = NULL;
    return cuda->module_load_data(&module, ptx) == CU_SUCCESS &&
                   cuda->module_get_function(&empty, module, "empty") == CU_SUCCESS
               ? empty
               : NULL;
}

/* The time of one call in each round; false: one failed. The stream is idle at a round's begin. */
static bool time_kind(const calls *c, cu_result (*call)(const calls *c), size_t rounds,
                      size_t repeats, double *ns) {
    for (size_t round = 0; round < rounds; round++) {
        cu_result result = c->cuda->stream_synchronize(c->stream);
        const uint64_t begin = ashlar__clock_ns();
        for (size_t i = 0; i < repeats && result == CU_SUCCESS; i++) {
            result = call(c);
        }
        ns[round] = (double)(ashlar__clock_ns() - begin) / (double)repeats;
        if (result != CU_SUCCESS) {
            return false;
        }
    }
    return c->cuda->stream_synchronize(c->stream) == CU_SUCCESS;
}

bool probe_costs_calls(const probe *p, size_t rounds, bool is_smoke, probe_teller *tell, void *to) {
    double ns[ROUNDS_MAX];
    calls c = {.cuda = p->cuda, .empty = load_empty(p->cuda)};
    if (rounds > ROUNDS_MAX || c.cuda->primary_ctx_retain(&c.context, p->device) != CU_SUCCESS ||
        c.cuda->stream_create(&c.stream, CU_STREAM_UNORDERED) != CU_SUCCESS ||
        c.cuda->event_create(&c.event, CU_EVENT_NO_TIMING) != CU_SUCCESS ||
        c.cuda->mem_host_alloc(&c.locked, COPIED, 0) != CU_SUCCESS ||
        probe_map(p, p->granularity, &c.ptr) != CU_SUCCESS) {
        (void)printf("calls: their stream and memory are not to be had\n");
        return false;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (kinds[i].call == launch && c.empty == NULL) {
            (void)printf("%s: no kernel could be loaded\n", kinds[i].name);
        } else if (!time_kind(&c, kinds[i].call, rounds, is_smoke ? SMOKE_REPEATS : REPEATS, ns)) {
            (void)printf("%s: a call failed\n", kinds[i].name);
            return false;
        } else {
            tell(to, kinds[i].name, kinds[i].bytes, ns);
        }
    }
    probe_unmap(p, c.ptr, p->granularity);
    return true;
}
