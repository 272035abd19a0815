/* benchmark.c - finds a benchmark's workloads and subjects by name, runs it, and writes its JSON.
 */
#include "bench/harness/harness.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <ashlar/model.h>

#include "allocator/base/error.h"
#include "allocator/base/file.h"
#include "allocator/base/json.h"
#include "allocator/device/device_impl.h"

/* Whether `text` names a workload, as NAME, which stands for all its variants, or NAME/VARIANT. */
static bool is_named(const char *text, ashlar_bench_name n) {
    const size_t bytes = strlen(n.name);
    if (strncmp(text, n.name, bytes) != 0) {
        return false;
    }
    const char *rest = text + bytes;
    return *rest == '\0' || (*rest == '/' && n.variant != NULL && strcmp(rest + 1, n.variant) == 0);
}

bool ashlar__bench_wants(const ashlar_option_list *list, ashlar_bench_name name) {
    bool is_in_list = list->count == 0;
    for (size_t i = 0; i < list->count; i++) {
        is_in_list = is_in_list || is_named(list->items[i], name);
    }
    return is_in_list;
}

enum { NAMES_BYTES = 600 };

/* Append a name to a list of names, unless the list has it; leave it out if it does not fit. */
static void list_name(char *names, const char *name) {
    const size_t bytes = strlen(name), used = strlen(names);
    const char *at = names;
    while (bytes > 0 && (at = strstr(at, name)) != NULL) {
        if ((at == names || at[-1] == ' ') && (at[bytes] == ',' || at[bytes] == '\0')) {
            return;
        }
        at += bytes;
    }
    if (bytes > 0 && used + bytes + 3 < NAMES_BYTES) {
        (void)snprintf(names + used, NAMES_BYTES - used, "%s%s", used > 0 ? ", " : "", name);
    }
}

static ashlar_status check_workload(const ashlar_benchmark *b, const char *text) {
    char names[NAMES_BYTES] = "", variants[NAMES_BYTES] = "";
    ashlar_bench_name n = {0};
    for (size_t i = 0; b->workload(i, &n); i++) {
        if (is_named(text, n)) {
            return ASHLAR_OK;
        }
        list_name(names, n.name);
        list_name(variants, n.variant != NULL ? n.variant : "");
    }
    return ashlar__fail(ASHLAR_EINVAL, "--workload: there is no \"%.80s\"; there are %s%s%s", text,
                        names, variants[0] != '\0' ? ", alone or with a / and one of " : "",
                        variants);
}

static ashlar_status check_subject(const ashlar_benchmark *b, const char *text) {
    char names[NAMES_BYTES] = "";
    const char *name = NULL;
    for (size_t i = 0; (name = b->subject(i)) != NULL; i++) {
        if (strcmp(name, text) == 0) {
            return ASHLAR_OK;
        }
        list_name(names, name);
    }
    return ashlar__fail(
        ASHLAR_EINVAL, "--subject: there is no \"%.80s\" in this build; there are %s", text, names);
}

ashlar_status ashlar__benchmark_check(const ashlar_benchmark *b,
                                      const ashlar_bench_request *request) {
    for (size_t i = 0; i < request->workloads.count; i++) {
        ASHLAR_TRY(check_workload(b, request->workloads.items[i]));
    }
    for (size_t i = 0; i < request->subjects.count; i++) {
        ASHLAR_TRY(check_subject(b, request->subjects.items[i]));
    }
    return ASHLAR_OK;
}

/* Write the rows, and the rows of the second array, as one document. */
static ashlar_status benchmark_write(const ashlar_benchmark *b, const char *path,
                                     const ashlar_rows *rows, const ashlar_rows *more) {
    ashlar_json_writer w;
    ashlar__json_writer_init(&w, 2);
    ashlar__json_open_document(&w, "ashlar-bench/1");
    if (b->put_head != NULL) {
        b->put_head(&w);
    }
    ashlar__json_put_key(&w, "rows");
    ashlar__rows_put(&w, rows);
    if (b->more != NULL) {
        ashlar__json_put_key(&w, b->more_key);
        ashlar__rows_put(&w, more);
    }
    ashlar__json_close_object(&w);
    return ashlar__json_writer_end(&w, path);
}

