/* soft_graph.c - the life of graphs, which captures record, and of their executable copies. */
#include "allocator/soft/soft_graph.h"

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/soft/soft_state.h"

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
    ashlar__soft_graph_drop(exec->graph);
    ashlar__soft_point_drop(exec->last);
    ashlar__host_free(exec);
}

void ashlar__soft_graph_reset(void) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_handles *graphs = &ashlar__soft_state.graphs, *execs = &ashlar__soft_state.execs;
    for (size_t i = 0; i < graphs->count; i++) {
        ashlar__soft_graph_drop(graphs->entries[i].item);
    }
    for (size_t i = 0; i < execs->count; i++) {
        if (execs->entries[i].item != NULL) {
            ashlar__soft_exec_delete(execs->entries[i].item);
        }
    }
    ashlar__soft_handles_clear(graphs);
    ashlar__soft_handles_clear(execs);
}
