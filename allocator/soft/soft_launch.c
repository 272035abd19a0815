/* soft_launch.c - launching graphs: each lane of a graph becomes a stream, and each dependency an
 * in-stream wait. Kernels are refused, since a software device runs host functions. */
#include "allocator/soft/soft_graph.h"

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/soft/soft_state.h"

typedef struct soft_lane {
    uint64_t lane;
    soft_device *device;
    soft_stream *stream; /* not in the list of streams until the launch is queued */
    soft_point *last;    /* the point of its newest node */
} soft_lane;

/* The ops of one launch. Either all are queued or, if host memory runs out, none. */
typedef struct soft_launch {
    const soft_graph *graph;
    soft_stream *target;
    soft_point *begin;   /* done when all earlier work of the target is; lanes wait for it */
    soft_point *end;     /* done when the whole launch is */
    soft_point **points; /* [graph->count]: the point of each node */
    soft_lane *lanes;    /* every lane except the graph's own, which runs on the target */
    size_t lane_count;
    soft_op *first; /* in the order in which they will be queued */
    soft_op *last;
    bool has_failed; /* host memory ran out */
} soft_launch;

static void add(soft_launch *launch, soft_stream *stream, const soft_op *model) {
    soft_op *op = ashlar__soft_op_new(model);
    if (op == NULL) {
        launch->has_failed = true;
        return;
    }
    op->stream = stream;
    *(launch->last != NULL ? &launch->last->next : &launch->first) = op;
    launch->last = op;
}

static soft_point *new_point(soft_launch *launch) {
    soft_point *point = ashlar__soft_point_new();
    launch->has_failed |= point == NULL;
    return point;
}

/* Take one more reference to the point, for an op; NULL stays NULL. */
static soft_point *share(soft_point *point) {
    if (point != NULL) {
        point->user_count++;
    }
    return point;
}

static void add_wait(soft_launch *launch, soft_stream *stream, soft_point *point) {
    const soft_op op = {.kind = SOFT_OP_WAIT, .awaits = share(point)};
    add(launch, stream, &op);
}

static void add_record(soft_launch *launch, soft_stream *stream, soft_point *point) {
    const soft_op op = {.kind = SOFT_OP_RECORD, .point = share(point)};
    add(launch, stream, &op);
}

/* Find or make the lane of a node. NULL: it is the graph's own lane, or there is no host memory. */
static soft_lane *need_lane(soft_launch *launch, const soft_node *node) {
    for (size_t i = 0; i < launch->lane_count; i++) {
        if (launch->lanes[i].lane == node->lane) {
            return &launch->lanes[i];
        }
    }
    if (node->lane == launch->graph->lane) {
        return NULL;
    }
    soft_lane *lanes = ashlar__host_realloc(launch->lanes, launch->lane_count + 1, sizeof *lanes);
    soft_stream *stream = ashlar__host_calloc(1, sizeof *stream);
    if (lanes != NULL) {
        launch->lanes = lanes;
    }
    if (lanes == NULL || stream == NULL) {
        ashlar__host_free(stream);
        launch->has_failed = true;
        return NULL;
    }
    lanes += launch->lane_count++;
    *lanes = (soft_lane){.lane = node->lane, .device = node->device, .stream = stream};
    add_wait(launch, stream, launch->begin);
    return lanes;
}

static void add_node(soft_launch *launch, const soft_node *node) {
    ASHLAR_CHECK2(node == &launch->graph->nodes[node->op.number - 1]);
    soft_lane *lane = need_lane(launch, node);
    soft_stream *stream = lane == NULL ? launch->target : lane->stream;
    for (size_t i = 0; i < node->after.count; i++) {
        const struct soft_time *time = &node->after.times[i];
        ASHLAR_CHECK2(time->number < node->op.number); /* so its point is made already */
        if (time->serial != node->lane) {
            add_wait(launch, stream, launch->points[time->number - 1]);
        }
    }
    soft_op op = node->op;
    soft_point *point = new_point(launch);
    launch->points[op.number - 1] = point;
    op.point = share(point);
    add(launch, stream, &op);
    if (lane != NULL) {
        lane->last = point;
    }
}

static void build(soft_launch *launch, soft_point *before) {
    const size_t count = launch->graph->count;
    launch->points = ashlar__host_calloc(count + 1, sizeof(soft_point *));
    launch->begin = new_point(launch);
    launch->end = new_point(launch);
    launch->has_failed |= launch->points == NULL;
    if (before != NULL) {
        add_wait(launch, launch->target, before);
    }
    add_record(launch, launch->target, launch->begin);
    for (size_t i = 0; i < count && !launch->has_failed; i++) {
        add_node(launch, &launch->graph->nodes[i]);
    }
    for (size_t i = 0; i < launch->lane_count && !launch->has_failed; i++) {
        add_wait(launch, launch->target, launch->lanes[i].last);
    }
    add_record(launch, launch->target, launch->end);
}

/* Queue all ops. The lanes themselves are not ordered with the legacy stream: the target is, and
 * they run between the launch's begin and end on the target. */
static void queue(soft_launch *launch) {
    ASHLAR_CHECK2(!launch->has_failed && launch->first != NULL);
    for (size_t i = 0; i < launch->lane_count; i++) {
        ashlar__soft_stream_join(launch->lanes[i].stream, launch->lanes[i].device, false);
        launch->lanes[i].stream->is_destroyed = true; /* deleted once its work has run */
        launch->lanes[i].stream = NULL;
    }
    for (soft_op *op = launch->first, *next; op != NULL; op = next) {
        next = op->next;
        ashlar__soft_enqueue(op->stream, op);
    }
    launch->first = NULL;
}

