#!/bin/sh
#
# make_tags.sh - write sentences of an invented language, with tags, as a column file.
#
#     make_tags.sh SENTENCES [SEED]      "word TAB tag" lines, a blank line after each sentence
#
# The same arguments give the same bytes everywhere. Most words are a stem, of which there are many,
# and an ending, so a tagger must look at characters. Two endings and the word "sa" are ambiguous:
# the words before and after them decide the tag.
#
#     -or NOUN   -el ADJ   -at VERB
#     -en        NOUN where an article came before and no noun since, else VERB
#     -is        after an article ADJ where -or or -en follows, else NOUN; elsewhere ADV
#     sa         ASK where the sentence ends with "?", else SAY
#     ka ki u ART     mo AND     . ? END

set -u
case ${1:-} in
'' | *[!0-9]*)
    echo "usage: make_tags.sh SENTENCES [SEED]" >&2
    exit 2
    ;;
esac
case ${2:-1} in
*[!0-9]*)
    echo "make_tags.sh: SEED is a number" >&2
    exit 2
    ;;
esac

exec awk -v sentences="$1" -v seed="${2:-1}" '
# Park and Miller: exact in doubles, and so the same in every awk.
function draw(below) {
    state = (state * 16807) % 2147483647
    return int(state / 2147483647 * below)
}
function put(word, tag) {
    printf "%s\t%s\n", word, tag
}
# A few stems are frequent, most are rare.
function stem(  k, text) {
    k = int(draw(3000) * draw(1000) / 1000 * draw(1000) / 1000) * 7919 + 101
    text = substr("ptkbdgmnslrvz", k % 13 + 1, 1); k = int(k / 13)
    text = text substr("aeiou", k % 5 + 1, 1); k = int(k / 5)
    if (k % 4 == 0) text = text "st"
    text = text substr("mnslrvzptkbdg", k % 13 + 1, 1); k = int(k / 13)
    text = text substr("uoiea", k % 5 + 1, 1); k = int(k / 5)
    return text substr("ptkbdgmnslrvz", k % 13 + 1, 1)
}
# Whether its noun ends in -is: then -en must not follow.
function noun_phrase() {
    put(article[draw(3)], "ART")
    if (draw(3) == 0) { put(stem() "is", "NOUN"); return 1 }
    if (draw(2)) put(stem() (draw(2) ? "el" : "is"), "ADJ")
    put(stem() (draw(2) ? "or" : "en"), "NOUN")
    return 0
}
function clause(  needs_at) {
    needs_at = noun_phrase()
    if (draw(2)) { put(stem() "is", "ADV"); needs_at = 0 }
    put(stem() (needs_at || draw(2) ? "at" : "en"), "VERB")
    if (draw(3)) noun_phrase()
}
BEGIN {
    article[0] = "ka"; article[1] = "ki"; article[2] = "u"
    state = seed % 2147483646 + 1
    draw(1); draw(1); draw(1)
    for (i = 0; i < sentences; i++) {
        asks = draw(2)
        if (draw(3) == 0) put("sa", asks ? "ASK" : "SAY")
        clause()
        while (draw(3) == 0) { put("mo", "AND"); clause() }
        put(asks ? "?" : ".", "END")
        print ""
    }
}'
