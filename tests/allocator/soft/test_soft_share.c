/* test_soft_share.c - for which handles a software device makes memory, and what it promises. */
#include "tests/allocator/soft/soft_memory_fixture.h"

static cu_mem_prop prop_for(unsigned int types, bool has_rdma) {
    cu_mem_prop made = prop;
    made.handle_types = types;
    made.flags.rdma_capable = has_rdma;
    return made;
}

static cu_result create_for(unsigned int types, bool has_rdma, cu_mem_handle *handle) {
    const cu_mem_prop made = prop_for(types, has_rdma);
    return soft->mem_create(handle, PAGE, &made, 0);
}

typedef struct promise {
    const char *spec;
    int file, fabric, rdma; /* attributes */
    cu_result for_file, for_fabric, for_file_and_rdma;
} promise;

static int attribute(unsigned int which) {
    int value = -1;
    CHECK(soft->device_get_attribute(&value, which, 0) == CU_SUCCESS);
    return value;
}

static cu_result made(unsigned int types, bool has_rdma) {
    cu_mem_handle handle = 0;
    size_t bytes = 0;
    const cu_mem_prop wanted = prop_for(types, has_rdma);
    const cu_result result = create_for(types, has_rdma, &handle);
    CHECK(soft->mem_get_allocation_granularity(&bytes, &wanted, CU_GRANULARITY_MINIMUM) == result);
    CHECK(result != CU_SUCCESS || soft->mem_release(handle) == CU_SUCCESS);
    return result;
}

CASE(a_device_shares_as_far_as_its_attributes_say) {
    static const promise all[] = {
        {"memory=32MiB,share=none", 0, 0, 0, CU_NOT_SUPPORTED, CU_NOT_SUPPORTED, CU_NOT_SUPPORTED},
        {"memory=32MiB,share=file", 1, 0, 0, CU_SUCCESS, CU_NOT_SUPPORTED, CU_NOT_SUPPORTED},
        {"memory=32MiB,share=fabric", 1, 1, 1, CU_SUCCESS, CU_NOT_PERMITTED, CU_SUCCESS},
        {"memory=32MiB,share=fabric,vmm=off", 0, 0, 0, CU_NOT_SUPPORTED, CU_NOT_SUPPORTED,
         CU_NOT_SUPPORTED},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const promise *p = &all[i];
        REQUIRE(set_up(p->spec));
        CHECK(attribute(CU_ATTRIBUTE_HANDLE_FILE) == p->file);
        CHECK(attribute(CU_ATTRIBUTE_HANDLE_FABRIC) == p->fabric);
        CHECK(attribute(CU_ATTRIBUTE_RDMA) == p->rdma);
        CHECK(made(CU_HANDLE_FILE, false) == p->for_file);
        CHECK(made(CU_HANDLE_FABRIC, false) == p->for_fabric);
        CHECK(made(CU_HANDLE_FILE, true) == p->for_file_and_rdma);
        CHECK(made(2, false) == CU_NOT_SUPPORTED); /* a handle of Windows */
    }
}

RUN_CASES()
