/* soft_graph.c - graphs and their executable copies, and launching these. */
#include "allocator/soft/soft_state.h"

#include "allocator/base/host.h"

soft_graph *ashlar__soft_graph_new(uint64_t lane) {
    soft_graph *graph = ashlar__host_calloc(1, sizeof *graph);
    if (graph != NULL) {
        graph->user_count = 1;
        graph->lane = lane;
    }
    return graph;
}

void ashlar__soft_graph_drop(soft_graph *graph) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(graph == NULL || graph->user_count > 0);
    if (graph == NULL || --graph->user_count > 0) {
        return;
    }
    for (size_t i = 0; i < graph->count; i++) {
        ashlar__soft_clock_clear(&graph->nodes[i].after);
    }
    ashlar__host_free(graph->nodes);
    ashlar__host_free(graph);
}

void ashlar__soft_exec_delete(soft_exec *exec) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (exec != NULL) {
        ashlar__soft_graph_drop(exec->graph);
        ashlar__soft_point_drop(exec->last);
        ashlar__host_free(exec);
    }
}

/* ---- launches: each lane of a graph becomes a stream, and each dependency an in-stream wait ----
 */

typedef struct soft_lane {
    uint64_t lane;
    soft_stream *stream;
    soft_point *last; /* the point of its newest node */
} soft_lane;

typedef struct soft_launch {
    const soft_graph *graph;
    soft_stream *target;
    soft_point *begin;   /* done when all earlier work of the target is; each lane waits for it */
    soft_point **points; /* [graph->count]: the point of each node */
    soft_lane *lanes;    /* every lane except the graph's own, which runs on the target */
    size_t lane_count;
} soft_launch;

/* Take one more reference to the point; NULL stays NULL. */
static soft_point *share(soft_point *point) {
    if (point != NULL) {
        point->user_count++;
    }
    return point;
}

static cu_result add_wait(soft_stream *stream, soft_point *point) {
    const soft_op op = {.kind = SOFT_OP_WAIT, .awaits = share(point)};
    return ashlar__soft_enqueue(stream, &op);
}

