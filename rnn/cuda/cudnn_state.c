/* cudnn_state.c - loads cuDNN; makes and destroys a stack's descriptors and dropout states; checks
 * for each new rnn that cuDNN places the weights where ashlar's layout does. */
#include "rnn/cuda/cudnn_state.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/shared_library.h"
#include "allocator/device/device_impl.h"

/* A made-up address for the weights: cuDNN only computes the tensors' addresses from it. It is not
 * NULL, since cuDNN answers NULL for a tensor that is absent. */
static char *const base = (char *)(uintptr_t)0x100000;

/* What cuDNN calls a linear layer: one gate's rows of W or R, or the whole projection. In our
 * tensors the rows of all `gates` gates follow each other; a projection has one gate. */
typedef struct place {
    const ashlar_rnn_layout *layout;
    size_t pseudo_layer, gate, gates;
} place;

static ashlar_status differs(const place *p, ashlar_rnn_tensor tensor, const char *what,
                             size_t cudnn, size_t ours) {
    static const char *const names[] = {
        [ASHLAR_RNN_W] = "W",   [ASHLAR_RNN_R] = "R",   [ASHLAR_RNN_BW] = "bW",
        [ASHLAR_RNN_BR] = "bR", [ASHLAR_RNN_WP] = "Wp",
    };
    ASHLAR_TABLE_IS_FULL(names, ASHLAR_RNN_TENSOR_COUNT);
    const size_t directions = p->layout->config.directions;
    return ashlar__fail(ASHLAR_ENOTSUP,
                        "rnn: %s of layer %zu%s, gate %zu: %s is %zu for this cuDNN, %zu for "
                        "ashlar; use another cuDNN 9",
                        names[tensor], p->pseudo_layer / directions,
                        p->pseudo_layer % directions == 0 ? "" : " reverse", p->gate, what, cudnn,
                        ours);
}

static ashlar_status check_offset(const place *p, ashlar_rnn_tensor tensor, const void *address) {
    const ashlar_rnn_view view = ashlar_rnn_layout_view(p->layout, p->pseudo_layer, tensor);
    if ((address == NULL) != (view.rows == 0)) {
        return differs(p, tensor, "the number of its tensors", address != NULL, view.rows != 0);
    }
    if (address == NULL) {
        return ASHLAR_OK;
    }
    const size_t item = ashlar_dtype_bytes(p->layout->config.dtype);
    const size_t got = (size_t)((const char *)address - base);
    const size_t want = (view.offset + p->gate * (view.rows / p->gates) * view.cols) * item;
    return got == want ? ASHLAR_OK : differs(p, tensor, "its byte", got, want);
}

/* Compare the shape in descriptor s->h with ours. cuDNN's matrices are 1 x rows x columns. */
static ashlar_status check_shape(const ashlar_cudnn_state *s, const place *p,
                                 ashlar_rnn_tensor tensor) {
    const ashlar_rnn_view view = ashlar_rnn_layout_view(p->layout, p->pseudo_layer, tensor);
    cudnnDataType_t type;
    int dims = 0, shape[3] = {0}, strides[3] = {0};
    if (view.rows == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_CUDNN_TRY(s->cudnn, get_tensor, cudnnGetTensorNdDescriptor,
                     (s->h, 3, &type, &dims, shape, strides));
    const struct {
        const char *what;
        size_t got, want;
    } all[] = {
        {"its number of rows", (size_t)shape[1], view.rows / p->gates},
        {"its number of columns", (size_t)shape[2], view.cols},
        {"the distance of its rows", (size_t)strides[1], view.cols},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].got != all[i].want) {
            return differs(p, tensor, all[i].what, all[i].got, all[i].want);
        }
    }
    return ASHLAR_OK;
}

/* Check linear layer `number`: W's gates come first, then R's gates, then the projection. */
static ashlar_status check_linear(const ashlar_rnn_layout *layout, const ashlar_cudnn_state *s,
                                  cudnnRNNDescriptor_t stack, size_t pseudo_layer, size_t number) {
    static const ashlar_rnn_tensor matrices[] = {ASHLAR_RNN_W, ASHLAR_RNN_R, ASHLAR_RNN_WP};
    static const ashlar_rnn_tensor biases[] = {ASHLAR_RNN_BW, ASHLAR_RNN_BR};
    const size_t block = number / layout->gates;
    const place p = {.layout = layout,
                     .pseudo_layer = pseudo_layer,
                     .gate = number % layout->gates,
                     .gates = block < 2 ? layout->gates : 1};
    void *matrix = NULL, *bias = NULL;
    ASHLAR_CUDNN_TRY(s->cudnn, weight_params, cudnnGetRNNWeightParams,
                     (s->handle, stack, (int32_t)pseudo_layer,
                      layout->elements * ashlar_dtype_bytes(layout->config.dtype), base,
                      (int32_t)number, s->h, &matrix, s->c, &bias));
    ASHLAR_TRY(check_offset(&p, matrices[block], matrix));
    ASHLAR_TRY(check_shape(s, &p, matrices[block]));
    return block < 2 ? check_offset(&p, biases[block], bias) : ASHLAR_OK;
}

