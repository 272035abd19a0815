#include "rnn/data/corpus_checksum.h"

#include <string.h>

/*
 * Eight bytes at a time, as FNV-1a does with one; it need not withstand anybody. The last step, at
 * a record's end, tells texts that are cut elsewhere.
 */
static uint64_t mix(uint64_t sum, const unsigned char *bytes, size_t count) {
    const uint64_t prime = UINT64_C(0x100000001b3);
    uint64_t word;
    for (; count >= sizeof word; count -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        sum = (sum ^ word) * prime;
        sum ^= sum >> 29; /* or high bits would never reach low ones */
    }
    for (; count > 0; count--, bytes++) {
        sum = (sum ^ *bytes) * prime;
    }
    return sum ^ sum >> 32;
}

uint64_t ashlar__corpus_checksum(const ashlar_corpus *corpus) {
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < ashlar__corpus_count(corpus); i++) {
        const ashlar_record record = ashlar__corpus_record(corpus, i);
        sum = mix(sum, record.bytes, record.count);
    }
    return sum;
}
