/* closest.c - counting the letters in which a misspelt word differs from a name, and writing the
 * hint "did you mean NAME?". */
#include "allocator/base/closest.h"

#include <stdbool.h>
#include <stdio.h>

#include "allocator/base/check_level.h"

enum { LETTERS_MAX = 32 }; /* a longer word or name is close to nothing */

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/*
 * The least number of changes that turn `a` into `b`. Row i of the table is for the first i letters
 * of `a`. A row needs the two rows before it, so three are kept.
 */
static size_t distance(ashlar_piece a, ashlar_piece b) {
    size_t rows[3][LETTERS_MAX + 1];
    ASHLAR_CHECK2(a.bytes <= LETTERS_MAX && b.bytes <= LETTERS_MAX);
    for (size_t k = 0; k <= b.bytes; k++) {
        rows[0][k] = k;
    }
    for (size_t i = 1; i <= a.bytes; i++) {
        const size_t *above = rows[(i - 1) % 3], *before = rows[(i + 1) % 3];
        size_t *row = rows[i % 3];
        row[0] = i;
        for (size_t k = 1; k <= b.bytes; k++) {
            const bool is_same = a.text[i - 1] == b.text[k - 1];
            row[k] = least(above[k - 1] + (is_same ? 0 : 1), 1 + least(above[k], row[k - 1]));
            if (i > 1 && k > 1 && a.text[i - 1] == b.text[k - 2] &&
                a.text[i - 2] == b.text[k - 1]) {
                row[k] = least(row[k], before[k - 2] + 1);
            }
        }
    }
    return rows[a.bytes % 3][b.bytes];
}

void ashlar__closest_offer(ashlar_closest *closest, const char *name) {
    const ashlar_piece other = ashlar__piece_of(name);
    if (closest->word.bytes == 0 || closest->word.bytes > LETTERS_MAX ||
        other.bytes > LETTERS_MAX) {
        return;
    }
    const size_t wrong = distance(closest->word, other);
    const bool is_close = 3 * wrong <= closest->word.bytes || (wrong == 1 && other.bytes > 1);
    if (is_close && (closest->name == NULL || wrong < closest->distance)) {
        closest->name = name;
        closest->distance = wrong;
    }
}

const char *ashlar__closest_hint(const ashlar_closest *closest, const char *prefix,
                                 char text[static ASHLAR_CLOSEST_HINT_BYTES]) {
    text[0] = '\0';
    if (closest->name != NULL) {
        (void)snprintf(text, ASHLAR_CLOSEST_HINT_BYTES, "; did you mean %s%s?", prefix,
                       closest->name);
    }
    return text;
}
