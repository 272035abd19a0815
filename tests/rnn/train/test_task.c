/*
 * test_task.c - the text task behind the loop's interface: its batches, its steps, what it says of
 * itself; and the loop with a task that is none of text.
 */
#include "tests/rnn/train/task_fixture.h"

#include "rnn/data/batcher.h"
#include "allocator/base/json.h"
#include "rnn/train/task_options.h"

/* ---- batches and steps ---- */

CASE_WITH(batches_are_those_of_the_batcher, open_text("memory=256MiB")) {
    static int32_t inputs[BATCH * MAX_LENGTH], targets[BATCH * MAX_LENGTH], lengths[BATCH];
    ashlar_batch want = {.inputs = inputs, .targets = targets, .lengths = lengths};
    ashlar_train_config config = small_config(1);
    config.bptt = 9;
    const ashlar_batcher_config batcher_config = {
        .batch = BATCH, .max_steps = MAX_LENGTH, .seed = config.seed};
    ashlar_batcher *batcher = NULL;
    REQUIRE(ashlar__batcher_create(corpus, &batcher_config, &batcher) == ASHLAR_OK);
    REQUIRE(open_task(&config));
    CHECK_ZU(task->max_length, ashlar__batcher_max_steps(batcher));
    CHECK_ZU(task->max_part_length, 9);
    CHECK_ZU(task->max_parts, (task->max_length + 8) / 9);
    CHECK_ZU(task->batch, BATCH);
    CHECK_ZU(task->sequences, ashlar__batcher_piece_count(batcher));
    for (size_t i = 0; i < 20; i++) {
        ashlar__batcher_next(batcher, &want);
        const ashlar_task_batch got = task->table->next(task, i % 2);
        CHECK(got.length == want.steps && got.tokens == want.tokens && got.epoch == want.epoch);
        CHECK_ZU(got.parts, (want.steps + 8) / 9);
        size_t tokens = 0, length = 0;
        for (size_t p = 0; p < got.parts; p++) {
            const ashlar_task_part part = task->table->part(task, i % 2, p);
            CHECK(part.length == 9 || p + 1 == got.parts);
            tokens += part.tokens;
            length += part.length;
        }
        CHECK(tokens == want.tokens && length == want.steps);
    }
    close_task();
    ashlar__batcher_destroy(batcher);
}

/* A slot stays as it is while the other one is drawn into. */
CASE_WITH(slots_do_not_touch_each_other, open_small_task()) {
    (void)task->table->next(task, 0);
    (void)task->table->next(task, 1);
    const double first = run_buffer(0, 5), second = run_buffer(1, 5);
    CHECK(first > 5 && second > 5 && first != second); /* log 256 is 5.5 */
    CHECK(run_buffer(0, 5) == first && run_buffer(1, 5) == second);
    CHECK(task->table->upload(task, 0, streams[1]) == ASHLAR_OK);
    CHECK(task->table->upload(task, 1, streams[1]) == ASHLAR_OK);
    *losses = 0;
    CHECK(task->table->step(task, 0, 0, 5, losses) == ASHLAR_OK);
    wait_for(streams[1]);
    CHECK(*losses == first);
    task->table->make_dummy(task, 0, MAX_LENGTH);
    CHECK(run_buffer(0, 5) != first);
    CHECK(run_buffer(1, 5) == second);
}

/* As it was when nothing but the model's step was called: all of it zeros, every sequence full. */
CASE_WITH(a_made_up_batch_is_of_zeros, open_text("memory=256MiB")) {
    const ashlar_train_config config = small_config(1);
    REQUIRE(open_task(&config));
    for (size_t length = 1; length <= task->max_part_length; length += 5) {
        task->table->make_dummy(task, 1, length);
        const ashlar_task_part part = task->table->part(task, 1, 0);
        CHECK(part.length == length && part.tokens == length * BATCH);
    }
    (void)run_buffer(1, 0);
    const ashlar_model *model = ashlar__task_text_model(task);
    size_t used = 0; /* rows of the table that a symbol other than 0 would have */
    for (size_t i = config.embedding; i < 256 * config.embedding; i++) {
        used += ((const float *)model->gradients.embedding)[i] != 0;
    }
    CHECK_ZU(used, 0);
    CHECK(((const float *)model->gradients.embedding)[0] != 0);
}

