/*
 * test_ranks_nccl_memory.c - segments that are registered with NCCL: on all ranks or on none, with
 * every communicator, and no longer than they are mapped. The stand-in for NCCL refuses the rest.
 */
#include "tests/arena/reduce/nccl_fixture.h"

enum { SEGMENTS = 16 /* at most */ };

static ashlar_ranks_order order;
static void *base;
static size_t bytes;
static int registered_count, deregistered_count, failing_at;

static nccl_result count_register(const nccl_comm comm, void *data, size_t size, void **handle) {
    if (++registered_count == failing_at) {
        return NCCL_SYSTEM_ERROR;
    }
    return real.comm_register(comm, data, size, handle);
}

static nccl_result count_deregister(const nccl_comm comm, void *handle) {
    deregistered_count++;
    return real.comm_deregister(comm, handle);
}

static void open_shared(void) {
    CHECK(setenv("ASHLAR_CONF", "share=on", 1) == 0); /* of this process, which is a rank */
    open_cuda(0);
    nccl->comm_register = count_register;
    nccl->comm_deregister = count_deregister;
    CHECK(ashlar_segment(allocator, memory, &base, &bytes) == ASHLAR_OK);
    CHECK(ashlar_ranks_collectives(ranks, device, order, &table) == ASHLAR_OK);
}

static void sum_once(void) {
    put(ASHLAR_F32);
    CHECK(table->all_reduce(table->context, memory, ELEMENTS, ASHLAR_F32, stream) == ASHLAR_OK);
    expect(ASHLAR_F32, 0, ELEMENTS, 0, true);
}

/* ---- what it does ---- */

static void attach_and_detach(void) {
    open_shared();
    const int comms = world->count == 1 ? 0 : order == ASHLAR_RANKS_FASTEST ? 1 : 2;
    CHECK(table->attach(table->context, base, bytes) == ASHLAR_OK);
    CHECK(registered_count == comms && deregistered_count == 0);
    sum_once();
    CHECK(table->detach(table->context, base) == ASHLAR_OK);
    CHECK(deregistered_count == comms);
    sum_once(); /* as before */
    CHECK(table->attach(table->context, base, bytes) == ASHLAR_OK);
    sum_once();
    close_cuda(false); /* which detaches what is left, before the memory is unmapped */
    CHECK(registered_count == 2 * comms && deregistered_count == 2 * comms);
}

CASE(collectives_use_memory_that_is_attached) {
    static const size_t counts[] = {1, 2};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (order = ASHLAR_RANKS_FASTEST; order <= ASHLAR_RANKS_TREE; order++) {
            REQUIRE(set_up_world(counts[i]));
            run_ranks(attach_and_detach);
            tear_down_world();
        }
    }
}

/* ---- what is refused ---- */

static void attach_on_one(void) {
    order = ASHLAR_RANKS_FASTEST;
    open_shared();
    ashlar_ranks_mark(ranks, 3, 0);
    const ashlar_status status =
        rank == 0 ? table->attach(table->context, base, bytes)
                  : table->broadcast(table->context, memory, bytes, ASHLAR_F32, 0, stream);
    CHECK(status == ASHLAR_EIO);
    CHECK_HAS(ashlar_error_detail(), "rank 1 has diverged: it is at bucket 0 of step 3");
    CHECK(registered_count == 0);
    close_cuda(true);
}

CASE(a_rank_that_does_not_attach_is_found) {
    REQUIRE(set_up_world(2));
    run_ranks(attach_on_one);
}

static void fail_to_register(void) {
    open_shared();
    failing_at = order == ASHLAR_RANKS_FASTEST ? 1 : 2;
    check_told(table->attach(table->context, base, bytes), "ncclCommRegister: ");
    CHECK(deregistered_count == failing_at - 1);
    CHECK(table->detach(table->context, base) == ASHLAR_EINVAL);
    close_cuda(true);
}

CASE(memory_that_nccl_refuses_is_told_with_its_reason) {
    for (order = ASHLAR_RANKS_FASTEST; order <= ASHLAR_RANKS_TREE; order++) {
        REQUIRE(set_up_world(2));
        run_ranks(fail_to_register);
        tear_down_world();
    }
}

RUN_CASES()
