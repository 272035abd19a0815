/*
 * findings.c - what a guard mode found, told to the program: by its callback and as a status.
 */
#include "allocator/core/findings.h"

#include "allocator/base/error.h"

ashlar_status ashlar__guard_take_finding(ashlar_allocator *a) {
    const ashlar_status status =
        a->guards.fill != NULL ? ashlar__checker_take(&a->guards.fill->checker) : ASHLAR_OK;
    if (status == ASHLAR_OK) {
        return status;
    }
    ashlar__lock_acquire(&a->lock);
    const ashlar_report_fn report = a->report;
    void *user = a->report_user;
    ashlar__lock_release(&a->lock);
    if (report != NULL) {
        report(ashlar_error_detail(), user);
    }
    return status;
}

void ashlar_allocator_set_report(ashlar_allocator *a, ashlar_report_fn report, void *user) {
    ashlar__lock_acquire(&a->lock);
    a->report = report;
    a->report_user = user;
    ashlar__lock_release(&a->lock);
}
