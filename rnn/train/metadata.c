#include "rnn/train/metadata.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/check_level.h"

char *ashlar__metadata_add(ashlar_metadata *f, const char *key) {
    ASHLAR_ASSERT(f->count < ASHLAR_METADATA_MAX);
    char *text = f->texts[f->count];
    f->pairs[f->count++] = (ashlar_checkpoint_pair){key, text};
    return text;
}

void ashlar__metadata_add_text(ashlar_metadata *f, const char *key, const char *value) {
    (void)snprintf(ashlar__metadata_add(f, key), ASHLAR_METADATA_TEXT_BYTES, "%s", value);
}

void ashlar__metadata_add_count(ashlar_metadata *f, const char *key, uint64_t value) {
    (void)snprintf(ashlar__metadata_add(f, key), ASHLAR_METADATA_TEXT_BYTES, "%" PRIu64, value);
}

/* With as few digits as give the same number again: people read them too. */
void ashlar__metadata_add_real(ashlar_metadata *f, const char *key, double value) {
    char *text = ashlar__metadata_add(f, key);
    int digits = 0;
    do {
        digits++;
        (void)snprintf(text, ASHLAR_METADATA_TEXT_BYTES, "%.*g", digits, value);
    } while (digits < 17 && strtod(text, NULL) != value);
}

void ashlar__metadata_add_random(ashlar_metadata *f, const char *key, const ashlar_random *random) {
    (void)snprintf(ashlar__metadata_add(f, key), ASHLAR_METADATA_TEXT_BYTES,
                   "%016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64, random->s[0],
                   random->s[1], random->s[2], random->s[3]);
}
