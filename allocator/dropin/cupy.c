/* cupy.c - CuPy's CFunctionAllocator, which tells no stream: torch.h says what that means. */
#include "allocator/dropin/torch.h"

#include <stdio.h>

#include "allocator/dropin/devices.h"
#include "allocator/base/error.h"
#include "allocator/dropin/frees.h"

static ashlar_status take(void *stream, size_t bytes, int device, void **out) {
    ashlar_frees *frees;
    const ashlar_status status = ashlar__frees_of(device, &frees);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar__frees_distrust_streams(frees); /* nobody tells which streams there are */
    return stream == NULL ? ashlar__frees_alloc(frees, bytes, out)
                          : ashlar__frees_alloc_on(frees, bytes, stream, out);
}

static ashlar_status give(void *stream, void *ptr, int device) {
    ashlar_frees *frees = ashlar__frees_peek(device);
    if (frees == NULL) {
        return ashlar__fail(ASHLAR_EPOINTER, "device %d: nothing was allocated there", device);
    }
    return stream == NULL ? ashlar__frees_free(frees, ptr)
                          : ashlar_free(ashlar__frees_allocator(frees), ptr);
}

void *ashlar_cupy_malloc(void *stream, size_t bytes, int device) {
    void *block = NULL;
    if (bytes != 0 && take(stream, bytes, device, &block) != ASHLAR_OK) {
        char what[96];
        (void)snprintf(what, sizeof what, "cupy: device %d, %zu bytes", device, bytes);
        ashlar__dropin_report(what);
    }
    return block;
}

void ashlar_cupy_free(void *stream, void *ptr, int device) {
    if (ptr == NULL || ashlar__dropin_is_forked()) {
        return;
    }
    if (give(stream, ptr, device) != ASHLAR_OK) {
        ashlar__dropin_report("cupy: free");
    }
}
