/*
 * fake_driver.c - how the fake libraries of CUDA find the fake driver in their process, and queue
 * work on it.
 */
#include "tests/cuda/fake_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

void fake_find(const char *name, int version, void *function) {
    cu_result (*get)(const char *, void **, int, unsigned long long, unsigned int *) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library == NULL ? NULL : dlsym(library, "cuGetProcAddress_v2");
    void *address = NULL;
    unsigned int found;
    memcpy(&get, &symbol, sizeof get);
    if (get == NULL || get(name, &address, version, 1, &found) != CU_SUCCESS) {
        (void)fprintf(stderr, "fake_driver: no %s in libcuda.so.1\n", name);
        abort();
    }
    memcpy(function, &address, sizeof address);
}

void fake_find_own(const char *name, void *function) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library == NULL ? NULL : dlsym(library, name);
    if (symbol == NULL) {
        (void)fprintf(stderr, "fake_driver: libcuda.so.1 is no stand-in: it has no %s\n", name);
        abort();
    }
    memcpy(function, &symbol, sizeof symbol);
}

cu_result fake_launch(cu_stream stream, cu_host_fn fn, void *job) {
    cu_result (*launch)(cu_stream, cu_host_fn, void *);
    fake_find("cuLaunchHostFunc", 10000, &launch);
    return launch(stream, fn, job);
}

void *fake_keep(size_t bytes) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct kept {
        struct kept *next;
        max_align_t job;
    } * all;
    struct kept *made = calloc(1, sizeof *made + bytes);
    if (made == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    made->next = all;
    all = made;
    pthread_mutex_unlock(&lock);
    return &made->job;
}

bool fake_has_context(void) {
    cu_result (*get_info)(size_t *, size_t *);
    size_t free_bytes, total_bytes;
    fake_find("cuMemGetInfo", 3020, &get_info);
    return get_info(&free_bytes, &total_bytes) == CU_SUCCESS;
}
