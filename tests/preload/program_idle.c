/*
 * program_idle.c - requests that a device has the memory for, once what the program freed is given
 * back: each case, named by the first argument, ends with 0 under the driver alone. Nothing here
 * knows of ashlar; shell_idle.sh runs each alone and with libashlar-preload.so.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "driver_calls.h"

#define MIB ((size_t)1 << 20)

/* Of the device's 64 MiB: what the first context takes and frees, and a later request needs. */
#define MOST (52 * MIB)

/* What a compiled image begins with. */
#define FATBIN_MAGIC 0xBA55ED50u

enum { TURNS = 240, ROUNDS = 100 };

static driver_calls cu;
static cu_context first;
static int round_number; /* of a case that has rounds */

/* CUDA's code is 0; else complain, and end: what follows would only repeat it. */
#define EXPECT(expr)                                                                            \
    do {                                                                                        \
        const unsigned got_ = (unsigned)(expr);                                                 \
        if (got_ != CU_SUCCESS) {                                                               \
            printf("%s:%d: round %d: %s: %u\n", __FILE__, __LINE__, round_number, #expr, got_); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

static cu_result use_device(cu_device device, cu_context *context) {
    const cu_result result = cu.retain(context, device);
    return result == CU_SUCCESS ? cu.set_current(*context) : result;
}

/* With work on it that may still be queued when it is freed. */
static void take_and_free(size_t bytes) {
    cu_ptr ptr = 0;
    EXPECT(cu.mem_alloc(&ptr, bytes));
    EXPECT(cu.fill(ptr, 1, MIB, NULL));
    EXPECT(cu.mem_free(ptr));
}

static void create(cu_device device, size_t bytes) {
    const cu_mem_prop prop = {.type = CU_ALLOCATION_PINNED,
                              .location = {CU_LOCATION_DEVICE, device}};
    cu_mem_handle handle = 0;
    EXPECT(cu.mem_create(&handle, bytes, &prop, 0));
    EXPECT(cu.mem_release(handle));
}

/* ---- a second context after a free in the first ---- */

static void make_second(void) {
    cu_context second = NULL;
    take_and_free(MOST);
    EXPECT(cu.ctx_create(&second, 0, 0));
}

/* The context needs memory, too: overhead=16MiB is more than the 12 MiB left. */
static void context_create(void) {
    cu_context second = NULL;
    take_and_free(MOST);
    EXPECT(cu.ctx_create(&second, 0, 0));
    EXPECT(cu.ctx_destroy(second));
}

static void context_alloc(void) {
    cu_ptr ptr = 0;
    make_second();
    EXPECT(cu.mem_alloc(&ptr, MOST));
    EXPECT(cu.mem_free(ptr));
}

static void context_alloc_async(void) {
    cu_stream stream = NULL;
    cu_ptr ptr = 0;
    make_second();
    EXPECT(cu.stream_create(&stream, CU_STREAM_UNORDERED));
    EXPECT(cu.mem_alloc_async(&ptr, MOST, stream));
    EXPECT(cu.mem_free_async(ptr, stream));
}

static void context_mem_create(void) {
    make_second();
    create(0, MOST);
}

static void context_managed(void) {
    cu_ptr ptr = 0;
    make_second();
    EXPECT(cu.mem_alloc_managed(&ptr, MOST, 1));
    EXPECT(cu.mem_free(ptr));
}

/* What the first holds and does not use counts as free. */
static void context_info(void) {
    size_t free_bytes = 0, total_bytes = 0;
    make_second();
    EXPECT(cu.mem_get_info(&free_bytes, &total_bytes));
    EXPECT(free_bytes < MOST);
}

/* The first context needs it back, after the second one has ended. */
static void context_ended(void) {
    cu_context second = NULL;
    EXPECT(cu.ctx_create(&second, 0, 0));
    take_and_free(MOST);
    EXPECT(cu.set_current(first));
    take_and_free(MOST);
    EXPECT(cu.set_current(second));
    take_and_free(MOST);
    EXPECT(cu.ctx_destroy(second));
    EXPECT(cu.set_current(first));
    take_and_free(MOST);
}

enum { TURNS_MIB = 400, GRAIN_MIB = 2 };

/* One context's. */
typedef struct share {
    cu_context context;
    cu_ptr blocks[TURNS_MIB / GRAIN_MIB];
    int count;
    size_t live_mib;
} share;

static uint64_t random_state = 7;

static size_t draw(size_t below) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(random_state >> 33) % below;
}

/* Free all that it has, and take up to `wanted_mib` in blocks of drawn sizes. False: refused. */
static bool take_turn(share *own, size_t wanted_mib) {
    while (own->count > 0) {
        EXPECT(cu.mem_free(own->blocks[--own->count]));
    }
    own->live_mib = 0;
    for (;;) {
        const size_t mib = (draw(40) + 1) * GRAIN_MIB;
        if (own->live_mib + mib > wanted_mib) {
            return true;
        }
        if (cu.mem_alloc(&own->blocks[own->count], mib * MIB) != CU_SUCCESS) {
            return false;
        }
        own->count++;
        own->live_mib += mib;
    }
}

/* Two contexts by turns never need more than 400 MiB of 512. */
static void context_turns(void) {
    static share shares[2];
    int refused = 0;
    shares[0].context = first;
    EXPECT(cu.ctx_create(&shares[1].context, 0, 0));
    for (int turn = 0; turn < TURNS; turn++) {
        const size_t room_mib = TURNS_MIB - shares[(turn + 1) % 2].live_mib;
        EXPECT(cu.set_current(shares[turn % 2].context));
        refused += !take_turn(&shares[turn % 2], draw(room_mib + 1));
    }
    printf("refused: %d of %d turns\n", refused, TURNS);
    EXPECT(refused);
}

/* ---- what the driver serves beside us ---- */

static void set_own_pool(void) {
    const cu_mem_prop props = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, 0}};
    void *pool = NULL;
    EXPECT(cu.pool_create(&pool, &props)); /* whose properties begin alike */
    EXPECT(cu.pool_set(0, pool));
}

