/* range.c - the reserved addresses and the memory of an allocator: handles that are created, mapped
 * and unmapped, or segments instead of handles; the memory limit; other devices' access. */
#include "allocator/heap/heap.h"

#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

bool ashlar__range_is_sound(const ashlar_range *range) {
    return range->mapped_bytes <= range->memory_bytes && range->next_offset <= range->bytes &&
           range->spare_count <= range->spare_capacity &&
           range->spare_count * range->handle_bytes <= range->mapped_bytes;
}

size_t ashlar__range_left(const ashlar_range *range) {
    return range->limit_bytes > range->mapped_bytes ? range->limit_bytes - range->mapped_bytes : 0;
}

ashlar_status ashlar__range_allows(const ashlar_range *range, size_t bytes) {
    ASHLAR_FAIL_IF(bytes > ashlar__range_left(range), ASHLAR_ENOMEM,
                   "%zu bytes more than the %zu mapped would exceed the limit of %zu", bytes,
                   range->mapped_bytes, range->limit_bytes);
    return ASHLAR_OK;
}

static void trace(const ashlar_range *range, ashlar_trace_action action, size_t offset,
                  size_t bytes) {
    ashlar__trace_put(range->client->trace, &(ashlar_trace_event){.action = (uint8_t)action,
                                                                  .address = range->base + offset,
                                                                  .bytes = bytes});
}

/* ---- handles ---- */

static cu_mem_prop memory_of(const ashlar_range *range) {
    return (cu_mem_prop){
        .type = CU_ALLOCATION_PINNED,
        .location = {.type = CU_LOCATION_DEVICE, .id = range->client->device->info.ordinal},
    };
}

ashlar_status ashlar__range_reserve_spare(ashlar_range *range, size_t count) {
    size_t capacity = range->spare_capacity == 0 ? 16 : range->spare_capacity;
    while (capacity < count) {
        capacity *= 2; /* cannot overflow: a count of handles is far below SIZE_MAX */
    }
    if (capacity == range->spare_capacity) {
        return ASHLAR_OK;
    }
    cu_mem_handle *grown = ashlar__host_realloc(range->spare, capacity, sizeof *grown);
    ASHLAR_FAIL_IF(grown == NULL, ASHLAR_EHOSTMEM, "no host memory for a list of %zu handles",
                   capacity);
    range->spare = grown;
    range->spare_capacity = capacity;
    return ASHLAR_OK;
}

ashlar_status ashlar__range_create(ashlar_range *range) {
    ASHLAR_ASSERT(range->spare_count < range->spare_capacity);
    ASHLAR_TRY(ashlar__range_allows(range, range->handle_bytes));
    const cu_mem_prop memory = memory_of(range);
    cu_mem_handle handle = 0;
    ASHLAR_TRY(ashlar__client_status(
        range->client, "cuMemCreate",
        ASHLAR_CALL(range->client, mem_create, (&handle, range->handle_bytes, &memory, 0))));
    range->spare[range->spare_count++] = handle;
    range->mapped_bytes += range->handle_bytes;
    ASHLAR_CHECK2(ashlar__range_is_sound(range));
    return ASHLAR_OK;
}

ashlar_status ashlar__range_release(ashlar_range *range) {
    ASHLAR_ASSERT(range->spare_count > 0);
    ASHLAR_TRY(ashlar__client_status(
        range->client, "cuMemRelease",
        ASHLAR_CALL(range->client, mem_release, (range->spare[range->spare_count - 1]))));
    range->spare_count--;
    range->mapped_bytes -= range->handle_bytes;
    ASHLAR_CHECK2(ashlar__range_is_sound(range));
    return ASHLAR_OK;
}

