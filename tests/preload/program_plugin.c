/*
 * program_plugin.c - a program whose plugin, named by its first argument, frees what the program
 * took. With a second argument the plugin is loaded with RTLD_DEEPBIND, so that it finds its own
 * libraries first. Prints the plugin's result of each free, and then the program's.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "allocator/driver/cuda_abi.h"

/* Set *function, which is a function pointer. */
static bool find(void *library, const char *name, void *function) {
    void *address = library == NULL ? NULL : dlsym(library, name);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

static bool enter(void *library) {
    cu_result (*init)(unsigned int flags), (*set_current)(cu_context context);
    cu_result (*retain)(cu_context * context, cu_device device);
    cu_context context = NULL;
    return find(library, "cuInit", &init) && find(library, "cuCtxSetCurrent", &set_current) &&
           find(library, "cuDevicePrimaryCtxRetain", &retain) && init(0) == CU_SUCCESS &&
           retain(&context, 0) == CU_SUCCESS && set_current(context) == CU_SUCCESS;
}

int main(int argc, char **argv) {
    cu_result (*alloc)(cu_ptr * ptr, size_t bytes), (*give)(cu_ptr ptr), (*plugin_give)(cu_ptr ptr);
    const char *const ways[] = {"plugin_free", "plugin_free_next"};
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *plugin =
        argc < 2 ? NULL : dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | (argc > 2 ? RTLD_DEEPBIND : 0));
    if (plugin == NULL || !enter(library) || !find(library, "cuMemAlloc_v2", &alloc) ||
        !find(library, "cuMemFree_v2", &give)) {
        return 2;
    }
    for (int i = 0; i < 2; i++) {
        cu_ptr ptr = 0;
        if (!find(plugin, ways[i], &plugin_give) || alloc(&ptr, 1000) != CU_SUCCESS) {
            return 2;
        }
        const cu_result by_plugin = plugin_give(ptr);
        printf("%s: %d, again: %d\n", ways[i], (int)by_plugin, (int)give(ptr));
    }
    return 0;
}
