/* rnn_varying.h - a pass of an RNN that reads from device memory what differs from one training
 * step to the next, so that a captured pass can be launched again (internal). */
#ifndef ASHLAR_RNN_VARYING_H
#define ASHLAR_RNN_VARYING_H

#include "rnn/layer/backend.h"

/* Both are in device memory, and read when the pass runs. */
typedef struct ashlar_rnn_varying {
    const int32_t *lengths; /* [B], each 1..T */
    const uint64_t *seed;   /* added to the batch's dropout_seed */
} ashlar_rnn_varying;

/* Like the call of rnn.h for that pass, with the lengths and the seed of *varying; batch->lengths
 * is not read. A back end that can take lengths only from the host runs all sequences for all
 * steps, padding included, and draws its own seeds: see ashlar__rnn_varies().
 *
 * Errors: those of ashlar_rnn_forward(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_queue_varying(
    const ashlar_rnn *rnn, ashlar_rnn_pass pass, const ashlar_rnn_batch *batch,
    const ashlar_rnn_buffers *buffers, const ashlar_rnn_varying *varying, ashlar_stream stream);

/* Whether the back end reads lengths and seeds from device memory. If not, last states are those
 * after the padding, and the reverse direction begins with the padding. */
bool ashlar__rnn_varies(const ashlar_rnn *rnn);

#endif /* ASHLAR_RNN_VARYING_H */
