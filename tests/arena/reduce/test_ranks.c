/*
 * test_ranks.c - joining and leaving other ranks, every collective of theirs, of every type and in
 * either order, against what reduce.h says it gives.
 */
#include "tests/arena/reduce/ranks_fixture.h"

/* ---- what a launcher says ---- */

static void launch_as(const char *open_mpi, const char *mpich) {
    (void)(open_mpi == NULL ? unsetenv("OMPI_COMM_WORLD_SIZE")
                            : setenv("OMPI_COMM_WORLD_SIZE", open_mpi, 1));
    (void)(mpich == NULL ? unsetenv("PMI_SIZE") : setenv("PMI_SIZE", mpich, 1));
}

CASE(a_launcher_says_how_many_it_started) {
    static const struct {
        const char *open_mpi, *mpich;
        size_t started;
    } rows[] = {{NULL, NULL, 1}, {"4", NULL, 4}, {NULL, "3", 3},    {"1", NULL, 1},
                {"2", "5", 2},   {"0", "5", 5},  {"many", "-1", 1}, {NULL, NULL, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        launch_as(rows[i].open_mpi, rows[i].mpich);
        CHECK_ZU(ashlar_ranks_get_info(NULL).count, rows[i].started);
    }
}

/* ---- joining ---- */

static ashlar_ranks *const untouched = (ashlar_ranks *)&ranks;

static void check_not_opened(const char *library, const char *word) {
    ranks = untouched;
    CHECK_FAILS(ashlar_ranks_open(library, 0, &ranks), ASHLAR_ENOTSUP, word);
    CHECK(ranks == untouched);
    ranks = NULL;
}

CASE(a_library_that_is_not_there_is_named_with_the_remedy) {
    check_not_opened("/none/such.so", "/none/such.so");
    check_not_opened("/none/such.so", "name its ashlar-mpi by ASHLAR_MPI");
    CHECK(setenv("ASHLAR_MPI", "/none/named.so", 1) == 0);
    check_not_opened(NULL, "/none/named.so");
    check_not_opened("/none/given.so", "/none/given.so"); /* what is given comes first */
    CHECK(unsetenv("ASHLAR_MPI") == 0);
}

CASE(a_library_of_another_kind_or_version_is_refused) {
    REQUIRE(set_up_world(1));
    check_not_opened("libm.so.6", "libm.so.6 is of another version");
    world->version = ASHLAR_ENGINE_VERSION + 1;
    check_not_opened(ENGINE_LIBRARY, ENGINE_LIBRARY " is of another version");
    world->version = ASHLAR_ENGINE_VERSION - 1;
    check_not_opened(ENGINE_LIBRARY, "of another version");
    CHECK(world->aborted[0] == 0 && world->stopped == 0);
}

CASE(an_engine_that_does_not_start_says_why) {
    REQUIRE(set_up_world(1));
    fail_on(0, ENGINE_START, 1);
    check_not_opened(ENGINE_LIBRARY, "ranks: no start");
    CHECK(world->aborted[0] == 0 && world->stopped == 0); /* it has not joined */
}

static void check_opens(const char *library) {
    CHECK(ashlar_ranks_open(library, 0, &ranks) == ASHLAR_OK);
    CHECK_ZU(ashlar_ranks_get_info(ranks).count, 1);
    CHECK_ZU(ashlar_ranks_get_info(ranks).rank, 0);
    CHECK(ashlar_ranks_check(ranks) == ASHLAR_OK && ashlar_ranks_get_info(ranks).reports);
    CHECK(ashlar_ranks_get_info(ranks).seconds <= 0);
    ashlar_ranks_close(ranks, false);
}

/* Where there was one MPI of another kind, the library has no MPI in its name. */
CASE(the_library_is_found_by_launcher_and_environment) {
    REQUIRE(set_up_world(1));
    check_opens(ENGINE_LIBRARY);
    check_opens(NULL);
    launch_as(NULL, "1");
    check_opens(NULL);
    launch_as(NULL, NULL);
    CHECK(setenv("ASHLAR_MPI", "", 1) == 0); /* empty: as if it were not set */
    check_opens(NULL);
    CHECK(setenv("ASHLAR_MPI", ENGINE_LIBRARY, 1) == 0);
    check_opens(NULL);
    CHECK(unsetenv("ASHLAR_MPI") == 0);
    CHECK(world->stopped == 5 && world->aborted[0] == 0);
}

CASE(ranks_that_find_no_host_memory_end_the_others) {
    REQUIRE(set_up_world(1));
    FOR_HOST_FAILURES(n, status, ashlar_ranks_open(ENGINE_LIBRARY, 0, &ranks)) {
        const bool has_joined = n > 1; /* the first allocation comes before that */
        CHECK(world->aborted[0] == (status == ASHLAR_OK || !has_joined ? 0 : 1));
        world->aborted[0] = 0;
    }
    ashlar_ranks_close(ranks, false);
    ashlar_ranks_close(NULL, true);
    ashlar_ranks_close(NULL, false);
    CHECK(world->stopped == 1);
}

CASE(to_leave_after_a_failure_ends_all_with_status_1) {
    REQUIRE(set_up_world(1));
    CHECK(ashlar_ranks_open(ENGINE_LIBRARY, 0, &ranks) == ASHLAR_OK);
    ashlar_ranks_close(ranks, true);
    CHECK(world->stopped == 0 && world->aborted[0] == 1);
}

/* ---- the table ---- */

static void refuse_orders(void) {
    const ashlar_collectives *const none = (const ashlar_collectives *)(const void *)&table;
    open_soft(0);
    table = none;
    CHECK_FAILS(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_ORDER_COUNT, &table),
                ASHLAR_EINVAL, "there is no order 2");
    CHECK_FAILS(ashlar_ranks_collectives(ranks, device, (ashlar_ranks_order)-1, &table),
                ASHLAR_EINVAL, "there is no order -1");
    const ashlar_status status = ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_TREE, &table);
    if (world->count == 3) {
        CHECK(status == ASHLAR_EINVAL && table == none);
        CHECK_HAS(ashlar_error_detail(), "3 ranks are no power of 2");
    } else {
        CHECK(status == ASHLAR_OK && table != none);
    }
    CHECK(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &table) == ASHLAR_OK);
    close_soft(false);
}

