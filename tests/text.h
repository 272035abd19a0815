/*
 * text.h - what a function prints to a file, as a string.
 */
#ifndef ASHLAR_TESTS_TEXT_H
#define ASHLAR_TESTS_TEXT_H

#include <stdio.h>
#include <stdlib.h>

static FILE *text_file; /* for what is printed between text_begin() and text_end() */

static inline FILE *text_begin(void) {
    text_file = tmpfile();
    if (text_file == NULL) {
        perror("tmpfile");
        exit(99);
    }
    return text_file;
}

/* What was printed; good until the next call. */
static inline const char *text_end(void) {
    static char text[1 << 14];
    rewind(text_file);
    text[fread(text, 1, sizeof text - 1, text_file)] = '\0';
    (void)fclose(text_file);
    return text;
}

/* A file for what nobody reads. */
static inline FILE *nowhere(void) {
    static FILE *file;
    file = file != NULL ? file : fopen("/dev/null", "w");
    return file;
}

#endif /* ASHLAR_TESTS_TEXT_H */
