/* results.h - a folder of raw results of ashlar-bench as one document (internal). */
#ifndef ASHLAR_RESULTS_H
#define ASHLAR_RESULTS_H

#include "allocator/base/json.h"

/*
 * Put the files of a folder as one document: machine.json as `machine`; every other NAME.json as
 * `groups`.NAME; of each group the table as it was printed, NAME.txt, as `printed`.NAME, for the
 * targets missed; and ran.txt as `ran`. Names are in alphabetical order: the same files always make
 * the same document.
 *
 * Errors: ASHLAR_EIO (the folder has no group's results, or cannot be read), ASHLAR_EFORMAT (a file
 *         is not JSON; the detail names it), ASHLAR_EHOSTMEM. The document is then unfinished.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__results_put(const char *folder, ashlar_json_writer *writer);

#endif /* ASHLAR_RESULTS_H */