CASE_WITH(steps_add_to_what_is_there, open_small_task()) {
    (void)task->table->next(task, 0);
    const double loss = run_buffer(0, 5);
    const float bias = *(const float *)ashlar__task_text_model(task)->gradients.bias;
    CHECK(task->table->step(task, 0, 0, 5, losses) == ASHLAR_OK);
    wait_for(streams[1]);
    CHECK_NEAR(*losses, 2 * loss, 0, 1e-15);
    CHECK_NEAR((double)*(const float *)ashlar__task_text_model(task)->gradients.bias,
               2 * (double)bias, 0, 1e-6);
    double *const scale = (double *)(void *)take(sizeof *scale, streams[1]);
    *scale = 16;
    task->loss_scale = scale;
    CHECK(run_buffer(0, 5) == loss);
    CHECK_NEAR((double)*(const float *)ashlar__task_text_model(task)->gradients.bias,
               16 * (double)bias, 0, 1e-6);
    task->loss_scale = NULL;
    give(scale);
}

/* A step takes what the dry run took, whatever the options. */
CASE_WITH(a_rehearsal_takes_what_a_step_takes, open_text("memory=256MiB")) {
    for (size_t i = 0; i < 8; i++) {
        ashlar_train_config config = small_config(1);
        config.accumulate = i % 2 == 0 ? 1 : 2;
        config.bptt = i / 2 % 2 == 0 ? 0 : 11;
        config.recompute = i / 4 == 0 ? 0 : 4;
        REQUIRE(open_task(&config));
        const size_t length = task->max_part_length;
        task->table->make_dummy(task, 0, length);
        const ashlar_stats first = stats_now();
        CHECK(task->table->dry_run(task, length) == ASHLAR_OK);
        const ashlar_stats second = stats_now();
        (void)run_buffer(0, 5);
        const ashlar_stats third = stats_now();
        CHECK_ZU(third.alloc_count - second.alloc_count, second.alloc_count - first.alloc_count);
        CHECK_ZU(third.live_peak_bytes, second.live_peak_bytes);
        close_task();
    }
}

/* ---- what it says of itself ---- */

static const char *metadata_text(const ashlar_metadata *metadata, const char *key) {
    for (size_t i = 0; i < metadata->count; i++) {
        if (strcmp(metadata->pairs[i].key, key) == 0) {
            return metadata->pairs[i].value;
        }
    }
    return "none";
}

CASE_WITH(facts_tell_options_and_text, open_text("memory=256MiB")) {
    static ashlar_metadata metadata, position, later;
    ashlar_train_config config = small_config(1);
    config.accumulate = 2;
    config.bptt = 9;
    config.recomputes_auto = true;
    REQUIRE(open_task(&config));
    metadata.count = position.count = later.count = 0;
    ashlar__task_add_facts(task, &metadata);
    CHECK(strcmp(metadata_text(&metadata, "ashlar.cell"), "lstm") == 0);
    CHECK(strcmp(metadata_text(&metadata, "ashlar.layers"), "2") == 0);
    CHECK(strcmp(metadata_text(&metadata, "ashlar.accumulate"), "2") == 0);
    CHECK(strcmp(metadata_text(&metadata, "ashlar.bptt"), "9") == 0);
    CHECK(strcmp(metadata_text(&metadata, "ashlar.recompute"), "6") == 0); /* twice the root of 9 */
    CHECK_HAS(metadata_text(&metadata, "ashlar.text"), "60 records, ");
    (void)task->table->next(task, 0);
    (void)task->table->next(task, 1);
    ashlar__task_add_position(task, &position);
    ashlar_task *opened = task, *other = NULL;
    CHECK(ashlar__task_text_create(corpus, &config, &other) == ASHLAR_OK);
    ashlar__batch_sampler_skip(other->sampler, 2);
    ashlar__task_add_position(other, &later);
    CHECK(position.count == 1 && strcmp(position.pairs[0].value, later.pairs[0].value) == 0);
    other->table->destroy(other);
    task = opened;
}

