/* soft_device.c - setting up and destroying the software devices, queries about a device, one
 * device's access to the memory of another, and the driver table. */
#include "allocator/soft/soft_state.h"

#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/soft/soft.h"

enum { DRIVER_VERSION = 13000 };

/* ---- set-up ---- */

static void finish_device(soft_device *device) {
    ashlar__soft_pages_finish(device);
    ashlar__host_free(device->legacy);
}

/* Make the devices that `config` describes. Lock: not held, since no other thread sees them yet. */
static ashlar_status build_devices(const soft_config *config, soft_device *devices) {
    ASHLAR_CHECK2(config->device_count >= 1 && config->device_count <= SOFT_DEVICES_MAX);
    for (int i = 0; i < config->device_count; i++) {
        soft_device *device = &devices[i];
        device->ordinal = i;
        device->legacy = ashlar__host_calloc(1, sizeof *device->legacy);
        const ashlar_status status =
            device->legacy == NULL
                ? ashlar__fail(ASHLAR_EHOSTMEM, "default stream of software device %d", i)
                : ashlar__soft_pages_init(device, config->memory_bytes);
        if (status != ASHLAR_OK) {
            ashlar__host_free(device->legacy);
            while (i-- > 0) {
                finish_device(&devices[i]);
            }
            return status;
        }
    }
    return ASHLAR_OK;
}

/* The order matters: mappings use memory, and memory belongs to devices. */
static void destroy_devices(soft_state *state) {
    ASHLAR_CHECK2(state->running_count == 0); /* no other thread is in a call */
    ashlar__soft_event_reset(NULL);
    ashlar__soft_capture_reset();
    if (ashlar__soft_hooks.reset != NULL) {
        ashlar__soft_hooks.reset();
    }
    while (state->first_stream != NULL) {
        ashlar__soft_stream_delete(state->first_stream);
    }
    ASHLAR_CHECK2(state->last_stream == NULL && state->captures == NULL);
    ashlar__soft_alloc_reset(NULL);
    ASHLAR_CHECK2(state->reservations.count == 0 && state->blocks.count == 0 &&
                  state->host_blocks.count == 0);
    for (size_t i = 0; i < state->handles[SOFT_MEMORY].count; i++) {
        ashlar__soft_memory_drop(state->handles[SOFT_MEMORY].entries[i].item);
    }
    for (int i = 0; i < state->config.device_count; i++) {
        ashlar__soft_memory_drop(state->devices[i].overhead);
        ashlar__soft_pages_finish(&state->devices[i]);
    }
    for (int kind = 0; kind < SOFT_KINDS_END; kind++) {
        ashlar__host_free(state->handles[kind].entries);
        state->handles[kind] = (soft_handles){0};
    }
    ashlar__soft_ranges_clear(&state->reservations);
    ashlar__soft_ranges_clear(&state->blocks);
    ashlar__soft_ranges_clear(&state->host_blocks);
}

ashlar_status ashlar__soft_configure(const char *spec) {
    if (ashlar__soft_in_host_fn) {
        return ashlar__fail(ASHLAR_EINVAL, "ashlar__soft_configure: called inside a host function");
    }
    if (spec == NULL) {
        spec = secure_getenv("ASHLAR_SOFT");
    }
    soft_config config;
    ashlar_status status = ashlar__soft_parse(spec == NULL ? "" : spec, &config);
    ASHLAR_THEN(status, ashlar__soft_trace_open(config.trace));
    if (status != ASHLAR_OK) {
        return status;
    }
    soft_device devices[SOFT_DEVICES_MAX] = {0};
    status = build_devices(&config, devices);
    if (status != ASHLAR_OK) {
        return status;
    }
    soft_state *state = &ashlar__soft_state;
    ashlar__lock_acquire(&state->lock);
    ashlar__soft_workers_halt();
    destroy_devices(state);
    state->config = config;
    state->generation++;
    state->random = config.seed;
    state->host_ns = 0;
    state->host_wait_count = 0;
    state->host_wait_ns = 0;
    for (int i = 0; i < config.device_count; i++) {
        state->devices[i] = devices[i];
        state->devices[i].of = &state->devices[i];
        ashlar__soft_stream_join(devices[i].legacy, &state->devices[i], true);
    }
    ASHLAR_CHECK2(state->first_stream == state->devices[0].legacy);
    ashlar__lock_release(&state->lock);
    return ASHLAR_OK;
}

