/* device_graph.c - queueing host functions on streams; and capturing graphs, each of which owns the
 * arguments of its host functions. */
#include "allocator/device/device_impl.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/soft/soft.h"

typedef struct launch {
    struct launch *next; /* the next launch that the same graph owns */
    void (*fn)(void *);
    bool is_kept;       /* owned by a graph, which runs it at each launch */
    max_align_t args[]; /* a copy of the arguments, args_bytes bytes */
} launch;

struct ashlar_graph {
    ashlar_device *device;
    ashlar_stream stream;
    cu_graph_exec exec; /* NULL before ashlar_graph_end() has succeeded */
    bool is_open;       /* the capture is under way */
    launch *launches;   /* queued during the capture; owned */
};

/* The graph that this thread is capturing; NULL: none. */
static _Thread_local ashlar_graph *open_graph;

static void run_launch(void *user_data) {
    launch *queued = user_data;
    const bool is_kept = queued->is_kept;
    queued->fn(queued->args);
    if (!is_kept) {
        ashlar__host_free(queued);
    }
}

static ashlar_status queue_launch(ashlar_device *device, ashlar_stream stream, launch *queued) {
    ASHLAR_IN_CONTEXT(device, "cuLaunchHostFunc", launch_host_func, (stream, run_launch, queued));
}

/* Of what the CPU computes on: int32, F32, F64. */
enum { LEAST_ALIGN = 4 };

