/*
 * chart.h - figures of several subjects as a self-contained SVG (internal).
 *
 * One line for each thing measured, one mark on it for each subject, on an axis whose decades are
 * equally long: times of allocators lie a factor of a thousand apart. A mark's tooltip has the
 * figure. The same figures make the same bytes.
 */
#ifndef ASHLAR_CHART_H
#define ASHLAR_CHART_H

#include "bench/harness/results.h"

/*
 * Write the chart. Texts are ASCII: any other byte of theirs becomes a question mark.
 *
 * title, unit   of the figures
 * path          is replaced as a whole, or on failure left as it was
 *
 * Errors: ASHLAR_EINVAL (no figure above 0), ASHLAR_EIO, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__chart_write(const ashlar_results *results,
                                                    const char *title, const char *unit,
                                                    const char *path);

#endif /* ASHLAR_CHART_H */
