/*
 * calls.c - counts a process's calls into the driver, whoever in it makes them: a library that the
 * driver loads itself where CUDA_INJECTION64_PATH names it.
 *
 * CUPTI tells of each call; ASHLAR_CUPTI may name its library. When the process ends, lines "NAME
 * COUNT" go into the file that ASHLAR_CALLS names. There is no such file where CUPTI was not to be
 * had: stderr then has a line.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cupti.h>

enum { FUNCTIONS_MAX = 2048 }; /* by CUPTI's number */

static const char *_Atomic names[FUNCTIONS_MAX];
static _Atomic unsigned long long counts[FUNCTIONS_MAX];

static void CUPTIAPI count(void *context, CUpti_CallbackDomain domain, CUpti_CallbackId number,
                           const void *data) {
    const CUpti_CallbackData *call = data;
    (void)context;
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API && call->callbackSite == CUPTI_API_ENTER &&
        number < FUNCTIONS_MAX) {
        atomic_store_explicit(&names[number], call->functionName, memory_order_relaxed);
        atomic_fetch_add_explicit(&counts[number], 1, memory_order_relaxed);
    }
}

static void *open_cupti(void) {
    static const char *const files[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so",
                                        "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"};
    const char *chosen = getenv("ASHLAR_CUPTI");
    void *library = chosen != NULL ? dlopen(chosen, RTLD_NOW) : NULL;
    for (size_t i = 0; chosen == NULL && library == NULL && i < sizeof files / sizeof *files; i++) {
        library = dlopen(files[i], RTLD_NOW);
    }
    return library;
}

static const char *subscribe(void) {
    CUptiResult (*subscribe_to)(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *) = NULL;
    CUptiResult (*enable)(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain) = NULL;
    CUpti_SubscriberHandle subscriber;
    void *library = open_cupti();
    void *first = library != NULL ? dlsym(library, "cuptiSubscribe") : NULL;
    void *second = library != NULL ? dlsym(library, "cuptiEnableDomain") : NULL;
    if (first == NULL || second == NULL) {
        return "there is no libcupti.so";
    }
    memcpy(&subscribe_to, &first, sizeof subscribe_to);
    memcpy(&enable, &second, sizeof enable);
    return subscribe_to(&subscriber, count, NULL) != CUPTI_SUCCESS ||
                   enable(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API) != CUPTI_SUCCESS
               ? "CUPTI does not serve this process"
               : NULL;
}

static void write_counts(void) {
    const char *path = getenv("ASHLAR_CALLS");
    FILE *file = path != NULL ? fopen(path, "we") : NULL;
    for (size_t i = 0; file != NULL && i < FUNCTIONS_MAX; i++) {
        if (atomic_load(&counts[i]) > 0) {
            (void)fprintf(file, "%s %llu\n", atomic_load(&names[i]), atomic_load(&counts[i]));
        }
    }
    if (file == NULL || fclose(file) != 0) {
        (void)fprintf(stderr, "calls: %s cannot be written\n", path != NULL ? path : "no file");
    }
}

/* What the driver calls. 1: all is well. */
__attribute__((visibility("default"))) int InitializeInjection(void);

int InitializeInjection(void) {
    const char *reason = subscribe();
    if (reason != NULL) {
        (void)fprintf(stderr, "calls: %s\n", reason);
    }
    return reason == NULL && atexit(write_counts) == 0;
}