ashlar_status ashlar__check_operands(const ashlar_device *device, const char *call,
                                     const ashlar_operand *operands) {
    const bool is_soft = device != NULL && device->info.kind == ASHLAR_DEVICE_SOFT;
    const int ordinal = is_soft ? device->info.ordinal : 0;
    for (const ashlar_operand *o = operands; o->name != NULL; o++) {
        const bool is_checked = is_soft && o->ptr != NULL && o->bytes > 0;
        ASHLAR_FAIL_IF(o->ptr == NULL && o->is_needed, ASHLAR_EINVAL, "%s: %s is NULL", call,
                       o->name);
        ASHLAR_FAIL_IF(
            is_checked && !ashlar__soft_is_for_work(ordinal, o->ptr, o->bytes, call, o->name),
            ASHLAR_EINVAL,
            "%s: %s, %zu bytes at %p, is not memory of device soft:%d; take all of it by "
            "ashlar_alloc() or ashlar_device_host_alloc()",
            call, o->name, o->bytes, o->ptr, ordinal);
        ASHLAR_FAIL_IF(
            is_checked && o->bytes % LEAST_ALIGN == 0 && (uintptr_t)o->ptr % LEAST_ALIGN != 0,
            ASHLAR_EINVAL, "%s: %s, at %p, is not aligned; give a multiple of its elements' size",
            call, o->name, o->ptr);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__check_host_array(const char *call, const char *name, const void *ptr,
                                       size_t bytes) {
    ASHLAR_FAIL_IF(ptr != NULL && bytes > 0 && !ashlar__soft_is_for_host(ptr, bytes, call, name),
                   ASHLAR_EINVAL, "%s: %s is in device memory; the host reads it", call, name);
    return ASHLAR_OK;
}

ashlar_status ashlar_launch(ashlar_device *device, ashlar_stream stream, void (*fn)(void *),
                            const void *args, size_t args_bytes) {
    size_t bytes;
    launch *queued = NULL;
    if (ashlar__add(sizeof *queued, args_bytes, &bytes)) {
        queued = ashlar__host_calloc(1, bytes);
    }
    ASHLAR_FAIL_IF(queued == NULL, ASHLAR_EHOSTMEM,
                   "no host memory for a launch of %zu bytes of arguments", args_bytes);
    queued->fn = fn;
    const bool is_kept = open_graph != NULL && open_graph->device == device;
    queued->is_kept = is_kept;
    if (args_bytes > 0) {
        memcpy(queued->args, args, args_bytes);
    }
    const ashlar_status status = queue_launch(device, stream, queued);
    if (status != ASHLAR_OK) {
        ashlar__host_free(queued);
    } else if (is_kept) { /* a launch that is not kept may have run and been freed already */
        queued->next = open_graph->launches;
        open_graph->launches = queued;
    }
    return status;
}

/* ---- graphs ---- */

static ashlar_status begin_capture(const ashlar_graph *graph) {
    ASHLAR_IN_CONTEXT(graph->device, "cuStreamBeginCapture", stream_begin_capture,
                      (graph->stream, CU_CAPTURE_THREAD_LOCAL));
}

static ashlar_status call_end_capture(const ashlar_graph *graph, cu_graph *captured) {
    ASHLAR_IN_CONTEXT(graph->device, "cuStreamEndCapture", stream_end_capture,
                      (graph->stream, captured));
}

static ashlar_status end_capture(ashlar_graph *graph, cu_graph *captured) {
    ASHLAR_CHECK2(graph->is_open && open_graph == graph);
    graph->is_open = false;
    open_graph = NULL;
    const ashlar_status status = call_end_capture(graph, captured);
    ashlar__driver_end_capture(graph->device->driver);
    return status;
}

static ashlar_status instantiate(ashlar_graph *graph, cu_graph captured) {
    cu_result result;
    ASHLAR_TRY(ashlar__device_enter(graph->device));
    ASHLAR_CALL_WITH_ROOM(graph->device, result, graph_instantiate, (&graph->exec, captured, 0));
    ashlar__device_leave(graph->device);
    return ashlar__driver_status(graph->device->driver, "cuGraphInstantiateWithFlags", result);
}

static ashlar_status forget_captured(const ashlar_graph *graph, cu_graph captured) {
    ASHLAR_IN_CONTEXT(graph->device, "cuGraphDestroy", graph_destroy, (captured));
}

static ashlar_status forget_exec(const ashlar_graph *graph) {
    ASHLAR_IN_CONTEXT(graph->device, "cuGraphExecDestroy", graph_exec_destroy, (graph->exec));
}

ashlar_status ashlar_graph_begin(ashlar_device *device, ashlar_stream stream, ashlar_graph **out) {
    ASHLAR_CHECK2(open_graph == NULL);
    ashlar_graph *graph;
    ASHLAR_HOST_NEW(graph, 1, "no host memory for a graph");
    *graph = (ashlar_graph){.device = device, .stream = stream};
    ashlar__driver_begin_capture(device->driver);
    const ashlar_status status = begin_capture(graph);
    if (status == ASHLAR_OK) {
        graph->is_open = true;
        open_graph = graph;
    } else {
        ashlar__driver_end_capture(device->driver);
    }
    ASHLAR_HAND_OUT(status, graph, ashlar_graph_destroy, out);
}

ashlar_status ashlar_graph_end(ashlar_graph *graph) {
    cu_graph captured = NULL;
    ASHLAR_TRY(end_capture(graph, &captured));
    const ashlar_status status = instantiate(graph, captured);
    ASHLAR_IGNORE(forget_captured(graph, captured));
    return status;
}

ashlar_status ashlar_graph_launch(const ashlar_graph *graph) {
    ASHLAR_CHECK2(graph->exec != NULL);
    ASHLAR_IN_CONTEXT(graph->device, "cuGraphLaunch", graph_launch, (graph->exec, graph->stream));
}

void ashlar_graph_destroy(ashlar_graph *graph) {
    if (graph == NULL) {
        return;
    }
    cu_graph captured = NULL;
    if (graph->is_open) {
        ASHLAR_IGNORE(end_capture(graph, &captured));
    }
    if (captured != NULL) {
        ASHLAR_IGNORE(forget_captured(graph, captured));
    }
    if (graph->exec != NULL) {
        ASHLAR_IGNORE(forget_exec(graph));
    }
    for (launch *queued = graph->launches, *next; queued != NULL; queued = next) {
        next = queued->next;
        ashlar__host_free(queued);
    }
    ashlar__host_free(graph);
}
