/* shared_library.c - opening a shared library and filling a table with its functions, once. */
#include "allocator/base/shared_library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/error.h"

_Static_assert(sizeof(void *) == sizeof(void (*)(void)), "dlsym() gives both");

static ashlar_status open_library(const ashlar_shared_library *library, void **handle) {
    const char *given = secure_getenv(library->variable);
    void *opened = NULL;
    ASHLAR_CHECK2(library->variable != NULL && library->names[0] != NULL);
    if (given != NULL) {
        opened = dlopen(given, RTLD_NOW | RTLD_LOCAL);
    }
    for (size_t i = 0; given == NULL && opened == NULL && library->names[i] != NULL; i++) {
        opened = dlopen(library->names[i], RTLD_NOW | RTLD_LOCAL);
    }
    ASHLAR_FAIL_IF(opened == NULL, ASHLAR_ENOTSUP,
                   "%s was not found: install it, or set %s to the path of its library, "
                   "or use the software device, ASHLAR_DEVICE=soft (%s)",
                   library->what, library->variable, dlerror());
    *handle = opened;
    return ASHLAR_OK;
}

/* Open the library and fill `functions`. Lock: table->lock, held. */
static ashlar_status fill_locked(const ashlar_shared_table *table,
                                 const ashlar_shared_library *library, void *functions) {
    void *handle = NULL;
    ASHLAR_OWNS(&table->lock);
    ASHLAR_CHECK2(!table->is_filled && library->function_count > 0);
    ASHLAR_TRY(open_library(library, &handle));
    for (size_t i = 0; i < library->function_count; i++) {
        ASHLAR_CHECK2(library->functions[i] != NULL);
        const void *address = dlsym(handle, library->functions[i]);
        ASHLAR_FAIL_IF(address == NULL && i < library->function_count - library->optional_count,
                       ASHLAR_ENOTSUP, "%s lacks %s: install a newer one, or look at %s",
                       library->what, library->functions[i], library->variable);
        /* Copy, since ISO C has no cast from an object pointer to a function pointer. */
        memcpy((char *)functions + i * sizeof address, &address, sizeof address);
    }
    return library->check != NULL ? library->check(functions) : ASHLAR_OK;
}

ashlar_status ashlar__shared_load(ashlar_shared_table *table, const ashlar_shared_library *library,
                                  void *functions) {
    ashlar_status status = ASHLAR_OK;
    ashlar__lock_acquire(&table->lock);
    if (!table->is_filled) {
        status = fill_locked(table, library, functions);
        table->is_filled = status == ASHLAR_OK;
    }
    ashlar__lock_release(&table->lock);
    return status;
}
