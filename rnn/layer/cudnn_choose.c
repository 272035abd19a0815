/* cudnn_choose.c - ASHLAR_RNN_AUTO: which of cuDNN's algorithms computes a batch, by rule. */
#include "rnn/layer/cudnn_state.h"

#include "allocator/base/error.h"
#include "allocator/device/device_impl.h"

/* The largest H for which PERSIST_SMALL is taken, as in PyTorch. For an H between the two limits
 * PyTorch runs forward with one algorithm and backward with another. Here all passes of a training
 * take backward's limit, so that a reserve is read by the algorithm that wrote it. */
typedef struct small_limits {
    size_t forward, backward;
} small_limits;

static small_limits small_limits_of(ashlar_rnn_cell cell) {
    const bool is_plain = cell == ASHLAR_RNN_TANH || cell == ASHLAR_RNN_RELU;
    return is_plain ? (small_limits){384, 256} : (small_limits){192, 128};
}

static bool is_small(const ashlar_rnn_config *c, const ashlar_cudnn_gpu *gpu, bool training) {
    const small_limits most = small_limits_of(c->cell);
    return gpu->major >= 6 && c->hidden <= (training ? most.backward : most.forward);
}

/* Volta: batch sizes and lengths at which PERSIST_STATIC was faster. */
static bool volta_gains(size_t steps, size_t batch) {
    const bool has_batch = (batch % 16 == 0 && batch != 80 && batch != 112) || batch == 8;
    return has_batch && ((steps >= 40 && batch <= 128) || (steps >= 20 && batch <= 96) ||
                         (steps >= 10 && batch <= 32));
}

/* Ampere and later, with many multiprocessors: whether PERSIST_STATIC is taken. It had errors on
 * compute capability 8.6, and GRUs gained nothing. */
static bool ampere_gains(const ashlar_rnn_config *c, const ashlar_cudnn_gpu *gpu, size_t batch) {
    const bool is_plain = c->cell == ASHLAR_RNN_TANH || c->cell == ASHLAR_RNN_RELU;
    if (gpu->multiprocessors < 98 || gpu->minor == 6 || c->cell == ASHLAR_RNN_GRU ||
        batch % 8 != 0 || batch > 128) {
        return false;
    }
    return !is_plain || batch < 96 || c->hidden < 896;
}

static bool is_static(const ashlar_rnn_config *c, const ashlar_cudnn_gpu *gpu, size_t steps,
                      size_t batch) {
    if (c->dtype != ASHLAR_F16 || c->layers != 1 || c->directions == 2 || c->hidden > 1024 ||
        c->hidden % 128 != 0 || c->input % 128 != 0) {
        return false;
    }
    return gpu->major == 7 ? gpu->minor != 5 && volta_gains(steps, batch)
                           : gpu->major >= 8 && ampere_gains(c, gpu, batch);
}

ashlar_rnn_algorithm ashlar__cudnn_choose(const ashlar_rnn_config *c, const ashlar_cudnn_gpu *gpu,
                                          size_t steps, size_t batch, bool training) {
    if (c->algorithm != ASHLAR_RNN_AUTO) {
        return c->algorithm;
    }
    if (!ashlar__rnn_may_persist(c) || c->dtype == ASHLAR_F64) {
        return ASHLAR_RNN_STANDARD;
    }
    return is_small(c, gpu, training)        ? ASHLAR_RNN_PERSIST_SMALL
           : is_static(c, gpu, steps, batch) ? ASHLAR_RNN_PERSIST_STATIC
                                             : ASHLAR_RNN_STANDARD;
}

static ashlar_status ask(ashlar_driver *driver, const ashlar_device *device, unsigned attribute,
                         int *out) {
    const cu_result result =
        ASHLAR_DRIVER_CALL(driver, device_get_attribute, (out, attribute, device->info.ordinal));
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(driver, "cuDeviceGetAttribute", result);
}

ashlar_status ashlar__cudnn_gpu_read(const ashlar_rnn *rnn, ashlar_cudnn_gpu *out) {
    ashlar_driver *driver = rnn->device->driver;
    ASHLAR_TRY(ask(driver, rnn->device, CU_ATTRIBUTE_MULTIPROCESSORS, &out->multiprocessors));
    ASHLAR_TRY(ask(driver, rnn->device, CU_ATTRIBUTE_CAPABILITY_MAJOR, &out->major));
    return ask(driver, rnn->device, CU_ATTRIBUTE_CAPABILITY_MINOR, &out->minor);
}
