/*
 * test_rnn_declare.c - building an RNN: the weights that it declares, and the sizes it asks for.
 */
#include "rnn_fixture.h"

#include <ashlar/rnn.h>

#include "arena_impl.h"
#include "backend.h"
#include "lstm_cpu.h"

/* ---- what is declared ---- */

static void check_declared(const ashlar_arena *arena, size_t first, ashlar_dtype dtype) {
    static const char *const kinds[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(rnn);
    const size_t item = ashlar_dtype_bytes(dtype);
    ashlar_tensor_info lowest;
    ashlar_arena_tensor(arena, first, &lowest);
    for (size_t i = 0; i < (size_t)LAYERS * 4; i++) {
        char name[64];
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, first + i, &info);
        const ashlar_rnn_view view =
            ashlar_rnn_layout_view(layout, i / 4, (ashlar_rnn_tensor)(i % 4));
        (void)snprintf(name, sizeof name, "stack.%s_l%zu", kinds[i % 4], i / 4);
        CHECK(strcmp(info.name, name) == 0);
        CHECK(info.dtype == dtype);
        CHECK_ZU(info.rank, i % 4 < 2 ? 2 : 1);
        CHECK_ZU(info.shape[0], 4 * HIDDEN);
        CHECK(info.rank == 1 || info.shape[1] == (i == 0 ? INPUT : HIDDEN));
        CHECK_ZU(info.offset[ASHLAR_LAYOUT_STORAGE] - lowest.offset[ASHLAR_LAYOUT_STORAGE],
                 view.offset * item);
        CHECK_ZU(info.bytes, view.rows * view.cols * item);
    }
}

static void weights_are_declared_in_packed_order_under_pytorchs_names(void) {
    for (int dtype = 0; dtype <= ASHLAR_F64; dtype++) {
        REQUIRE(set_up_rnn("memory=16MiB", (ashlar_dtype)dtype));
        ashlar_arena *arena = NULL;
        size_t first = 77;
        REQUIRE(ashlar_arena_create(&arena) == ASHLAR_OK);
        CHECK(ashlar_arena_add(arena, "before", ASHLAR_F32, 1, &(size_t){1}, NULL) == ASHLAR_OK);
        CHECK(ashlar_rnn_declare(arena, "stack", ashlar_rnn_layout_of(rnn), &first) == ASHLAR_OK);
        CHECK_ZU(first, 1);
        CHECK_ZU(ashlar_arena_tensor_count(arena), 1 + 4 * LAYERS);
        CHECK_ZU(arena->groups[1].bytes,
                 ashlar_rnn_layout_of(rnn)->elements * ashlar_dtype_bytes((ashlar_dtype)dtype));
        CHECK(ashlar_arena_commit(arena, allocator, streams[0], 1) == ASHLAR_OK);
        check_declared(arena, first, (ashlar_dtype)dtype);
        ashlar_arena_destroy(arena);
        finish();
    }
}

/* "PREFIX.weight_ih_l0" and its end fill 128 bytes: a prefix of 114 letters is the last to fit. */
static void a_prefix_too_long_for_a_name_is_refused(void) {
    REQUIRE(set_up_rnn("memory=16MiB", ASHLAR_F32));
    ashlar_arena *arena = NULL;
    REQUIRE(ashlar_arena_create(&arena) == ASHLAR_OK);
    char prefix[128];
    size_t first = 77;
    memset(prefix, 'p', sizeof prefix);
    for (size_t length = 127; length > 114; length -= 12) {
        prefix[length] = '\0';
        CHECK(ashlar_rnn_declare(arena, prefix, ashlar_rnn_layout_of(rnn), &first) ==
              ASHLAR_EINVAL);
        CHECK_HAS(ashlar_error_detail(), "too long");
        CHECK_ZU(ashlar_arena_tensor_count(arena), 0);
        CHECK_ZU(first, 77);
    }
    prefix[114] = '\0';
    CHECK(ashlar_rnn_declare(arena, prefix, ashlar_rnn_layout_of(rnn), &first) == ASHLAR_OK);
    ashlar_arena_destroy(arena);
    finish();
}

