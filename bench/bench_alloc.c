#include "bench_alloc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "device_impl.h"
#include "error.h"
#include "file.h"
#include "json.h"
#include "peer.h"

enum { ROUNDS = 9, SIZE_COUNT = 3, SUBJECT_MAX = 3 };

static const size_t sizes[SIZE_COUNT] = {4096, 64 << 10, 1 << 20};

typedef struct row {
    const char *subject;
    size_t bytes;
    double ns[ROUNDS]; /* a pair, by round; sorted at the end */
    uint64_t driver_calls;
    double reserved_over_live; /* 0: not known */
} row;

typedef struct bench {
    ashlar_device *device;
    ashlar_allocator *allocator;
    ashlar_peer subjects[SUBJECT_MAX];
    size_t subject_count;
    size_t pairs; /* of one round */
} bench;

static void *take_ashlar(void *self, size_t bytes) {
    void *ptr = NULL;
    return ashlar_alloc(self, bytes, NULL, &ptr) == ASHLAR_OK ? ptr : NULL;
}

static void give_ashlar(void *self, void *ptr) {
    const ashlar_status status = ashlar_free(self, ptr);
    (void)status; /* a block that take_ashlar gave */
}

static void *take_driver(void *self, size_t bytes) {
    ashlar_device *device = self;
    cu_ptr ptr = 0;
    return ASHLAR_DRIVER_CALL(device->driver, mem_alloc, (&ptr, bytes)) == CU_SUCCESS
               ? ashlar_ptr_out(ptr)
               : NULL;
}

static void give_driver(void *self, void *ptr) {
    ashlar_device *device = self;
    (void)ASHLAR_DRIVER_CALL(device->driver, mem_free, (ashlar_ptr_in(ptr)));
}

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

static ashlar_status time_round(const bench *b, const ashlar_peer *subject, size_t bytes,
                                double *ns) {
    const double start = now_ns();
    for (size_t i = 0; i < b->pairs; i++) {
        void *ptr = subject->take(subject->self, bytes);
        if (ptr == NULL) {
            return ashlar_fail(ASHLAR_ENOMEM, "%s: no block of %zu bytes", subject->name, bytes);
        }
        subject->give(subject->self, ptr);
    }
    *ns = (now_ns() - start) / (double)b->pairs;
    return ASHLAR_OK;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const row *r) {
    return r->ns[ROUNDS / 2];
}

/* All subjects at one size, their rounds in turn. */
static ashlar_status measure(const bench *b, size_t bytes, row *rows) {
    uint64_t calls[SUBJECT_MAX] = {0};
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t s = 0; s < b->subject_count; s++) {
            const uint64_t before = ashlar_driver_calls(b->device->driver, ASHLAR_DRIVER_MEMORY);
            const ashlar_status status =
                time_round(b, &b->subjects[s], bytes, &rows[s].ns[round]);
            if (status != ASHLAR_OK) {
                return status;
            }
            calls[s] += ashlar_driver_calls(b->device->driver, ASHLAR_DRIVER_MEMORY) - before;
        }
    }
    for (size_t s = 0; s < b->subject_count; s++) {
        rows[s].subject = b->subjects[s].name;
        rows[s].bytes = bytes;
        rows[s].driver_calls = calls[s];
        qsort(rows[s].ns, ROUNDS, sizeof rows[s].ns[0], by_value);
    }
    ashlar_stats stats;
    ashlar_stats_read(b->allocator, &stats);
    rows[0].reserved_over_live =
        (double)stats.reserved_peak_bytes / (double)stats.live_peak_bytes;
    return ASHLAR_OK;
}

static void print_rows(const bench *b, const row *rows) {
    printf("%-10s %10s %12s %10s %14s\n", "subject", "bytes", "ns per pair", "x ashlar",
           "memory calls");
    for (size_t i = 0; i < SIZE_COUNT * b->subject_count; i++) {
        const row *ours = &rows[i - i % b->subject_count];
        printf("%-10s %10zu %12.1f %10.2f %14llu\n", rows[i].subject, rows[i].bytes,
               median(&rows[i]), median(&rows[i]) / median(ours),
               (unsigned long long)rows[i].driver_calls);
    }
}

