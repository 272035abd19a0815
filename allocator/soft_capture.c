/* soft_capture.c - stream capture. */
#include "soft_state.h"

cu_result ashlar_soft_stream_begin_capture(cu_stream stream, unsigned int mode) {
    (void)stream;
    (void)mode;
    return CU_NOT_SUPPORTED;
}

cu_result ashlar_soft_stream_end_capture(cu_stream stream, cu_graph *graph) {
    (void)stream;
    (void)graph;
    return CU_NOT_SUPPORTED;
}

cu_result ashlar_soft_stream_is_capturing(cu_stream stream, unsigned int *status) {
    (void)stream;
    (void)status;
    return CU_NOT_SUPPORTED;
}

cu_result ashlar_soft_thread_exchange_capture_mode(unsigned int *mode) {
    (void)mode;
    return CU_NOT_SUPPORTED;
}
