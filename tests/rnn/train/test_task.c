/*
 * test_task.c - the text task behind the loop's interface: its batches, its steps, what it says of
 * itself; and the loop with a task that is none of text.
 */
#include "tests/rnn/train/task_fixture.h"

#include "rnn/data/batcher.h"
#include "allocator/base/json.h"
#include "rnn/train/task_options.h"

/* ---- batches and steps ---- */

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