ashlar_status ashlar__cudnn_check_layout(const ashlar_rnn_layout *layout,
                                         const ashlar_cudnn_state *s, cudnnRNNDescriptor_t stack) {
    const size_t want = layout->elements * ashlar_dtype_bytes(layout->config.dtype);
    const size_t numbers = 2 * layout->gates + (layout->config.cell == ASHLAR_RNN_LSTM);
    size_t got = 0;
    ASHLAR_CUDNN_TRY(s->cudnn, weight_space_size, cudnnGetRNNWeightSpaceSize,
                     (s->handle, stack, &got));
    ASHLAR_FAIL_IF(
        got != want, ASHLAR_ENOTSUP,
        "rnn: the stack has %zu bytes for this cuDNN, %zu for ashlar; use another cuDNN 9", got,
        want);
    for (size_t pseudo_layer = 0; pseudo_layer < layout->pseudo_layers; pseudo_layer++) {
        for (size_t number = 0; number < numbers; number++) {
            ASHLAR_TRY(check_linear(layout, s, stack, pseudo_layer, number));
        }
    }
    return ASHLAR_OK;
}

enum { MAJOR = 9, VERSIONS_PER_MAJOR = 10000 };
_Static_assert(CUDNN_MAJOR == MAJOR, "the headers are of the version that is looked for");

#define SYMBOL(field, symbol) #symbol,
static const char *const names[] = {ASHLAR_CUDNN_MAP(SYMBOL)};
enum { FUNCTION_COUNT = sizeof names / sizeof names[0] };
_Static_assert(FUNCTION_COUNT * sizeof(void (*)(void)) == sizeof(ashlar_cudnn), "only functions");

static ashlar_status check_version(const void *functions) {
    const size_t version = ((const ashlar_cudnn *)functions)->get_version();
    return version / VERSIONS_PER_MAJOR == MAJOR
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_ENOTSUP,
                              "the cuDNN that was found is version %zu; it must be %d.x: look at "
                              "ASHLAR_CUDNN and LD_LIBRARY_PATH",
                              version, MAJOR);
}

ashlar_status ashlar__cudnn_open(const ashlar_cudnn **out) {
    static ashlar_shared_table once = {.lock = ASHLAR_LOCK(ASHLAR_LEVEL_SHARED_LIBRARY)};
    static ashlar_cudnn functions;
    static const ashlar_shared_library library = {
        .what = "cuDNN 9",
        .variable = "ASHLAR_CUDNN",
        .names = {"libcudnn.so.9"},
        .functions = names,
        .function_count = FUNCTION_COUNT,
        .check = check_version,
    };
    ASHLAR_TRY(ashlar__shared_load(&once, &library, &functions));
    *out = &functions;
    return ASHLAR_OK;
}

static ashlar_status status_of(cudnnStatus_t result) {
    /* The thousands of a cuDNN status are its kind: 2xxx bad parameter, 3xxx not supported. */
    if (result / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) {
        return ASHLAR_ENOTSUP;
    }
    return result == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ? ASHLAR_ENOMEM
           : result == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ? ASHLAR_EHOSTMEM
                                                                          : ASHLAR_EDRIVER;
}

ashlar_status ashlar__cudnn_error(const ashlar_cudnn *cudnn, const char *what,
                                  cudnnStatus_t result) {
    char said[256] = "";
    cudnn->get_last_error_string(said, sizeof said);
    said[sizeof said - 1] = '\0';
    return ashlar__fail(status_of(result), "%s: %s (%d)%s%s", what, cudnn->get_error_string(result),
                        (int)result, said[0] == '\0' ? "" : ": ", said);
}

static cudnnDataType_t cudnn_type(ashlar_dtype dtype) {
    static const cudnnDataType_t types[] = {
        [ASHLAR_F32] = CUDNN_DATA_FLOAT,
        [ASHLAR_F64] = CUDNN_DATA_DOUBLE,
        [ASHLAR_F16] = CUDNN_DATA_HALF,
        [ASHLAR_BF16] = CUDNN_DATA_BFLOAT16,
    };
    ASHLAR_TABLE_IS_FULL(types, ASHLAR_DTYPE_COUNT);
    return types[dtype];
}

