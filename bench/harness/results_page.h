/*
 * results_page.h - a page and charts from the raw results of a folder (internal).
 */
#ifndef ASHLAR_RESULTS_PAGE_H
#define ASHLAR_RESULTS_PAGE_H

#include <ashlar/status.h>

/*
 * Read machine.json, GROUP.json and GROUP.txt (the table as printed, for the targets that it
 * misses), and where they are there ran.txt (what else was run, a line each); write GROUP.svg and
 * README.md, which says first where we lose: each figure that is worse than another allocator's,
 * and each target that is not met. Only what is in the files is written: the same files make the
 * same bytes.
 *
 * Errors: ASHLAR_EIO (no group's results in the folder, or it cannot be written),
 *         ASHLAR_EFORMAT (a file that is no result), ASHLAR_EHOSTMEM. What was written before
 *         stays.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__results_page_write(const char *folder);

#endif /* ASHLAR_RESULTS_PAGE_H */
