/*
 * test_soft_pages.c - physical memory in many small handles: what the kernel sees of their
 * mappings.
 */
#include "tests/allocator/soft/soft_fixture.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { HANDLES = 20480 }; /* 40 GiB */

static size_t areas_max(void) {
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    size_t most = 0;
    const bool is_read = file != NULL && fscanf(file, "%zu", &most) == 1;
    if (file != NULL) {
        (void)fclose(file);
    }
    return is_read ? most : 0;
}

CASE_WITH(mappings_that_are_not_neighbours_come_to_the_kernels_limit, set_up("memory=1TiB")) {
    const size_t most = areas_max();
    SKIP_IF(dlsym(RTLD_DEFAULT, "__asan_init") != NULL ||
                dlsym(RTLD_DEFAULT, "__tsan_init") != NULL ||
                dlsym(RTLD_DEFAULT, "__lsan_init") != NULL,
            "a sanitizer needs mappings of its own");
    SKIP_IF(most == 0 || most > 100000, "the kernel has no usual limit of mappings");
    const cu_ptr base = reserve(most * 2);
    cu_result result = CU_SUCCESS;
    size_t count = 0;
    for (; count < most && result == CU_SUCCESS; count++) { /* each is an area, and each gap */
        const cu_mem_handle handle = create(1);
        result = soft->mem_map(base + 2 * count * PAGE, PAGE, 0, handle, 0);
        (void)soft->mem_release(handle);
    }
    count--;
    CHECK(result == CU_OPERATING_SYSTEM);
    CHECK(ashlar__driver_error(driver, "cuMemMap", result) == ASHLAR_EDRIVER);
    CHECK_HAS(ashlar_error_detail(), "vm.max_map_count");
    CHECK(count > most / 4 && count < most / 2);
    CHECK_ZU(free_pages(), ((size_t)1 << 19) - count); /* what failed has taken nothing */
    for (size_t i = 0; i < count; i++) {
        CHECK(soft->mem_unmap(base + 2 * i * PAGE, PAGE) == CU_SUCCESS);
    }
    CHECK(soft->mem_address_free(base, most * 2 * PAGE) == CU_SUCCESS);
}

/* Else what the program prints would go there. */
CASE(device_memory_is_no_standard_stream) {
    const int kept = dup(STDIN_FILENO);
    CHECK(kept >= 0 && close(STDIN_FILENO) == 0);
    CHECK(set_up("memory=48MiB")); /* as no other case has it: a device of its own */
    CHECK(fcntl(STDIN_FILENO, F_GETFD) == -1);
    CHECK(dup2(kept, STDIN_FILENO) == STDIN_FILENO && close(kept) == 0);
}

/* What happens to a device of `spec` where the process may have no more than `most` of `what`. */
static bool is_made_within(const char *spec, __rlimit_resource_t what, rlim_t most) {
    struct rlimit kept;
    CHECK(getrlimit(what, &kept) == 0);
    const struct rlimit small = {most, kept.rlim_max};
    CHECK(setrlimit(what, &small) == 0);
    const bool is_made = set_up(spec);
    CHECK(setrlimit(what, &kept) == 0);
    return is_made;
}

CASE(without_a_file_for_its_memory_there_is_no_device) {
    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK(!is_made_within("memory=50MiB", RLIMIT_NOFILE, 0));
    CHECK_HAS(ashlar_error_detail(), "no memory file of 52428800 bytes: Too many open files");
    CHECK(!is_made_within("memory=50MiB", RLIMIT_FSIZE, PAGE));
    CHECK_HAS(ashlar_error_detail(), "no memory file of 52428800 bytes: File too large");
    CHECK(set_up("memory=50MiB"));
}

RUN_CASES()
