/*
 * probe_costs.c - what each call for memory costs on the host, by size, and cuMemSetAccess and
 * cuMemUnmap by how many handles there are beside; and what other calls cost.
 *
 * The figures are medians of rounds. A row of the file: {"call", "subject", "bytes",
 * "handles", "rounds", "ns"}; "handles" counts those mapped beside it, and the subject is both.
 */
#include "tests/gpu/probe.h"

#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/host.h"

#define MIB ((size_t)1 << 20)

enum { ROUNDS_MAX = 31, SMOKE_ROUNDS = 3, CALLS = 10, BESIDE_MAX = 4096 };

static const char *const call_names[CALLS] = {
    "cuMemAddressReserve", "cuMemCreate",  "cuMemMap",         "cuMemSetAccess", "first fill",
    "cuMemUnmap",          "cuMemRelease", "cuMemAddressFree", "cuMemAlloc",     "cuMemFree"};

typedef struct table {
    FILE *json; /* NULL: none is wanted */
    size_t row_count, rounds;
} table;

static int compare(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void write_row(table *t, const char *call, const char *subject, size_t bytes, size_t beside,
                      double *ns) {
    qsort(ns, t->rounds, sizeof *ns, compare);
    const double median = ns[t->rounds / 2];
    (void)printf("%-40s %-22s %12.0f ns\n", call, subject, median);
    if (t->json != NULL) {
        (void)fprintf(t->json,
                      "%s\n  {\"call\": \"%s\", \"subject\": \"%s\", \"bytes\": %zu, "
                      "\"handles\": %zu, \"rounds\": %zu, \"ns\": %.0f}",
                      t->row_count > 0 ? "," : "", call, subject, bytes, beside, t->rounds, median);
    }
    t->row_count++;
}

static void tell_call(void *to, const char *call, size_t bytes, double *ns) {
    char subject[32];
    (void)snprintf(subject, sizeof subject, "%zu bytes", bytes);
    write_row(to, call, bytes > 0 ? subject : "a call", bytes, 0, ns);
}

/* The host's time of each call of one round. False: the memory is not to be had. */
static bool time_round(const probe *p, size_t bytes, double *ns) {
    const ashlar_driver_table *cuda = p->cuda;
    const cu_mem_prop prop = probe_prop(p);
    const cu_mem_access access = probe_access(p);
    cu_mem_handle handle = 0;
    cu_ptr ptr = 0, plain = 0;
    bool is_done = true;
    size_t next = 0;
#define TIME(call)                                         \
    do {                                                   \
        const uint64_t begin = ashlar__clock_ns();         \
        is_done = is_done && (call) == CU_SUCCESS;         \
        ns[next++] = (double)(ashlar__clock_ns() - begin); \
    } while (0)
    TIME(cuda->mem_address_reserve(&ptr, bytes, 0, 0, 0));
    TIME(cuda->mem_create(&handle, bytes, &prop, 0));
    TIME(cuda->mem_map(ptr, bytes, 0, handle, 0));
    TIME(cuda->mem_set_access(ptr, bytes, &access, 1));
    if (is_done) {
        TIME(cuda->memset_d8_async(ptr, 1, bytes, NULL) == CU_SUCCESS ? cuda->ctx_synchronize()
                                                                      : CU_UNKNOWN);
        TIME(cuda->mem_unmap(ptr, bytes));
        TIME(cuda->mem_release(handle));
        TIME(cuda->mem_address_free(ptr, bytes));
        TIME(cuda->mem_alloc(&plain, bytes));
        TIME(cuda->mem_free(plain));
    }
#undef TIME
    return is_done;
}

static bool time_size(const probe *p, table *t, size_t bytes, size_t beside) {
    double ns[CALLS], all[CALLS][ROUNDS_MAX];
    char subject[64], among[32] = "";
    size_t left = 0, total = 0;
    if (p->cuda->mem_get_info(&left, &total) != CU_SUCCESS || left < 2 * bytes) {
        (void)printf("%zu MiB: the device has not so much free\n", bytes / MIB);
        return true;
    }
    for (size_t round = 0; round < t->rounds; round++) {
        if (!time_round(p, bytes, ns)) {
            (void)printf("%zu MiB: a call failed\n", bytes / MIB);
            return false;
        }
        for (size_t i = 0; i < CALLS; i++) {
            all[i][round] = ns[i];
        }
    }
    (void)snprintf(among, sizeof among, beside > 0 ? " beside %zu" : "", beside);
    (void)snprintf(subject, sizeof subject, "%zu MiB%s", bytes / MIB, among);
    for (size_t i = 0; i < CALLS; i++) {
        write_row(t, call_names[i], subject, bytes, beside, all[i]);
    }
    return true;
}

/* The smallest handle, again and again, beside more of its kind. */
static bool time_beside(const probe *p, table *t, bool is_smoke) {
    static cu_ptr held[BESIDE_MAX];
    const size_t most = is_smoke ? 8 : BESIDE_MAX;
    size_t count = 0, left = 0, total = 0;
    bool is_right = true;
    for (size_t wanted = 8; wanted <= most && is_right; wanted *= 8) {
        (void)p->cuda->mem_get_info(&left, &total);
        if (left / 2 < (wanted - count) * p->granularity) {
            break;
        }
        while (count < wanted && probe_map(p, p->granularity, &held[count]) == CU_SUCCESS) {
            count++;
        }
        is_right = count == wanted && time_size(p, t, p->granularity, count);
    }
    while (count > 0) {
        probe_unmap(p, held[--count], p->granularity);
    }
    return is_right;
}

int probe_costs(const probe *p, bool is_smoke, const char *json) {
    static const size_t units[] = {1, 2, 4, 10, 32, 100, 256, 512}; /* of the granularity */
    table t = {.rounds = is_smoke ? SMOKE_ROUNDS : ROUNDS_MAX};
    const size_t size_count = is_smoke ? 3 : sizeof units / sizeof units[0];
    bool is_right;
    t.json = json == NULL ? NULL : fopen(json, "we");
    if (json != NULL && t.json == NULL) {
        (void)printf("%s cannot be written\n", json);
        return 1;
    }
    if (t.json != NULL) {
        (void)fprintf(t.json, "[");
    }
    is_right = probe_costs_calls(p, t.rounds, is_smoke, tell_call, &t);
    for (size_t i = 0; i < size_count && is_right; i++) {
        is_right = time_size(p, &t, units[i] * p->granularity, 0);
    }
    is_right = is_right && time_beside(p, &t, is_smoke);
    if (t.json != NULL) {
        (void)fprintf(t.json, "\n]\n");
        is_right = fclose(t.json) == 0 && is_right;
    }
    (void)printf(is_right ? "%zu rows\n" : "after %zu rows a call failed\n", t.row_count);
    return is_right ? 0 : 1;
}