static void a_declaration_that_fails_adds_nothing(void) {
    REQUIRE(set_up_rnn("memory=16MiB", ASHLAR_F32));
    ashlar_arena *arena = NULL;
    size_t first = 77;
    unsigned long n = 1;
    REQUIRE(ashlar_arena_create(&arena) == ASHLAR_OK);
    for (ashlar_status status = ASHLAR_EHOSTMEM; status != ASHLAR_OK && n < 500; n++) {
        ashlar_host_fail_at(n);
        status = ashlar_rnn_declare(arena, "stack", ashlar_rnn_layout_of(rnn), &first);
        ashlar_host_fail_at(0);
        CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM);
        CHECK((first == 0) == (status == ASHLAR_OK));
        CHECK_ZU(ashlar_arena_tensor_count(arena), status == ASHLAR_OK ? 8 : 0);
        CHECK(n > 2 || strstr(ashlar_error_detail(), "declare 8 tensors") != NULL);
    }
    CHECK(n > 3);
    CHECK(ashlar_rnn_declare(arena, "stack", ashlar_rnn_layout_of(rnn), &first) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "stack.weight_ih_l0 is declared twice");
    ashlar_arena_destroy(arena);
    finish();
}

/* ---- creation and sizes ---- */

static void a_stack_that_cannot_be_is_refused(void) {
    REQUIRE(set_up("memory=16MiB"));
    ashlar_rnn_config config = config_of(ASHLAR_F32);
    rnn = NULL;
    config.hidden = 0;
    CHECK(ashlar_rnn_create(device, &config, &rnn) == ASHLAR_EINVAL);
    config = config_of(ASHLAR_F32);
    device->info.kind = ASHLAR_DEVICE_CUDA; /* as far as one can tell from outside */
    CHECK(ashlar_rnn_create(device, &config, &rnn) == ASHLAR_ENOTSUP);
    CHECK_HAS(ashlar_error_detail(), "ASHLAR_DEVICE=soft");
    device->info.kind = ASHLAR_DEVICE_SOFT;
    ashlar_host_fail_at(1);
    CHECK(ashlar_rnn_create(device, &config, &rnn) == ASHLAR_EHOSTMEM);
    ashlar_host_fail_at(0);
    CHECK(rnn == NULL);
    REQUIRE(ashlar_rnn_create(device, &config, &rnn) == ASHLAR_OK);
    const ashlar_rnn_config got = ashlar_rnn_layout_of(rnn)->config;
    CHECK(got.input == INPUT && got.hidden == HIDDEN && got.layers == LAYERS);
    CHECK(strcmp(rnn->backend->name, "cpu") == 0);
    ashlar_rnn_destroy(NULL);
    finish();
}

static void sizes_are_those_of_the_back_end(void) {
    REQUIRE(set_up_rnn("memory=16MiB", ASHLAR_F64));
    for (int training = 0; training < 2; training++) {
        size_t reserve = 77, work = 77, want_reserve = 0, want_work = 0;
        CHECK(ashlar_rnn_sizes(rnn, STEPS, BATCH, training, &reserve, &work) == ASHLAR_OK);
        CHECK(ashlar_lstm_sizes(ashlar_rnn_layout_of(rnn), STEPS, BATCH, training, &want_reserve,
                                &want_work) == ASHLAR_OK);
        CHECK_ZU(reserve, want_reserve);
        CHECK_ZU(work, want_work);
        CHECK((reserve == 0) == !training);
    }
    size_t reserve = 77, work = 77;
    CHECK(ashlar_rnn_sizes(rnn, 0, BATCH, true, &reserve, &work) == ASHLAR_EINVAL);
    CHECK(ashlar_rnn_sizes(rnn, SIZE_MAX / 8, 8, true, &reserve, &work) == ASHLAR_EOVERFLOW);
    CHECK(reserve == 77 && work == 77);
    finish();
}

int main(void) {
    RUN(weights_are_declared_in_packed_order_under_pytorchs_names);
    RUN(a_prefix_too_long_for_a_name_is_refused);
    RUN(a_declaration_that_fails_adds_nothing);
    RUN(a_stack_that_cannot_be_is_refused);
    RUN(sizes_are_those_of_the_back_end);
    return check_report();
}
