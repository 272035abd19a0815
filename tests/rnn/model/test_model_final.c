/*
 * test_model_final.c - gradients that a step reports as final while its backward pass goes on.
 */
#include "tests/rnn/model/model_fixture.h"

static const int32_t LENGTHS[] = {5, 2, 6, 1};

/* What was reported, one after the other, and what the gradients were then. */
enum { REPORTS_MAX = 16, ELEMENTS_MAX = 20000 };
static struct {
    size_t count;
    const char *from[REPORTS_MAX], *to[REPORTS_MAX];
    char kept[REPORTS_MAX][ELEMENTS_MAX];
    bool is_embedding_open; /* at the last report */
} told;

static bool is_zero(const float *values, size_t count) {
    size_t i = 0;
    while (i < count && values[i] == 0) {
        i++;
    }
    return i == count;
}

static ashlar_status keep(void *context, const void *from, const void *to) {
    const size_t i = told.count++, bytes = (size_t)((const char *)to - (const char *)from);
    (void)context;
    if (i >= REPORTS_MAX || bytes > ELEMENTS_MAX) {
        return ASHLAR_EINVAL;
    }
    wait_for(streams[1]);
    told.from[i] = from;
    told.to[i] = to;
    memcpy(told.kept[i], from, bytes);
    told.is_embedding_open = is_zero(model->gradients.embedding, (size_t)CLASSES * EMBEDDING);
    return ASHLAR_OK;
}

static ashlar_status refuse(void *context, const void *from, const void *to) {
    (void)context, (void)from, (void)to;
    return told.count++ == 2 ? ASHLAR_EIO : ASHLAR_OK;
}

static void run_told(size_t chunk) {
    made_batch made;
    ashlar_step_sizes sizes;
    int32_t lengths[8] = {3, 2, 3, 1, 2, 0, 3, 0}, on_host[8] = {3, 2, 3, 1, 2, 1, 3, 1};
    make_batch(&made, 6, 4, LENGTHS);
    told.count = 0;
    CHECK(ashlar__model_chunk_sizes(model, 6, 4, chunk, &sizes) == ASHLAR_OK);
    CHECK(prepare_step(&made) == ASHLAR_OK);
    ashlar_model_window window = window_of(&made);
    window.chunk = chunk;
    window.weight = 0.1;
    if (chunk > 0) {
        memcpy(results->lengths, lengths, sizeof lengths);
        window.rnn_lengths = on_host;
    }
    CHECK(ashlar__model_step(model, &window, &sizes, &results->loss) == ASHLAR_OK);
    wait_for(streams[1]);
}

/* The linear layer's matrix and bias, then each layer of the stack. */
static void check_told(void) {
    const size_t stack = ashlar_rnn_layout_of(model->rnn)->elements * sizeof(float);
    const char *begin = model->gradients.stack;
    REQUIRE(told.count == 2 + LAYERS);
    CHECK(told.from[0] == (const char *)model->gradients.weight);
    CHECK(told.from[1] == (const char *)model->gradients.bias);
    CHECK(told.from[2] == begin && told.to[2] == told.from[3] && told.to[3] == begin + stack);
    for (size_t i = 0; i < told.count; i++) {
        const size_t bytes = (size_t)(told.to[i] - told.from[i]);
        CHECK(memcmp(told.kept[i], told.from[i], bytes) == 0);
        CHECK(!is_zero((const float *)(const void *)told.from[i], bytes / sizeof(float)));
    }
}

/* In both ways of the software device to run what is queued. */
static void check_each_way(size_t chunk) {
    static const char *const specs[] = {"memory=64MiB", "memory=64MiB,mode=adversarial"};
    for (size_t i = 0; i < 2; i++) {
        REQUIRE(open_model(specs[i], ASHLAR_REGIONS_ALL));
        model->final = (ashlar_final){keep, NULL};
        run_told(chunk);
        check_told();
        CHECK(chunk > 0 || told.is_embedding_open);
        close_model();
    }
}

CASE(what_is_reported_is_final_before_backward_ends) {
    check_each_way(0);
}

CASE(in_chunks_only_the_last_pass_reports) {
    check_each_way(3);
}

CASE_WITH(reporting_changes_no_bit, open_usual_model()) {
    static float alone[ELEMENTS_MAX];
    const size_t bytes = region_count() * sizeof(float);
    REQUIRE(bytes <= sizeof alone);
    run_told(0);
    memcpy(alone, region_of(ASHLAR_REGION_GRADIENTS), bytes);
    model->final = (ashlar_final){keep, NULL};
    run_told(0);
    CHECK(memcmp(alone, region_of(ASHLAR_REGION_GRADIENTS), bytes) == 0);
}

CASE_WITH(who_is_told_can_fail_the_step, open_usual_model()) {
    made_batch made;
    make_batch(&made, 6, 4, LENGTHS);
    told.count = 0;
    model->final = (ashlar_final){refuse, NULL};
    CHECK(queue_step(&made) == ASHLAR_EIO);
    CHECK_ZU(told.count, 3);
}

RUN_CASES()