static void pool_set(void) {
    cu_stream stream = NULL;
    cu_ptr ptr = 0;
    EXPECT(cu.stream_create(&stream, CU_STREAM_UNORDERED));
    take_and_free(MOST);
    set_own_pool();
    EXPECT(cu.mem_alloc_async(&ptr, MOST, stream));
    EXPECT(cu.mem_free_async(ptr, stream));
}

static void capture_alloc_async(void) {
    cu_stream stream = NULL;
    cu_graph graph = NULL;
    cu_ptr ptr = 0;
    EXPECT(cu.stream_create(&stream, CU_STREAM_UNORDERED));
    take_and_free(MOST);
    EXPECT(cu.begin_capture(stream, CU_CAPTURE_RELAXED));
    EXPECT(cu.mem_alloc_async(&ptr, MOST, stream));
    EXPECT(cu.fill(ptr, 1, MIB, stream));
    EXPECT(cu.end_capture(stream, &graph));
    EXPECT(cu.graph_destroy(graph));
}

/* What another device's program holds is no matter; what this one does is. */
static void other_device_mem_create(void) {
    cu_context other = NULL;
    take_and_free(MOST);
    EXPECT(use_device(1, &other));
    create(0, MOST);
}

static void other_device_mem_create_both(void) {
    cu_context other = NULL;
    take_and_free(MOST);
    EXPECT(use_device(1, &other));
    take_and_free(MOST);
    create(0, MOST);
    create(1, MOST);
}

/* A graph with one fill of a block that stays. */
static cu_graph_exec make_graph(cu_stream stream, cu_ptr *ptr, size_t bytes_before) {
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    EXPECT(cu.mem_alloc(ptr, 2 * MIB));
    EXPECT(cu.begin_capture(stream, CU_CAPTURE_GLOBAL));
    EXPECT(cu.fill(*ptr, 3, MIB, stream));
    EXPECT(cu.end_capture(stream, &graph));
    if (bytes_before > 0) {
        take_and_free(bytes_before);
    }
    EXPECT(cu.graph_instantiate(&exec, graph, 0));
    EXPECT(cu.graph_destroy(graph));
    return exec;
}

