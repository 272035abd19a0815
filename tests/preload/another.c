/* another.c - a library to be preloaded beside ours: its dlsym() says what it is asked for. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <ashlar/base.h>

ASHLAR_API void *dlsym(void *restrict handle, const char *restrict name);

typedef void *(*dlsym_fn)(void *handle, const char *name);

/* As the C library names it, in its versions. */
static dlsym_fn real_dlsym(void) {
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    dlsym_fn function;
    void *address = NULL;
    for (size_t i = 0; address == NULL && i < sizeof versions / sizeof versions[0]; i++) {
        address = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    }
    memcpy(&function, &address, sizeof function);
    return function;
}

void *dlsym(void *restrict handle, const char *restrict name) {
    printf("another: %s\n", name);
    return real_dlsym()(handle, name);
}
