/*
 * test_nccl_contract.c - the stand-in for NCCL, by itself: two ranks, a process and a device each,
 * that keep its contract, or break it in one point and are refused.
 */
#include "tests/check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/device/device_impl.h"
#include "arena/reduce/nccl.h"

enum { RANKS = 2, MIB = 1 << 20, PAGE = 2 * MIB };

/* Between the processes of a case. */
static struct shared {
    nccl_id id;
    atomic_bool has_id;
    atomic_uint arrived;
} * shared;

static size_t rank;
static const ashlar_nccl *nccl;
static ashlar_device *device;
static const ashlar_driver_table *cuda;
static ashlar_stream stream;
static nccl_comm comm;
static nccl_result (*comm_register)(nccl_comm, void *, size_t, void **);
static nccl_result (*comm_deregister)(nccl_comm, void *);
static nccl_result (*window_register)(nccl_comm, void *, size_t, void **, int);
static nccl_result (*window_deregister)(nccl_comm, void *);

static void find(const char *name, void *function) {
    void *symbol = dlsym(dlopen(getenv("ASHLAR_NCCL"), RTLD_NOW), name);
    memcpy(function, &symbol, sizeof symbol);
}

/* ---- two processes ---- */

/* Wait for the other. */
static void meet(void) {
    const unsigned int before = atomic_fetch_add(&shared->arrived, 1);
    while (atomic_load(&shared->arrived) < (before / RANKS + 1) * RANKS) {
        (void)sched_yield();
    }
}

static nccl_result begin_joining(nccl_comm *out, size_t as, const nccl_config *given) {
    nccl_config config = {sizeof config, NCCL_CONFIG_MAGIC, NCCL_CONFIG_VERSION, 0};
    if (rank == 0 && !atomic_load(&shared->has_id)) {
        CHECK(nccl->get_id(&shared->id) == NCCL_SUCCESS);
        atomic_store(&shared->has_id, true);
    }
    while (!atomic_load(&shared->has_id)) {
        (void)sched_yield();
    }
    config = given != NULL ? *given : config;
    return nccl->comm_init(out, RANKS, shared->id, (int)as, &config);
}

static nccl_result settle(nccl_comm of) {
    nccl_result result = NCCL_IN_PROGRESS;
    while (result == NCCL_IN_PROGRESS && nccl->comm_get_async_error(of, &result) == NCCL_SUCCESS) {
        (void)sched_yield();
    }
    return result;
}

static void join(void) {
    CHECK(begin_joining(&comm, rank, NULL) == NCCL_IN_PROGRESS);
    CHECK(settle(comm) == NCCL_SUCCESS);
    meet(); /* a rank that is refused next would spoil the other's joining */
}

static void open_rank(bool is_on_first) {
    char name[32];
    (void)snprintf(name, sizeof name, "cuda:%zu", is_on_first ? 0 : rank);
    CHECK(ashlar__nccl_open(&nccl) == ASHLAR_OK);
    find("ncclCommRegister", &comm_register);
    find("ncclCommDeregister", &comm_deregister);
    find("ncclCommWindowRegister", &window_register);
    find("ncclCommWindowDeregister", &window_deregister);
    CHECK(ashlar_device_open(name, &device) == ASHLAR_OK);
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    cuda = &device->driver->table;
    CHECK(ashlar_stream_create(device, &stream) == ASHLAR_OK);
}

/* Run an act on each rank. What the stand-in says is not shown. */
static void run_ranks(void (*act)(void), bool on_one_device) {
    pid_t children[RANKS];
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    fflush(stdout);
    for (size_t i = 0; i < RANKS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            (void)dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
            rank = i;
            check_failed = 0;
            open_rank(on_one_device);
            act();
            meet(); /* the id is a file of rank 0's */
            fflush(stdout);
            _exit(check_failed == 0 && check_ran > 0 ? 0 : 1);
        }
    }
    for (size_t i = 0; i < RANKS; i++) {
        int status = -1;
        CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
    }
    (void)munmap(shared, sizeof *shared);
}

/* ---- what the acts are made of ---- */

typedef struct memory {
    char *at;
    size_t bytes;
    cu_mem_handle handle;
} memory;

static memory take(size_t bytes, unsigned int handle_types) {
    const cu_mem_prop prop = {.type = CU_ALLOCATION_PINNED,
                              .handle_types = handle_types,
                              .location = {CU_LOCATION_DEVICE, device->info.ordinal}};
    const cu_mem_access access = {.location = prop.location, .flags = CU_ACCESS_READWRITE};
    cu_ptr ptr = 0;
    memory m = {.bytes = bytes};
    CHECK(cuda->mem_address_reserve(&ptr, bytes, 0, 0, 0) == CU_SUCCESS);
    CHECK(cuda->mem_create(&m.handle, bytes, &prop, 0) == CU_SUCCESS);
    CHECK(cuda->mem_map(ptr, bytes, 0, m.handle, 0) == CU_SUCCESS);
    CHECK(cuda->mem_set_access(ptr, bytes, &access, 1) == CU_SUCCESS);
    m.at = (char *)(uintptr_t)ptr;
    return m;
}