/* With overhead=8MiB, which the context takes, too. */
static void graph_instantiate(void) {
    cu_stream stream = NULL;
    cu_ptr ptr = 0;
    EXPECT(cu.stream_create(&stream, CU_STREAM_UNORDERED));
    EXPECT(cu.graph_exec_destroy(make_graph(stream, &ptr, 50 * MIB)));
}

static void graph_launch(void) {
    cu_stream stream = NULL;
    cu_ptr ptr = 0;
    EXPECT(cu.stream_create(&stream, CU_STREAM_UNORDERED));
    cu_graph_exec exec = make_graph(stream, &ptr, 0);
    take_and_free(44 * MIB);
    EXPECT(cu.graph_launch(exec, stream));
    EXPECT(cu.stream_synchronize(stream));
    EXPECT(cu.graph_exec_destroy(exec));
}

static void module_load(void) {
    const unsigned int image[4] = {FATBIN_MAGIC};
    cu_module module = NULL;
    take_and_free(MOST);
    EXPECT(cu.module_load(&module, image));
    EXPECT(cu.module_unload(module));
}

/* A launch whose memory is there only after outstanding work is over. */
static void graph_launch_late(void) {
    cu_stream stream = NULL;
    cu_ptr ptr = 0, other = 0;
    EXPECT(cu.stream_create(&stream, CU_STREAM_UNORDERED));
    cu_graph_exec exec = make_graph(stream, &ptr, 0);
    EXPECT(cu.mem_alloc_async(&other, 44 * MIB, stream));
    EXPECT(cu.fill(other, 1, MIB, stream));
    EXPECT(cu.mem_free_async(other, stream));
    EXPECT(cu.synchronize());
    EXPECT(cu.graph_launch(exec, stream));
    EXPECT(cu.synchronize());
    EXPECT(cu.graph_exec_destroy(exec));
}

/* ---- captures ---- */

/* In a capture of whatever mode. */
static cu_result alloc_relaxed(cu_ptr *ptr, size_t bytes) {
    unsigned int mode = CU_CAPTURE_RELAXED;
    EXPECT(cu.exchange_mode(&mode));
    const cu_result result = cu.mem_alloc(ptr, bytes);
    EXPECT(cu.exchange_mode(&mode));
    return result;
}

/* As torch.cuda.graph() in a loop: a block that is freed after a wait serves the next capture.
 * Alone it needs 20 MiB. */
static void loop_captures(unsigned int mode, bool waits_for_all) {
    cu_stream stream = NULL;
    cu_ptr ptr = 0;
    EXPECT(cu.stream_create(&stream, CU_STREAM_UNORDERED));
    for (round_number = 0; round_number < ROUNDS; round_number++) {
        cu_graph graph = NULL;
        cu_graph_exec exec = NULL;
        EXPECT(waits_for_all ? cu.synchronize() : cu.stream_synchronize(stream));
        if (ptr != 0) {
            EXPECT(cu.mem_free(ptr));
        }
        EXPECT(cu.begin_capture(stream, mode));
        EXPECT(alloc_relaxed(&ptr, 20 * MIB));
        EXPECT(cu.fill(ptr, (unsigned char)round_number, MIB, stream));
        EXPECT(cu.end_capture(stream, &graph));
        EXPECT(cu.graph_instantiate(&exec, graph, 0));
        EXPECT(cu.graph_launch(exec, stream));
        EXPECT(cu.stream_synchronize(stream));
        EXPECT(cu.graph_exec_destroy(exec));
        EXPECT(cu.graph_destroy(graph));
    }
}

static void capture_loop(void) {
    loop_captures(CU_CAPTURE_RELAXED, true);
}

static void capture_loop_global(void) {
    loop_captures(CU_CAPTURE_GLOBAL, true);
}

static void capture_loop_stream(void) {
    loop_captures(CU_CAPTURE_RELAXED, false);
}

/* The other thread of the cases below: takes most of a third of the device and frees it. */
static bool is_relaxed, waits_for_stream;

