/* arena_setup.c - sets up a case (a set of tensors), and runs operations on it; runs plain copies
 * of as many bytes, to compare with. */
#include "bench/arena/bench_arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ashlar/arena.h>

#include "allocator/base/host.h"
#include "allocator/soft/soft.h"
#include "arena/compute/workers.h"

enum { PIECE_BYTES = 1 << 18 /* a thread's share of a copy, like a piece of the optimizer's */ };

typedef struct line {
    uint64_t words[ASHLAR_COPY_LINE / sizeof(uint64_t)];
} line;

_Static_assert(PIECE_BYTES % sizeof(line) == 0, "pieces are whole lines");

/* Copy line by line, never by the C library: the fence, which takes no instruction, keeps the
 * compiler from turning the loop into a memcpy. */
static void loop(void *dst, const void *src, size_t bytes) {
    line *to = dst;
    const line *from = src;
    for (size_t i = 0; i < bytes / sizeof(line); i++) {
        to[i] = from[i];
        atomic_signal_fence(memory_order_seq_cst);
    }
}

static void copy_piece(void *context, size_t i) {
    const ashlar_copy_work *w = context;
    const size_t begin = i * PIECE_BYTES, left = w->bytes - begin;
    loop((char *)w->dst + begin, (const char *)w->src + begin,
         left < PIECE_BYTES ? left : PIECE_BYTES);
}

void ashlar__arena_copy(ashlar_copy_work *work) {
    for (size_t i = 0; i < work->times; i++) {
        if (work->is_shared) {
            ashlar__workers_run((work->bytes + PIECE_BYTES - 1) / PIECE_BYTES, copy_piece, work);
        } else {
            loop(work->dst, work->src, work->bytes);
        }
    }
}

enum { VALUES_SEED = 5 };

/* Offset of a copy's destination, so that it is not a multiple of 4 KiB from the source. Otherwise
 * a load would wait for an earlier store whose address has the same low bits, since the processor
 * compares these first. */
enum { SKEW_BYTES = 33 * ASHLAR_COPY_LINE };

