/*
 * test_ranks_nccl.c - ranks on CUDA devices, a process each, by the stand-in for NCCL: what every
 * collective gives, what NCCL and its calls may fail with, and that all is given back.
 */
#include "tests/arena/reduce/nccl_fixture.h"

enum { MANY = 200 /* collectives, more than are watched at a time */ };

/* ---- what they give ---- */

static ashlar_ranks_order order;

static int aborted_count;

static nccl_result count_abort(nccl_comm comm) {
    aborted_count++;
    return real.comm_abort(comm);
}

static void do_all(void) {
    open_cuda(0);
    nccl->comm_abort = count_abort;
    CHECK(ashlar_ranks_collectives(ranks, device, order, &table) == ASHLAR_OK);
    void *c = table->context;
    const size_t count = world->count, shard = ELEMENTS / count;
    for (int i = 0; i < ASHLAR_DTYPE_COUNT; i++) {
        const ashlar_dtype dtype = (ashlar_dtype)i;
        put(dtype);
        CHECK(table->broadcast(c, memory, ELEMENTS, dtype, count - 1, stream) == ASHLAR_OK);
        expect(dtype, 0, ELEMENTS, count - 1, false);
        put(dtype);
        CHECK(table->all_reduce(c, memory, ELEMENTS, dtype, stream) == ASHLAR_OK);
        expect(dtype, 0, ELEMENTS, 0, true);
        put(dtype);
        CHECK(table->reduce_scatter(c, memory, ELEMENTS, dtype, stream) == ASHLAR_OK);
        expect(dtype, rank * shard, (rank + 1) * shard, 0, true);
        put(dtype);
        CHECK(table->all_gather(c, memory, ELEMENTS, dtype, stream) == ASHLAR_OK);
        expect(dtype, 0, ELEMENTS, ENGINE_RANKS, false);
    }
    CHECK_ZU(own->call_count, 0); /* MPI compares only */
    CHECK_ZU(ranks->event_calls, count == 1 ? 0 : 4 * ASHLAR_DTYPE_COUNT);
    close_cuda(false);
    CHECK(world->aborted[rank] == 0 && aborted_count == 0); /* all have parted */
}

CASE(every_collective_gives_what_it_should_by_nccl) {
    static const size_t counts[] = {1, 2, 4};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (order = ASHLAR_RANKS_FASTEST; order <= ASHLAR_RANKS_TREE; order++) {
            REQUIRE(set_up_world(counts[i]));
            run_ranks(do_all);
            tear_down_world();
        }
    }
}

static void do_many(void) {
    open_cuda(0);
    CHECK(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &table) == ASHLAR_OK);
    put(ASHLAR_F32);
    for (size_t i = 0; i < MANY; i++) {
        CHECK(table->broadcast(table->context, memory, 1, ASHLAR_F32, 0, stream) == ASHLAR_OK);
    }
    CHECK(table->all_reduce(table->context, (float *)memory + 1, ELEMENTS - 1, ASHLAR_F32,
                            stream) == ASHLAR_OK);
    expect(ASHLAR_F32, 1, ELEMENTS, 0, true);
    CHECK(ranks->event_calls <= MANY + 1);
    /* A second table takes the place of the first. */
    CHECK(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_TREE, &table) == ASHLAR_OK);
    put(ASHLAR_F32);
    CHECK(table->all_reduce(table->context, memory, ELEMENTS, ASHLAR_F32, stream) == ASHLAR_OK);
    expect(ASHLAR_F32, 0, ELEMENTS, 0, true);
    close_cuda(false);
}

CASE(more_collectives_than_are_watched) {
    REQUIRE(set_up_world(2));
    run_ranks(do_many);
}

static void differ(void) {
    open_cuda(0);
    CHECK(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &table) == ASHLAR_OK);
    ashlar_ranks_mark(ranks, 3, rank);
    CHECK_FAILS(table->all_reduce(table->context, memory, 2, ASHLAR_F32, stream), ASHLAR_EIO,
                "rank 1 has diverged: it is at bucket 0 of step 3");
    /* From then on nothing is queued. */
    CHECK_FAILS(table->broadcast(table->context, memory, 2, ASHLAR_F32, 0, stream), ASHLAR_EIO,
                "rank 1 has diverged");
    CHECK(ranks->event_calls == 0);
    close_cuda(true);
}

CASE(ranks_that_differ_are_found_before_nccl_sees_it) {
    REQUIRE(set_up_world(2));
    run_ranks(differ);
}

/* ---- what fails ---- */

typedef enum fault {
    NO_ID,
    NO_JOINING,
    NO_SUM,
    NO_BROADCAST,
    NO_SCATTER,
    NO_GATHER,
    NO_PROGRESS,
    LATE_ERROR,
    FAULTS
} fault;

static fault made;
static const char *detail = "";

static const char *tell_detail(nccl_comm comm) {
    (void)comm;
    return detail;
}

static nccl_result no_id(nccl_id *id) {
    (void)id;
    return NCCL_SYSTEM_ERROR;
}

static nccl_result no_sum(const void *from, void *to, size_t count, nccl_type type, nccl_op op,
                          nccl_comm comm, cu_stream on) {
    (void)from, (void)to, (void)count, (void)type, (void)op, (void)comm, (void)on;
    return NCCL_SYSTEM_ERROR;
}