/* Twice the least that is not below the root; none where that is no less than everything. */
CASE_WITH(chunks_of_two_roots_are_rounded_up, open_text("memory=256MiB")) {
    static const size_t lengths[][2] = {{1, 0}, {2, 0},  {3, 0},  {4, 0},  {5, 0},  {6, 0},
                                        {7, 6}, {9, 6}, {10, 8}, {16, 8}, {17, 10}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        static ashlar_metadata metadata;
        ashlar_train_config config = small_config(1);
        char want[16];
        config.bptt = lengths[i][0];
        config.recomputes_auto = true;
        metadata.count = 0;
        CHECK(ashlar__task_text_create(corpus, &config, &task) == ASHLAR_OK);
        ashlar__task_add_facts(task, &metadata);
        (void)snprintf(want, sizeof want, "%zu", lengths[i][1]);
        CHECK(strcmp(metadata_text(&metadata, "ashlar.recompute"), want) == 0);
        task->table->destroy(task);
    }
}

CASE(the_options_are_in_the_report) {
    const char *const want[] = {"\"cell\": \"gru\"", "\"layers\": 2",      "\"hidden\": 16",
                                "\"projection\": 0", "\"dropout\": 0.25",  "\"embedding\": 8",
                                "\"batch\": 4",      "\"max_length\": 32", "\"accumulate\": 2",
                                "\"bptt\": 9",       "\"recompute\": 3"};
    ashlar_train_config config = small_config(1);
    config.cell = ASHLAR_RNN_GRU;
    config.dropout = 0.25;
    config.accumulate = 2;
    config.bptt = 9;
    config.recompute = 3;
    REQUIRE(open_text("memory=256MiB"));
    CHECK(ashlar__task_text_create(corpus, &config, &task) == ASHLAR_OK);
    ashlar_json_writer writer;
    char file[96], text[1024] = "";
    (void)snprintf(file, sizeof file, "%s/options", folder);
    ashlar__json_writer_init(&writer, 1);
    ashlar__json_open_object(&writer);
    ashlar__task_put_config(task, &writer);
    ashlar__json_close_object(&writer);
    CHECK(ashlar__json_writer_save(&writer, file) == ASHLAR_OK);
    ashlar__json_writer_finish(&writer);
    FILE *in = fopen(file, "r");
    REQUIRE(in != NULL);
    CHECK(fread(text, 1, sizeof text - 1, in) > 0);
    CHECK(fclose(in) == 0 && unlink(file) == 0);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        CHECK_HAS(text, want[i]);
    }
    task->table->destroy(task);
}

/* ---- failures ---- */

CASE_WITH(failures_at_each_point_leave_nothing_behind, open_text("memory=256MiB")) {
    ashlar_train_config config = small_config(1);
    config.bptt = 9;
    unsigned long n = 1;
    for (bool is_open = false; !is_open && n < 500; n++) {
        ashlar_task *made = NULL;
        CHECK(ashlar_allocator_create(device, &allocator) == ASHLAR_OK);
        ashlar__host_fail_at(n);
        ashlar_status status = ashlar__task_text_create(corpus, &config, &made);
        CHECK(status == ASHLAR_OK || (status == ASHLAR_EHOSTMEM && made == NULL));
        if (status == ASHLAR_OK) {
            status = ashlar__task_open(made, allocator, streams[1], ASHLAR_REGIONS_ALL);
            CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM);
        }
        ashlar__host_fail_at(0);
        is_open = status == ASHLAR_OK;
        if (made != NULL) {
            ashlar__task_close(made);
            made->table->destroy(made);
        }
        CHECK_ZU(stats_now().live_blocks, 0);
        ashlar_allocator_destroy(allocator);
    }
    CHECK(n > 12);
    CHECK(CALLS(mem_free_host) + 1 == CALLS(mem_host_alloc)); /* the device's, for copies */
}

RUN_CASES()
