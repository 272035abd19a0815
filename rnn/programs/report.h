/*
 * report.h - what a training took and did, in words, tables and JSON; its account of memory by tag;
 * and how far it is, as a bar on a terminal and as plain lines elsewhere (internal).
 */
#ifndef ASHLAR_REPORT_H
#define ASHLAR_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include <ashlar/leak_monitor.h>

#include "allocator/base/json.h"
#include "rnn/train/train.h"

/* Print the whole report. */
void ashlar__report_print(FILE *out, const ashlar_train_report *report);

/* Add the device that something ran on to an open object. */
void ashlar__report_put_device(ashlar_json_writer *writer, const ashlar_device_info *device);

/* Write the report and the options as one JSON object, whole or not at all. Errors: ASHLAR_EIO,
 * ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__report_write(const char *path, const ashlar_task *task,
                                                     const ashlar_train_config *config,
                                                     const ashlar_train_report *report);

/* Print of each tag its bytes at the peak, those held across steps, and their growth. */
void ashlar__report_print_account(FILE *out, const ashlar_stats *stats,
                                  const ashlar_tag_growth growth[static ASHLAR_TAG_COUNT]);

/* Print of a tag that grows since when and by how much; nothing of one that does not. */
void ashlar__report_print_growth(FILE *out, ashlar_tag tag, const ashlar_tag_growth *growth);

typedef struct ashlar_progress {
    FILE *out;
    bool is_terminal;
    double shown_at; /* seconds of the last line */
} ashlar_progress;

void ashlar__progress_init(ashlar_progress *progress, FILE *out);

/* For ashlar__trainer_run(); `context` is an ashlar_progress. */
void ashlar__progress_show(void *context, const ashlar_train_progress *now);

#endif /* ASHLAR_REPORT_H */
