/* machine.c - describes the processor, system, device and versions of a measurement. */
#include "bench/harness/harness.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rnn/product/blas.h"
#include "allocator/device/device_impl.h"
#include "allocator/base/json.h"

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

static void add_date(ashlar_json_writer *w, const char *date) {
    char today[16];
    struct tm parts;
    const time_t now = time(NULL);
    if (date == NULL && gmtime_r(&now, &parts) != NULL &&
        strftime(today, sizeof today, "%Y-%m-%d", &parts) > 0) {
        date = today;
    }
    if (date != NULL) {
        ashlar__json_add_string(w, "date", date);
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
    add_date(&w, config->date);
    if (config->commit != NULL) {
        ashlar__json_add_string(&w, "commit", config->commit);
    }
    if (config->is_smoke) {
        ashlar__json_add_bool(&w, "smoke", true);
    }
    add_host(&w);
    add_device(&w, device);
    ashlar__json_add_string(&w, "products", ashlar__blas_name());
    for (size_t i = 0; i < config->part_count; i++) {
        ashlar__json_add_string(&w, config->parts[i].name, config->parts[i].version);
    }
    ashlar__json_close_object(&w);
    return ashlar__json_writer_end(&w, path);
}
