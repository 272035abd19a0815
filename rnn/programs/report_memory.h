/*
 * report_memory.h - the account of memory by what it is for, in words and as JSON (internal).
 */
#ifndef ASHLAR_REPORT_MEMORY_H
#define ASHLAR_REPORT_MEMORY_H

#include <stdio.h>

#include <ashlar/leak_monitor.h>

#include "allocator/base/json.h"

/* What each tag had at the peak of all, and at its own. */
void ashlar__report_print_memory(FILE *out, const ashlar_stats *stats);

/* What each tag had at the peak, holds across steps, and holds more than after the warm-up. */
void ashlar__report_print_account(FILE *out, const ashlar_stats *stats,
                                  const ashlar_tag_growth growth[static ASHLAR_TAG_COUNT]);

/* Say of a tag that grows that it does, since when, and how fast; of others nothing. */
void ashlar__report_print_growth(FILE *out, ashlar_tag tag, const ashlar_tag_growth *growth);

/* Add all of that to an open object. */
void ashlar__report_put_memory(ashlar_json_writer *writer, const ashlar_stats *stats,
                               const ashlar_tag_growth growth[static ASHLAR_TAG_COUNT]);

#endif /* ASHLAR_REPORT_MEMORY_H */