static nccl_result no_broadcast(const void *from, void *to, size_t count, nccl_type type, int root,
                                nccl_comm comm, cu_stream on) {
    (void)from, (void)to, (void)count, (void)type, (void)root, (void)comm, (void)on;
    return NCCL_SYSTEM_ERROR;
}

static nccl_result no_gather(const void *from, void *to, size_t count, nccl_type type,
                             nccl_comm comm, cu_stream on) {
    (void)from, (void)to, (void)count, (void)type, (void)comm, (void)on;
    return NCCL_SYSTEM_ERROR;
}

static nccl_result no_answer(nccl_comm comm, nccl_result *result) {
    (void)comm, (void)result;
    return NCCL_INVALID_ARGUMENT;
}

static ashlar_status queue_one(int kind) {
    void *c = table->context;
    return kind == NO_BROADCAST ? table->broadcast(c, memory, 2, ASHLAR_F32, 0, stream)
           : kind == NO_SCATTER ? table->reduce_scatter(c, memory, 2, ASHLAR_F32, stream)
           : kind == NO_GATHER  ? table->all_gather(c, memory, 2, ASHLAR_F32, stream)
                                : table->all_reduce(c, memory, 2, ASHLAR_F32, stream);
}

/* A call of NCCL's fails as it is made: the status is its reason, with NCCL's own words if any. */
static void fail_in_a_call(void) {
    static const char *const calls[FAULTS] = {[NO_SUM] = "ncclAllReduce: ",
                                              [NO_BROADCAST] = "ncclBroadcast: ",
                                              [NO_SCATTER] = "ncclReduceScatter: ",
                                              [NO_GATHER] = "ncclAllGather: "};
    char words[64];
    open_cuda(0);
    CHECK(ashlar_ranks_collectives(ranks, device, order, &table) == ASHLAR_OK);
    meet();
    nccl->all_reduce = made == NO_SUM ? no_sum : real.all_reduce;
    nccl->broadcast = made == NO_BROADCAST ? no_broadcast : real.broadcast;
    nccl->reduce_scatter = made == NO_SCATTER ? no_sum : real.reduce_scatter;
    nccl->all_gather = made == NO_GATHER ? no_gather : real.all_gather;
    nccl->get_last_error = tell_detail;
    detail = rank == 0 ? "" : "the cable";
    (void)snprintf(words, sizeof words, "rank %zu: %s", rank, calls[made]);
    check_told(queue_one((int)made), words);
    CHECK_HAS(ashlar_error_detail(), rank == 0 ? "(2)" : "(2): the cable");
    CHECK((strstr(ashlar_error_detail(), "(2): ") != NULL) == (rank == 1));
    CHECK(ranks->event_calls == 0);
    close_cuda(true);
}

CASE(a_call_of_nccl_that_fails_is_told_with_its_reason) {
    for (made = NO_SUM; made <= NO_GATHER; made++) {
        order = ASHLAR_RANKS_FASTEST;
        REQUIRE(set_up_world(2));
        run_ranks(fail_in_a_call);
        tear_down_world();
    }
    order = ASHLAR_RANKS_TREE;
    made = NO_SUM;
    REQUIRE(set_up_world(2));
    run_ranks(fail_in_a_call);
}

static void fail_to_join(void) {
    open_cuda(1000);
    const ashlar_collectives *const none = (const ashlar_collectives *)(const void *)&table;
    table = none;
    nccl->get_id = made == NO_ID ? no_id : real.get_id;
    nccl->comm_init = made == NO_JOINING ? no_joining : real.comm_init;
    if (made == NO_PROGRESS) {
        nccl->comm_get_async_error = no_answer;
    } else if (made == LATE_ERROR) {
        nccl->comm_get_async_error = late_error;
    }
    const ashlar_status status =
        ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &table);
    CHECK(status == ASHLAR_EIO && table == none && ranks->nccl == NULL);
    CHECK_HAS(ashlar_error_detail(), made == NO_ID && rank == 0 ? "rank 0: ncclGetUniqueId: "
                                     : made == NO_ID            ? "rank 0 does not talk to rank 1"
                                                                : "ncclCommInitRankConfig: ");
    meet();
    close_cuda(true);
}

CASE(ranks_that_do_not_come_together_by_nccl) {
    static const fault all[] = {NO_ID, NO_JOINING, NO_PROGRESS, LATE_ERROR};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        made = all[i];
        REQUIRE(set_up_world(2));
        run_ranks(fail_to_join);
        tear_down_world();
    }
}

/* What the driver or the host refuses when the table is made; a rank alone needs no other. */
static void fail_to_open(void) {
    open_cuda(0);
    unsigned long n = 0;
    ashlar_status status;
    do { /* an event for each that is watched */
        ashlar__driver_fail_at(device->driver, ASHLAR_DRIVER_FN_event_create, ++n,
                               CU_OUT_OF_MEMORY);
        status = ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &table);
        ashlar__driver_fail_at(device->driver, -1, 0, CU_SUCCESS);
        CHECK((ranks->nccl != NULL) == (status == ASHLAR_OK));
    } while (status == ASHLAR_ENOMEM);
    CHECK(status == ASHLAR_OK && n > 1);
    FOR_HOST_FAILURES(k, host_status,
                      ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &table)) {
        CHECK((ranks->nccl != NULL) == (host_status == ASHLAR_OK));
    }
    close_cuda(false);
}

CASE(a_table_that_cannot_be_made_leaves_nothing) {
    REQUIRE(set_up_world(1));
    run_ranks(fail_to_open);
}

RUN_CASES()
