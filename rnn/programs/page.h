/* page.h - a page for a browser: tools/viewer.html with a document inside (internal). */
#ifndef ASHLAR_PAGE_H
#define ASHLAR_PAGE_H

#include "allocator/base/json.h"

/* Write the page that shows the finished document, which stays the caller's. After an error the
 * file is as it was. Errors: ASHLAR_EIO, ASHLAR_EHOSTMEM, ASHLAR_EINVAL (not a regular file). */
ASHLAR_MUST_CHECK ashlar_status ashlar__page_write(const char *path, ashlar_json_writer *document);

#endif /* ASHLAR_PAGE_H */
