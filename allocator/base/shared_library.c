#include "allocator/base/shared_library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/error.h"

ashlar_status ashlar_shared_open(const ashlar_shared_library *library, void **handle) {
    const char *given = getenv(library->variable);
    void *opened = NULL;
    if (given != NULL) {
        opened = dlopen(given, RTLD_NOW | RTLD_LOCAL);
    }
    for (size_t i = 0; given == NULL && opened == NULL && library->names[i] != NULL; i++) {
        opened = dlopen(library->names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (opened == NULL) {
        return ashlar_fail(ASHLAR_ENOTSUP,
                           "%s was not found: install it, or set %s to the path of its library, "
                           "or use the software device, ASHLAR_DEVICE=soft (%s)",
                           library->what, library->variable, dlerror());
    }
    *handle = opened;
    return ASHLAR_OK;
}

ashlar_status ashlar_shared_find(const ashlar_shared_library *library, void *handle,
                                 const char *name, void *function) {
    const void *address = dlsym(handle, name);
    if (address == NULL) {
        return ashlar_fail(ASHLAR_ENOTSUP, "%s lacks %s: install a newer one, or look at %s",
                           library->what, name, library->variable);
    }
    memcpy(function, &address, sizeof address); /* ISO C has no cast for it */
    return ASHLAR_OK;
}

ashlar_status ashlar_shared_fill(ashlar_shared_table *table,
                                 ashlar_status (*fill)(void *functions), void *functions) {
    ashlar_status status = ASHLAR_OK;
    pthread_mutex_lock(&table->lock);
    if (!table->is_filled) {
        status = fill(functions);
        table->is_filled = status == ASHLAR_OK;
    }
    pthread_mutex_unlock(&table->lock);
    return status;
}
