/* emulated_threads.h - the threads of a block are threads (cuda_emulation.h). */
#ifndef ASHLAR_EMULATED_THREADS_H
#define ASHLAR_EMULATED_THREADS_H

static pthread_barrier_t emulated_barrier;

static inline void __syncthreads(void) {
    (void)pthread_barrier_wait(&emulated_barrier);
}

/* The threads of blocks of one size, which live on from launch to launch. */
typedef struct emulated_pool {
    unsigned size;           /* 0: not made yet */
    pthread_barrier_t begin; /* a launch; of the pool and the launcher */
    pthread_barrier_t end;   /* the same */
    void (*kernel)(const void *param);
    const void *param;
    unsigned blocks;
} emulated_pool;

typedef struct emulated_thread {
    emulated_pool *pool;
    unsigned index;
} emulated_thread;

static inline void *emulated_run(void *user_data) {
    const emulated_thread *me = user_data;
    emulated_pool *pool = me->pool;
    threadIdx.x = me->index;
    for (;;) {
        (void)pthread_barrier_wait(&pool->begin);
        for (unsigned block = 0; block < pool->blocks; block++) {
            blockIdx.x = block;
            pool->kernel(pool->param);
            __syncthreads(); /* the next block has the same shared memory */
        }
        (void)pthread_barrier_wait(&pool->end);
    }
    return NULL;
}

static inline void emulated_fill(emulated_pool *pool, unsigned size) {
    emulated_thread *all = calloc(size, sizeof *all); /* for as long as the process lives */
    pthread_t thread;
    bool is_good = all != NULL && pthread_barrier_init(&pool->begin, NULL, size + 1) == 0 &&
                   pthread_barrier_init(&pool->end, NULL, size + 1) == 0;
    for (unsigned i = 0; is_good && i < size; i++) {
        all[i] = (emulated_thread){pool, i};
        is_good = pthread_create(&thread, NULL, emulated_run, &all[i]) == 0 &&
                  pthread_detach(thread) == 0;
    }
    if (!is_good) {
        (void)fprintf(stderr, "cuda_emulation: no %u threads\n", size);
        abort();
    }
    pool->size = size;
}

static inline void emulated_launch(void (*kernel)(const void *param), const void *param,
                                   unsigned blocks, unsigned threads) {
    enum { POOLS = 2 }; /* so many sizes of blocks are in use */
    static emulated_pool pools[POOLS];
    unsigned i = 0;
    while (i < POOLS - 1 && pools[i].size != 0 && pools[i].size != threads) {
        i++;
    }
    emulated_pool *pool = &pools[i];
    if (pool->size == 0) {
        emulated_fill(pool, threads);
    }
    if (pool->size != threads || pthread_barrier_init(&emulated_barrier, NULL, threads) != 0) {
        (void)fprintf(stderr, "cuda_emulation: no block of %u threads\n", threads);
        abort();
    }
    pool->kernel = kernel;
    pool->param = param;
    pool->blocks = blocks;
    (void)pthread_barrier_wait(&pool->begin);
    (void)pthread_barrier_wait(&pool->end);
    (void)pthread_barrier_destroy(&emulated_barrier);
}

#endif /* ASHLAR_EMULATED_THREADS_H */
