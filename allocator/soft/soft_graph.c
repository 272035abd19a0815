/* soft_graph.c - graphs: what a capture recorded, and its copies that can be launched. */
#include "allocator/soft/soft_graph.h"

#include "allocator/base/host.h"
#include "allocator/soft/soft_state.h"

soft_graph *ashlar_soft_graph_new(uint64_t lane) {
    soft_graph *graph = ashlar_host_calloc(1, sizeof *graph);
    if (graph != NULL) {
        graph->user_count = 1;
        graph->lane = lane;
    }
    return graph;
}

void ashlar_soft_graph_drop(soft_graph *graph) {
    if (graph == NULL || --graph->user_count > 0) {
        return;
    }
    for (size_t i = 0; i < graph->count; i++) {
        ashlar_soft_clock_clear(&graph->nodes[i].after);
    }
    ashlar_host_free(graph->nodes);
    ashlar_host_free(graph);
}

static void delete_exec(soft_exec *exec) {
    ashlar_soft_graph_drop(exec->graph);
    ashlar_soft_point_drop(exec->last);
    ashlar_host_free(exec);
}

void ashlar_soft_graph_reset(void) {
    soft_slots *graphs = &ashlar_soft_state.graphs, *execs = &ashlar_soft_state.execs;
    for (size_t i = 0; i < graphs->count; i++) {
        ashlar_soft_graph_drop(graphs->slots[i].item);
    }
    for (size_t i = 0; i < execs->count; i++) {
        if (execs->slots[i].item != NULL) {
            delete_exec(execs->slots[i].item);
        }
    }
    ashlar_soft_slots_clear(graphs);
    ashlar_soft_slots_clear(execs);
}

cu_result ashlar_soft_graph_instantiate(cu_graph_exec *exec, cu_graph graph,
                                        unsigned long long flags) {
    const cu_result result = ashlar_soft_enter();
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_graph *found =
        ashlar_soft_slots_get(&ashlar_soft_state.graphs, SOFT_GRAPH, (uintptr_t)graph);
    if (exec == NULL || found == NULL || flags != 0) {
        return ashlar_soft_leave(flags != 0 ? CU_NOT_SUPPORTED : CU_INVALID_VALUE);
    }
    uintptr_t handle;
    soft_exec *created = ashlar_host_calloc(1, sizeof *created);
    if (created == NULL ||
        !ashlar_soft_slots_put(&ashlar_soft_state.execs, SOFT_GRAPH_EXEC, created, &handle)) {
        ashlar_host_free(created);
        return ashlar_soft_leave(CU_OUT_OF_MEMORY);
    }
    created->graph = found;
    found->user_count++;
    *exec = (cu_graph_exec)handle;
    return ashlar_soft_leave(CU_SUCCESS);
}

/* Launches of it that are queued still run. */
cu_result ashlar_soft_graph_exec_destroy(cu_graph_exec exec) {
    const cu_result result = ashlar_soft_enter();
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_exec *found =
        ashlar_soft_slots_take(&ashlar_soft_state.execs, SOFT_GRAPH_EXEC, (uintptr_t)exec);
    if (found == NULL) {
        return ashlar_soft_leave(CU_INVALID_VALUE);
    }
    delete_exec(found);
    return ashlar_soft_leave(CU_SUCCESS);
}

cu_result ashlar_soft_graph_destroy(cu_graph graph) {
    const cu_result result = ashlar_soft_enter();
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_graph *found =
        ashlar_soft_slots_take(&ashlar_soft_state.graphs, SOFT_GRAPH, (uintptr_t)graph);
    if (found == NULL) {
        return ashlar_soft_leave(CU_INVALID_VALUE);
    }
    ashlar_soft_graph_drop(found);
    return ashlar_soft_leave(CU_SUCCESS);
}
