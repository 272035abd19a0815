#!/bin/sh
#
# shell_preload_tells.sh - what libashlar-preload.so lets a user see of a program that knows nothing of
# it: what ASHLAR_CONF has looked for.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

about_preload
program=$programs/program_driver
needs_preload 'the_preload_tells' "$program"

# Run the program with the library. What it prints on stderr is in $scratch/stderr.
with() { # WHAT
    env LD_PRELOAD="$preload" "$program" names "$@" 2>"$scratch/stderr"
    status=$?
    cat "$scratch/stderr"
    return "$status"
}

# ---- what ASHLAR_CONF has looked for ----

says() { # CONF REPORT PATTERN...: a line for each, and no others
    ASHLAR_CONF=$1 ASHLAR_REPORT=$2 with mistakes || return
    shift 2
    cp "$scratch/stderr" "$scratch/left"
    for pattern; do
        grep "$pattern" "$scratch/left" || complain "nothing like $pattern" || return
        grep -v "$pattern" "$scratch/left" >"$scratch/others"
        mv "$scratch/others" "$scratch/left"
    done
    [ ! -s "$scratch/left" ]
}

leaks='^ashlar: leak: .* 1 blocks of 1234 bytes are still live$'
leak='^ashlar: leak: user: 1 of 1234 bytes, 1234 bytes, at 0x'
damage='^ashlar: 0x.*: written to behind its end, first at offset 1000; a block of 1000 bytes'
check 'nothing_is_said_of_what_nobody_asked_for' says '' ''
check 'leaks_are_told_when_they_are_looked_for' says leaks=on '' "$leaks" "$leak"
check 'damage_is_told_when_it_is_looked_for' says guard=fill '' "$damage"
check 'both_are_told_together' says leaks=on,guard=fill '' "$damage" "$leaks" "$leak"
check 'nothing_is_told_when_reports_are_off' says leaks=on,guard=fill off
check_report
