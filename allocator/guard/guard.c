/* guard.c - setting up the guard mode, and logging frees in it. */
#include "allocator/guard/guard.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

ashlar_status ashlar__guard_create(ashlar_guards *guards, ashlar_guard mode, ashlar_heap *heap) {
    ASHLAR_CHECK2(guards->frees == NULL && guards->fill == NULL);
    if (mode == ASHLAR_GUARD_OFF) {
        return ASHLAR_OK;
    }
    guards->frees = ashlar__host_calloc(1, sizeof *guards->frees);
    if (guards->frees == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "guard: no host memory for a log of frees");
    }
    const ashlar_status status = ashlar__guard_fill_create(heap, &guards->fill);
    if (status != ASHLAR_OK) {
        ashlar__host_free(guards->frees);
    }
    return status;
}

void ashlar__guard_destroy(ashlar_guards *guards) {
    ashlar__guard_fill_destroy(guards->fill);
    ashlar__host_free(guards->frees);
}

ashlar_status ashlar__guard_log_free_locked(ashlar_free_log *frees, const void *ptr,
                                            ashlar_call_site place, ashlar_status status) {
    char here[ASHLAR_CALL_SITE_BYTES], there[ASHLAR_CALL_SITE_BYTES];
    if (frees == NULL) {
        return status;
    }
    if (status == ASHLAR_OK) {
        ashlar__free_log_add(frees, ashlar__ptr_in(ptr), place);
        return status;
    }
    if (status != ASHLAR_EPOINTER) {
        return status;
    }
    ashlar__call_site_write(place, here);
    const ashlar_freed *before = ashlar__free_log_find(frees, ashlar__ptr_in(ptr));
    if (before == NULL) {
        return ashlar__fail(status, "%s; this free: %s", ashlar_error_detail(), here);
    }
    ashlar__call_site_write(before->place, there);
    return ashlar__fail(status, "%s; this free: %s; the one before: %s", ashlar_error_detail(),
                        here, there);
}