/* 16-bit types should use tensor cores, which FMA_MATH would forbid. */
static cudnnMathType_t math_type(const ashlar_rnn_config *c) {
    if (ashlar_dtype_is_narrow(c->dtype)) {
        return CUDNN_TENSOR_OP_MATH;
    }
    return c->math == ASHLAR_RNN_MATH_TF32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

/* Each cell's mode. The table is built from the list of cells, so a cell without a line here does
 * not compile. In a table written by hand, a row left out would be 0, which is cuDNN's ReLU. */
#define MODE_OF_LSTM CUDNN_LSTM
#define MODE_OF_GRU CUDNN_GRU
#define MODE_OF_TANH CUDNN_RNN_TANH
#define MODE_OF_RELU CUDNN_RNN_RELU
#define CELL_MODE(name, gates, text) [ASHLAR_RNN_##name] = MODE_OF_##name,
static const cudnnRNNMode_t cell_modes[] = {ASHLAR_RNN_CELL_MAP(CELL_MODE)};
ASHLAR_TABLE_IS_FULL(cell_modes, ASHLAR_RNN_CELL_COUNT);

/* Set a descriptor of the rnn. For cuDNN, no projection means one as wide as hidden. All sizes fit
 * in an int, because a layout has fewer than 2^31 elements. */
static ashlar_status describe_stack(const ashlar_rnn *rnn, const ashlar_cudnn_state *s,
                                    ashlar_rnn_algorithm algorithm) {
    static const cudnnRNNBiasMode_t biases[] = {
        [ASHLAR_RNN_BIAS_DOUBLE] = CUDNN_RNN_DOUBLE_BIAS,
        [ASHLAR_RNN_BIAS_NONE] = CUDNN_RNN_NO_BIAS,
        [ASHLAR_RNN_BIAS_INPUT] = CUDNN_RNN_SINGLE_INP_BIAS,
        [ASHLAR_RNN_BIAS_RECURRENT] = CUDNN_RNN_SINGLE_REC_BIAS,
    };
    ASHLAR_TABLE_IS_FULL(biases, ASHLAR_RNN_BIAS_COUNT);
    static const cudnnRNNAlgo_t algorithms[] = {
        [ASHLAR_RNN_STANDARD] = CUDNN_RNN_ALGO_STANDARD,
        [ASHLAR_RNN_PERSIST_STATIC] = CUDNN_RNN_ALGO_PERSIST_STATIC,
        [ASHLAR_RNN_PERSIST_DYNAMIC] = CUDNN_RNN_ALGO_PERSIST_DYNAMIC,
        [ASHLAR_RNN_PERSIST_SMALL] = CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H,
    };
    ASHLAR_TABLE_IS_FULL(algorithms, ASHLAR_RNN_AUTO);
    const ashlar_rnn_config *c = &rnn->layout.config;
    const cudnnDataType_t type = cudnn_type(c->dtype);
    ASHLAR_CUDNN_TRY(
        s->cudnn, set_rnn, cudnnSetRNNDescriptor_v8,
        (s->rnns[algorithm], algorithms[algorithm], cell_modes[c->cell], biases[c->bias],
         c->directions == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, type,
         ashlar_dtype_is_narrow(c->dtype) ? CUDNN_DATA_FLOAT : type, math_type(c),
         (int32_t)c->input, (int32_t)c->hidden, (int32_t)rnn->layout.state, (int32_t)c->layers,
         s->dropout, CUDNN_RNN_PADDED_IO_ENABLED));
    return ASHLAR_OK;
}

ashlar_status ashlar__cudnn_state_seed(const ashlar_rnn *rnn, ashlar_cudnn_state *s,
                                       uint64_t seed) {
    const float dropped = s->states == NULL ? 0 : (float)rnn->layout.config.dropout;
    ASHLAR_CUDNN_TRY(s->cudnn, set_dropout, cudnnSetDropoutDescriptor,
                     (s->dropout, s->handle, dropped, s->states, s->states_bytes, seed));
    for (int a = 0; a < ASHLAR_RNN_AUTO; a++) { /* descriptors may hold a copy of the old dropout */
        ASHLAR_TRY(s->rnns[a] == NULL ? ASHLAR_OK
                                      : describe_stack(rnn, s, (ashlar_rnn_algorithm)a));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__cudnn_state_stack(const ashlar_rnn *rnn, ashlar_cudnn_state *s,
                                        ashlar_rnn_algorithm algorithm, cudnnRNNDescriptor_t *out) {
    if (s->rnns[algorithm] == NULL) {
        ASHLAR_CUDNN_TRY(s->cudnn, create_rnn, cudnnCreateRNNDescriptor, (&s->rnns[algorithm]));
        const ashlar_status status = describe_stack(rnn, s, algorithm);
        if (status != ASHLAR_OK) {
            (void)s->cudnn->destroy_rnn(s->rnns[algorithm]);
            s->rnns[algorithm] = NULL;
            return status;
        }
    }
    *out = s->rnns[algorithm];
    return ASHLAR_OK;
}

static ashlar_status describe_padded(const ashlar_cudnn_state *s, cudnnRNNDataDescriptor_t desc,
                                     ashlar_dtype dtype, size_t steps, size_t batch, size_t width,
                                     const int32_t *lengths) {
    double zero = 0; /* its bytes are 0 in every element type that cuDNN may read */
    ASHLAR_CUDNN_TRY(s->cudnn, set_data, cudnnSetRNNDataDescriptor,
                     (desc, cudnn_type(dtype), CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, (int)steps,
                      (int)batch, (int)width, lengths, &zero));
    return ASHLAR_OK;
}

static ashlar_status describe_states(const ashlar_cudnn_state *s, cudnnTensorDescriptor_t desc,
                                     ashlar_dtype dtype, size_t pseudo_layers, size_t batch,
                                     size_t width) {
    const int shape[] = {(int)pseudo_layers, (int)batch, (int)width};
    const int strides[] = {(int)(batch * width), (int)width, 1};
    ASHLAR_CUDNN_TRY(s->cudnn, set_tensor, cudnnSetTensorNdDescriptor,
                     (desc, cudnn_type(dtype), 3, shape, strides));
    return ASHLAR_OK;
}

static ashlar_status describe(const ashlar_rnn *rnn, const ashlar_cudnn_state *s, size_t steps,
                              size_t batch, const int32_t *lengths) {
    const ashlar_rnn_layout *l = &rnn->layout;
    const ashlar_dtype dtype = l->config.dtype;
    ASHLAR_TRY(describe_padded(s, s->x, dtype, steps, batch, l->config.input, lengths));
    ASHLAR_TRY(describe_padded(s, s->y, dtype, steps, batch, l->output, lengths));
    ASHLAR_TRY(describe_states(s, s->h, dtype, l->pseudo_layers, batch, l->state));
    return describe_states(s, s->c, dtype, l->pseudo_layers, batch, l->config.hidden);
}

ashlar_status ashlar__cudnn_state_describe(const ashlar_rnn *rnn, const ashlar_cudnn_state *s,
                                           size_t steps, size_t batch, const int32_t *lengths) {
    if (lengths != NULL) {
        return describe(rnn, s, steps, batch, lengths);
    }
    int32_t *all;
    ASHLAR_HOST_NEW(all, batch, "no host memory for %zu lengths", batch);
    for (size_t b = 0; b < batch; b++) {
        all[b] = (int32_t)steps;
    }
    const ashlar_status status = describe(rnn, s, steps, batch, all);
    ashlar__host_free(all);
    return status;
}

/* Allocate dropout's states. Their size depends on the GPU. */
static ashlar_status take_states(const ashlar_rnn *rnn, ashlar_cudnn_state *s) {
    ashlar_driver *driver = rnn->device->driver;
    size_t bytes = 0;
    cu_ptr states = 0;
    if (rnn->layout.config.dropout == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_CUDNN_TRY(s->cudnn, dropout_states_size, cudnnDropoutGetStatesSize, (s->handle, &bytes));
    cu_result result;
    ASHLAR_CALL_WITH_ROOM(rnn->device, result, mem_alloc, (&states, bytes));
    if (result != CU_SUCCESS) {
        return ashlar__driver_error(driver, "rnn: cuMemAlloc for dropout's states", result);
    }
    s->states = ashlar__ptr_out(states);
    s->states_bytes = bytes;
    return ASHLAR_OK;
}

static ashlar_status build(const ashlar_rnn *rnn, ashlar_cudnn_state *s) {
    const ashlar_cudnn *cudnn = s->cudnn;
    const ashlar_rnn_algorithm algorithm = rnn->layout.config.algorithm;
    const bool is_auto = algorithm == ASHLAR_RNN_AUTO;
    cudnnRNNDescriptor_t stack = NULL;
    ASHLAR_TRY(is_auto ? ashlar__cudnn_gpu_read(rnn, &s->gpu) : ASHLAR_OK);
    ASHLAR_CUDNN_TRY(cudnn, create, cudnnCreate, (&s->handle));
    ASHLAR_CUDNN_TRY(cudnn, create_dropout, cudnnCreateDropoutDescriptor, (&s->dropout));
    ASHLAR_CUDNN_TRY(cudnn, create_data, cudnnCreateRNNDataDescriptor, (&s->x));
    ASHLAR_CUDNN_TRY(cudnn, create_data, cudnnCreateRNNDataDescriptor, (&s->y));
    ASHLAR_CUDNN_TRY(cudnn, create_tensor, cudnnCreateTensorDescriptor, (&s->h));
    ASHLAR_CUDNN_TRY(cudnn, create_tensor, cudnnCreateTensorDescriptor, (&s->c));
    ASHLAR_TRY(take_states(rnn, s));
    ASHLAR_TRY(ashlar__cudnn_state_seed(rnn, s, 0));
    ASHLAR_TRY(
        ashlar__cudnn_state_stack(rnn, s, is_auto ? ASHLAR_RNN_STANDARD : algorithm, &stack));
    if (s->states != NULL) { /* set on the default stream, which not every stream waits for */
        const cu_result result = ASHLAR_DRIVER_CALL(rnn->device->driver, ctx_synchronize, ());
        if (result != CU_SUCCESS) {
            return ashlar__driver_error(rnn->device->driver, "cuCtxSynchronize", result);
        }
    }
    return ashlar__cudnn_check_layout(&rnn->layout, s, stack);
}

/* Destroy what build() made. The device's context must be current. Errors are ignored: nothing can
 * be done about them. */
static void unmake(const ashlar_rnn *rnn, ashlar_cudnn_state *s) {
    const ashlar_cudnn *cudnn = s->cudnn;
    ashlar_driver *driver = rnn->device->driver;
    if (s->handle == NULL) {
        return; /* the handle is made first, so nothing else exists */
    }
    /* Queued work may still use the handle's memory and the states. */
    (void)ASHLAR_DRIVER_CALL(driver, ctx_synchronize, ());
#define DESTROY(kind, descriptor)                \
    if ((descriptor) != NULL) {                  \
        (void)cudnn->destroy_##kind(descriptor); \
    }
    DESTROY(tensor, s->c)
    DESTROY(tensor, s->h)
    DESTROY(data, s->y)
    DESTROY(data, s->x)
    for (int a = 0; a < ASHLAR_RNN_AUTO; a++) {
        DESTROY(rnn, s->rnns[a])
    }
    DESTROY(dropout, s->dropout)
    (void)cudnn->destroy(s->handle);
    if (s->states != NULL) {
        (void)ASHLAR_DRIVER_CALL(driver, mem_free, (ashlar__ptr_in(s->states)));
    }
}

/* Run build() in the device's context, and unmake() if it fails. Both allocate or free device
 * memory. */
static ashlar_status build_in_context(const ashlar_rnn *rnn, ashlar_cudnn_state *s) {
    ASHLAR_TRY(ashlar__device_enter_relaxed(rnn->device));
    const ashlar_status status = build(rnn, s);
    if (status != ASHLAR_OK) {
        unmake(rnn, s);
    }
    ashlar__device_leave_relaxed(rnn->device);
    return status;
}

ashlar_status ashlar__cudnn_state_create(const ashlar_rnn *rnn, ashlar_cudnn_state **out) {
    const ashlar_cudnn *cudnn;
    ASHLAR_TRY(ashlar__cudnn_open(&cudnn));
    ashlar_cudnn_state *s = ashlar__host_calloc(1, sizeof *s);
    if (s == NULL || pthread_mutex_init(&s->lock, NULL) != 0) {
        ashlar__host_free(s);
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for an rnn of cuDNN");
    }
    s->cudnn = cudnn;
    const ashlar_status status = build_in_context(rnn, s);
    if (status != ASHLAR_OK) {
        pthread_mutex_destroy(&s->lock);
        ashlar__host_free(s);
        return status;
    }
    *out = s;
    return ASHLAR_OK;
}

void ashlar__cudnn_state_destroy(const ashlar_rnn *rnn, ashlar_cudnn_state *s) {
    if (s == NULL) {
        return;
    }
    if (ashlar__device_enter_relaxed(rnn->device) == ASHLAR_OK) {
        unmake(rnn, s);
        ashlar__device_leave_relaxed(rnn->device);
    }
    pthread_mutex_destroy(&s->lock);
    ashlar__host_free(s);
}
