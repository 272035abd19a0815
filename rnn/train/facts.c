#include "rnn/train/facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/check_level.h"

char *ashlar_facts_add(ashlar_facts *f, const char *key) {
    ASHLAR_ASSERT(f->count < ASHLAR_FACTS_MAX);
    char *text = f->texts[f->count];
    f->pairs[f->count++] = (ashlar_checkpoint_pair){key, text};
    return text;
}

void ashlar_facts_add_text(ashlar_facts *f, const char *key, const char *value) {
    (void)snprintf(ashlar_facts_add(f, key), ASHLAR_FACT_BYTES, "%s", value);
}

void ashlar_facts_add_count(ashlar_facts *f, const char *key, uint64_t value) {
    (void)snprintf(ashlar_facts_add(f, key), ASHLAR_FACT_BYTES, "%" PRIu64, value);
}

/* With as few digits as give the same number again: people read them too. */
void ashlar_facts_add_real(ashlar_facts *f, const char *key, double value) {
    char *text = ashlar_facts_add(f, key);
    int digits = 0;
    do {
        digits++;
        (void)snprintf(text, ASHLAR_FACT_BYTES, "%.*g", digits, value);
    } while (digits < 17 && strtod(text, NULL) != value);
}

void ashlar_facts_add_random(ashlar_facts *f, const char *key, const ashlar_random *random) {
    (void)snprintf(ashlar_facts_add(f, key), ASHLAR_FACT_BYTES,
                   "%016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64, random->s[0],
                   random->s[1], random->s[2], random->s[3]);
}