/* Let the device and its peers use [offset, offset + bytes), all of which is mapped. */
static cu_result open_to_all(ashlar_range *range, size_t offset, size_t bytes) {
    ASHLAR_CHECK2(bytes > 0 && offset + bytes <= range->bytes);
    ASHLAR_CHECK2(range->peer_count <= ASHLAR_PEERS_MAX);
    cu_mem_access access[1 + ASHLAR_PEERS_MAX] = {
        {.location = memory_of(range).location, .flags = CU_ACCESS_READWRITE}};
    for (size_t i = 0; i < range->peer_count; i++) {
        access[1 + i] = access[0];
        access[1 + i].location.id = range->peers[i];
    }
    return ASHLAR_CALL(range->client, mem_set_access,
                       (range->base + offset, bytes, access, 1 + range->peer_count));
}

void ashlar__range_abandon(ashlar_range *range, size_t offset) {
    const cu_result result =
        ASHLAR_CALL(range->client, mem_unmap, (range->base + offset, range->handle_bytes));
    range->keeps_addresses = range->keeps_addresses || result != CU_SUCCESS;
}

ashlar_status ashlar__range_map(ashlar_range *range, size_t offset, size_t count) {
    ASHLAR_CHECK2(count > 0 && count <= range->spare_count && offset % range->handle_bytes == 0);
    const size_t bytes = range->handle_bytes;
    const cu_mem_handle *handles = &range->spare[range->spare_count - count];
    const char *call = "cuMemMap";
    cu_result result = CU_SUCCESS;
    size_t done = 0;
    while (result == CU_SUCCESS && done < count) {
        result = ASHLAR_CALL(range->client, mem_map,
                             (range->base + offset + done * bytes, bytes, 0, handles[done], 0));
        done += result == CU_SUCCESS;
    }
    if (result == CU_SUCCESS) {
        call = "cuMemSetAccess";
        result = open_to_all(range, offset, count * bytes);
    }
    if (result != CU_SUCCESS) {
        const ashlar_status status = ashlar__client_status(range->client, call, result);
        while (done-- > 0) {
            ashlar__range_abandon(range, offset + done * bytes);
        }
        return status;
    }
    range->spare_count -= count;
    trace(range, ASHLAR_TRACE_MAP, offset, count * bytes);
    return ASHLAR_OK;
}

ashlar_status ashlar__range_unmap(ashlar_range *range, size_t offset, cu_mem_handle handle) {
    ASHLAR_CHECK2(offset % range->handle_bytes == 0);
    ASHLAR_ASSERT(range->spare_count < range->spare_capacity);
    ASHLAR_TRY(ashlar__client_status(
        range->client, "cuMemUnmap",
        ASHLAR_CALL(range->client, mem_unmap, (range->base + offset, range->handle_bytes))));
    range->spare[range->spare_count++] = handle;
    trace(range, ASHLAR_TRACE_UNMAP, offset, range->handle_bytes);
    return ASHLAR_OK;
}

ashlar_status ashlar__range_set_access(ashlar_range *range, size_t offset, size_t bytes,
                                       int ordinal, bool is_open) {
    const cu_mem_access access = {
        .location = {.type = CU_LOCATION_DEVICE, .id = ordinal},
        .flags = is_open ? CU_ACCESS_READWRITE : CU_ACCESS_NONE,
    };
    return ashlar__client_status(
        range->client, "cuMemSetAccess",
        ASHLAR_CALL(range->client, mem_set_access, (range->base + offset, bytes, &access, 1)));
}

/* ---- segments ---- */

/* cuMemAlloc takes memory in multiples of this size, and would waste the rest of the last one. */
#define SEGMENT_ALIGN ((size_t)2 << 20)
_Static_assert((size_t)(2 << 20) % ASHLAR_BLOCK_ALIGN == 0, "a segment is whole blocks");

/* More addresses than any device has, so that every address is an offset in the range. */
#define ADDRESSES ((size_t)1 << 48)

/* The calls that take and free segments of one kind of memory, made in the device's context. *call:
 * CUDA's name of the call that failed. Entering the context is not counted as a call of the
 * allocator, since the driver does no work in it. */
struct ashlar_segment_calls {
    cu_result (*take)(ashlar_range *range, cu_ptr *ptr, size_t bytes, const char **call);
    cu_result (*free)(ashlar_range *range, cu_ptr ptr, size_t bytes, const char **call);
};

