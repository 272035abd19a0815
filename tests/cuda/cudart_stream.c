/* cudart_stream.c - the small CUDA runtime: streams, events and graphs, made and ended. */
#include "cudart.h"

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority) {
    CUDART_CALL(stream_create_with_priority, (stream, flags, priority));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    CUDART_CALL(table.stream_create, (stream, flags));
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

/* A software device has one priority. */
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least != NULL) {
        *least = 0;
    }
    if (greatest != NULL) {
        *greatest = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    CUDART_CALL(table.stream_destroy, (stream));
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
    CUDART_CALL(table.stream_get_id, (stream, id));
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    CUDART_CALL(table.event_create, (event, flags));
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    CUDART_CALL(table.event_destroy, (event));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    CUDART_CALL(table.event_query, (event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    CUDART_CALL(table.event_synchronize, (event));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    CUDART_CALL(event_elapsed_time, (ms, start, end));
}

/* ---- graphs ---- */

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags) {
    /* No node takes memory, which a launch would have to free, and none has a priority. */
    flags &= ~(unsigned long long)(cudaGraphInstantiateFlagAutoFreeOnLaunch |
                                   cudaGraphInstantiateFlagUseNodePriority);
    CUDART_CALL(table.graph_instantiate, (exec, graph, flags));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    CUDART_CALL(table.thread_exchange_capture_mode, ((unsigned int *)mode));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    CUDART_CALL(table.graph_exec_destroy, (exec));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    CUDART_CALL(table.graph_destroy, (graph));
}
