/* preload_room.c - calls by which the driver itself takes memory of a device, for blocks that we do
 * not serve, contexts, graphs and code: if it lacks memory, ours that is idle goes back to it. */
#include "allocator/dropin/preload.h"

#include "allocator/core/allocators.h"

bool ashlar__preload_has_room(cu_result result, cu_device device, size_t bytes) {
    ashlar_driver *driver = NULL;
    cu_device named = device;
    if (result != CU_OUT_OF_MEMORY || !ashlar__preload_begin()) {
        return false;
    }
    const bool is_known =
        (device != ASHLAR_PRELOAD_CURRENT || ashlar__real_cuCtxGetDevice(&named) == CU_SUCCESS) &&
        ashlar__driver_open_cuda(&driver) == ASHLAR_OK;
    const bool has_any =
        is_known && (ashlar__allocators_give_back(driver, named, NULL, bytes, false, NULL) ||
                     ashlar__allocators_give_back(driver, named, NULL, bytes, true, NULL));
    ashlar__preload_end();
    return has_any;
}

/* A function that takes memory of `device`: `bytes` bytes, SIZE_MAX if unknown. */
#define TAKING(name, device, bytes, params, args)                         \
    cu_result name params {                                               \
        cu_result result_;                                                \
        ASHLAR_PRELOAD_WITH_ROOM(result_, (device), (bytes), name, args); \
        return result_;                                                   \
    }

/* A function that takes memory for the program. */
#define TAKING_BLOCK(name, device, bytes, params, args)                   \
    cu_result name params {                                               \
        cu_result result_;                                                \
        ashlar__preload_note_passed();                                    \
        ASHLAR_PRELOAD_WITH_ROOM(result_, (device), (bytes), name, args); \
        return result_;                                                   \
    }

#define CURRENT ASHLAR_PRELOAD_CURRENT

/* ---- blocks ---- */

static cu_device place_of(const cu_mem_prop *prop) {
    return prop != NULL && prop->location.type == CU_LOCATION_DEVICE ? prop->location.id : CURRENT;
}

TAKING_BLOCK(cuMemAllocManaged, CURRENT, bytes, (cu_ptr * ptr, size_t bytes, unsigned int flags),
             (ptr, bytes, flags))
TAKING_BLOCK(cuMemCreate, place_of(prop), bytes,
             (cu_mem_handle * handle, size_t bytes, const cu_mem_prop *prop,
              unsigned long long flags),
             (handle, bytes, prop, flags))
TAKING_BLOCK(cuArrayCreate_v2, CURRENT, SIZE_MAX, (void **array, const void *shape), (array, shape))
TAKING_BLOCK(cuArray3DCreate_v2, CURRENT, SIZE_MAX, (void **array, const void *shape),
             (array, shape))
TAKING_BLOCK(cuMipmappedArrayCreate, CURRENT, SIZE_MAX,
             (void **array, const void *shape, unsigned int levels), (array, shape, levels))

/* ---- contexts ---- */

TAKING(cuDevicePrimaryCtxRetain, device, SIZE_MAX, (cu_context * context, cu_device device),
       (context, device))

/* ---- graphs ---- */

TAKING(cuGraphInstantiate_v2, CURRENT, SIZE_MAX,
       (cu_graph_exec * exec, cu_graph graph, void **node, char *log, size_t log_bytes),
       (exec, graph, node, log, log_bytes))
TAKING(cuGraphInstantiateWithFlags, CURRENT, SIZE_MAX,
       (cu_graph_exec * exec, cu_graph graph, unsigned long long flags), (exec, graph, flags))
TAKING(cuGraphInstantiateWithParams, CURRENT, SIZE_MAX,
       (cu_graph_exec * exec, cu_graph graph, void *params), (exec, graph, params))
TAKING(cuGraphInstantiateWithParams_ptsz, CURRENT, SIZE_MAX,
       (cu_graph_exec * exec, cu_graph graph, void *params), (exec, graph, params))
TAKING(cuGraphUpload, CURRENT, SIZE_MAX, (cu_graph_exec exec, cu_stream stream), (exec, stream))
TAKING(cuGraphUpload_ptsz, CURRENT, SIZE_MAX, (cu_graph_exec exec, cu_stream stream),
       (exec, stream))
TAKING(cuGraphLaunch, CURRENT, SIZE_MAX, (cu_graph_exec exec, cu_stream stream), (exec, stream))
TAKING(cuGraphLaunch_ptsz, CURRENT, SIZE_MAX, (cu_graph_exec exec, cu_stream stream),
       (exec, stream))

/* ---- code ---- */

TAKING(cuModuleLoad, CURRENT, SIZE_MAX, (cu_module * module, const char *path), (module, path))
TAKING(cuModuleLoadData, CURRENT, SIZE_MAX, (cu_module * module, const void *image),
       (module, image))
TAKING(cuModuleLoadDataEx, CURRENT, SIZE_MAX,
       (cu_module * module, const void *image, unsigned int count, unsigned int *options,
        void **values),
       (module, image, count, options, values))
TAKING(cuModuleLoadFatBinary, CURRENT, SIZE_MAX, (cu_module * module, const void *image),
       (module, image))