static cu_result take_device(ashlar_range *range, cu_ptr *ptr, size_t bytes, const char **call) {
    *call = "cuMemAlloc";
    return ASHLAR_CALL(range->client, mem_alloc, (ptr, bytes));
}

static cu_result free_device(ashlar_range *range, cu_ptr ptr, size_t bytes, const char **call) {
    (void)bytes;
    *call = "cuMemFree";
    return ASHLAR_CALL(range->client, mem_free, (ptr));
}

static cu_result take_host(ashlar_range *range, cu_ptr *ptr, size_t bytes, const char **call) {
    *call = "cuMemHostAlloc";
    void *memory = NULL;
    const cu_result result =
        ASHLAR_CALL(range->client, mem_host_alloc, (&memory, bytes, CU_HOST_PORTABLE));
    *ptr = ashlar__ptr_in(memory);
    return result;
}

static cu_result free_host(ashlar_range *range, cu_ptr ptr, size_t bytes, const char **call) {
    (void)bytes;
    *call = "cuMemFreeHost";
    return ASHLAR_CALL(range->client, mem_free_host, (ashlar__ptr_out(ptr)));
}

/* ---- segments that other processes, NCCL and network cards can use ---- */

static cu_result map_shared(ashlar_range *range, cu_ptr ptr, size_t bytes, cu_mem_handle handle,
                            const char **call) {
    *call = "cuMemMap";
    cu_result result = ASHLAR_CALL(range->client, mem_map, (ptr, bytes, 0, handle, 0));
    if (result != CU_SUCCESS) {
        return result;
    }
    *call = "cuMemSetAccess";
    result = open_to_all(range, (size_t)ptr, bytes);
    if (result != CU_SUCCESS) {
        (void)ASHLAR_CALL(range->client, mem_unmap, (ptr, bytes));
    }
    return result;
}

/* The handle is released once it is mapped. The memory lives as long as the mapping, and whoever
 * exports the segment asks the driver for the handle again. */
static cu_result take_shared(ashlar_range *range, cu_ptr *ptr, size_t bytes, const char **call) {
    cu_mem_handle handle = 0;
    *call = "cuMemAddressReserve";
    cu_result result =
        ASHLAR_CALL(range->client, mem_address_reserve, (ptr, bytes, range->handle_bytes, 0, 0));
    if (result != CU_SUCCESS) {
        return result;
    }
    *call = "cuMemCreate";
    result = ASHLAR_CALL(range->client, mem_create, (&handle, bytes, &range->shared, 0));
    if (result == CU_SUCCESS) {
        result = map_shared(range, *ptr, bytes, handle, call);
        (void)ASHLAR_CALL(range->client, mem_release, (handle));
    }
    if (result != CU_SUCCESS) {
        (void)ASHLAR_CALL(range->client, mem_address_free, (*ptr, bytes));
    }
    return result;
}

static cu_result free_shared(ashlar_range *range, cu_ptr ptr, size_t bytes, const char **call) {
    *call = "cuMemUnmap";
    const cu_result result = ASHLAR_CALL(range->client, mem_unmap, (ptr, bytes));
    if (result == CU_SUCCESS) {
        (void)ASHLAR_CALL(range->client, mem_address_free, (ptr, bytes));
    }
    return result;
}

/* ---- segments of any kind ---- */

