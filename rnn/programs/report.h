/*
 * report.h - what a training took and did, in words and a table, and as JSON (internal).
 */
#ifndef ASHLAR_REPORT_H
#define ASHLAR_REPORT_H

#include <stdio.h>

#include "allocator/base/json.h"
#include "rnn/train/train.h"

void ashlar__report_print(FILE *out, const ashlar_train_report *report);

/* The members of an open object that say on what device something ran. */
void ashlar__report_put_device(ashlar_json_writer *writer, const ashlar_device_info *device);

/* Write the report as one JSON object, with the options of the task and the loop, whole or not at
 * all. Errors: ASHLAR_EIO, ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__report_write(const char *path,
                                                    const ashlar_task *task,
                                                    const ashlar_train_config *config,
                                                    const ashlar_train_report *report);

#endif /* ASHLAR_REPORT_H */