/* Set up the devices from the environment, unless there are devices already. Lock: not held. */
static ashlar_status ensure_devices(void) {
    static ashlar_lock setup_lock = ASHLAR_LOCK(ASHLAR_LEVEL_SOFT_SETUP);
    ashlar__lock_acquire(&setup_lock);
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    const bool is_set_up = ashlar__soft_state.generation != 0;
    ashlar__lock_release(&ashlar__soft_state.lock);
    const ashlar_status status = is_set_up ? ASHLAR_OK : ashlar__soft_configure(NULL);
    ashlar__lock_release(&setup_lock);
    return status;
}

/*
 * Leave a forked child without a device: CUDA does not work there either, and the device memory is
 * shared with the parent. The lock is made anew, since the thread that held it at the fork does not
 * exist in the child.
 */
static void forbid_in_child(void) {
    ashlar__lock_init(&ashlar__soft_state.lock, ASHLAR_LEVEL_SOFT);
    pthread_cond_init(&ashlar__soft_state.op_finished, NULL);
    ashlar__soft_state.is_initialized = false;
    ashlar__soft_state.is_forked = true;
}

static void watch_forks(void) {
    (void)pthread_atfork(NULL, NULL, forbid_in_child); /* fails only if memory runs out */
}

cu_result ashlar__soft_init(unsigned int flags) {
    static pthread_once_t watch_once = PTHREAD_ONCE_INIT;
    if (ashlar__soft_in_host_fn) {
        return CU_NOT_PERMITTED;
    }
    if (ashlar__soft_state.is_forked) {
        return CU_NOT_INITIALIZED;
    }
    pthread_once(&watch_once, watch_forks);
    if (flags != 0) {
        return CU_INVALID_VALUE;
    }
    if (ensure_devices() != ASHLAR_OK) {
        return CU_NO_DEVICE;
    }
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    ashlar__soft_state.is_initialized = true;
    ashlar__lock_release(&ashlar__soft_state.lock);
    return CU_SUCCESS;
}

void ashlar__soft_context_reset(soft_device *context) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ashlar__soft_event_reset(context);
    ashlar__soft_stream_reset(context);
    ashlar__soft_alloc_reset(context);
    for (int i = 0; i < ashlar__soft_state.config.device_count; i++) { /* end peer access */
        ashlar__soft_state.devices[i].peers &= ~((uint32_t)1 << context->ordinal);
    }
    ashlar__soft_memory_drop(context->overhead);
    context->overhead = NULL;
}

/* As with CUDA, the last release destroys everything that belongs to the context. */
cu_result ashlar__soft_primary_ctx_release(cu_device device) {
    SOFT_TRY(ashlar__soft_enter(ASHLAR_DRIVER_FN_primary_ctx_release));
    soft_device *found = ashlar__soft_device_at(device);
    if (found == NULL) {
        return ashlar__soft_leave(CU_INVALID_DEVICE);
    }
    if (found->retains == 1) {
        ashlar__soft_wait_device(found, 0);
    }
    if (found->retains == 0) {
        return ashlar__soft_leave(CU_INVALID_CONTEXT);
    }
    if (--found->retains == 0) {
        (void)ashlar__soft_handle_take(SOFT_CONTEXT, found->context);
        ashlar__soft_context_reset(found);
    }
    return ashlar__soft_leave(CU_SUCCESS);
}

/* ---- queries ---- */

/* Like ashlar__soft_enter(), for calls that take a device and an `out` pointer: checks both. */
static cu_result enter_device(ashlar_driver_fn fn, cu_device ordinal, const void *out,
                              soft_device **device) {
    SOFT_TRY(ashlar__soft_enter(fn));
    *device = ashlar__soft_device_at(ordinal);
    if (*device == NULL || out == NULL) {
        return ashlar__soft_leave(out == NULL ? CU_INVALID_VALUE : CU_INVALID_DEVICE);
    }
    return CU_SUCCESS;
}

