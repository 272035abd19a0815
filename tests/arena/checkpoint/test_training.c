/*
 * test_training.c - a whole training to a file and back: it goes on with the same bits, or the file
 * is refused.
 */
#include "tests/arena/optimizer/optimizer_fixture.h"

#include <unistd.h>

static char folder[] = "/tmp/ashlar-training-XXXXXX", path[64];

static void remove_file(void) {
    (void)unlink(path);
    (void)rmdir(folder);
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
}

static bool is_on_host; /* the state, of what open_training() opens */

/* Scaled losses that grow every second step. */
static bool open_training(void) {
    ashlar_optimizer_config config = adamw();
    config.loss_scale = 8;
    config.scale_interval = 2;
    config.state_on_host = is_on_host;
    return open_optimizer(&config);
}

static bool open_case(void) {
    if (mkdtemp(folder) == NULL || !check_at_end(remove_file)) {
        return false;
    }
    (void)snprintf(path, sizeof path, "%s/training", folder);
    return open_training();
}

/* Steps first .. last; the third of all is skipped. */
static void run_steps(unsigned first, unsigned last) {
    for (unsigned i = first; i <= last; i++) {
        draw(ASHLAR_REGION_GRADIENTS, i, 8);
        if (i == 3) {
            put(ASHLAR_REGION_GRADIENTS, 0, 0, (double)INFINITY);
        }
        CHECK(ashlar_optimizer_step(optimizer, 0.05, 1, streams[0]) == ASHLAR_OK);
    }
    wait_for(streams[0]);
}

static ashlar_status save(const ashlar_training_state *state, const ashlar_checkpoint_pair *pairs,
                          size_t count) {
    return ashlar_training_save(arena, optimizer, path, state, pairs, count, streams[0]);
}