CASE(a_tree_needs_a_power_of_2_of_ranks) {
    for (size_t count = 1; count <= ENGINE_RANKS; count++) {
        REQUIRE(set_up_world(count));
        run_ranks(refuse_orders);
        tear_down_world();
    }
}

static void refuse_calls(void) {
    open_soft(0);
    float *const data = locked;
    CHECK(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &table) == ASHLAR_OK);
    void *c = table->context;
    CHECK_FAILS(table->broadcast(c, data, 12, ASHLAR_F32, 2, stream), ASHLAR_EINVAL,
                "broadcast: rank 2 of 2");
    CHECK_FAILS(table->reduce_scatter(c, data, 11, ASHLAR_F32, stream), ASHLAR_EINVAL,
                "11 elements are not 2 equal shards of at most 2^28");
    CHECK_FAILS(table->all_gather(c, data, 1, ASHLAR_F32, stream), ASHLAR_EINVAL,
                "1 elements are not 2 equal shards");
    const size_t too_many = (size_t)2 * ASHLAR_ENGINE_ELEMENTS + 2;
    CHECK_FAILS(table->reduce_scatter(c, data, too_many, ASHLAR_F32, stream), ASHLAR_EINVAL,
                "see ashlar_arena_set_buckets()");
    CHECK_FAILS(table->all_gather(c, data, too_many, ASHLAR_F32, stream), ASHLAR_EINVAL,
                "not 2 equal shards");
    CHECK(own->call_count == 0);
    /* None of them was numbered: the ranks still agree. */
    CHECK(table->broadcast(c, data, 12, ASHLAR_F32, 1, stream) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    CHECK(ashlar_ranks_check(ranks) == ASHLAR_OK && own->call_count == 1);
    close_soft(false);
}

CASE(calls_that_no_rank_can_serve_are_refused) {
    REQUIRE(set_up_world(2));
    run_ranks(refuse_calls);
    CHECK(world->stopped == 2);
}

/* ---- collectives ---- */

enum { ELEMENTS = 12 * 11 }; /* shards of 1 to 4 ranks */
static ashlar_ranks_order order;

