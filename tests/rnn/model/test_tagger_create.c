/*
 * test_tagger_create.c - building the tagger: its tensors and views, its first weights, and every
 * way in which it cannot be built.
 */
#include "tests/rnn/model/tagger_fixture.h"

static void check_tensor(const char *name, size_t rows, size_t cols) {
    size_t tensor = 0;
    ashlar_tensor_info info;
    CHECK(ashlar_arena_find(tagger->arena, name, &tensor) == ASHLAR_OK);
    ashlar_arena_tensor(tagger->arena, tensor, &info);
    CHECK(info.dtype == tagger_config.dtype);
    CHECK_ZU(info.rank, cols == 0 ? 1 : 2);
    CHECK_ZU(info.shape[0], rows);
    CHECK(cols == 0 || info.shape[1] == cols);
}

CASE(the_arena_holds_the_tensors_under_their_names) {
    tagger_config.dtype = ASHLAR_F32;
    REQUIRE(open_tagger("memory=64MiB"));
    CHECK_ZU(ashlar_arena_tensor_count(tagger->arena), 1 + 8 + 1 + 8 + 2);
    check_tensor("char_embedding.weight", 9, 3);
    check_tensor("char_lstm.weight_ih_l0", 16, 3);
    check_tensor("char_lstm.weight_hh_l0_reverse", 16, 4);
    check_tensor("word_embedding.weight", 13, 6);
    check_tensor("lstm.weight_ih_l0", 20, 6 + 2 * 4);
    check_tensor("lstm.bias_hh_l0_reverse", 20, 0);
    check_tensor("linear.weight", 5, 2 * 5);
    check_tensor("linear.bias", 5, 0);
    CHECK(tagger->parameters.label_embedding == NULL);
    CHECK(memcmp(&tagger->config, &tagger_config, sizeof tagger_config) == 0);
}

/* The arena watches *pointer: if it points elsewhere, that is found. */
static void check_watched(void **pointer) {
    void *const right = *pointer;
    *pointer = &tagger;
    CHECK(ashlar_arena_check(tagger->arena) == ASHLAR_EMOVED);
    *pointer = right;
    CHECK(ashlar_arena_check(tagger->arena) == ASHLAR_OK);
}

CASE(views_point_into_the_arena_and_are_watched) {
    tagger_config.label_embedding = 3;
    REQUIRE(open_tagger("memory=64MiB"));
    ashlar_tagger_views *const both[] = {&tagger->parameters, &tagger->gradients};
    const ashlar_region regions[] = {ASHLAR_REGION_PARAMETERS, ASHLAR_REGION_GRADIENTS};
    for (size_t i = 0; i < 2; i++) {
        const struct {
            void **pointer;
            const char *name;
        } all[] = {{&both[i]->character_embedding, "char_embedding.weight"},
                   {&both[i]->character_stack, "char_lstm.weight_ih_l0"},
                   {&both[i]->word_embedding, "word_embedding.weight"},
                   {&both[i]->word_stack, "lstm.weight_ih_l0"},
                   {&both[i]->label_embedding, "label_embedding.weight"},
                   {&both[i]->weight, "linear.weight"},
                   {&both[i]->bias, "linear.bias"}};
        for (size_t j = 0; j < sizeof all / sizeof all[0]; j++) {
            CHECK(*all[j].pointer == tensor_named(regions[i], all[j].name, NULL));
            check_watched(all[j].pointer);
        }
    }
}

CASE_WITH(without_gradients_it_predicts_all_the_same, open_tagger("memory=64MiB")) {
    made_tags made;
    int32_t labels[64], want[64];
    make_tags(&made, SHAPE, LENGTHS);
    const double reference = predict_tags(&made, want);
    close_tagger();
    REQUIRE(set_up("memory=64MiB"));
    REQUIRE(ashlar__tagger_create(allocator, streams[1], &tagger_config, ASHLAR_REGIONS_INFERENCE,
                                  &tagger) == ASHLAR_OK);
    REQUIRE(check_at_end(close_tagger));
    CHECK(ashlar__tagger_init_weights(tagger, 3) == ASHLAR_OK);
    CHECK(tagger->gradients.weight == NULL && tagger->gradients.character_stack == NULL);
    loss = (double *)(void *)take(sizeof *loss, streams[1]);
    on_device = (int32_t *)(void *)take(sizeof made.data, streams[1]);
    CHECK(predict_tags(&made, labels) == reference);
    CHECK(memcmp(labels, want, (size_t)LENGTHS[0] * 4 * sizeof *want) == 0);
}

/* ---- first weights ---- */

CASE_WITH(the_seed_decides_the_weights_in_both_types, open_tagger("memory=64MiB")) {
    size_t count = 0;
    static double first[64];
    const double *weights = tensor_named(ASHLAR_REGION_PARAMETERS, "linear.weight", &count);
    memcpy(first, weights, count * sizeof *weights);
    CHECK(ashlar__tagger_init_weights(tagger, 4) == ASHLAR_OK);
    CHECK(memcmp(first, weights, count * sizeof *weights) != 0);
    CHECK(ashlar__tagger_init_weights(tagger, 3) == ASHLAR_OK);
    CHECK(memcmp(first, weights, count * sizeof *weights) == 0);
    close_tagger();
    tagger_config.dtype = ASHLAR_F32;
    REQUIRE(open_tagger("memory=64MiB"));
    const float *narrow =
        (const float *)(const void *)tensor_named(ASHLAR_REGION_PARAMETERS, "linear.weight", NULL);
    for (size_t i = 0; i < count; i++) {
        CHECK(narrow[i] == (float)first[i]);
    }
}

/* ---- failures ---- */

static ashlar_status create(void) {
    return ashlar__tagger_create(allocator, streams[1], &tagger_config, ASHLAR_REGIONS_ALL,
                                 &tagger);
}

CASE_WITH(configurations_that_cannot_be_are_refused, set_up("memory=64MiB")) {
    size_t *const counts[] = {&tagger_config.words,
                              &tagger_config.characters,
                              &tagger_config.tags,
                              &tagger_config.word_embedding,
                              &tagger_config.character_embedding,
                              &tagger_config.character_hidden,
                              &tagger_config.hidden,
                              &tagger_config.layers};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const size_t usual = *counts[i];
        *counts[i] = 0;
        CHECK(create() == ASHLAR_EINVAL && tagger == NULL);
        *counts[i] = SIZE_MAX;
        CHECK(create() == ASHLAR_EOVERFLOW && tagger == NULL);
        *counts[i] = usual;
    }
    tagger_config.directions = 3;
    CHECK(create() == ASHLAR_EINVAL && tagger == NULL);
    usual_tagger();
    tagger_config.dtype = ASHLAR_F16;
    CHECK(create() == ASHLAR_ENOTSUP && tagger == NULL);
    usual_tagger();
    tear_down();
    ashlar__tagger_destroy(NULL);
}

CASE(whatever_fails_nothing_is_left_behind) {
    size_t failures = 0;
    tagger_config.label_embedding = 3;
    for (unsigned long n = 1; n < 120; n++) {
        REQUIRE(set_up("memory=64MiB"));
        ashlar_status status;
        HOST_FAILS_AT(n, status = create());
        failures += status != ASHLAR_OK;
        CHECK((status == ASHLAR_OK) == (tagger != NULL));
        ashlar__tagger_destroy(tagger);
        tagger = NULL;
        CHECK_ZU(stats_now().live_blocks, 0);
        tear_down();
    }
    CHECK(failures > 40);
}

RUN_CASES_AFTER(usual_tagger(); check_each = usual_tagger)