/* Queue a copy of *model with a point of its own, which *point refers to as well. */
static cu_result add_with_point(soft_stream *stream, const soft_op *model, soft_point **point) {
    soft_op op = *model;
    *point = ashlar__soft_point_new();
    if (*point == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    op.point = share(*point);
    return ashlar__soft_enqueue(stream, &op);
}

/* Find or make the lane of a node; *out is NULL for the graph's own lane, which is the target. The
 * other lanes' streams need no order with the legacy stream: the target has it, and their work runs
 * between the launch's begin and end on the target. */
static cu_result need_lane(soft_launch *launch, const soft_node *node, soft_lane **out) {
    *out = NULL;
    for (size_t i = 0; i < launch->lane_count; i++) {
        if (launch->lanes[i].lane == node->lane) {
            *out = &launch->lanes[i];
        }
    }
    if (*out != NULL || node->lane == launch->graph->lane) {
        return CU_SUCCESS;
    }
    soft_lane *lanes = ashlar__host_realloc(launch->lanes, launch->lane_count + 1, sizeof *lanes);
    if (lanes == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    launch->lanes = lanes;
    soft_stream *stream = ashlar__host_calloc(1, sizeof *stream);
    if (stream == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    ashlar__soft_stream_join(stream, node->device, false);
    stream->is_destroyed = true; /* deleted once its work has run */
    *out = &lanes[launch->lane_count++];
    **out = (soft_lane){.lane = node->lane, .stream = stream};
    return add_wait(stream, launch->begin);
}

static cu_result add_node(soft_launch *launch, const soft_node *node) {
    ASHLAR_CHECK2(node == &launch->graph->nodes[node->op.number - 1]);
    soft_lane *lane;
    SOFT_TRY(need_lane(launch, node, &lane));
    soft_stream *stream = lane == NULL ? launch->target : lane->stream;
    for (size_t i = 0; i < node->after.count; i++) {
        const struct soft_time *time = &node->after.times[i];
        ASHLAR_CHECK2(time->number < node->op.number); /* so its point is made already */
        if (time->serial != node->lane) {
            SOFT_TRY(add_wait(stream, launch->points[time->number - 1]));
        }
    }
    soft_point **point = &launch->points[node->op.number - 1];
    SOFT_TRY(add_with_point(stream, &node->op, point));
    if (lane != NULL) {
        lane->last = *point;
    }
    return CU_SUCCESS;
}

/* `before`: what the launch waits for, or NULL. *end: done when the whole launch is. */
static cu_result add_launch(soft_launch *launch, soft_point *before, soft_point **end) {
    static const soft_op record = {.kind = SOFT_OP_RECORD};
    const soft_graph *graph = launch->graph;
    launch->points = ashlar__host_calloc(graph->count + 1, sizeof(soft_point *));
    if (launch->points == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    if (before != NULL) {
        SOFT_TRY(add_wait(launch->target, before));
    }
    SOFT_TRY(add_with_point(launch->target, &record, &launch->begin));
    for (size_t i = 0; i < graph->count; i++) {
        SOFT_TRY(add_node(launch, &graph->nodes[i]));
    }
    for (size_t i = 0; i < launch->lane_count; i++) {
        SOFT_TRY(add_wait(launch->target, launch->lanes[i].last));
    }
    return add_with_point(launch->target, &record, end);
}

/* If host memory runs out, only a part of the graph has been queued. Then the device gets a fault,
 * which keeps that part from running and makes later calls fail, as with CUDA. */
static cu_result launch_now(const soft_graph *graph, soft_stream *target, soft_point **last) {
    soft_launch launch = {.graph = graph, .target = target};
    soft_point *end = NULL;
    const cu_result result = add_launch(&launch, *last, &end);
    if (result == CU_SUCCESS) {
        ashlar__soft_point_drop(*last);
        *last = share(end);
    } else {
        target->device->fault = CU_LAUNCH_FAILED;
    }
    for (size_t i = 0; i < launch.lane_count; i++) {
        if (launch.lanes[i].stream->head == NULL) {
            ashlar__soft_stream_delete(launch.lanes[i].stream);
        }
    }
    for (size_t i = 0; launch.points != NULL && i < graph->count; i++) {
        ashlar__soft_point_drop(launch.points[i]);
    }
    ashlar__soft_point_drop(launch.begin);
    ashlar__soft_point_drop(end);
    ashlar__host_free(launch.points);
    ashlar__host_free(launch.lanes);
    ashlar__soft_run_ready(); /* may drop the lock: the graph may be gone after it */
    return result;
}

/* Add the graph's nodes to the stream's capture, one after the other. */
static cu_result capture_launch(const soft_graph *graph, soft_stream *stream) {
    cu_result result = CU_SUCCESS;
    for (size_t i = 0; i < graph->count && result == CU_SUCCESS; i++) {
        result = ashlar__soft_capture_op(stream, &graph->nodes[i].op);
    }
    return result == CU_SUCCESS ? CU_SUCCESS : ashlar__soft_capture_spoil(stream->capture, result);
}

/* ---- the calls on graphs ---- */

cu_result ashlar__soft_graph_instantiate(cu_graph_exec *exec, cu_graph graph,
                                         unsigned long long flags) {
    SOFT_TRY(ashlar__soft_enter(ASHLAR_DRIVER_FN_graph_instantiate));
    soft_graph *found = ashlar__soft_handle_find(SOFT_GRAPH, graph);
    if (exec == NULL || found == NULL || flags != 0) {
        return ashlar__soft_leave(flags != 0 ? CU_NOT_SUPPORTED : CU_INVALID_VALUE);
    }
    uintptr_t handle;
    soft_exec *created = ashlar__host_calloc(1, sizeof *created);
    if (created == NULL || !ashlar__soft_handle_put(SOFT_GRAPH_EXEC, created, &handle)) {
        ashlar__host_free(created);
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    created->graph = found;
    found->user_count++;
    *exec = (cu_graph_exec)handle;
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_graph_launch(cu_graph_exec exec, cu_stream stream) {
    soft_stream *found = NULL;
    SOFT_TRY(ashlar__soft_enter_work(ASHLAR_DRIVER_FN_graph_launch, stream, &found));
    soft_exec *launched = ashlar__soft_handle_find(SOFT_GRAPH_EXEC, exec);
    return ashlar__soft_leave(launched == NULL ? CU_INVALID_VALUE
                              : found->capture != NULL
                                  ? capture_launch(launched->graph, found)
                                  : launch_now(launched->graph, found, &launched->last));
}

/* Launches that are already queued still run. */
cu_result ashlar__soft_graph_exec_destroy(cu_graph_exec exec) {
    SOFT_TRY(ashlar__soft_enter(ASHLAR_DRIVER_FN_graph_exec_destroy));
    soft_exec *found = ashlar__soft_handle_end(SOFT_GRAPH_EXEC, exec);
    ashlar__soft_exec_delete(found);
    return ashlar__soft_leave(found == NULL ? CU_INVALID_VALUE : CU_SUCCESS);
}

cu_result ashlar__soft_graph_destroy(cu_graph graph) {
    SOFT_TRY(ashlar__soft_enter(ASHLAR_DRIVER_FN_graph_destroy));
    soft_graph *found = ashlar__soft_handle_end(SOFT_GRAPH, graph);
    ashlar__soft_graph_drop(found);
    return ashlar__soft_leave(found == NULL ? CU_INVALID_VALUE : CU_SUCCESS);
}
