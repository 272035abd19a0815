/* resumed_options.h - the options of a saved training, for one that resumes it (internal). */
#ifndef ASHLAR_RESUMED_OPTIONS_H
#define ASHLAR_RESUMED_OPTIONS_H

#include <stddef.h>

enum { ASHLAR_RESUMED_OPTIONS_MAX = 40, ASHLAR_RESUMED_OPTION_BYTES = 80 };

/* Words for ashlar__options_parse(): "--hidden=256". */
typedef struct ashlar_resumed_options {
    char words[ASHLAR_RESUMED_OPTIONS_MAX][ASHLAR_RESUMED_OPTION_BYTES];
    size_t count;
} ashlar_resumed_options;

/* Read the options that ashlar-train saved with a training. None if the file cannot be read or is
 * of another program: resuming it fails then, and says why. */
void ashlar__resumed_options_read(const char *path, ashlar_resumed_options *out);

/* The value of "--name=value" among the words; NULL: there is none. */
const char *ashlar__resumed_options_find(const ashlar_resumed_options *options, const char *name);

#endif /* ASHLAR_RESUMED_OPTIONS_H */