cu_result ashlar__soft_driver_get_version(int *version) {
    if (version == NULL) {
        return CU_INVALID_VALUE;
    }
    *version = DRIVER_VERSION;
    return CU_SUCCESS;
}

cu_result ashlar__soft_device_get_count(int *count) {
    SOFT_TRY(ashlar__soft_enter(ASHLAR_DRIVER_FN_device_get_count));
    if (count == NULL) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    *count = ashlar__soft_state.config.device_count;
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_device_get(cu_device *device, int ordinal) {
    soft_device *found;
    SOFT_TRY(enter_device(ASHLAR_DRIVER_FN_device_get, ordinal, device, &found));
    *device = found->ordinal;
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_device_get_name(char *name, int bytes, cu_device device) {
    soft_device *found;
    SOFT_TRY(enter_device(ASHLAR_DRIVER_FN_device_get_name, device, name, &found));
    if (bytes <= 0) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    (void)snprintf(name, (size_t)bytes, "ashlar software device");
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_device_total_mem(size_t *bytes, cu_device device) {
    soft_device *found;
    SOFT_TRY(enter_device(ASHLAR_DRIVER_FN_device_total_mem, device, bytes, &found));
    *bytes = found->page_count * SOFT_PAGE_BYTES;
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_device_get_attribute(int *value, unsigned int attribute, cu_device device) {
    soft_device *found;
    SOFT_TRY(enter_device(ASHLAR_DRIVER_FN_device_get_attribute, device, value, &found));
    cu_result result = CU_SUCCESS;
    switch (attribute) {
    case CU_ATTRIBUTE_VMM_SUPPORTED:
    case CU_ATTRIBUTE_HANDLE_FILE:
    case CU_ATTRIBUTE_RDMA:
        *value = ashlar__soft_state.config.has_vmm;
        break;
    default:
        result = CU_INVALID_VALUE;
    }
    return ashlar__soft_leave(result);
}

/* ---- access to other devices ---- */

cu_result ashlar__soft_device_can_access_peer(int *can_access, cu_device device, cu_device peer) {
    SOFT_TRY(ashlar__soft_enter(ASHLAR_DRIVER_FN_device_can_access_peer));
    if (can_access == NULL) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    if (ashlar__soft_device_at(device) == NULL || ashlar__soft_device_at(peer) == NULL) {
        return ashlar__soft_leave(CU_INVALID_DEVICE);
    }
    *can_access = ashlar__soft_state.config.has_peers && device != peer;
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_ctx_enable_peer_access(cu_context peer, unsigned int flags) {
    soft_device *device;
    SOFT_TRY(ashlar__soft_enter_context(ASHLAR_DRIVER_FN_ctx_enable_peer_access, &device));
    const soft_device *other = ashlar__soft_context_find(peer);
    if (flags != 0 || other == NULL || other->of == device->of) {
        return ashlar__soft_leave(flags != 0 ? CU_INVALID_VALUE : CU_INVALID_CONTEXT);
    }
    if (!ashlar__soft_state.config.has_peers) {
        return ashlar__soft_leave(CU_PEER_ACCESS_UNSUPPORTED);
    }
    if ((device->peers >> other->ordinal & 1) != 0) {
        return ashlar__soft_leave(CU_PEER_ACCESS_ALREADY_ENABLED);
    }
    device->peers |= (uint32_t)1 << other->ordinal;
    ASHLAR_CHECK2((device->peers >> device->ordinal & 1) == 0);
    return ashlar__soft_leave(CU_SUCCESS);
}

/* ---- errors, and the driver table ---- */

/* These two may be called inside a host function and before cuInit: they touch no device. */
cu_result ashlar__soft_get_error_name(cu_result error, const char **name) {
    if (name == NULL) {
        return CU_INVALID_VALUE;
    }
    switch (error) {
#define X(code, value)                                              \
    case CU_##code:                                                 \
        *name = (value) == 0 ? "CUDA_" #code : "CUDA_ERROR_" #code; \
        return CU_SUCCESS;
        CU_RESULT_MAP(X)
#undef X
    default:
        *name = NULL;
        return CU_INVALID_VALUE;
    }
}

cu_result ashlar__soft_get_error_string(cu_result error, const char **text) {
    static const struct {
        cu_result code;
        const char *text;
    } texts[] = {
        {CU_SUCCESS, "no error"},
        {CU_INVALID_VALUE, "an argument is outside what the call allows"},
        {CU_OUT_OF_MEMORY, "the software device's memory is used up"},
        {CU_NOT_INITIALIZED, "no cuInit() in this process; call fork() before a device is opened"},
        {CU_NO_DEVICE, "no software device could be set up; look at ASHLAR_SOFT"},
        {CU_INVALID_DEVICE, "there is no device with this ordinal"},
        {CU_INVALID_CONTEXT, "no context is current, or it has been released"},
        {CU_OPERATING_SYSTEM, "the kernel gives this process no more mappings; raise "
                              "vm.max_map_count, or use larger pieces of memory"},
        {CU_INVALID_HANDLE, "no live stream or event has this handle"},
        {CU_NOT_READY, "the work is not finished"},
        {CU_ILLEGAL_ADDRESS, "queued work found its memory unmapped or freed"},
        {CU_NOT_PERMITTED, "host functions may not call the device"},
        {CU_NOT_SUPPORTED, "the software device cannot do this"},
        {CU_PEER_ACCESS_UNSUPPORTED, "this device cannot reach the other's memory"},
        {CU_PEER_ACCESS_ALREADY_ENABLED, "this device can reach the other's memory already"},
        {CU_STREAM_CAPTURE_UNSUPPORTED, "not allowed while a stream is capturing"},
        {CU_STREAM_CAPTURE_INVALIDATED, "an earlier mistake has spoilt this capture"},
        {CU_STREAM_CAPTURE_MERGE, "this would join two captures"},
        {CU_STREAM_CAPTURE_UNMATCHED, "the capture was begun on another stream"},
        {CU_STREAM_CAPTURE_UNJOINED, "a stream in the capture was not joined to its first one"},
        {CU_STREAM_CAPTURE_ISOLATION, "captured work cannot wait for work outside the capture"},
        {CU_STREAM_CAPTURE_IMPLICIT, "the legacy stream is ordered with a stream that captures"},
        {CU_CAPTURED_EVENT, "the event was last recorded on a stream that was capturing"},
        {CU_STREAM_CAPTURE_WRONG_THREAD, "the capture was begun by another thread"},
    };
    if (text == NULL) {
        return CU_INVALID_VALUE;
    }
    const char *mistake = atomic_load(&ashlar__soft_fault_text);
    if (error == CU_LAUNCH_FAILED && mistake != NULL) {
        *text = mistake;
        return CU_SUCCESS;
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].code == error) {
            *text = texts[i].text;
            return CU_SUCCESS;
        }
    }
    return ashlar__soft_get_error_name(error, text);
}

ashlar_status ashlar__driver_open_soft(ashlar_driver **out) {
    static ashlar_lock open_lock = ASHLAR_LOCK(ASHLAR_LEVEL_DRIVER_OPEN);
    static bool is_open;
    static ashlar_driver driver = {
        .name = "soft",
        .wait_any = ashlar__soft_wait_any,
        .beginnings = PTHREAD_RWLOCK_INITIALIZER,
        .table =
            {
#define X(field, symbol, version, kind, safety, params) .field = ashlar__soft_##field,
                ASHLAR_DRIVER_DEVICE_MAP(X)
#undef X
            },
    };
    ashlar_status status = ASHLAR_OK;
    ashlar__lock_acquire(&open_lock);
    if (!is_open) {
        status = ensure_devices();
        if (status == ASHLAR_OK && driver.table.init(0) != CU_SUCCESS) {
            status = ashlar__fail(ASHLAR_EDRIVER,
                                  "the software device was opened inside a host function");
        }
        is_open = status == ASHLAR_OK;
    }
    ashlar__lock_release(&open_lock);
    if (status == ASHLAR_OK) {
        *out = &driver;
    }
    return status;
}