static void check_all(const char *what, const void *data, ashlar_dtype dtype, size_t first,
                      size_t end, size_t from, bool is_sum) {
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    CHECK(ashlar_ranks_check(ranks) == ASHLAR_OK);
    size_t wrong = 0;
    for (size_t i = first; i < end; i++) {
        const size_t of = from < world->count ? from : i / (ELEMENTS / world->count);
        wrong += element(data, dtype, i) != (is_sum ? sum_of(i) : number_of(of, i));
    }
    if (wrong > 0) {
        printf("# %s of %s, order %d\n", what, ashlar_dtype_name(dtype), (int)order);
    }
    CHECK_ZU(wrong, 0);
}

static void do_all_of(ashlar_dtype dtype) {
    double *const data = locked;
    const size_t count = world->count, shard = ELEMENTS / count;
    void *c = table->context;
    for (size_t root = 0; root < count; root++) {
        fill(data, dtype, ELEMENTS, rank);
        CHECK(table->broadcast(c, data, ELEMENTS, dtype, root, stream) == ASHLAR_OK);
        check_all("broadcast", data, dtype, 0, ELEMENTS, root, false);
    }
    fill(data, dtype, ELEMENTS, rank);
    CHECK(table->all_reduce(c, data, ELEMENTS, dtype, stream) == ASHLAR_OK);
    check_all("all_reduce", data, dtype, 0, ELEMENTS, 0, true);
    fill(data, dtype, ELEMENTS, rank);
    CHECK(table->reduce_scatter(c, data, ELEMENTS, dtype, stream) == ASHLAR_OK);
    check_all("reduce_scatter", data, dtype, rank * shard, (rank + 1) * shard, 0, true);
    fill(data, dtype, ELEMENTS, rank);
    CHECK(table->all_gather(c, data, ELEMENTS, dtype, stream) == ASHLAR_OK);
    check_all("all_gather", data, dtype, 0, ELEMENTS, ENGINE_RANKS, false);
}

static void do_all(void) {
    open_soft(0);
    CHECK_ZU(ashlar_ranks_get_info(ranks).rank, rank);
    CHECK_ZU(ashlar_ranks_get_info(ranks).count, world->count);
    CHECK(ashlar_ranks_collectives(ranks, device, order, &table) == ASHLAR_OK);
    for (int dtype = 0; dtype < ASHLAR_DTYPE_COUNT; dtype++) {
        do_all_of((ashlar_dtype)dtype);
    }
    /* The engine is asked where there are others, and in the tree's order never for sums. */
    const size_t per_type = order == ASHLAR_RANKS_TREE ? world->count + 1 : world->count + 3;
    CHECK_ZU(own->call_count, world->count == 1 ? 0 : per_type * ASHLAR_DTYPE_COUNT);
    CHECK((ashlar_ranks_get_info(ranks).seconds > 0) == (world->count > 1));
    close_soft(false);
}

CASE(every_collective_gives_what_it_should) {
    for (size_t count = 1; count <= ENGINE_RANKS; count++) {
        for (order = ASHLAR_RANKS_FASTEST; order <= ASHLAR_RANKS_TREE; order++) {
            if (order == ASHLAR_RANKS_FASTEST || count != 3) {
                REQUIRE(set_up_world(count));
                run_ranks(do_all);
                CHECK(world->stopped == count);
                tear_down_world();
            }
        }
    }
}

/* ((0 + 1) + (2 + 3)), in single precision: any other order has other bits. */
static void add_as_a_tree(void) {
    static const float parts[] = {1e8F, -1e8F, 3, 0.125F};
    const float wanted = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    open_soft(0);
    float *const data = locked;
    data[0] = parts[rank];
    data[1] = parts[3 - rank];
    CHECK(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_TREE, &table) == ASHLAR_OK);
    CHECK(table->all_reduce(table->context, data, 2, ASHLAR_F32, stream) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    CHECK(memcmp(&data[0], &wanted, sizeof wanted) == 0);
    CHECK(memcmp(&data[1], &wanted, sizeof wanted) == 0);
    close_soft(false);
}

CASE(a_tree_adds_neighbours_first) {
    REQUIRE(set_up_world(4));
    run_ranks(add_as_a_tree);
}

