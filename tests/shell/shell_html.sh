#!/bin/sh
#
# shell_html.sh - the page of a training, `ashlar-train --html`: what it must contain.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

train=$ASHLAR_BUILD/rnn/ashlar-train
check_page=$ASHLAR_SOURCE/tests/check_page.py
for i in $(seq 60); do
    printf 'stone %d rolls down the hill & "rests" <there>\n%%\n' "$i"
done >"$scratch/text"

page() { # OPTION...
    "$train" --data "$scratch/text" --device soft --steps 8 --hidden 24 --max-length 40 \
        --sample 0 --quiet --html "$scratch/page.html" --json "$scratch/page.json" "$@"
}

# The figures are those of --json, and with a driver call per allocation each step has calls.
contains() { # WAYS OPTION...
    ways=$1
    shift
    page "$@" && python3 "$check_page" "$scratch/page.html" "$scratch/page.json" "$ways"
}

a_tagger_has_one() {
    awk 'BEGIN {
        for (i = 0; i < 40; i++) {
            for (j = 0; j <= i % 6; j++)
                print "w" (i * j) % 9 "\tT" j % 3
            print ""
        }
    }' >"$scratch/tags"
    "$train" --model tagger --data "$scratch/tags" --device soft --steps 8 --hidden 16 --quiet \
        --html "$scratch/page.html" --json "$scratch/page.json" &&
        python3 "$check_page" "$scratch/page.html" "$scratch/page.json" 4
}

the_losses_are_those_without_a_page() {
    page --losses "$scratch/with" || return
    "$train" --data "$scratch/text" --device soft --steps 8 --hidden 24 --max-length 40 --sample 0 \
        --quiet --losses "$scratch/without" && cmp "$scratch/with" "$scratch/without"
}

# What does not fit is told in its row; the training fits.
a_way_that_fails_says_why() {
    ASHLAR_SOFT=memory=16MiB page --hidden 96 --batch 64 --max-length 64 --recompute auto || return
    grep -q 'out of memory' "$scratch/page.html"
}

one_file_for_two_is_refused() {
    page --json "$scratch/page.html" 2>"$scratch/err" && return 1
    cat "$scratch/err"
    grep -q 'each its own file' "$scratch/err"
}

check 'a page has the figures of --json, and compares five ways' contains 5
check 'with graphs, too' contains 5 --graphs
check 'in parts, in pieces, and without a plan' contains 5 --bptt 16 --accumulate 2 --no-plan
check 'a tagger has one' a_tagger_has_one
check 'a page changes no loss' the_losses_are_those_without_a_page
check 'a way that fails says why' a_way_that_fails_says_why
check 'one file for two is refused' one_file_for_two_is_refused
check_report
