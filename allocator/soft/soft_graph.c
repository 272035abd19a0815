/* soft_graph.c - the life of graphs, which captures record, and of their executable copies. */
#include "allocator/soft/soft_graph.h"

#include "allocator/base/check_level.h"
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
    ASHLAR_OWNS(&ashlar_soft_state.lock);
    ASHLAR_CHECK2(graph == NULL || graph->user_count > 0);
    if (graph == NULL || --graph->user_count > 0) {
        return;
    }
    for (size_t i = 0; i < graph->count; i++) {
        ashlar_soft_clock_clear(&graph->nodes[i].after);
    }
    ashlar_host_free(graph->nodes);
    ashlar_host_free(graph);
}

void ashlar_soft_exec_delete(soft_exec *exec) {
    ASHLAR_OWNS(&ashlar_soft_state.lock);
    ashlar_soft_graph_drop(exec->graph);
    ashlar_soft_point_drop(exec->last);
    ashlar_host_free(exec);
}

void ashlar_soft_graph_reset(void) {
    ASHLAR_OWNS(&ashlar_soft_state.lock);
    soft_handles *graphs = &ashlar_soft_state.graphs, *execs = &ashlar_soft_state.execs;
    for (size_t i = 0; i < graphs->count; i++) {
        ashlar_soft_graph_drop(graphs->entries[i].item);
    }
    for (size_t i = 0; i < execs->count; i++) {
        if (execs->entries[i].item != NULL) {
            ashlar_soft_exec_delete(execs->entries[i].item);
        }
    }
    ashlar_soft_handles_clear(graphs);
    ashlar_soft_handles_clear(execs);
}
