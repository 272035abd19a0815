/* text.h - writes a model's text of any length, and reports its time and memory (internal). */
#ifndef ASHLAR_TEXT_H
#define ASHLAR_TEXT_H

#include <stdio.h>

#include "rnn/model/text_sampler.h"
#include "rnn/train/train.h"

typedef struct ashlar_text_config {
    ashlar_text_sampler_config sampler;
    const char *prime; /* [prime_bytes], text to begin with: the model reads it first */
    size_t prime_bytes;
    size_t bytes; /* to write after the prime, in each of sampler.count texts; the mark between
                   * records counts as one byte */
} ashlar_text_config;

/* Reports give the memory at a text's start, after this many bytes, and at its end. */
enum { ASHLAR_TEXT_EARLY_BYTES = 1000 };

typedef struct ashlar_text_memory {
    uint64_t live_bytes;
    uint64_t reserved_bytes;
    uint64_t alloc_count; /* successful allocations so far */
} ashlar_text_memory;

/* `start` and all counts are from the moment when the model has read the prime. */
typedef struct ashlar_text_report {
    size_t bytes; /* written since the start, in all texts */
    double seconds;
    ashlar_text_memory start;
    ashlar_text_memory early; /* after byte ASHLAR_TEXT_EARLY_BYTES, if there is one */
    ashlar_text_memory end;
    ashlar_phase_calls calls; /* since the start */
} ashlar_text_report;

/* Write the prime and the symbols that the model draws after it; the mark becomes a line
 * "%". A terminal gets no control characters except tabs and line ends. Several texts are drawn
 * together, kept in host memory, and written one behind the other with a line "%" in between, each
 * with the prime and as it would be alone.
 *
 * report   NULL: not wanted; written only on success
 *
 * Errors: those of the sampler; ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW (several texts); ASHLAR_EIO
 * (`out` cannot be written; its error flag is set). */
ASHLAR_MUST_CHECK ashlar_status ashlar__text_write(ashlar_model *model, FILE *out,
                                                   const ashlar_text_config *config,
                                                   ashlar_text_report *report);

/* Write a report on a text by `model` to a file, as one JSON object. After an error the file is as
 * it was. Errors: ASHLAR_EIO, ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__text_report_write(const char *path,
                                                          const ashlar_model *model,
                                                          const ashlar_text_config *config,
                                                          const ashlar_text_report *report);

#endif /* ASHLAR_TEXT_H */
