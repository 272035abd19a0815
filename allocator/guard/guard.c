#include "allocator/guard/guard.h"

#include "allocator/core/allocator_impl.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

ashlar_status ashlar_guard_create(ashlar_allocator *a, ashlar_guard guard) {
    if (guard == ASHLAR_GUARD_OFF) {
        return ASHLAR_OK;
    }
    a->frees = ashlar_host_calloc(1, sizeof *a->frees);
    if (a->frees == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "guard: no host memory for a log of frees");
    }
    const ashlar_status status = guard == ASHLAR_GUARD_FILL
                                     ? ashlar_guard_fill_create(a, &a->fill)
                                     : ashlar_guard_unmap_create(a, &a->unmap);
    if (status != ASHLAR_OK) {
        ashlar_host_free(a->frees);
    }
    return status;
}

void ashlar_guard_compare_all(ashlar_allocator *a) {
    if (a->fill != NULL) {
        ashlar_guard_fill_compare_all(a->fill);
    }
}

void ashlar_guard_destroy(ashlar_allocator *a) {
    ashlar_guard_fill_destroy(a->fill);
    ashlar_guard_unmap_destroy(a->unmap);
    ashlar_host_free(a->frees);
}

ashlar_status ashlar_guard_note_free_locked(ashlar_allocator *a, const void *ptr,
                                            ashlar_place place, ashlar_status status) {
    char here[ASHLAR_PLACE_BYTES], there[ASHLAR_PLACE_BYTES];
    if (a->frees == NULL) {
        return status;
    }
    if (status == ASHLAR_OK) {
        ashlar_free_log_add(a->frees, ashlar_ptr_in(ptr), place);
        return status;
    }
    if (status != ASHLAR_EPOINTER) {
        return status;
    }
    ashlar_place_write(place, here);
    const ashlar_freed *before = ashlar_free_log_find(a->frees, ashlar_ptr_in(ptr));
    if (before == NULL) {
        return ashlar_fail(status, "%s; this free: %s", ashlar_error_detail(), here);
    }
    ashlar_place_write(before->place, there);
    return ashlar_fail(status, "%s; this free: %s; the one before: %s", ashlar_error_detail(), here,
                       there);
}

ashlar_status ashlar_guard_take_finding(ashlar_allocator *a) {
    const ashlar_status status =
        a->fill != NULL ? ashlar_checker_take(&a->fill->checker) : ASHLAR_OK;
    if (status == ASHLAR_OK) {
        return status;
    }
    pthread_mutex_lock(&a->lock);
    const ashlar_report_fn report = a->report;
    void *user = a->report_user;
    pthread_mutex_unlock(&a->lock);
    if (report != NULL) {
        report(ashlar_error_detail(), user);
    }
    return status;
}

void ashlar_allocator_on_report(ashlar_allocator *a, ashlar_report_fn report, void *user) {
    pthread_mutex_lock(&a->lock);
    a->report = report;
    a->report_user = user;
    pthread_mutex_unlock(&a->lock);
}
