/* rnn_torch.h - runs the network of a benchmark in PyTorch, in a process of its own, for comparison
 * (internal). The process is python3 with torch_rnn.py, which says how they speak. */
#ifndef ASHLAR_RNN_TORCH_H
#define ASHLAR_RNN_TORCH_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/rnn_layout.h>

typedef struct ashlar_rnn_torch ashlar_rnn_torch;

/* Start python3 with PyTorch on so many threads. *out is NULL where there is none. Errors:
 * ASHLAR_EHOSTMEM, ASHLAR_EIO. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_torch_start(size_t threads, ashlar_rnn_torch **out);
void ashlar__rnn_torch_stop(ashlar_rnn_torch *torch); /* NULL is allowed */

/* "PyTorch 2.15.0+cpu, AVX512", its version and instruction set, of the process that was started
 * last; NULL: none was. */
const char *ashlar__rnn_torch_name(void);

/* Make the network of these sizes; the one before it is gone. PyTorch tries its ways (with oneDNN
 * or without, sequences padded or packed), and takes the fastest.
 *
 * lengths   [batch]
 * is_made   false: PyTorch has no such network (LSTM and GRU in fp32, without projection)
 *
 * Errors: ASHLAR_EIO (the process has ended). */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_torch_make(ashlar_rnn_torch *torch,
                                                       const ashlar_rnn_config *config,
                                                       size_t steps, size_t batch,
                                                       const int32_t *lengths, bool is_inference,
                                                       bool *is_made);

/* Run a step, with values of its own, and tell the seconds it took by PyTorch's process itself.
 * Errors: ASHLAR_EIO. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_torch_step(ashlar_rnn_torch *torch, double *forward_s,
                                                       double *backward_s);

#endif /* ASHLAR_RNN_TORCH_H */
