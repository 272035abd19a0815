/* cudart_stream.c - the small CUDA runtime: streams, events, host functions, captures. */
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

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    CUDART_CALL(table.stream_destroy, (stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    CUDART_CALL(table.stream_synchronize, (stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    CUDART_CALL(stream_query, (stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    CUDART_CALL(table.stream_wait_event, (stream, event, flags));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user_data) {
    CUDART_CALL(table.launch_host_func, (stream, fn, user_data));
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

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    CUDART_CALL(table.event_record, (event, stream));
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

/* ---- captures ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    CUDART_CALL(table.stream_begin_capture, (stream, (unsigned int)mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    CUDART_CALL(table.stream_end_capture, (stream, graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    CUDART_CALL(table.stream_is_capturing, (stream, (unsigned int *)status));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags) {
    CUDART_CALL(table.graph_instantiate, (exec, graph, flags));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    CUDART_CALL(table.graph_launch, (exec, stream));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    CUDART_CALL(table.graph_exec_destroy, (exec));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    CUDART_CALL(table.graph_destroy, (graph));
}