static void *take_beside(void *unused) {
    cu_stream stream = NULL;
    unsigned int mode = CU_CAPTURE_RELAXED;
    EXPECT(cu.set_current(first));
    if (is_relaxed) {
        EXPECT(cu.exchange_mode(&mode));
    }
    EXPECT(cu.stream_create(&stream, CU_STREAM_UNORDERED));
    for (round_number = 0; round_number < ROUNDS; round_number++) {
        cu_ptr ptr = 0;
        EXPECT(cu.mem_alloc(&ptr, 80 * MIB));
        EXPECT(cu.fill(ptr, (unsigned char)round_number, MIB, stream));
        if (waits_for_stream) {
            EXPECT(cu.stream_synchronize(stream));
        }
        EXPECT(cu.mem_free(ptr));
    }
    EXPECT(cu.stream_destroy(stream));
    return unused;
}

static void capture_beside(unsigned int mode) {
    cu_stream stream = NULL;
    cu_graph graph = NULL;
    cu_ptr ptr = 0;
    pthread_t thread;
    EXPECT(cu.stream_create(&stream, CU_STREAM_UNORDERED));
    EXPECT(cu.mem_alloc(&ptr, MIB));
    EXPECT(cu.begin_capture(stream, mode));
    EXPECT(cu.fill(ptr, 1, MIB, stream));
    EXPECT(pthread_create(&thread, NULL, take_beside, NULL));
    EXPECT(pthread_join(thread, NULL));
    EXPECT(cu.fill(ptr, 2, MIB, stream));
    EXPECT(cu.end_capture(stream, &graph));
    EXPECT(cu.graph_destroy(graph));
}

static void beside_thread_local(void) {
    capture_beside(CU_CAPTURE_THREAD_LOCAL);
}

static void beside_relaxed(void) {
    capture_beside(CU_CAPTURE_RELAXED);
}

static void beside_relaxed_waiting(void) {
    waits_for_stream = true;
    capture_beside(CU_CAPTURE_RELAXED);
}

/* Frees during the capture of a blocking stream, which keeps the legacy stream from all work. */
static void capture_frees(void) {
    cu_stream stream = NULL, other = NULL;
    cu_graph graph = NULL;
    cu_ptr ptr = 0;
    EXPECT(cu.stream_create(&stream, 0));
    EXPECT(cu.stream_create(&other, 0));
    EXPECT(cu.mem_alloc(&ptr, MOST));
    EXPECT(cu.begin_capture(stream, CU_CAPTURE_RELAXED));
    for (round_number = 0; round_number < ROUNDS; round_number++) {
        EXPECT(cu.fill(ptr, (unsigned char)round_number, MIB, other));
        EXPECT(cu.mem_free(ptr));
        create(0, MOST);
        EXPECT(cu.mem_alloc(&ptr, MOST));
    }
    EXPECT(cu.end_capture(stream, &graph));
    EXPECT(cu.graph_destroy(graph));
}

/* The other thread has said that it will take care of captures itself. */
static void beside_global(void) {
    is_relaxed = true;
    capture_beside(CU_CAPTURE_GLOBAL);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"context-create", context_create},
        {"context-alloc", context_alloc},
        {"context-alloc-async", context_alloc_async},
        {"context-mem-create", context_mem_create},
        {"context-managed", context_managed},
        {"context-info", context_info},
        {"context-ended", context_ended},
        {"context-turns", context_turns},
        {"pool-set", pool_set},
        {"capture-alloc-async", capture_alloc_async},
        {"other-device-mem-create", other_device_mem_create},
        {"other-device-mem-create-both", other_device_mem_create_both},
        {"graph-instantiate", graph_instantiate},
        {"graph-launch", graph_launch},
        {"graph-launch-late", graph_launch_late},
        {"module-load", module_load},
        {"capture-loop", capture_loop},
        {"capture-loop-global", capture_loop_global},
        {"capture-loop-stream", capture_loop_stream},
        {"capture-frees", capture_frees},
        {"beside-thread-local", beside_thread_local},
        {"beside-relaxed", beside_relaxed},
        {"beside-relaxed-waiting", beside_relaxed_waiting},
        {"beside-global", beside_global},
    };
    if (!driver_calls_find(&cu) || cu.init(0) != CU_SUCCESS ||
        use_device(0, &first) != CU_SUCCESS) {
        printf("there is no device\n");
        return 2;
    }
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    }
    printf("usage: %s CASE\n", argv[0]);
    return 2;
}