ashlar_status ashlar__range_take_segment(ashlar_range *range, size_t bytes, size_t *offset) {
    cu_ptr ptr = 0;
    const char *call = "", *undo;
    ASHLAR_CHECK2(bytes > 0 && bytes % range->handle_bytes == 0);
    ASHLAR_TRY(ashlar__range_allows(range, bytes));
    ASHLAR_TRY(ashlar__device_enter(range->client->device));
    const cu_result result = range->segments->take(range, &ptr, bytes, &call);
    const bool is_fit =
        ptr % ASHLAR_BLOCK_ALIGN == 0 && ptr < ADDRESSES && bytes <= ADDRESSES - ptr;
    if (result == CU_SUCCESS && !is_fit) {
        (void)range->segments->free(range, ptr, bytes, &undo);
    }
    ashlar__device_leave(range->client->device);
    ASHLAR_TRY(ashlar__client_status(range->client, call, result));
    ASHLAR_FAIL_IF(!is_fit, ASHLAR_EDRIVER, "%s: address %llu is no multiple of %zu below 2^48",
                   call, ptr, ASHLAR_BLOCK_ALIGN);
    range->mapped_bytes += bytes;
    trace(range, ASHLAR_TRACE_MAP, (size_t)ptr, bytes);
    *offset = (size_t)ptr;
    return ASHLAR_OK;
}

ashlar_status ashlar__range_free_segment(ashlar_range *range, size_t offset, size_t bytes) {
    const char *call = "";
    ASHLAR_TRY(ashlar__device_enter(range->client->device));
    ASHLAR_CHECK2(range->base == 0 && bytes <= range->mapped_bytes);
    const cu_result result = range->segments->free(range, offset, bytes, &call);
    ashlar__device_leave(range->client->device);
    ASHLAR_TRY(ashlar__client_status(range->client, call, result));
    range->mapped_bytes -= bytes;
    trace(range, ASHLAR_TRACE_UNMAP, offset, bytes);
    return ASHLAR_OK;
}

/* ---- opening and closing ---- */

/* *out: whether the device has an attribute, and the driver is new enough to know it. */
static ashlar_status ask(const ashlar_range *range, unsigned int attribute, bool *out) {
    int value = 0;
    const cu_result result = ASHLAR_CALL(range->client, device_get_attribute,
                                         (&value, attribute, range->client->device->info.ordinal));
    *out = result == CU_SUCCESS && value != 0;
    return result == CU_INVALID_VALUE
               ? ASHLAR_OK
               : ashlar__client_status(range->client, "cuDeviceGetAttribute", result);
}

/* The driver's granularity, a power of two. */
static ashlar_status ask_granularity(const ashlar_range *range, const cu_mem_prop *memory,
                                     unsigned int option, size_t *out) {
    ASHLAR_TRY(ashlar__client_status(
        range->client, "cuMemGetAllocationGranularity",
        ASHLAR_CALL(range->client, mem_get_allocation_granularity, (out, memory, option))));
    ASHLAR_ASSERT(*out > 0 && (*out & (*out - 1)) == 0);
    return ASHLAR_OK;
}

static ashlar_status open_segments(ashlar_range *range) {
    static const ashlar_segment_calls device = {take_device, free_device};
    static const ashlar_segment_calls host = {take_host, free_host};
    range->segments = range->kind == ASHLAR_RANGE_HOST ? &host : &device;
    range->bytes = ADDRESSES;
    range->handle_bytes = SEGMENT_ALIGN;
    return ASHLAR_OK;
}

static ashlar_status open_shared(ashlar_range *range, bool has_vmm) {
    static const ashlar_segment_calls shared = {take_shared, free_shared};
    const int ordinal = range->client->device->info.ordinal;
    bool has_files, has_rdma;
    size_t granularity = 0;
    ASHLAR_FAIL_IF(!has_vmm, ASHLAR_ENOTSUP,
                   "share=on: device %d has no virtual memory management; leave it off", ordinal);
    ASHLAR_TRY(ask(range, CU_ATTRIBUTE_HANDLE_FILE, &has_files));
    ASHLAR_TRY(ask(range, CU_ATTRIBUTE_RDMA, &has_rdma));
    ASHLAR_FAIL_IF(!has_files, ASHLAR_ENOTSUP,
                   "share=on: device %d cannot share memory by file descriptors; leave it off",
                   ordinal);
    ASHLAR_TRY(open_segments(range));
    range->segments = &shared;
    range->shared = memory_of(range);
    range->shared.handle_types = CU_HANDLE_FILE;
    /* The recommended granularity, which NCCL expects of memory that it registers. */
    ASHLAR_TRY(ask_granularity(range, &range->shared, CU_GRANULARITY_RECOMMENDED, &granularity));
    range->shared.flags.rdma_capable = has_rdma;
    range->handle_bytes = granularity > range->handle_bytes ? granularity : range->handle_bytes;
    return ASHLAR_OK;
}