/* Printed before the figures and after them, so that no reader misses it. */
static void say_smoke(FILE *out, bool is_smoke) {
    if (is_smoke) {
        fputs("A smoke run: a few short rounds, to see it run. Its figures mean nothing.\n", out);
    }
}

/* What keep_rows() writes whenever rows are complete, for a run that is ended early. */
typedef struct kept {
    const ashlar_benchmark *benchmark;
    const char *json;
    const ashlar_rows *rows, *more;
} kept;

/* Write the rows so far. A failure is ignored: the final write would fail, too, and reports it. */
static void keep_rows(void *context) {
    const kept *k = context;
    ASHLAR_IGNORE(benchmark_write(k->benchmark, k->json, k->rows, k->more));
}

ashlar_status ashlar__benchmark_run(const ashlar_benchmark *b,
                                    const ashlar_bench_request *request) {
    ashlar_rows rows = {.form = b->form}, more = {.form = b->more};
    kept so_far = {b, request->json, &rows, &more};
    if (request->json != NULL && !ashlar__stream_is(request->json)) {
        rows.on_print = keep_rows;
        rows.context = &so_far;
    }
    ashlar_device *device = NULL;
    ASHLAR_TRY(ashlar_device_open(request->device, &device));
    say_smoke(request->out, request->is_smoke);
    ashlar_status status = b->run(request, device, &rows, &more);
    ashlar_device_close(device);
    if (status == ASHLAR_OK && rows.count > 0) {
        fputc('\n', request->out);
        ashlar__rows_print_targets(request->out, &rows);
        if (b->more != NULL) {
            ashlar__rows_print_targets(request->out, &more);
        }
        say_smoke(request->out, request->is_smoke);
    }
    if (status == ASHLAR_OK && request->json != NULL) {
        status = benchmark_write(b, request->json, &rows, &more);
    }
    ashlar__rows_finish(&rows);
    ashlar__rows_finish(&more);
    return status;
}

/* ---- the machine ---- */

/* Find the first line of a file that begins with `key` and contains `separator`. *value: the text
 * after the separator, without quotes and leading blanks. */
static bool find_line(const char *path, const char *key, char separator,
                      char value[static ASHLAR_MACHINE_TEXT_BYTES]) {
    char line[ASHLAR_MACHINE_TEXT_BYTES];
    bool is_found = false;
    FILE *file = fopen(path, "r");
    while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL) {
        char *at = strchr(line, separator);
        if (at != NULL && strncmp(line, key, strlen(key)) == 0) {
            at += 1 + strspn(at + 1, " \t\"");
            at[strcspn(at, "\"\n")] = '\0';
            (void)snprintf(value, ASHLAR_MACHINE_TEXT_BYTES, "%s", at);
            is_found = true;
        }
    }
    if (file != NULL) {
        (void)fclose(file); /* opened for reading: nothing can be lost */
    }
    return is_found;
}

void ashlar__machine_processor(char name[static ASHLAR_MACHINE_TEXT_BYTES]) {
    if (!find_line("/proc/cpuinfo", "model name", ':', name)) {
        (void)snprintf(name, ASHLAR_MACHINE_TEXT_BYTES, "unknown");
    }
}

/* Give free memory back, by malloc_trim(), and by mallctl() if malloc() is jemalloc's. */
static void trim(void) {
    static const char purge_all[] = "arena.4096.purge"; /* 4096: MALLCTL_ARENAS_ALL */
    int (*control)(const char *, void *, size_t *, void *, size_t) = NULL;
    int (*malloc_trim_here)(size_t) = NULL;
    void *symbol = dlsym(RTLD_DEFAULT, "mallctl");
    memcpy(&control, &symbol, sizeof control);
    if (control != NULL) {
        (void)control(purge_all, NULL, NULL, NULL, 0);
    }
    symbol = dlsym(RTLD_DEFAULT, "malloc_trim");
    memcpy(&malloc_trim_here, &symbol, sizeof malloc_trim_here);
    if (malloc_trim_here != NULL) {
        (void)malloc_trim_here(0);
    }
}

