#include "allocator/dropin/throw.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/error.h"

/*
 * What libstdc++ throws with in its own containers, exported since its first version, declared as
 * void std::__throw_runtime_error(const char *). It copies the text.
 */
typedef void (*throw_fn)(const char *text);

#define THROW_SYMBOL "_ZSt21__throw_runtime_errorPKc"

_Static_assert(sizeof(void *) == sizeof(throw_fn), "POSIX: dlsym finds functions too");

/* The C++ library of the process, but none that is brought in for the purpose. */
static throw_fn find_throw(void) {
    throw_fn function = NULL;
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *address = library != NULL ? dlsym(library, THROW_SYMBOL) : NULL;
    memcpy(&function, &address, sizeof function); /* ISO C has no cast for it */
    return function; /* the library stays loaded: this one is never unloaded either */
}

void ashlar__dropin_throw_text(const char *text) {
    const throw_fn throw_runtime_error = find_throw();
    if (throw_runtime_error != NULL) {
        throw_runtime_error(text);
    }
}

void ashlar__dropin_throw(ashlar_status status, size_t bytes, int device) {
    char text[ASHLAR_DETAIL_BYTES + 128];
    if (status == ASHLAR_ENOMEM) {
        (void)snprintf(text, sizeof text,
                       "CUDA out of memory. Tried to allocate %.2f MiB (%zu bytes) on GPU %d: %s",
                       (double)bytes / (1 << 20), bytes, device, ashlar_error_detail());
    } else {
        (void)snprintf(text, sizeof text, "ashlar: %zu bytes on GPU %d: %s", bytes, device,
                       ashlar_error_detail());
    }
    ashlar__dropin_throw_text(text);
}
