/*
 * text_sum.h - a number that tells texts apart (internal).
 */
#ifndef ASHLAR_TEXT_SUM_H
#define ASHLAR_TEXT_SUM_H

#include <stdint.h>

#include "rnn/data/corpus.h"

/* Of all records, and of where they end. Cost: reads the whole text. Threads: any. */
uint64_t ashlar_text_sum(const ashlar_corpus *corpus);

#endif /* ASHLAR_TEXT_SUM_H */