/* What ASHLAR_ARENA_OPERATION_MAP (bench_arena.h) says of each operation. */
#define ROW(name, text, accesses, arrays, shared) \
    [ASHLAR_ARENA_OPERATION_##name] = {text, accesses, arrays, shared},
static const struct {
    const char *name;
    size_t accesses, arrays;
    bool is_shared;
} operations[] = {ASHLAR_ARENA_OPERATION_MAP(ROW)};
ASHLAR_TABLE_IS_FULL(operations, ASHLAR_ARENA_OPERATION_COUNT);

const char *ashlar__arena_operation_name(ashlar_arena_operation operation) {
    return operations[operation].name;
}

static ashlar_optimizer_config adamw(void) {
    ashlar_optimizer_config config = {.kind = ASHLAR_OPTIMIZER_ADAMW, .clip_norm = 1};
    ASHLAR_IGNORE(ashlar_optimizer_complete(&config)); /* good values */
    return config;
}

static ashlar_status make_arena(ashlar_arena_setup *s, const ashlar_arena_case *which,
                                bool is_smoke) {
    const ashlar_optimizer_config config = adamw();
    ASHLAR_TRY(ashlar_arena_create(&s->arena));
    ASHLAR_TRY(which->declare(s->arena, is_smoke));
    ASHLAR_TRY(ashlar_arena_commit(s->arena, s->allocator, s->stream, ASHLAR_REGIONS_TRAINING));
    ASHLAR_TRY(ashlar__arena_case_fill(s->arena, VALUES_SEED, s->stream));
    return ashlar_optimizer_create(s->arena, &config, s->stream, &s->optimizer);
}

static ashlar_status make_scattered(ashlar_arena_setup *s) {
    const ashlar_optimizer_config config = adamw();
    ASHLAR_TRY(ashlar__per_tensor_create(s->arena, &config, s->stream, &s->scattered));
    const size_t count = s->scattered->count;
    ASHLAR_HOST_NEW(s->items, count, "bench: no host memory for %zu pointers", count);
    for (size_t i = 0; i < count; i++) {
        s->items[i] = (ashlar_flatten_item){.tensor = i, .pointer = &s->scattered->pointers[i]};
    }
    return ASHLAR_OK;
}

static size_t copy_bytes(const ashlar_arena_setup *s, ashlar_arena_operation operation) {
    const size_t half =
        ashlar_arena_get_info(s->arena).elements * sizeof(float) * operations[operation].arrays / 2;
    return (half + ASHLAR_COPY_LINE - 1) / ASHLAR_COPY_LINE * ASHLAR_COPY_LINE;
}

static ashlar_status take_copies(ashlar_arena_setup *s) {
    size_t most = 0;
    for (unsigned i = 0; i < ASHLAR_ARENA_OPERATION_COUNT; i++) {
        const size_t bytes = copy_bytes(s, (ashlar_arena_operation)i);
        most = bytes > most ? bytes : most;
    }
    ASHLAR_TRY(ashlar_alloc(s->allocator, most, s->stream, &s->copy_src));
    ASHLAR_TRY(ashlar_alloc(s->allocator, most + SKEW_BYTES, s->stream, &s->copy_dst));
    ASHLAR_TRY(ashlar_fill(s->device, s->copy_src, 1, most, s->stream));
    return ashlar_stream_synchronize(s->device, s->stream);
}

static ashlar_status make_folder(ashlar_arena_setup *s) {
    const char *root = secure_getenv("TMPDIR");
    snprintf(s->folder, sizeof s->folder, "%s/ashlar-arena-XXXXXX", root != NULL ? root : "/tmp");
    if (mkdtemp(s->folder) == NULL) {
        const ashlar_status status = ashlar__fail(ASHLAR_EIO, "bench: a folder for files, %s: %s",
                                                  s->folder, strerror(errno));
        s->folder[0] = '\0';
        return status;
    }
    snprintf(s->state_file, sizeof s->state_file, "%s/state", s->folder);
    snprintf(s->plain_file, sizeof s->plain_file, "%s/plain", s->folder);
    return ASHLAR_OK;
}

ashlar_status ashlar__arena_setup_init(ashlar_arena_setup *s, ashlar_device *device,
                                       const ashlar_arena_case *which, bool is_smoke) {
    const ashlar_device_info info = ashlar_device_get_info(device);
    s->device = device;
    s->is_cuda = info.kind == ASHLAR_DEVICE_CUDA;
    ASHLAR_TRY(ashlar_stream_create(device, &s->stream));
    ASHLAR_TRY(ashlar_allocator_create(device, &s->allocator));
    ASHLAR_TRY(make_arena(s, which, is_smoke));
    ASHLAR_TRY(make_scattered(s));
    ASHLAR_TRY(take_copies(s));
    return make_folder(s);
}

/* Free the blocks before the allocator. */
void ashlar__arena_setup_finish(ashlar_arena_setup *s) {
    ashlar__per_tensor_destroy(s->scattered);
    ashlar_optimizer_destroy(s->optimizer);
    ashlar_arena_destroy(s->arena);
    ashlar_allocator_destroy(s->allocator);
    ashlar_stream_destroy(s->device, s->stream);
    ashlar__host_free(s->items);
    if (s->folder[0] != '\0') {
        (void)unlink(s->state_file);
        (void)unlink(s->plain_file);
        (void)rmdir(s->folder);
    }
    *s = (ashlar_arena_setup){0};
}

bool ashlar__arena_setup_has(const ashlar_arena_setup *s, ashlar_arena_runner runner,
                             ashlar_arena_operation operation) {
    const bool is_of_files = operation == ASHLAR_ARENA_OPERATION_SAVE_STATE ||
                             operation == ASHLAR_ARENA_OPERATION_LOAD_STATE;
    const bool computes =
        operation == ASHLAR_ARENA_OPERATION_ADAMW || operation == ASHLAR_ARENA_OPERATION_NORM;
    return runner == ASHLAR_ARENA_RUNNER_FILE         ? is_of_files && !s->is_cuda
           : runner == ASHLAR_ARENA_RUNNER_PER_TENSOR ? !is_of_files && !(s->is_cuda && computes)
                                                      : true;
}

double ashlar__arena_setup_bytes(const ashlar_arena_setup *s, ashlar_arena_runner runner,
                                 ashlar_arena_operation operation) {
    const size_t accesses = operations[operation].accesses;
    if (runner == ASHLAR_ARENA_RUNNER_COPY) {
        const size_t passes = accesses / operations[operation].arrays;
        return 2 * (double)copy_bytes(s, operation) * (double)passes;
    }
    return (double)ashlar_arena_get_info(s->arena).elements * sizeof(float) * (double)accesses;
}

static ashlar_status save_state(ashlar_arena_setup *s) {
    return ashlar_checkpoint_save(s->arena, s->state_file, ASHLAR_CHECKPOINT_STATE, NULL, 0,
                                  s->stream);
}

static ashlar_status load_state(ashlar_arena_setup *s) {
    ashlar_checkpoint *file = NULL;
    ASHLAR_TRY(ashlar_checkpoint_open(s->state_file, &file));
    const ashlar_status status = ashlar_checkpoint_load(
        s->arena, file, &(ashlar_load_options){.flags = ASHLAR_CHECKPOINT_STATE}, s->stream, NULL);
    ashlar_checkpoint_close(file);
    return status;
}

enum { SAVED_ARRAYS = 3 /* p, m, v */ };

/* Write all arrays to an open file, or read them. As a stand-in for each array's memory, this uses
 * the memory of the copies. */
static bool move_plain(const ashlar_arena_setup *s, int fd, bool is_write) {
    const size_t bytes = ashlar_arena_get_info(s->arena).elements * sizeof(float);
    for (size_t i = 0; i < SAVED_ARRAYS; i++) {
        for (size_t at = 0; at < bytes;) {
            const ssize_t moved = is_write ? write(fd, (char *)s->copy_src + at, bytes - at)
                                           : read(fd, (char *)s->copy_dst + at, bytes - at);
            if (moved <= 0 && !(moved < 0 && errno == EINTR)) {
                return false;
            }
            at += moved > 0 ? (size_t)moved : 0;
        }
    }
    return true;
}

static bool save_plain(const ashlar_arena_setup *s) {
    char name[sizeof s->plain_file + 4];
    snprintf(name, sizeof name, "%s.new", s->plain_file);
    const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const bool is_written = fd >= 0 && move_plain(s, fd, true) && fsync(fd) == 0;
    const bool is_closed = fd >= 0 && close(fd) == 0;
    if (is_written && is_closed && rename(name, s->plain_file) == 0) {
        return true;
    }
    (void)unlink(name);
    return false;
}

static bool load_plain(const ashlar_arena_setup *s) {
    const int fd = open(s->plain_file, O_RDONLY | O_CLOEXEC);
    const bool is_read = fd >= 0 && move_plain(s, fd, false);
    return fd >= 0 && close(fd) == 0 && is_read;
}

static ashlar_status run_plain(const ashlar_arena_setup *s, ashlar_arena_operation operation) {
    const bool is_done =
        operation == ASHLAR_ARENA_OPERATION_SAVE_STATE ? save_plain(s) : load_plain(s);
    ASHLAR_FAIL_IF(!is_done, ASHLAR_EIO, "bench: a plain file in %s: %s", s->folder,
                   strerror(errno));
    return ASHLAR_OK;
}

static ashlar_status run_arena(ashlar_arena_setup *s, ashlar_arena_operation operation) {
    switch (operation) {
    case ASHLAR_ARENA_OPERATION_ADAMW:
        return ashlar_optimizer_step(s->optimizer, 1e-3, 1, s->stream);
    case ASHLAR_ARENA_OPERATION_ZERO:
        return ashlar_arena_zero(s->arena, ASHLAR_REGION_GRADIENTS, s->stream);
    case ASHLAR_ARENA_OPERATION_NORM:
        return ashlar_optimizer_step_with(
            s->optimizer,
            &(ashlar_optimizer_call){
                .parts = ASHLAR_OPTIMIZER_SUM,
                .bytes = ashlar_arena_get_info(s->arena).region_bytes[ASHLAR_REGION_PARAMETERS]},
            s->stream);
    case ASHLAR_ARENA_OPERATION_FLATTEN:
        return ashlar_arena_flatten(s->arena, ASHLAR_REGION_PARAMETERS, s->items,
                                    ashlar_arena_get_info(s->arena).tensor_count, NULL, s->stream,
                                    NULL);
    case ASHLAR_ARENA_OPERATION_SAVE_STATE:
        return save_state(s);
    default:
        return load_state(s);
    }
}

static ashlar_status run_scattered(ashlar_per_tensor *scattered, ashlar_arena_operation operation) {
    switch (operation) {
    case ASHLAR_ARENA_OPERATION_ADAMW:
        return ashlar__per_tensor_step(scattered, 1e-3);
    case ASHLAR_ARENA_OPERATION_ZERO:
        return ashlar__per_tensor_zero(scattered);
    case ASHLAR_ARENA_OPERATION_NORM:
        return ashlar__per_tensor_norm(scattered);
    default:
        return ashlar__per_tensor_flatten(scattered);
    }
}

/* Run the copy that the operation is compared with: on a CUDA device the driver's, else a loop. */
static ashlar_status run_copy(const ashlar_arena_setup *s, ashlar_arena_operation operation) {
    ashlar_copy_work work = {
        .dst = (char *)s->copy_dst + SKEW_BYTES,
        .src = s->copy_src,
        .bytes = copy_bytes(s, operation),
        .times = operations[operation].accesses / operations[operation].arrays,
        .is_shared = operations[operation].is_shared,
    };
    if (!s->is_cuda) {
        ashlar__arena_copy(&work);
        return ASHLAR_OK;
    }
    for (size_t i = 0; i < work.times; i++) {
        ASHLAR_TRY(ashlar_copy(s->device, work.dst, work.src, work.bytes, s->stream));
    }
    return ASHLAR_OK;
}

static ashlar_status run(ashlar_arena_setup *s, ashlar_arena_runner runner,
                         ashlar_arena_operation operation) {
    ASHLAR_TRY(runner == ASHLAR_ARENA_RUNNER_FILE         ? run_plain(s, operation)
               : runner == ASHLAR_ARENA_RUNNER_COPY       ? run_copy(s, operation)
               : runner == ASHLAR_ARENA_RUNNER_PER_TENSOR ? run_scattered(s->scattered, operation)
                                                          : run_arena(s, operation));
    return ashlar_stream_synchronize(s->device, s->stream);
}

/* Write the file that is to be loaded, unless it is there. */
static ashlar_status make_files(ashlar_arena_setup *s, ashlar_arena_runner runner) {
    if (runner == ASHLAR_ARENA_RUNNER_ARENA && access(s->state_file, F_OK) != 0) {
        return save_state(s);
    }
    if (runner == ASHLAR_ARENA_RUNNER_FILE && access(s->plain_file, F_OK) != 0) {
        return run_plain(s, ASHLAR_ARENA_OPERATION_SAVE_STATE);
    }
    return ASHLAR_OK;
}

static double now_s(void) {
    uint64_t ns;
    return ashlar__soft_virtual_ns(&ns) ? 1e-9 * (double)ns : ashlar__clock_s();
}

ashlar_status ashlar__arena_setup_run(ashlar_arena_setup *s, ashlar_arena_runner runner,
                                      ashlar_arena_operation operation, double *seconds,
                                      double *launches) {
    if (operation == ASHLAR_ARENA_OPERATION_FLATTEN) { /* undo the last one, untimed */
        ashlar__per_tensor_scatter(s->scattered);
    }
    if (operation == ASHLAR_ARENA_OPERATION_LOAD_STATE) {
        ASHLAR_TRY(make_files(s, runner));
    }
    const uint64_t before = ashlar_device_get_info(s->device).calls.work;
    const double start = now_s();
    const ashlar_status status = run(s, runner, operation);
    *seconds = now_s() - start;
    *launches = (double)(ashlar_device_get_info(s->device).calls.work - before);
    return status;
}
