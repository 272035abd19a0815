/* report.h - a training's results and costs in words, tables and JSON, and its memory by tag
 * (internal). */
#ifndef ASHLAR_REPORT_H
#define ASHLAR_REPORT_H

#include <stdio.h>

#include "allocator/base/json.h"
#include "rnn/train/train.h"

void ashlar__report_print(FILE *out, const ashlar_train_report *report);

/* Print a line for each region of a committed arena, for each bucket, and for each tensor in address
 * order with its offset, bytes, padding after it, type, shape and options. */
ASHLAR_MUST_CHECK ashlar_status ashlar__print_map(const ashlar_arena *arena);

/* Add a description of the device to an open JSON object. */
void ashlar__report_put_device(ashlar_json_writer *writer, const ashlar_device_info *device);

/* Begin a document of the report and the options. The caller may add members, and closes it. */
void ashlar__report_put(ashlar_json_writer *writer, const ashlar_task *task,
                        const ashlar_train_config *config, const ashlar_train_report *report);

/* Print for each tag its bytes at the peak, its bytes held across steps, and their growth. */
void ashlar__report_print_account(FILE *out, const ashlar_stats *stats,
                                  const ashlar_tag_growth growth[static ASHLAR_TAG_COUNT]);

/* If the tag grows, print since which step and by how much; if it does not, print nothing. */
void ashlar__report_print_growth(FILE *out, ashlar_tag tag, const ashlar_tag_growth *growth);

#endif /* ASHLAR_REPORT_H */
