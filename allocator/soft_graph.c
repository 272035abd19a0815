/* soft_graph.c - graphs: what a capture recorded, and its copies that can be launched. */
#include "soft_state.h"

cu_result ashlar_soft_graph_instantiate(cu_graph_exec *exec, cu_graph graph,
                                        unsigned long long flags) {
    (void)exec;
    (void)graph;
    (void)flags;
    return CU_NOT_SUPPORTED;
}

cu_result ashlar_soft_graph_launch(cu_graph_exec exec, cu_stream stream) {
    (void)exec;
    (void)stream;
    return CU_NOT_SUPPORTED;
}

cu_result ashlar_soft_graph_exec_destroy(cu_graph_exec exec) {
    (void)exec;
    return CU_NOT_SUPPORTED;
}

cu_result ashlar_soft_graph_destroy(cu_graph graph) {
    (void)graph;
    return CU_NOT_SUPPORTED;
}