static void unmap(const memory *m) {
    CHECK(cuda->mem_unmap((uintptr_t)m->at, m->bytes) == CU_SUCCESS);
}

static bool last_error_has(const char *words) {
    const bool has = strstr(nccl->get_last_error(comm), words) != NULL;
    if (!has) {
        printf("# the last error is: %s\n", nccl->get_last_error(comm));
    }
    return has;
}

static nccl_result sum(void *data, size_t elements) {
    return nccl->all_reduce(data, data, elements, NCCL_F32, NCCL_SUM, comm, (cu_stream)stream);
}

/* What a queued collective comes to. */
static nccl_result outcome(nccl_result queued) {
    nccl_result result = queued;
    if (queued == NCCL_SUCCESS) {
        CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
        CHECK(nccl->comm_get_async_error(comm, &result) == NCCL_SUCCESS);
    }
    return result;
}

#define TWO_RANKS(name)               \
    static void act_##name(void);     \
    CASE(name) {                      \
        run_ranks(act_##name, false); \
    }                                 \
    static void act_##name(void)

/* ---- keeping it ---- */

TWO_RANKS(registered_memory_is_summed_up_in_place) {
    void *handle;
    join();
    const memory m = take(PAGE, CU_HANDLE_FILE);
    float *f = (float *)(void *)m.at;
    f[5] = (float)(rank + 1);
    CHECK(comm_register(comm, m.at, m.bytes, &handle) == NCCL_SUCCESS);
    CHECK(outcome(sum(f, 100000)) == NCCL_SUCCESS);
    CHECK(f[5] == 3);
    CHECK(comm_deregister(comm, handle) == NCCL_SUCCESS);
    unmap(&m);
    CHECK(nccl->comm_finalize(comm) == NCCL_SUCCESS);
    CHECK(nccl->comm_destroy(comm) == NCCL_SUCCESS);
}

TWO_RANKS(windows_of_equal_size_and_offset_are_good) {
    void *window;
    join();
    const memory m = take(PAGE, CU_HANDLE_FILE);
    CHECK(window_register(comm, m.at, m.bytes, &window, 1) == NCCL_SUCCESS);
    CHECK(outcome(sum(m.at + 4096, 8)) == NCCL_SUCCESS);
    CHECK(window_deregister(comm, window) == NCCL_SUCCESS);
}

/* ---- breaking it: registered memory ---- */

TWO_RANKS(memory_without_a_handle_type_is_refused) {
    void *handle;
    join();
    const memory m = take(PAGE, 0);
    CHECK(comm_register(comm, m.at, m.bytes, &handle) == NCCL_INVALID_ARGUMENT);
    CHECK(last_error_has("without a handle type"));
    cu_ptr plain = 0;
    CHECK(cuda->mem_alloc(&plain, PAGE) == CU_SUCCESS);
    CHECK(comm_register(comm, (void *)(uintptr_t)plain, PAGE, &handle) == NCCL_INVALID_ARGUMENT);
}

TWO_RANKS(memory_that_is_not_of_the_granularity_is_refused) {
    void *handle;
    join();
    const memory m = take(PAGE, CU_HANDLE_FILE);
    CHECK(comm_register(comm, m.at, PAGE - 4096, &handle) == NCCL_INVALID_ARGUMENT);
    CHECK(last_error_has("granularity"));
    CHECK(comm_register(comm, m.at + 4096, PAGE, &handle) == NCCL_INVALID_ARGUMENT);
    CHECK(last_error_has("granularity"));
}

TWO_RANKS(other_offsets_on_another_rank_are_refused) {
    void *handle;
    join();
    const memory m = take(PAGE, CU_HANDLE_FILE);
    CHECK(comm_register(comm, m.at, m.bytes, &handle) == NCCL_SUCCESS);
    CHECK(outcome(sum(m.at + 4096 * rank, 8)) == NCCL_INVALID_USAGE);
}

TWO_RANKS(memory_registered_on_one_rank_only_is_refused) {
    void *handle;
    join();
    const memory m = take(PAGE, CU_HANDLE_FILE);
    CHECK(rank == 1 || comm_register(comm, m.at, m.bytes, &handle) == NCCL_SUCCESS);
    CHECK(outcome(sum(m.at, 8)) == NCCL_INVALID_USAGE);
}

TWO_RANKS(data_of_which_a_part_is_registered_are_refused) {
    void *handle;
    join();
    const memory m = take(2 * PAGE, CU_HANDLE_FILE);
    CHECK(comm_register(comm, m.at, PAGE, &handle) == NCCL_SUCCESS);
    CHECK(sum(m.at + PAGE - 16, 8) == NCCL_INVALID_USAGE);
    CHECK(last_error_has("a part is not"));
    CHECK(nccl->all_reduce(m.at, m.at + PAGE, 8, NCCL_F32, NCCL_SUM, comm, (cu_stream)stream) ==
          NCCL_INVALID_USAGE);
    CHECK(last_error_has("not both"));
}

TWO_RANKS(memory_unmapped_while_registered_is_found) {
    void *handle;
    join();
    const memory m = take(PAGE, CU_HANDLE_FILE);
    CHECK(comm_register(comm, m.at, m.bytes, &handle) == NCCL_SUCCESS);
    unmap(&m);
    CHECK(last_error_has("still registered"));
    CHECK(comm_deregister(comm, handle) == NCCL_INVALID_USAGE);
    CHECK(last_error_has("unmapped before"));
}

TWO_RANKS(other_memory_behind_a_registered_address_is_found) {
    const cu_mem_access access = {{CU_LOCATION_DEVICE, device->info.ordinal}, CU_ACCESS_READWRITE};
    void *handle;
    join();
    const memory m = take(PAGE, CU_HANDLE_FILE), other = take(PAGE, CU_HANDLE_FILE);
    CHECK(comm_register(comm, m.at, m.bytes, &handle) == NCCL_SUCCESS);
    unmap(&m);
    unmap(&other);
    CHECK(cuda->mem_map((uintptr_t)m.at, PAGE, 0, other.handle, 0) == CU_SUCCESS);
    CHECK(cuda->mem_set_access((uintptr_t)m.at, PAGE, &access, 1) == CU_SUCCESS);
    CHECK(sum(m.at, 8) == NCCL_INVALID_USAGE);
    CHECK(last_error_has("was unmapped"));
}

TWO_RANKS(what_collectives_still_use_is_not_deregistered) {
    void *handle;
    join();
    const memory m = take(PAGE, CU_HANDLE_FILE);
    CHECK(comm_register(comm, m.at, m.bytes, &handle) == NCCL_SUCCESS);
    CHECK(sum(m.at, 8) == NCCL_SUCCESS); /* the devices of this test work late */
    CHECK(comm_deregister(comm, handle) == NCCL_INVALID_USAGE);
    CHECK(comm_deregister(comm, m.at) == NCCL_INVALID_ARGUMENT);
    CHECK(outcome(NCCL_SUCCESS) == NCCL_SUCCESS);
    CHECK(comm_deregister(comm, handle) == NCCL_SUCCESS);
    CHECK(comm_deregister(comm, handle) == NCCL_INVALID_ARGUMENT);
}

TWO_RANKS(windows_of_different_sizes_are_refused) {
    void *window;
    join();
    const memory m = take(2 * PAGE, CU_HANDLE_FILE);
    CHECK(window_register(comm, m.at, PAGE * (rank + 1), &window, 1) == NCCL_INVALID_USAGE);
    CHECK(last_error_has("others elsewhere"));
}

TWO_RANKS(windows_that_begin_between_pages_are_refused) {
    void *window;
    join();
    const memory m = take(PAGE, CU_HANDLE_FILE);
    CHECK(window_register(comm, m.at + 512, PAGE / 2, &window, 1) == NCCL_INVALID_ARGUMENT);
    CHECK(last_error_has("512 bytes behind"));
}

/* ---- breaking it: collectives ---- */

TWO_RANKS(another_order_is_found) {
    join();
    const memory m = take(PAGE, 0);
    CHECK(outcome(rank == 0 ? sum(m.at, 8)
                            : nccl->broadcast(m.at, m.at, 8, NCCL_F32, 0, comm,
                                              (cu_stream)stream)) == NCCL_INVALID_USAGE);
}

TWO_RANKS(another_count_is_found) {
    join();
    const memory m = take(PAGE, 0);
    CHECK(outcome(sum(m.at, 8 + rank)) == NCCL_INVALID_USAGE);
}

TWO_RANKS(another_type_is_found) {
    join();
    const memory m = take(PAGE, 0);
    CHECK(outcome(nccl->all_reduce(m.at, m.at, 8, rank == 0 ? NCCL_F16 : NCCL_BF16, NCCL_SUM, comm,
                                   (cu_stream)stream)) == NCCL_INVALID_USAGE);
}

TWO_RANKS(another_root_is_found) {
    join();
    const memory m = take(PAGE, 0);
    CHECK(nccl->broadcast(m.at, m.at, 8, NCCL_F32, 2, comm, (cu_stream)stream) ==
          NCCL_INVALID_ARGUMENT);
    CHECK(outcome(nccl->broadcast(m.at, m.at, 8, NCCL_F32, (int)rank, comm, (cu_stream)stream)) ==
          NCCL_INVALID_USAGE);
}

TWO_RANKS(memory_of_the_host_is_refused) {
    static float on_host[8];
    join();
    const memory m = take(PAGE, 0);
    CHECK(sum(on_host, 8) == NCCL_INVALID_ARGUMENT);
    CHECK(sum(m.at + PAGE - 16, 8) == NCCL_INVALID_ARGUMENT); /* its end is no memory */
    CHECK(sum(m.at + 2, 8) == NCCL_INVALID_ARGUMENT);
}

TWO_RANKS(data_that_overlap_are_in_place_or_refused) {
    join();
    const memory m = take(PAGE, 0);
    CHECK(nccl->all_gather(m.at, m.at, 8, NCCL_F32, comm, (cu_stream)stream) ==
          (rank == 0 ? NCCL_SUCCESS : NCCL_INVALID_USAGE));
    CHECK(nccl->all_reduce(m.at, m.at + 4, 8, NCCL_F32, NCCL_SUM, comm, (cu_stream)stream) ==
          NCCL_INVALID_USAGE);
    CHECK(last_error_has("overlap"));
    _exit(check_failed != 0); /* rank 0 has queued what rank 1 has not */
}

/* ---- breaking it: communicators ---- */

TWO_RANKS(no_call_is_taken_after_an_abort) {
    nccl_result result;
    void *handle;
    join();
    const memory m = take(PAGE, CU_HANDLE_FILE);
    CHECK(nccl->comm_abort(comm) == NCCL_SUCCESS);
    CHECK(sum(m.at, 8) == NCCL_INVALID_ARGUMENT);
    CHECK(last_error_has("has been aborted"));
    CHECK(comm_register(comm, m.at, m.bytes, &handle) == NCCL_INVALID_ARGUMENT);
    CHECK(nccl->comm_get_async_error(comm, &result) == NCCL_INVALID_ARGUMENT);
    CHECK(nccl->comm_abort(comm) == NCCL_INVALID_ARGUMENT);
    CHECK(nccl->comm_destroy(comm) == NCCL_INVALID_ARGUMENT);
}

TWO_RANKS(no_call_is_taken_before_all_have_joined) {
    CHECK(begin_joining(&comm, rank, NULL) == NCCL_IN_PROGRESS);
    const memory m = take(PAGE, 0);
    CHECK(sum(m.at, 8) == NCCL_INVALID_ARGUMENT);
    CHECK(last_error_has("not joined yet"));
    CHECK(settle(comm) == NCCL_SUCCESS);
    CHECK(outcome(sum(m.at, 8)) == NCCL_SUCCESS);
}

TWO_RANKS(a_configuration_that_was_not_initialised_is_refused) {
    const nccl_config none = {0};
    CHECK(begin_joining(&comm, rank, &none) == NCCL_INVALID_ARGUMENT);
}

TWO_RANKS(a_communicator_in_use_is_not_destroyed) {
    void *handle;
    join();
    const memory m = take(PAGE, CU_HANDLE_FILE);
    CHECK(sum(m.at, 8) == NCCL_SUCCESS);
    CHECK(nccl->comm_destroy(comm) == NCCL_INVALID_USAGE);
    CHECK(last_error_has("have not ended"));
    CHECK(outcome(NCCL_SUCCESS) == NCCL_SUCCESS);
    CHECK(comm_register(comm, m.at, m.bytes, &handle) == NCCL_SUCCESS);
    CHECK(nccl->comm_finalize(comm) == NCCL_INVALID_USAGE);
    CHECK(last_error_has("still registered"));
    CHECK(comm_deregister(comm, handle) == NCCL_SUCCESS);
    CHECK(nccl->comm_destroy(comm) == NCCL_SUCCESS);
    CHECK(nccl->comm_destroy(comm) == NCCL_INVALID_ARGUMENT);
}

TWO_RANKS(an_id_joins_each_rank_once) {
    nccl_comm again = NULL;
    join();
    CHECK(begin_joining(&again, rank, NULL) == NCCL_INVALID_USAGE);
    CHECK(last_error_has("such a rank already"));
}

/* At least the later one is told; the other does not wait for ever. */
static void act_on_one_device(void) {
    const nccl_result result = begin_joining(&comm, rank, NULL);
    CHECK(result == NCCL_INVALID_USAGE ||
          (result == NCCL_IN_PROGRESS && settle(comm) == NCCL_REMOTE_ERROR));
}

CASE(two_ranks_on_one_device_are_refused) {
    run_ranks(act_on_one_device, true);
}

RUN_CASES()
