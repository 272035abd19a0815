/* rnn_chunks.h - passes over more time steps than cuDNN takes, in chunks (internal).
 *
 * Forward hands the states behind each chunk to the next one, and in training keeps them; backward
 * goes through the chunks from the last to the first, and hands the gradients of states back. That
 * is what one pass would compute, but the gradients of weights are summed in another order. Chunks
 * need one direction, and sequences that all reach the last chunk.
 *
 *     reserve = [states behind chunk 0 | 1 | ... | reserve of chunk 0 | 1 | ...]
 *     work    = [two sets of states, or of their gradients | work of one chunk] */
#ifndef ASHLAR_RNN_CHUNKS_H
#define ASHLAR_RNN_CHUNKS_H

#include "rnn/layer/backend.h"

/* The most time steps that cuDNN takes at once. */
enum { ASHLAR_RNN_STEPS_MAX = 65535 };

/* Like the back end's functions, for more than rnn->most_steps steps. Errors: also ASHLAR_ENOTSUP
 * (two directions; queue: a sequence that ends before the last chunk). */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_chunks_sizes(const ashlar_rnn *rnn, size_t steps,
                                                         size_t batch, bool training,
                                                         size_t *reserve_bytes, size_t *work_bytes);
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_chunks_queue(const ashlar_rnn *rnn,
                                                         ashlar_rnn_pass pass,
                                                         const ashlar_rnn_batch *batch,
                                                         const ashlar_rnn_buffers *buffers,
                                                         ashlar_stream stream);

#endif /* ASHLAR_RNN_CHUNKS_H */
