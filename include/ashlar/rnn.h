/*
 * rnn.h - recurrent layers on an arena's packed weights, queued on a stream.
 *
 * The calls and their order are cuDNN's: forward, backward_data, backward_weights, with one reserve
 * space from the first to the last, and a workspace for each. The caller supplies every buffer, so
 * that all memory of a step comes from one allocator.
 */
#ifndef ASHLAR_RNN_H
#define ASHLAR_RNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/arena.h>
#include <ashlar/rnn_layout.h>

ASHLAR_BEGIN_DECLS

typedef struct ashlar_rnn ashlar_rnn;

/* A padded batch: sequence b has lengths[b] of `steps` time steps. */
typedef struct ashlar_rnn_batch {
    size_t steps;           /* T, 1.. */
    size_t batch;           /* B, 1.. */
    const int32_t *lengths; /* [B] in host memory, each 1..T, any order; copied by each call */
    uint64_t dropout_seed;  /* forward, with dropout and a reserve: which outputs are dropped; pass
                               another one in each training step. On a CUDA device only an rnn's
                               first seed counts, and later draws go on from it, unless ... */
    bool dropout_restarts;  /* ... this is set: the same seed drops the same again. Costs as much as
                               setting up all of cuDNN's states. The CPU always does so */
} ashlar_rnn_batch;

/*
 * The buffers of the three calls, in device memory, of the layout's type; letters as in
 * rnn_layout.h, states by pseudo-layer. Each call uses only the fields named for it, and those
 * marked LSTM only for that cell. Outputs are overwritten, but for dweights; none may overlap
 * another output or an input. All are in use until the stream has passed the call.
 *
 * If ashlar_rnn_backward_reads_output(), the backward calls also read y, hx and cx: pass them as in
 * forward.
 */
typedef struct ashlar_rnn_buffers {
    void *reserve; /* all calls; forward: NULL for inference */
    void *work;    /* all calls; scratch */

    const void *x;       /* [T, B, I]   forward, backward_weights; not read past the lengths */
    const void *hx;      /* [L*D, B, P] forward; NULL: zeros */
    const void *cx;      /* [L*D, B, H] forward, LSTM; NULL: zeros */
    const void *weights; /* the stack   forward, backward_data */
    void *y;             /* [T, B, D*P] forward; 0 past the lengths; of a row first direction 0 */
    void *hy;            /* [L*D, B, P] forward; NULL: not wanted */
    void *cy;            /* [L*D, B, H] forward, LSTM; NULL: not wanted */

    const void *dy;  /* [T, B, D*P] backward_data; not read past the lengths; NULL: zeros */
    const void *dhy; /* [L*D, B, P] backward_data; NULL: zeros */
    const void *dcy; /* [L*D, B, H] backward_data, LSTM; NULL: zeros */
    void *dx;        /* [T, B, I]   backward_data; 0 past the lengths; NULL: not wanted */
    void *dhx;       /* [L*D, B, P] backward_data; NULL: not wanted */
    void *dcx;       /* [L*D, B, H] backward_data, LSTM; NULL: not wanted */

    void *dweights; /* the stack    backward_weights; ADDED to */
} ashlar_rnn_buffers;

/*
 * A stack of recurrent layers for `device`: on a software device by the CPU, on a CUDA device by
 * cuDNN 9 (libcudnn.so.9, or the file that the environment's ASHLAR_CUDNN names). It holds no
 * weights. On a CUDA device it holds a cuDNN handle's memory and, with dropout, the states of
 * cuDNN's random numbers (some MiB), all taken from the driver here, and nowhere else. The place of
 * every weight is compared with where cuDNN wants it.
 *
 * Ownership: *out is the caller's; the device must outlive it.
 * Threads:   any. With cuDNN, calls on one rnn wait for each other; with dropout, queue its
 *            training forwards on one stream, or on streams that wait for each other.
 * Errors:    those of ashlar_rnn_layout_init(); ASHLAR_ENOTSUP (a CUDA device in a build without
 *            cuDNN's headers, or without its library; a type that the device has no arithmetic
 *            for: on the CPU all but F32 and F64; an algorithm that does not do this stack; a
 *            cuDNN with another order of the weights); ASHLAR_EINVAL (on the CPU: the
 *            environment's ASHLAR_THREADS is no number of threads); ASHLAR_EHOSTMEM; with cuDNN
 *            ASHLAR_ENOMEM, ASHLAR_EDRIVER.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_rnn_create(ashlar_device *device,
                                                             const ashlar_rnn_config *config,
                                                             ashlar_rnn **out);
ASHLAR_API void ashlar_rnn_destroy(ashlar_rnn *rnn); /* NULL is allowed; may wait for the device */

