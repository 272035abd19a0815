/* probe.c - the probe's command line, its memory, and the facts of a device. */
#include "tests/gpu/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ashlar/base.h>

bool probe_open(probe *out) {
    ashlar_driver *driver = NULL;
    cu_context context;
    if (ashlar__driver_open_cuda(&driver) != ASHLAR_OK) {
        (void)printf("no driver: %s\n", ashlar_error_detail());
        return false;
    }
    *out = (probe){.cuda = &driver->table};
    const cu_mem_prop prop = probe_prop(out);
    if (out->cuda->init(0) != CU_SUCCESS || out->cuda->device_get(&out->device, 0) != CU_SUCCESS ||
        out->cuda->primary_ctx_retain(&context, out->device) != CU_SUCCESS ||
        out->cuda->ctx_push_current(context) != CU_SUCCESS ||
        out->cuda->mem_get_allocation_granularity(&out->granularity, &prop,
                                                  CU_GRANULARITY_MINIMUM) != CU_SUCCESS) {
        (void)printf("device 0 cannot be opened, or has no virtual memory\n");
        return false;
    }
    return true;
}

/* ---- memory ---- */

cu_mem_prop probe_prop(const probe *p) {
    return (cu_mem_prop){.type = CU_ALLOCATION_PINNED,
                         .location = {.type = CU_LOCATION_DEVICE, .id = p->device}};
}

cu_mem_access probe_access(const probe *p) {
    return (cu_mem_access){.location = {.type = CU_LOCATION_DEVICE, .id = p->device},
                           .flags = CU_ACCESS_READWRITE};
}

cu_result probe_map(const probe *p, size_t bytes, cu_ptr *ptr) {
    const cu_mem_prop prop = probe_prop(p);
    const cu_mem_access access = probe_access(p);
    cu_mem_handle handle;
    cu_result result = p->cuda->mem_address_reserve(ptr, bytes, 0, 0, 0);
    if (result != CU_SUCCESS) {
        return result;
    }
    result = p->cuda->mem_create(&handle, bytes, &prop, 0);
    if (result == CU_SUCCESS) {
        result = p->cuda->mem_map(*ptr, bytes, 0, handle, 0);
        (void)p->cuda->mem_release(handle);
    }
    if (result == CU_SUCCESS) {
        result = p->cuda->mem_set_access(*ptr, bytes, &access, 1);
        if (result != CU_SUCCESS) {
            (void)p->cuda->mem_unmap(*ptr, bytes);
        }
    }
    if (result != CU_SUCCESS) {
        (void)p->cuda->mem_address_free(*ptr, bytes);
    }
    return result;
}

void probe_unmap(const probe *p, cu_ptr ptr, size_t bytes) {
    (void)p->cuda->mem_unmap(ptr, bytes);
    (void)p->cuda->mem_address_free(ptr, bytes);
}

bool probe_holds(const probe *p, cu_ptr ptr, unsigned char value) {
    unsigned char seen = (unsigned char)~value;
    return p->cuda->memcpy_dtoh_async(&seen, ptr, 1, NULL) == CU_SUCCESS &&
           p->cuda->ctx_synchronize() == CU_SUCCESS && seen == value;
}

void probe_keep_busy(const probe *p, cu_stream stream, cu_ptr ptr, size_t bytes) {
    for (int i = 0; i < PROBE_FILLS; i++) {
        (void)p->cuda->memset_d8_async(ptr, (unsigned char)i, bytes, stream);
    }
}

/* ---- facts ---- */

static const struct {
    unsigned int attribute;
    const char *name;
} attributes[] = {
    {75, "compute capability, major"},
    {76, "compute capability, minor"},
    {16, "multiprocessors"},
    {13, "clock, kHz"},
    {36, "memory clock, kHz"},
    {37, "memory bus, bits"},
    {38, "L2 cache, bytes"},
    {40, "copy engines"},
    {32, "error correction"},
    {88, "reads pageable memory"},
    {CU_ATTRIBUTE_VMM_SUPPORTED, "virtual memory"},
    {103, "memory is shared as a file descriptor"},
    {110, "RDMA with virtual memory"},
    {115, "memory pools"},
};

int probe_facts(const probe *p) {
    char name[256] = "";
    int version = 0, value;
    size_t total = 0, left = 0, recommended = 0, i;
    const cu_mem_prop prop = probe_prop(p);
    (void)p->cuda->driver_get_version(&version);
    (void)p->cuda->device_get_name(name, (int)sizeof name, p->device);
    (void)p->cuda->mem_get_info(&left, &total);
    (void)p->cuda->mem_get_allocation_granularity(&recommended, &prop, CU_GRANULARITY_RECOMMENDED);
    for (i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        const bool is_known =
            p->cuda->device_get_attribute(&value, attributes[i].attribute, p->device) == CU_SUCCESS;
        (void)printf(is_known ? "%s: %d\n" : "%s: not known to this driver\n", attributes[i].name,
                     value);
    }
    (void)printf("granularity: %zu bytes, recommended %zu\n", p->granularity, recommended);
    (void)printf("memory: %zu of %zu bytes free, the context's taken off\n", left, total);
    (void)printf("%s, CUDA %d.%d\n", name, version / 1000, version % 1000 / 10);
    return 0;
}

/* ---- the command line ---- */

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "", *json = NULL;
    bool is_smoke = false;
    probe p;
    for (int i = 2; i < argc; i++) {
        is_smoke = is_smoke || strcmp(argv[i], "--smoke") == 0;
        json = argv[i][0] == '-' ? json : argv[i];
    }
    if (strcmp(what, "rules") == 0) {
        return probe_rules();
    }
    if (strcmp(what, "updates") == 0) {
        return probe_updates(is_smoke, json);
    }
    const bool is_facts = strcmp(what, "facts") == 0, is_costs = strcmp(what, "costs") == 0;
    if (!is_facts && !is_costs && strcmp(what, "products") != 0) {
        (void)fprintf(stderr, "usage: probe facts | rules | (costs | updates | products) [--smoke] "
                              "[FILE.json]\n");
        return 2;
    }
    if (!probe_open(&p)) {
        return 77;
    }
    return is_facts   ? probe_facts(&p)
           : is_costs ? probe_costs(&p, is_smoke, json)
                      : probe_products(&p, is_smoke, json);
}