/* Reserved addresses as a multiple of physical memory. Addresses cost nothing, and each stream has
 * windows of its own, in which the holes between live blocks may be many times its memory. */
enum { ADDRESS_FACTOR = 32 };

/* Reserve addresses. If they are scarce (ulimit -v, a virtual machine), reserve fewer; any failure
 * may mean that, since no result is documented for it. */
static ashlar_status reserve_addresses(ashlar_range *range) {
    cu_result result = CU_OUT_OF_MEMORY;
    for (size_t factor = ADDRESS_FACTOR; factor > 0 && result != CU_SUCCESS; factor /= 2) {
        ASHLAR_FAIL_IF(!ashlar__mul(range->memory_bytes, factor, &range->bytes) ||
                           !ashlar__align_up(range->bytes, range->handle_bytes, &range->bytes),
                       ASHLAR_EOVERFLOW, "the device's %zu bytes are too many to address",
                       range->memory_bytes);
        result = ASHLAR_CALL(range->client, mem_address_reserve,
                             (&range->base, range->bytes, range->handle_bytes, 0, 0));
    }
    return ashlar__client_status(range->client, "cuMemAddressReserve", result);
}

static ashlar_status open_virtual(ashlar_range *range, size_t handle_bytes) {
    const cu_mem_prop memory = memory_of(range);
    const size_t wanted = handle_bytes != 0 ? handle_bytes : ASHLAR_HANDLE_BYTES;
    ASHLAR_TRY(ask_granularity(range, &memory, CU_GRANULARITY_MINIMUM, &range->handle_bytes));
    while (range->handle_bytes < wanted && range->handle_bytes <= SIZE_MAX / 2) {
        range->handle_bytes *= 2;
    }
    return reserve_addresses(range);
}

ashlar_status ashlar__range_init(ashlar_range *range, ashlar_driver_client *client,
                                 ashlar_range_kind kind, size_t handle_bytes) {
    const size_t memory_bytes =
        kind == ASHLAR_RANGE_HOST ? ashlar__host_memory_bytes() : client->device->info.total_bytes;
    ashlar_range fresh = {
        .client = client, .kind = kind, .memory_bytes = memory_bytes, .limit_bytes = memory_bytes};
    bool has_vmm = false;
    if (kind == ASHLAR_RANGE_VIRTUAL || kind == ASHLAR_RANGE_SHARED) {
        ASHLAR_TRY(ask(&fresh, CU_ATTRIBUTE_VMM_SUPPORTED, &has_vmm));
    }
    ASHLAR_TRY(kind == ASHLAR_RANGE_SHARED ? open_shared(&fresh, has_vmm)
               : has_vmm                   ? open_virtual(&fresh, handle_bytes)
                                           : open_segments(&fresh));
    fresh.handle_shift = (unsigned)__builtin_ctzll(fresh.handle_bytes);
    ASHLAR_CHECK2(fresh.handle_bytes == (size_t)1 << fresh.handle_shift &&
                  ashlar__range_is_sound(&fresh));
    *range = fresh;
    return ASHLAR_OK;
}

void ashlar__range_finish(ashlar_range *range) {
    while (range->spare_count > 0) {
        (void)ASHLAR_CALL(range->client, mem_release, (range->spare[--range->spare_count]));
        range->mapped_bytes -= range->handle_bytes;
    }
    if (range->segments == NULL && !range->keeps_addresses) {
        (void)ASHLAR_CALL(range->client, mem_address_free, (range->base, range->bytes));
    }
    ASHLAR_ASSERT(range->mapped_bytes == 0);
    ashlar__host_free(range->spare);
}