static void put_row(ashlar_json_writer *w, const row *r) {
    char variant[24];
    snprintf(variant, sizeof variant, "%zu", r->bytes);
    ashlar_json_open_object(w);
    ashlar_json_put_key(w, "workload");
    ashlar_json_put_string(w, "one_size");
    ashlar_json_put_key(w, "variant");
    ashlar_json_put_string(w, variant);
    ashlar_json_put_key(w, "threads");
    ashlar_json_put_uint64(w, 1);
    ashlar_json_put_key(w, "subject");
    ashlar_json_put_string(w, r->subject);
    ashlar_json_put_key(w, "ns_pair");
    ashlar_json_put_double(w, median(r));
    ashlar_json_put_key(w, "driver_calls");
    ashlar_json_put_uint64(w, r->driver_calls);
    ashlar_json_put_key(w, "reserved_over_live");
    if (r->reserved_over_live > 0) {
        ashlar_json_put_double(w, r->reserved_over_live);
    } else {
        ashlar_json_put_null(w);
    }
    ashlar_json_close_object(w);
}

static ashlar_status write_rows(const char *path, const row *rows, size_t count) {
    ashlar_json_writer w;
    const char *text = NULL;
    size_t bytes = 0;
    ashlar_json_writer_init(&w, 2);
    ashlar_json_open_array(&w);
    for (size_t i = 0; i < count; i++) {
        put_row(&w, &rows[i]);
    }
    ashlar_json_close_array(&w);
    ashlar_status status = ashlar_json_writer_text(&w, &text, &bytes);
    if (status == ASHLAR_OK) {
        status = ashlar_file_write_line(path, text, bytes);
    }
    ashlar_json_writer_finish(&w);
    return status;
}

/* A second thread that does nothing, as a CUDA process has several: glibc drops the lock prefix
 * of atomic instructions while there is one thread only. */
typedef struct company {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_over;
} company;

static void *keep_company(void *arg) {
    company *c = arg;
    pthread_mutex_lock(&c->lock);
    while (!c->is_over) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static ashlar_status run_all(const bench *b, row *rows) {
    ashlar_status status = ashlar_device_enter(b->device); /* for the driver's own pairs */
    if (status != ASHLAR_OK) {
        return status;
    }
    for (size_t i = 0; i < SIZE_COUNT && status == ASHLAR_OK; i++) {
        status = measure(b, sizes[i], rows + i * b->subject_count);
    }
    ashlar_device_leave(b->device);
    return status;
}

static ashlar_status run_in_company(const bench *b, row *rows) {
    company c = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    if (pthread_create(&c.thread, NULL, keep_company, &c) != 0) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "bench: a second thread could not be started");
    }
    const ashlar_status status = run_all(b, rows);
    pthread_mutex_lock(&c.lock);
    c.is_over = true;
    pthread_cond_signal(&c.changed);
    pthread_mutex_unlock(&c.lock);
    pthread_join(c.thread, NULL);
    return status;
}

ashlar_status ashlar_bench_alloc(ashlar_device *device, const ashlar_bench_config *config) {
    bench b = {.device = device, .pairs = config->is_smoke ? 100 : 20000};
    ashlar_status status = ashlar_allocator_create(device, &b.allocator);
    if (status != ASHLAR_OK) {
        return status;
    }
    row rows[SIZE_COUNT * SUBJECT_MAX] = {0};
    b.subjects[b.subject_count++] = (ashlar_peer){"ashlar", take_ashlar, give_ashlar, b.allocator};
    b.subjects[b.subject_count++] = (ashlar_peer){"driver", take_driver, give_driver, device};
    const ashlar_peer jemalloc = ashlar_peer_jemalloc();
    if (jemalloc.name != NULL) {
        b.subjects[b.subject_count++] = jemalloc;
    }
    status = run_in_company(&b, rows);
    if (status == ASHLAR_OK) {
        print_rows(&b, rows);
        if (config->json != NULL) {
            status = write_rows(config->json, rows, SIZE_COUNT * b.subject_count);
        }
    }
    ashlar_allocator_destroy(b.allocator);
    return status;
}
