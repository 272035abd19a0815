#!/bin/sh
#
# instructions.sh - count the instructions of a pair of malloc and free, by valgrind's callgrind: of
# 4 KiB, and of random sizes. ashlar's are held to at most 126 and 550.
#
# usage: bench/instructions.sh PROGRAM [SUBJECT...]      PROGRAM: build/release/bench/ashlar-bench
#
# The program runs twice, with different numbers of pairs: the difference leaves out its start and
# end. The instructions of the loop itself (the subject none) are subtracted, too. Subjects: ashlar,
# plan, floor, unless others are named.

set -u

program=$1
shift
[ $# -gt 0 ] || set -- ashlar plan floor
command -v valgrind >/dev/null || {
    echo 'instructions.sh: there is no valgrind on the PATH; install it (Debian: valgrind)' >&2
    exit 1
}
counts=$(mktemp) || exit 1
trap 'rm -f "$counts"' EXIT

count() { # LIST SUBJECT PAIRS: instructions, and the pairs of whole lists that were run
    pairs=$(valgrind -q --tool=callgrind --callgrind-out-file="$counts" "$program" alloc \
        --device soft --workload "$1" --subject "$2" --pairs "$3") || exit 1
    echo "$(sed -n 's/^summary: //p' "$counts") ${pairs% pairs}"
}

of_pair() { # LIST SUBJECT
    few=$(count "$1" "$2" 20000) && many=$(count "$1" "$2" 200000) || exit 1
    echo "$few $many" | awk '{ printf "%.2f", ($3 - $1) / ($4 - $2) }'
}

for list in one_size/4096:126 random/:550; do
    most=${list#*:} name=${list%:*}
    loop=$(of_pair "$name" none) || exit 1
    for subject; do
        pair=$(of_pair "$name" "$subject") || exit 1
        echo "$pair $loop $subject $most" | awk -v list="$name" '{
            own = $1 - $2
            said = $3 != "ashlar" ? "" : own <= $4 ? "  met: at most " $4 : "  NOT MET: at most " $4
            printf "%-14s %-9s %8.2f instructions%s\n", list, $3, own, said
        }'
    done
done
