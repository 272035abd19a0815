/*
 * test_soft_share.c - which memory of a software device can be given to another process, by which
 * devices, and what is refused on either side.
 */
#include "tests/allocator/soft/soft_memory_fixture.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "allocator/base/host.h"

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

static cu_result import(int file, unsigned int type, cu_mem_handle *handle) {
    return soft->mem_import(handle, (void *)(intptr_t)file, type);
}

CASE_WITH(memory_is_exported_as_it_was_made_for, set_up("memory=64MiB")) {
    cu_mem_handle handle = 0;
    const cu_mem_handle plain = create(1);
    int file = -1;
    REQUIRE(create_for(CU_HANDLE_FILE, false, &handle) == CU_SUCCESS);
    CHECK(soft->mem_export(NULL, handle, CU_HANDLE_FILE, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_export(&file, handle, CU_HANDLE_FILE, 1) == CU_INVALID_VALUE);
    CHECK(soft->mem_export(&file, handle, CU_HANDLE_FABRIC, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_export(&file, plain, CU_HANDLE_FILE, 0) == CU_INVALID_VALUE);
    CHECK(file == -1);
    CHECK(soft->mem_export(&file, handle, CU_HANDLE_FILE, 0) == CU_SUCCESS);
    CHECK(file > STDERR_FILENO && close(file) == 0);
    CHECK(soft->mem_release(handle) == CU_SUCCESS && soft->mem_release(plain) == CU_SUCCESS);
}

/* The number of the next file: the same again if none was left open meanwhile. */
static int next_file(void) {
    const int file = dup(STDERR_FILENO);
    CHECK(file >= 0 && close(file) == 0);
    return file;
}

CASE_WITH(an_import_is_the_same_memory, set_up("memory=64MiB")) {
    const int next = next_file();
    cu_mem_handle handle = 0, same = 0;
    const cu_ptr base = reserve(2);
    int file = -1;
    REQUIRE(create_for(CU_HANDLE_FILE, false, &handle) == CU_SUCCESS);
    REQUIRE(soft->mem_export(&file, handle, CU_HANDLE_FILE, 0) == CU_SUCCESS);
    CHECK(import(file, CU_HANDLE_FABRIC, &same) == CU_INVALID_VALUE);
    CHECK(import(file, CU_HANDLE_FILE, NULL) == CU_INVALID_VALUE);
    REQUIRE(import(file, CU_HANDLE_FILE, &same) == CU_SUCCESS);
    place(base, 1, handle);
    place(base + PAGE, 1, same);
    bytes_at(base)[17] = 5;
    CHECK(bytes_at(base + PAGE)[17] == 5);
    CHECK(soft->mem_unmap(base, 2 * PAGE) == CU_SUCCESS && close(file) == 0);
    CHECK(soft->mem_release(handle) == CU_SUCCESS && soft->mem_release(same) == CU_SUCCESS);
    CHECK(soft->mem_address_free(base, 2 * PAGE) == CU_SUCCESS);
    CHECK(next_file() == next);
}

/* What a file is, its name tells: others are refused, and so is one that is empty. */
CASE_WITH(other_files_are_not_imported, set_up("memory=64MiB,devices=2")) {
    static const char *const names[] = {"ashlar-soft-shared-0", "ashlar-soft-shared-2",
                                        "ashlar-soft-shered-0", "ashlar-soft-device"};
    cu_mem_handle handle = 0;
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    CHECK(import(-1, CU_HANDLE_FILE, &handle) == CU_INVALID_VALUE);
    CHECK(import(nothing, CU_HANDLE_FILE, &handle) == CU_INVALID_VALUE);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const int file = memfd_create(names[i], MFD_CLOEXEC);
        REQUIRE(file >= 0);
        CHECK(import(file, CU_HANDLE_FILE, &handle) == CU_INVALID_VALUE); /* 0 bytes */
        CHECK(ftruncate(file, (off_t)PAGE) == 0);
        const cu_result result = import(file, CU_HANDLE_FILE, &handle);
        CHECK(result == (i == 0 ? CU_SUCCESS : CU_INVALID_VALUE));
        CHECK(close(file) == 0);
    }
    CHECK(soft->mem_release(handle) == CU_SUCCESS && close(nothing) == 0);
}

CASE_WITH(a_handle_is_had_from_an_address_that_is_mapped, set_up("memory=64MiB")) {
    const cu_mem_handle handle = create(1);
    const cu_ptr base = reserve(2), other = alloc(PAGE);
    cu_mem_handle again = 0;
    place(base, 1, handle);
    CHECK(soft->mem_retain_handle(NULL, bytes_at(base)) == CU_INVALID_VALUE);
    CHECK(soft->mem_retain_handle(&again, bytes_at(base + PAGE)) == CU_INVALID_VALUE);
    CHECK(soft->mem_retain_handle(&again, bytes_at(other)) == CU_INVALID_VALUE);
    CHECK(soft->mem_retain_handle(&again, bytes_at(base + PAGE - 1)) == CU_SUCCESS);
    CHECK(soft->mem_unmap(base, PAGE) == CU_SUCCESS && soft->mem_release(handle) == CU_SUCCESS);
    place(base + PAGE, 1, again); /* which keeps the memory */
    CHECK(soft->mem_unmap(base + PAGE, PAGE) == CU_SUCCESS);
    CHECK(soft->mem_release(again) == CU_SUCCESS && soft->mem_free(other) == CU_SUCCESS);
    CHECK(soft->mem_address_free(base, 2 * PAGE) == CU_SUCCESS);
}

CASE_WITH(a_number_for_a_handle_may_lack_host_memory, set_up("memory=64MiB")) {
    enum { MANY = 200 };
    static cu_mem_handle again[MANY];
    size_t refused = 0;
    const cu_mem_handle handle = create(1);
    const cu_ptr base = reserve(1);
    place(base, 1, handle);
    for (size_t i = 0; i < MANY; i++) {
        ashlar__host_fail_at(1);
        cu_result result = soft->mem_retain_handle(&again[i], bytes_at(base));
        ashlar__host_fail_at(0);
        if (result != CU_SUCCESS) {
            CHECK(result == CU_OUT_OF_MEMORY);
            refused++;
            result = soft->mem_retain_handle(&again[i], bytes_at(base));
        }
        CHECK(result == CU_SUCCESS);
    }
    CHECK(refused > 0);
    CHECK(soft->mem_unmap(base, PAGE) == CU_SUCCESS && soft->mem_release(handle) == CU_SUCCESS);
    for (size_t i = 0; i < MANY; i++) {
        CHECK_ZU(free_pages(), 31); /* until nobody has it: what was refused has no share in it */
        CHECK(soft->mem_release(again[i]) == CU_SUCCESS);
    }
    CHECK_ZU(free_pages(), 32);
    CHECK(soft->mem_address_free(base, PAGE) == CU_SUCCESS);
}

/* ---- which devices ---- */

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
        cu_mem_handle handle = 0;
        CHECK(import(-1, CU_HANDLE_FILE, &handle) ==
              (p->file != 0 ? CU_INVALID_VALUE : CU_NOT_SUPPORTED));
    }
}

RUN_CASES()
