/* free_log.c - the ring of the last frees, and the text that describes a call site. */
#include "allocator/guard/free_log.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/check_level.h"

void ashlar__free_log_add(ashlar_free_log *log, cu_ptr ptr, ashlar_call_site place) {
    log->entries[log->count++ % ASHLAR_FREE_LOG_ENTRIES] =
        (ashlar_freed){.ptr = ptr, .place = place};
    ASHLAR_CHECK2(ashlar__free_log_find(log, ptr) != NULL);
}

const ashlar_freed *ashlar__free_log_find(const ashlar_free_log *log, cu_ptr ptr) {
    for (uint64_t age = 1; age <= ASHLAR_FREE_LOG_ENTRIES && age <= log->count; age++) {
        const ashlar_freed *entry = &log->entries[(log->count - age) % ASHLAR_FREE_LOG_ENTRIES];
        if (entry->ptr == ptr) {
            return entry;
        }
    }
    return NULL;
}

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

void ashlar__call_site_write(ashlar_call_site place, char out[static ASHLAR_CALL_SITE_BYTES]) {
    const uintptr_t at = (uintptr_t)place.address;
    char function[ASHLAR_CALL_SITE_BYTES / 2] = "";
    Dl_info info = {0};
    (void)dladdr(place.address, &info);
    if (info.dli_fname == NULL) { /* no library has the address */
        (void)snprintf(out, ASHLAR_CALL_SITE_BYTES, "thread %llu at %p",
                       (unsigned long long)place.thread, place.address);
        return;
    }
    if (info.dli_sname != NULL) {
        (void)snprintf(function, sizeof function, " (%s+0x%zx)", info.dli_sname,
                       (size_t)(at - (uintptr_t)info.dli_saddr));
    }
    (void)snprintf(out, ASHLAR_CALL_SITE_BYTES, "thread %llu at %p in %s+0x%zx%s",
                   (unsigned long long)place.thread, place.address, last_part(info.dli_fname),
                   (size_t)(at - (uintptr_t)info.dli_fbase), function);
}