static ashlar_status load(ashlar_training_state *out) {
    ashlar_checkpoint *file = NULL;
    CHECK(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
    const ashlar_status status =
        file == NULL ? ASHLAR_EIO : ashlar_training_load(arena, optimizer, file, streams[0], out);
    ashlar_checkpoint_close(file);
    return status;
}

/* In another optimizer, of which the next one's state lies elsewhere, too. */
static void check_goes_on(void) {
    static const ashlar_checkpoint_pair mine = {"note", "a b"};
    image end;
    ashlar_training_state got = {0};
    run_steps(1, 4);
    const ashlar_optimizer_state at = state_now();
    CHECK(at.step == 3 && at.skipped == 1);
    CHECK(save(&(ashlar_training_state){.step = 4, .seed = UINT64_MAX}, &mine, 1) == ASHLAR_OK);
    run_steps(5, 8);
    take_image(&end);
    const ashlar_optimizer_state last = state_now();
    close_optimizer();
    is_on_host = !is_on_host;
    REQUIRE(open_training());
    draw(ASHLAR_REGION_PARAMETERS, 99, 1);
    CHECK(load(&got) == ASHLAR_OK);
    CHECK(got.step == 4 && got.seed == UINT64_MAX);
    CHECK(got.optimizer.step == at.step && got.optimizer.skipped == at.skipped);
    CHECK(got.optimizer.loss_scale == at.loss_scale && got.optimizer.good_steps == at.good_steps);
    run_steps(5, 8);
    CHECK(is_image(&end));
    const ashlar_optimizer_state again = state_now();
    CHECK(again.step == last.step && again.loss_scale == last.loss_scale);
    free_image(&end);
}

CASE_WITH(a_training_goes_on_with_the_same_bits, open_case()) {
    check_goes_on();
    close_optimizer();
    REQUIRE(open_training() && is_on_host);
    check_goes_on();
}

/* ---- tensors that are frozen at times ---- */

enum { CASES = sizeof all_cases / sizeof all_cases[0] };

static tensor_case now[CASES];

static void set_frozen(size_t t, bool is_frozen) {
    now[t].options.is_frozen = is_frozen;
    CHECK(ashlar_arena_set_options(arena, t, &now[t].options) == ASHLAR_OK);
}

static bool open_frozen(void) {
    const ashlar_optimizer_config config = adamw();
    return open_optimizer_of("memory=16MiB", now, CASES, &config);
}

/* Steps first .. last, before each of which a tensor is frozen or unfrozen: some more than once. */
static void run_frozen_steps(unsigned first, unsigned last) {
    for (unsigned i = first; i <= last; i++) {
        const size_t t = i * 5 % 9;
        set_frozen(t, !now[t].options.is_frozen);
        run_steps(i + 10, i + 10);
    }
}

CASE_WITH(frozen_tensors_go_on_with_the_same_bits, open_case()) {
    image end;
    ashlar_training_state got;
    tensor_case middle[CASES];
    ashlar_optimizer_state state;
    uint64_t updates[CASES], again[CASES];
    close_optimizer();
    memcpy(now, all_cases, sizeof now);
    REQUIRE(open_frozen());
    run_frozen_steps(1, 15);
    CHECK(save(&(ashlar_training_state){.step = 15}, NULL, 0) == ASHLAR_OK);
    memcpy(middle, now, sizeof now);
    run_frozen_steps(16, 30);
    take_image(&end);
    CHECK(ashlar_optimizer_copy_state_to_host(optimizer, &state, updates, streams[0]) == ASHLAR_OK);
    for (int is_late = 0; is_late < 2; is_late++) { /* frozen before the load, or behind it */
        close_optimizer();
        memcpy(now, is_late ? all_cases : middle, sizeof now);
        REQUIRE(open_frozen());
        CHECK(load(&got) == ASHLAR_OK);
        for (size_t t = 0; t < CASES; t++) {
            set_frozen(t, middle[t].options.is_frozen);
        }
        run_frozen_steps(16, 30);
        CHECK(is_image(&end));
        CHECK(ashlar_optimizer_copy_state_to_host(optimizer, &state, again, streams[0]) ==
              ASHLAR_OK);
        CHECK(memcmp(updates, again, sizeof updates) == 0);
    }
    CHECK(updates[11] == ASHLAR_UPDATED_ALWAYS && updates[10] == 0 && updates[0] < 30);
    free_image(&end);
}

CASE_WITH(numbers_of_updates_that_cannot_be_are_refused, open_case()) {
    static const char *const bad[][2] = {{"1", "4"}, {"1", "-1"}, {"1", "x"}, {"2", "3"}};
    ashlar_optimizer_state state;
    ashlar_training_state got;
    uint64_t updates[CASES];
    for (size_t i = 0; i <= sizeof bad / sizeof bad[0]; i++) {
        const bool is_old = i == sizeof bad / sizeof bad[0];
        const ashlar_checkpoint_pair pairs[] = {{"ashlar.step", "4"},
                                                {"ashlar.seed", "2"},
                                                {"ashlar.optimizer_state", "3 0 1 0 0x1p+3 0x1p+0"},
                                                {"ashlar.updates", is_old ? NULL : bad[i][0]},
                                                {"ashlar.updates.a", is_old ? NULL : bad[i][1]}};
        CHECK(ashlar_checkpoint_save(arena, path, ASHLAR_CHECKPOINT_STATE, pairs, is_old ? 3 : 5,
                                     streams[0]) == ASHLAR_OK);
        CHECK(load(&got) == (is_old ? ASHLAR_OK : ASHLAR_EFORMAT));
        CHECK(is_old || strstr(ashlar_error_detail(), pairs[i < 3 ? 4 : 3].key) != NULL);
    }
    CHECK(ashlar_optimizer_copy_state_to_host(optimizer, &state, updates, streams[0]) == ASHLAR_OK);
    for (size_t t = 0; t < CASES; t++) { /* the old file does not tell */
        CHECK(updates[t] == (all_cases[t].options.is_frozen ? 0 : ASHLAR_UPDATED_ALWAYS));
    }
}

CASE_WITH(what_is_no_whole_training_is_refused_and_changes_nothing, open_case()) {
    static const char *const bad[][3] = {{NULL, "2", "3 0 1 0 0x1p+3 0x1p+0"},
                                         {"4", NULL, "3 0 1 0 0x1p+3 0x1p+0"},
                                         {"4", "2", NULL},
                                         {"-4", "2", "3 0 1 0 0x1p+3 0x1p+0"},
                                         {"4", "2x", "3 0 1 0 0x1p+3 0x1p+0"},
                                         {"4", "2", "3 0 1 0 0x0p+0 0x1p+0"},
                                         {"4", "2", "3 0 1 0 0x1p+300 0x1p+0"},
                                         {"4", "2", "3 0 1 0 nan 0x1p+0"},
                                         {"4", "2", "3 0 1 0 0x1p+3"}};
    static const char *const keys[] = {"ashlar.step", "ashlar.seed", "ashlar.optimizer_state"};
    static const int named[] = {0, 1, 2, 0, 1, 2, 2, 2, 2};
    image before;
    ashlar_training_state got = {.step = 77};
    run_steps(1, 2);
    take_image(&before);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ashlar_checkpoint_pair pairs[3];
        size_t count = 0;
        for (size_t k = 0; k < 3; k++) {
            if (bad[i][k] != NULL) {
                pairs[count++] = (ashlar_checkpoint_pair){keys[k], bad[i][k]};
            }
        }
        CHECK(ashlar_checkpoint_save(arena, path, ASHLAR_CHECKPOINT_STATE, pairs, count,
                                     streams[0]) == ASHLAR_OK);
        CHECK_FAILS(load(&got), ASHLAR_EFORMAT, keys[named[i]]);
        CHECK_HAS(ashlar_error_detail(), path);
    }
    const ashlar_checkpoint_pair good[] = {
        {keys[0], "4"}, {keys[1], "2"}, {keys[2], "3 0 1 0 0x1p+3 0x1p+0"}};
    CHECK(ashlar_checkpoint_save(arena, path, 0, good, 3, streams[0]) == ASHLAR_OK);
    CHECK_FAILS(load(&got), ASHLAR_EFORMAT, "it must hold the optimizer's state");
    CHECK(is_image(&before) && state_now().step == 2 && got.step == 77);
    CHECK(ashlar_checkpoint_save(arena, path, ASHLAR_CHECKPOINT_STATE, good, 3, streams[0]) ==
          ASHLAR_OK); /* the control */
    CHECK(load(&got) == ASHLAR_OK && got.step == 4 && state_now().step == 3);
    CHECK_FAILS(save(&got, good, 1), ASHLAR_EINVAL, "'ashlar.step' is there twice");
    free_image(&before);
}

RUN_CASES()
