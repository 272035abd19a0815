/* step_graphs.c - finds, places and drops captured steps. */
#include "rnn/train/step_graphs.h"

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"

ashlar_status ashlar__step_graphs_init(ashlar_step_graphs *graphs, size_t most) {
    *graphs = (ashlar_step_graphs){0};
    ASHLAR_HOST_NEW(graphs->list, most, "no host memory for %zu graphs", most);
    graphs->most = most;
    return ASHLAR_OK;
}

void ashlar__step_graphs_finish(ashlar_step_graphs *graphs) {
    for (size_t i = 0; i < graphs->most; i++) {
        ashlar__step_graph_drop(&graphs->list[i]);
    }
    ashlar__host_free(graphs->list);
    *graphs = (ashlar_step_graphs){0};
}

ashlar_step_graph *ashlar__step_graphs_find(ashlar_step_graphs *graphs, size_t length,
                                            size_t buffer) {
    ASHLAR_CHECK2(length > 0);
    for (size_t i = 0; i < graphs->most; i++) {
        ashlar_step_graph *one = &graphs->list[i];
        if (one->length == length && one->buffer == buffer) {
            one->used_at = ++graphs->uses;
            return one;
        }
    }
    return NULL;
}

ashlar_step_graph *ashlar__step_graphs_place(const ashlar_step_graphs *graphs) {
    ashlar_step_graph *oldest = &graphs->list[0];
    for (size_t i = 0; i < graphs->most; i++) {
        ashlar_step_graph *one = &graphs->list[i];
        if (one->length == 0) {
            return one;
        }
        oldest = one->used_at < oldest->used_at ? one : oldest;
    }
    return oldest;
}

void ashlar__step_graph_drop(ashlar_step_graph *graph) {
    ashlar__graph_destroy(graph->graph);
    *graph = (ashlar_step_graph){0};
}
