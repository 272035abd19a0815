/* test_small_stack.c - what the CPU's products and a whole training step take of the caller's
 * stack, and that a thread has the same bits without memory of its own. */
#include "tests/allocator/core/allocator_fixture.h"
#include "tests/allocator/trace/numbers_fixture.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include <ashlar/network.h>
#include <ashlar/optimizer.h>

#include "rnn/product/blas.h"

/* Sanitizers put space around each array. */
enum { STACK = CHECK_SANITIZED(96, 1024) * KIB, PRODUCT_MOST = CHECK_SANITIZED(64, 512) * KIB };

static _Alignas(4096) unsigned char stack[STACK];
static size_t used;     /* bytes of the stack that the last run touched, with the thread's own */
static bool is_refused; /* the thread's memory of its own is */

/* In place of the C library's: without a key's value a thread gets no memory (threads.h). */
int pthread_setspecific(pthread_key_t key, const void *value) {
    static int (*real)(pthread_key_t, const void *);
    if (real == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "pthread_setspecific");
        memcpy(&real, &symbol, sizeof real);
    }
    return is_refused ? ENOMEM : real(key, value);
}

static void run_on_stack(void *(*act)(void *), void *argument) {
    pthread_t thread;
    pthread_attr_t attributes;
    memset(stack, 0xa5, sizeof stack);
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(pthread_attr_setstack(&attributes, stack, sizeof stack) == 0);
    REQUIRE(pthread_create(&thread, &attributes, act, argument) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    REQUIRE(pthread_attr_destroy(&attributes) == 0);
    used = sizeof stack;
    for (size_t i = 0; i < sizeof stack && stack[i] == 0xa5; i++) {
        used--;
    }
}

/* ---- products ---- */

enum { M = 100, N = 300, K = 512 };

/* K rows of M: those of a transposed left factor lie 4096 bytes apart. */
static double a[K * K], b[K * N], c[M * N];
static float a32[K * 1024], b32[K * N], c32[M * N];

static void *multiply(void *unused) {
    for (int trans = 0; trans < 4; trans++) {
        const bool left = (trans & 1) != 0, right = (trans & 2) != 0;
        ashlar__gemm_f64(left, right, M, N, K, a, K, b, right ? K : N, false, c, N);
        ashlar__gemm_f32(left, right, M, N, K, a32, 1024, b32, right ? K : N, true, c32, N);
    }
    return unused;
}

CASE(products_take_little_of_the_stack_and_need_no_memory) {
    static double first[M * N];
    static float first32[M * N];
    for (size_t i = 0; i < sizeof a / sizeof *a; i++) {
        a[i] = random_real();
        a32[i] = (float)random_real();
    }
    for (size_t i = 0; i < sizeof b / sizeof *b; i++) {
        b[i] = random_real();
        b32[i] = (float)random_real();
    }
    (void)multiply(NULL);
    memcpy(first, c, sizeof c);
    memcpy(first32, c32, sizeof c32);
    for (int refused = 0; refused < 2; refused++) {
        memset(c, 0, sizeof c);
        memset(c32, 0, sizeof c32);
        is_refused = refused != 0;
        run_on_stack(multiply, NULL);
        is_refused = false;
        CHECK(memcmp(first, c, sizeof c) == 0);
        CHECK(memcmp(first32, c32, sizeof c32) == 0);
        if (used > PRODUCT_MOST) {
            printf("# %zu bytes of stack\n", used);
        }
        CHECK(used <= PRODUCT_MOST);
    }
}

/* ---- a training step ---- */

enum { STEPS = 6, BATCH = 20, INPUT = 64, HIDDEN = 128, CLASSES = 80 };

typedef struct training {
    ashlar_rnn_cell cell;
    ashlar_dtype dtype;
    size_t hidden;
    ashlar_network *network;
    ashlar_optimizer *optimizer;
    char *memory; /* tokens, targets, the loss, outputs */
} training;

static void *train(void *argument) {
    const training *t = argument;
    ashlar_network_batch batch = {.steps = STEPS,
                                  .batch = BATCH,
                                  .inputs = t->memory,
                                  .targets = t->memory,
                                  .loss = (double *)(void *)(t->memory + 4 * KIB),
                                  .outputs = t->memory + 8 * KIB};
    bool is_well = ashlar_network_step(t->network, &batch, streams[0]) == ASHLAR_OK &&
                   ashlar_optimizer_step(t->optimizer, 0.1, 1, streams[0]) == ASHLAR_OK;
    for (int prepared = 0; prepared < 2; prepared++) {
        is_well = is_well && ashlar_network_predict(t->network, &batch, streams[0]) == ASHLAR_OK &&
                  ashlar_network_prepare(t->network, streams[0]) == ASHLAR_OK;
    }
    return is_well ? argument : NULL;
}

static void check_training(training t) {
    const ashlar_network_config config = {.layers = {.input = INPUT,
                                                     .hidden = t.hidden,
                                                     .layers = 2,
                                                     .cell = t.cell,
                                                     .dropout = 0.1,
                                                     .dtype = t.dtype},
                                          .classes = CLASSES,
                                          .outputs = CLASSES};
    const ashlar_optimizer_config adam = {.kind = ASHLAR_OPTIMIZER_ADAM};
    REQUIRE(ashlar_network_create(allocator, &config, ASHLAR_REGIONS_ALL, streams[0], &t.network) ==
            ASHLAR_OK);
    REQUIRE(ashlar_network_init(t.network, ASHLAR_INIT_PYTORCH, 3, streams[0]) == ASHLAR_OK);
    REQUIRE(ashlar_optimizer_create(ashlar_network_arena(t.network), &adam, streams[0],
                                    &t.optimizer) == ASHLAR_OK);
    t.memory = (char *)take(2 * MIB, streams[0]);
    memset(t.memory, 0, 8 * KIB);
    run_on_stack(train, &t);
    CHECK(*(double *)(void *)(t.memory + 4 * KIB) > 1);
    give(t.memory);
    ashlar_optimizer_destroy(t.optimizer);
    ashlar_network_destroy(t.network);
}

CASE_WITH(a_thread_with_a_stack_of_96_kib_trains, set_up("memory=1GiB")) {
    for (int i = 0; i < 2 * ASHLAR_RNN_CELL_COUNT; i++) {
        check_training((training){.cell = (ashlar_rnn_cell)(i / 2),
                                  .dtype = i % 2 == 0 ? ASHLAR_F32 : ASHLAR_F64,
                                  .hidden = i == 5 ? 512 : HIDDEN});
    }
}

RUN_CASES()
