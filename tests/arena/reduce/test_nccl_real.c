/*
 * test_nccl_real.c - NCCL itself, where a library of it is: what it answers without a GPU.
 */
#include "tests/check.h"

#include <dlfcn.h>

#include "arena/reduce/ranks_impl.h"

/* Where a loader does not look: the toolkit's, and that of PyPI's nvidia-nccl-cu12 and -cu13. */
static const ashlar_nccl *open_real(void) {
    static const char *const paths[] = {"libnccl.so.2", TEST_NCCL_PATHS};
    const ashlar_nccl *nccl = NULL;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0] && nccl == NULL; i++) {
        (void)setenv("ASHLAR_NCCL", paths[i], 1);
        if (ashlar__nccl_open(&nccl) != ASHLAR_OK) {
            nccl = NULL;
        }
    }
    return nccl;
}

CASE(it_has_every_function_and_says_its_version) {
    const ashlar_nccl *nccl = open_real();
    int version = 0;
    SKIP_IF(nccl == NULL, "no NCCL here; pip install nvidia-nccl-cu12 brings it");
    CHECK(nccl->get_version(&version) == NCCL_SUCCESS);
    CHECK(version >= NCCL_CONFIG_VERSION);
    CHECK(strlen(nccl->get_error_string(NCCL_INVALID_USAGE)) > 0);
    CHECK(nccl->get_last_error(NULL) != NULL);
}

CASE(joining_without_a_GPU_is_refused_by_a_status) {
    const ashlar_nccl *nccl = open_real();
    nccl_config config = {sizeof config, NCCL_CONFIG_MAGIC, NCCL_CONFIG_VERSION, 1};
    nccl_comm comm = NULL;
    nccl_id id;
    SKIP_IF(nccl == NULL, "no NCCL here");
    SKIP_IF(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != NULL, "there is a driver");
    REQUIRE(nccl->get_id(&id) == NCCL_SUCCESS);
    CHECK(nccl->comm_init(&comm, 1, id, 0, &config) == NCCL_CUDA_ERROR); /* as there is no GPU */
}

RUN_CASES()
