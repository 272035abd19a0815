/*
 * test_ranks_nccl_watch.c - the thread that watches NCCL's collectives: what ends them, what does
 * not, and how ranks part; and memory that is registered with NCCL.
 */
#include "tests/arena/reduce/nccl_fixture.h"

static nccl_result no_parting(nccl_comm comm) {
    (void)comm;
    return NCCL_SYSTEM_ERROR;
}

/* NCCL finds out itself that a connection broke, or a rank never comes to a collective. */
static void find_out(void) {
    open_cuda(0);
    CHECK(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &table) == ASHLAR_OK);
    meet();
    nccl->comm_get_async_error = late_error;
    while (ashlar_ranks_check(ranks) == ASHLAR_OK) {
        (void)sched_yield();
    }
    CHECK_HAS(ashlar_error_detail(), "a collective: ");
    CHECK_HAS(ashlar_error_detail(), "(6)");
    meet();
    close_cuda(true);
}

CASE(a_failure_that_nccl_finds_ends_all) {
    REQUIRE(set_up_world(2));
    run_ranks(find_out);
}

/* ---- what the watching thread sees ---- */

static atomic_int asked_count;

static nccl_result still_going(nccl_comm comm, nccl_result *result) {
    (void)comm;
    *result = NCCL_IN_PROGRESS;
    atomic_fetch_add(&asked_count, 1);
    return NCCL_SUCCESS;
}

static nccl_result not_answered(nccl_comm comm, nccl_result *result) {
    (void)comm;
    *result = NCCL_REMOTE_ERROR; /* which says nothing, since the call has failed */
    atomic_fetch_add(&asked_count, 1);
    return NCCL_INVALID_ARGUMENT;
}

/* Only what NCCL says for sure ends a collective. */
static void ask_without_answer(void) {
    nccl_result (*const answers[])(nccl_comm, nccl_result *) = {still_going, not_answered};
    open_cuda(0);
    CHECK(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &table) == ASHLAR_OK);
    meet();
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        nccl->comm_get_async_error = answers[i];
        atomic_store(&asked_count, 0);
        while (atomic_load(&asked_count) < 2) {
            (void)sched_yield();
        }
        CHECK(ashlar_ranks_check(ranks) == ASHLAR_OK);
    }
    nccl->comm_get_async_error = real.comm_get_async_error;
    meet(); /* a rank that asks for long must not keep the other waiting in the sum */
    put(ASHLAR_F32);
    CHECK(table->all_reduce(table->context, memory, ELEMENTS, ASHLAR_F32, stream) == ASHLAR_OK);
    expect(ASHLAR_F32, 0, ELEMENTS, 0, true);
    close_cuda(false);
}

CASE(an_answer_that_says_nothing_ends_nothing) {
    REQUIRE(set_up_world(2));
    run_ranks(ask_without_answer);
}

static nccl_result begin_joining(nccl_comm *comm, int count, nccl_id id, int as,
                                 nccl_config *config) {
    (void)no_joining(comm, count, id, as, config);
    return NCCL_IN_PROGRESS;
}

static void join_for_ever(void) {
    open_cuda(1000);
    nccl->comm_init = begin_joining;
    nccl->comm_get_async_error = still_going;
    CHECK_FAILS(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &table), ASHLAR_EIO,
                "ncclCommInitRankConfig: ");
    CHECK(ranks->nccl == NULL);
    meet();
    close_cuda(true);
}

CASE(a_joining_without_an_end_is_given_up) {
    REQUIRE(set_up_world(2));
    run_ranks(join_for_ever);
}

static cu_result query_result;

static cu_result query(cu_event event) {
    (void)event;
    return query_result;
}

/* A collective whose event never comes, or cannot be asked for. */
static void watch_events(void) {
    open_cuda(1000);
    CHECK(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &table) == ASHLAR_OK);
    meet();
    ashlar_ranks_mark(ranks, 7, 0);
    device->driver->table.event_query = query;
    CHECK(table->all_reduce(table->context, memory, 2, ASHLAR_F32, stream) == ASHLAR_OK);
    while (ashlar_ranks_check(ranks) == ASHLAR_OK) {
        (void)sched_yield();
    }
    CHECK_HAS(ashlar_error_detail(), query_result == CU_NOT_READY ? "of step 7" : "cuEventQuery");
    CHECK(ashlar_ranks_check(ranks) == ASHLAR_EIO);
    CHECK_FAILS(table->all_reduce(table->context, memory, 2, ASHLAR_F32, stream), ASHLAR_EIO, "");
    meet();
    close_cuda(true);
}

CASE(a_collective_that_hangs_or_whose_event_is_lost_ends_all) {
    static const cu_result results[] = {CU_NOT_READY, CU_UNKNOWN};
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        query_result = results[i];
        REQUIRE(set_up_world(2));
        run_ranks(watch_events);
        tear_down_world();
    }
}

/* The last call of NCCL's fails: nothing is left, and no one waits. */
static void part_badly(void) {
    open_cuda(0);
    CHECK(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_TREE, &table) == ASHLAR_OK);
    meet();
    nccl->comm_finalize = no_parting;
    ashlar_ranks_drop_collectives(ranks, false);
    check_told(ashlar_ranks_check(ranks), "ncclCommFinalize: ");
    close_cuda(true);
}

CASE(ranks_that_part_badly_say_so) {
    REQUIRE(set_up_world(2));
    run_ranks(part_badly);
}

/* ---- segments that are registered with NCCL, and no longer than they are mapped ---- */

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