/* Free what was not queued, and the launch's own references. */
static void finish(soft_launch *launch) {
    for (soft_op *op = launch->first, *next; op != NULL; op = next) {
        next = op->next;
        ashlar__soft_op_free(op);
    }
    for (size_t i = 0; i < launch->lane_count; i++) {
        ashlar__host_free(launch->lanes[i].stream);
    }
    for (size_t i = 0; launch->points != NULL && i < launch->graph->count; i++) {
        ashlar__soft_point_drop(launch->points[i]);
    }
    ashlar__soft_point_drop(launch->begin);
    ashlar__soft_point_drop(launch->end);
    ashlar__host_free(launch->points);
    ashlar__host_free(launch->lanes);
}

static cu_result launch_now(const soft_graph *graph, soft_stream *target, soft_point **last) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_launch launch = {.graph = graph, .target = target};
    build(&launch, *last);
    if (!launch.has_failed) {
        queue(&launch);
        ashlar__soft_point_drop(*last);
        *last = share(launch.end);
    }
    finish(&launch);
    if (launch.has_failed) {
        return CU_OUT_OF_MEMORY;
    }
    ashlar__soft_run_ready(); /* may drop the lock: the graph may be gone after it */
    return CU_SUCCESS;
}

/* Add the graph's nodes to the stream's capture, one after the other. */
static cu_result capture_launch(const soft_graph *graph, soft_stream *stream) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
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
    soft_graph *found =
        ashlar__soft_handles_get(&ashlar__soft_state.graphs, SOFT_GRAPH, (uintptr_t)graph);
    if (found == NULL) {
        (void)ashlar__soft_undefined_handle(CU_SUCCESS, &ashlar__soft_state.graphs, SOFT_GRAPH,
                                            (uintptr_t)graph);
    }
    if (exec == NULL || found == NULL || flags != 0) {
        return ashlar__soft_leave(flags != 0 ? CU_NOT_SUPPORTED : CU_INVALID_VALUE);
    }
    uintptr_t handle;
    soft_exec *created = ashlar__host_calloc(1, sizeof *created);
    if (created == NULL ||
        !ashlar__soft_handles_put(&ashlar__soft_state.execs, SOFT_GRAPH_EXEC, created, &handle)) {
        ashlar__host_free(created);
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    created->graph = found;
    found->user_count++;
    *exec = (cu_graph_exec)handle;
    return ashlar__soft_leave(CU_SUCCESS);
}

static cu_result leave_without_exec(cu_graph_exec exec) {
    return ashlar__soft_leave(ashlar__soft_undefined_handle(
        CU_INVALID_VALUE, &ashlar__soft_state.execs, SOFT_GRAPH_EXEC, (uintptr_t)exec));
}

cu_result ashlar__soft_graph_launch(cu_graph_exec exec, cu_stream stream) {
    soft_stream *found = NULL;
    SOFT_TRY(ashlar__soft_enter_work(ASHLAR_DRIVER_FN_graph_launch, stream, &found));
    soft_exec *launched =
        ashlar__soft_handles_get(&ashlar__soft_state.execs, SOFT_GRAPH_EXEC, (uintptr_t)exec);
    if (launched == NULL) {
        return leave_without_exec(exec);
    }
    return ashlar__soft_leave(found->capture != NULL
                                  ? capture_launch(launched->graph, found)
                                  : launch_now(launched->graph, found, &launched->last));
}

/* Launches that are already queued still run. */
cu_result ashlar__soft_graph_exec_destroy(cu_graph_exec exec) {
    SOFT_TRY(ashlar__soft_enter(ASHLAR_DRIVER_FN_graph_exec_destroy));
    soft_exec *found =
        ashlar__soft_handles_take(&ashlar__soft_state.execs, SOFT_GRAPH_EXEC, (uintptr_t)exec);
    if (found == NULL) {
        return leave_without_exec(exec);
    }
    ashlar__soft_exec_delete(found);
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_graph_destroy(cu_graph graph) {
    SOFT_TRY(ashlar__soft_enter(ASHLAR_DRIVER_FN_graph_destroy));
    soft_graph *found =
        ashlar__soft_handles_take(&ashlar__soft_state.graphs, SOFT_GRAPH, (uintptr_t)graph);
    if (found == NULL) {
        return ashlar__soft_leave(ashlar__soft_undefined_handle(
            CU_INVALID_VALUE, &ashlar__soft_state.graphs, SOFT_GRAPH, (uintptr_t)graph));
    }
    ashlar__soft_graph_drop(found);
    return ashlar__soft_leave(CU_SUCCESS);
}

/* ---- kernels ---- */

cu_result ashlar__soft_module_load_data(cu_module *module, const void *image) {
    (void)module;
    (void)image;
    return CU_NOT_SUPPORTED;
}

cu_result ashlar__soft_module_unload(cu_module module) {
    (void)module;
    return CU_NOT_SUPPORTED;
}

cu_result ashlar__soft_module_get_function(cu_function *function, cu_module module,
                                           const char *name) {
    (void)function;
    (void)module;
    (void)name;
    return CU_NOT_SUPPORTED;
}

cu_result ashlar__soft_launch_kernel(cu_function function, unsigned int grid_x, unsigned int grid_y,
                                     unsigned int grid_z, unsigned int block_x,
                                     unsigned int block_y, unsigned int block_z,
                                     unsigned int shared_bytes, cu_stream stream, void **params,
                                     void **extra) {
    (void)function;
    (void)grid_x;
    (void)grid_y;
    (void)grid_z;
    (void)block_x;
    (void)block_y;
    (void)block_z;
    (void)shared_bytes;
    (void)stream;
    (void)params;
    (void)extra;
    return CU_NOT_SUPPORTED;
}
