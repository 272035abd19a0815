/*
 * corpus_checksum.h - a number that tells texts apart (internal).
 */
#ifndef ASHLAR_CORPUS_CHECKSUM_H
#define ASHLAR_CORPUS_CHECKSUM_H

#include <stdint.h>

#include "rnn/data/corpus.h"

/* Of all records, and of where they end. Cost: reads the whole text. Threads: any. */
uint64_t ashlar__corpus_checksum(const ashlar_corpus *corpus);

#endif /* ASHLAR_CORPUS_CHECKSUM_H */
