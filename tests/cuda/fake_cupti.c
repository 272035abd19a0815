/*
 * fake_cupti.c - a libcupti.so for tests: callbacks for the calls into the stand-in for libcuda,
 * before each one only.
 */
#pragma GCC visibility push(default) /* its functions are this library's interface */
#include <cupti.h>
#pragma GCC visibility pop

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

/* As in libcuda.h, which does not go with CUDA's own headers. */
typedef void call_fn(unsigned int number, const char *name);

static CUpti_CallbackFunc callback;
static void *user_data;

static void tell(unsigned int number, const char *name) {
    const CUpti_CallbackData data = {.callbackSite = CUPTI_API_ENTER, .functionName = name};
    callback(user_data, CUPTI_CB_DOMAIN_DRIVER_API, number, &data);
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc function,
                           void *data) {
    if (callback != NULL) {
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    callback = function;
    user_data = data;
    *subscriber = (CUpti_SubscriberHandle)&callback;
    return CUPTI_SUCCESS;
}

/* Set *function to one of the stand-in's, if that is the process's libcuda. */
static void find(const char *name, void *function) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library != NULL ? dlsym(library, name) : NULL;
    memcpy(function, &symbol, sizeof symbol);
}

CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                              CUpti_CallbackDomain domain) {
    bool (*traces)(void) = NULL;
    void (*on_call)(call_fn *) = NULL;
    if (subscriber != (CUpti_SubscriberHandle)&callback || callback == NULL) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    find("ashlar_fake_traces", &traces);
    find("ashlar_fake_on_call", &on_call);
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API || traces == NULL || on_call == NULL || !traces()) {
        return CUPTI_ERROR_NOT_SUPPORTED;
    }
    on_call(enable != 0 ? tell : NULL);
    return CUPTI_SUCCESS;
}