/* A tree goes by pieces of its staging. */
static void add_long(void) {
    enum { MOST = ASHLAR_RANKS_STAGING_BYTES / sizeof(double) };
    static const size_t counts[] = {1, MOST - 1, MOST, MOST + 1, 2 * MOST, 2 * MOST + 1};
    open_soft(0);
    double *const data = locked;
    CHECK(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_TREE, &table) == ASHLAR_OK);
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        const size_t count = counts[k], all = 2 * MOST + 1;
        fill(data, ASHLAR_F64, all, rank);
        CHECK(table->all_reduce(table->context, data, count, ASHLAR_F64, stream) == ASHLAR_OK);
        CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
        CHECK(ashlar_ranks_check(ranks) == ASHLAR_OK);
        size_t wrong = 0;
        for (size_t i = 0; i < all; i++) {
            wrong += data[i] != (i < count ? sum_of(i) : number_of(rank, i));
        }
        CHECK_ZU(wrong, 0);
    }
    close_soft(false);
}

CASE(a_tree_of_more_than_its_staging) {
    REQUIRE(set_up_world(2));
    run_ranks(add_long);
}

/* The engine counts in int: what is longer goes in pieces. Nothing is read or written here. */
static void check_pieces(ashlar_engine_collective kind, const char *data, size_t elements) {
    const size_t most = ASHLAR_ENGINE_ELEMENTS;
    own->call_count = 0;
    void *const to = (void *)(uintptr_t)data;
    const ashlar_status status =
        kind == ASHLAR_ENGINE_BROADCAST
            ? table->broadcast(table->context, to, elements, ASHLAR_F16, 1, stream)
            : table->all_reduce(table->context, to, elements, ASHLAR_F16, stream);
    CHECK(status == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    CHECK_ZU(own->call_count, (elements + most - 1) / most);
    for (size_t i = 0; i < own->call_count; i++) {
        const engine_call *c = &own->calls[i];
        const size_t left = elements - i * most;
        CHECK(c->kind == kind && c->dtype == ASHLAR_F16);
        CHECK(c->data == data + i * most * 2);
        CHECK_ZU(c->elements, left < most ? left : most);
        CHECK_ZU(c->root, kind == ASHLAR_ENGINE_ALL_REDUCE ? 0 : 1);
    }
}

static void go_in_pieces(void) {
    void *memory = NULL; /* none of it is touched */
    const size_t most = ASHLAR_ENGINE_ELEMENTS;
    const size_t counts[] = {0, 1, most - 1, most, most + 1, 2 * most, 2 * most + 1};
    open_soft(0);
    CHECK(ashlar_device_host_alloc(device, 2 * (2 * most + 1), &memory) == ASHLAR_OK);
    CHECK(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &table) == ASHLAR_OK);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        check_pieces(ASHLAR_ENGINE_BROADCAST, memory, counts[i]);
        check_pieces(ASHLAR_ENGINE_ALL_REDUCE, memory, counts[i]);
    }
    /* Shards are counted by the engine, so they go at once. */
    own->call_count = 0;
    CHECK(table->all_gather(table->context, memory, 2 * most, ASHLAR_F16, stream) == ASHLAR_OK);
    CHECK(own->call_count == 1 && own->calls[0].elements == 2 * most);
    ashlar_device_host_free(device, memory);
    close_soft(false);
}

CASE(long_collectives_go_in_pieces) {
    REQUIRE(set_up_world(2));
    world->is_dry = true;
    run_ranks(go_in_pieces);
}

/* ---- numbers in host memory ---- */

static void add_numbers(void) {
    double numbers[3] = {(double)rank, 10 + (double)rank, -1};
    CHECK(ashlar_ranks_open(ENGINE_LIBRARY, 0, &ranks) == ASHLAR_OK);
    CHECK(ashlar_ranks_sum(ranks, numbers, 2) == ASHLAR_OK);
    CHECK_NEAR(numbers[0], 3, 0, 0);
    CHECK_NEAR(numbers[1], 33, 0, 0);
    CHECK_NEAR(numbers[2], -1, 0, 0);
    ashlar_ranks_close(ranks, false);
}

CASE(numbers_of_the_host_are_added_up) {
    REQUIRE(set_up_world(3));
    run_ranks(add_numbers);
}

RUN_CASES()