/* Where its weights lie. Ownership: the rnn's.  Threads: any. */
ASHLAR_API const ashlar_rnn_layout *ashlar_rnn_layout_of(const ashlar_rnn *rnn);

/*
 * Whether the backward calls read y, hx and cx of the forward, so that they must be kept as they
 * are until backward_weights has been queued. True with cuDNN, false on the CPU.
 */
ASHLAR_API bool ashlar_rnn_backward_reads_output(const ashlar_rnn *rnn);

/*
 * Declare a stack's weights in an arena, as one group in packed order, under PyTorch's names:
 * prefix + ".weight_ih_l0", ".weight_hh_l0", ".bias_ih_l0", ".bias_hh_l0", ".weight_hr_l0" (the
 * projection) by layer, with "_reverse" appended for the reverse direction, as far as the stack has
 * them. *first gets the first tensor's number; its view is the stack's `weights`.
 *
 * Each tensor has PyTorch's shape, order of gates and order of elements, so that a checkpoint of
 * the arena is a file that PyTorch loads; only the order of the tensors in memory is cuDNN's. With
 * ASHLAR_RNN_BIAS_DOUBLE the module is one with bias=True, with _NONE one with bias=False. PyTorch
 * has no single bias: such a stack is its bias=True with zeros for the tensors that are missing.
 *
 * Errors: those of ashlar_arena_add_group().
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_rnn_declare(ashlar_arena *arena,
                                                              const char *prefix,
                                                              const ashlar_rnn_layout *layout,
                                                              size_t *first);

/*
 * Bytes of reserve and work for one batch; reserve is 0 for inference. Sizes need not grow with the
 * length (cuDNN's do not): for all lengths up to a maximum, take the maximum over all of them.
 *
 * Errors: ASHLAR_EINVAL (steps, batch), ASHLAR_EOVERFLOW; with cuDNN also what a pass returns.
 *         Outputs are written only on ASHLAR_OK.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_rnn_sizes(const ashlar_rnn *rnn, size_t steps,
                                                            size_t batch, bool training,
                                                            size_t *reserve_bytes,
                                                            size_t *work_bytes);

/*
 * Queue one of the three passes. Each adds to, or overwrites, what ashlar_rnn_buffers says.
 *
 * Stream: queued. With cuDNN and dropout, the first training forward may not be captured, and none
 *         with dropout_restarts.
 * Threads: any.
 * Errors: ASHLAR_EINVAL (steps, batch, a length outside 1..T, a missing buffer), ASHLAR_EOVERFLOW
 *         (steps, batch), ASHLAR_EHOSTMEM, ASHLAR_EDRIVER; with cuDNN also ASHLAR_ENOTSUP (lengths
 *         or sizes that the algorithm does not do), ASHLAR_ENOMEM. Nothing is queued then that
 *         writes an output, but dx may be zeros.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_rnn_forward(const ashlar_rnn *rnn,
                                                              const ashlar_rnn_batch *batch,
                                                              const ashlar_rnn_buffers *buffers,
                                                              ashlar_stream stream);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_rnn_backward_data(
    const ashlar_rnn *rnn, const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *buffers,
    ashlar_stream stream);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_rnn_backward_weights(
    const ashlar_rnn *rnn, const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *buffers,
    ashlar_stream stream);

ASHLAR_END_DECLS

#endif /* ASHLAR_RNN_H */