double ashlar__machine_host_bytes(void) {
    char text[ASHLAR_MACHINE_TEXT_BYTES];
    trim();
    return find_line("/proc/self/status", "RssAnon", ':', text) ? 1024 * strtod(text, NULL) : NAN;
}

static void add_line(ashlar_json_writer *w, const char *key, const char *path, const char *name,
                     char separator) {
    char value[ASHLAR_MACHINE_TEXT_BYTES];
    if (find_line(path, name, separator, value)) {
        ashlar__json_add_string(w, key, value);
    }
}

/* Today, in UTC. */
static void add_date(ashlar_json_writer *w) {
    char today[16];
    struct tm parts;
    const time_t now = time(NULL);
    if (gmtime_r(&now, &parts) != NULL && strftime(today, sizeof today, "%Y-%m-%d", &parts) > 0) {
        ashlar__json_add_string(w, "date", today);
    }
}

static uint64_t gib_of(uint64_t bytes) {
    return (bytes + (UINT64_C(1) << 29)) >> 30;
}

static void add_c_library(ashlar_json_writer *w) {
    const char *(*version)(void) = NULL;
    void *found = dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
    memcpy(&version, &found, sizeof version);
    if (version != NULL) {
        ashlar__json_add_string(w, "glibc", version());
    }
}

static void add_host(ashlar_json_writer *w) {
    const long cores = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES);
    const long page_bytes = sysconf(_SC_PAGESIZE);
    add_line(w, "processor", "/proc/cpuinfo", "model name", ':');
    if (cores > 0) {
        ashlar__json_add_uint64(w, "cores", (uint64_t)cores);
    }
    if (pages > 0 && page_bytes > 0) {
        ashlar__json_add_uint64(w, "memory_gib", gib_of((uint64_t)pages * (uint64_t)page_bytes));
    }
    add_line(w, "system", "/etc/os-release", "PRETTY_NAME", '=');
    ashlar__json_add_string(w, "compiler", ASHLAR_BENCH_COMPILER); /* defined by the build */
    add_c_library(w);
}

static void add_device(ashlar_json_writer *w, const ashlar_device *device) {
    int version = 0;
    char text[32];
    ashlar__json_add_string(w, "device", device->info.name);
    if (device->info.kind != ASHLAR_DEVICE_CUDA) {
        return; /* a software device has no driver, and its size is just an option */
    }
    ashlar__json_add_uint64(w, "device_gib", gib_of(device->info.total_bytes));
    if (ASHLAR_DRIVER_CALL(device->driver, driver_get_version, (&version)) == CU_SUCCESS) {
        (void)snprintf(text, sizeof text, "CUDA %d.%d", version / 1000, version % 1000 / 10);
        ashlar__json_add_string(w, "driver", text);
    }
}

ashlar_status ashlar__machine_write(const ashlar_machine_config *config,
                                    const ashlar_device *device, const char *path) {
    ashlar_json_writer w;
    ashlar__json_writer_init(&w, 2);
    ashlar__json_open_document(&w, "ashlar-machine/1");
    add_date(&w);
    if (config->commit != NULL) {
        ashlar__json_add_string(&w, "commit", config->commit);
    }
    if (config->is_smoke) {
        ashlar__json_add_bool(&w, "smoke", true);
    }
    add_host(&w);
    add_device(&w, device);
    ashlar__json_add_string(&w, "products", ashlar_cpu_get_info().products);
    for (size_t i = 0; i < config->part_count; i++) {
        ashlar__json_add_string(&w, config->parts[i].name, config->parts[i].version);
    }
    ashlar__json_close_object(&w);
    return ashlar__json_writer_end(&w, path);
}
