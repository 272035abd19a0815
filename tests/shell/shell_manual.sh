#!/bin/sh
#
# shell_manual.sh - each program has a manual page, which has each option of its --help, and no
# mistakes that the formatter sees.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

options() { # PROGRAM
    "$1" --help | sed -n 's/^  --\([a-z][a-z0-9-]*\).*/\1/p'
}

# .It Fl -option is how mdoc(7) writes an option with two dashes.
has_each_option() { # FOLDER NAME
    page=$ASHLAR_SOURCE/$1/programs/$2.1
    all=$(options "$ASHLAR_BUILD/$1/$2")
    [ "$(echo "$all" | wc -l)" -ge 9 ] || complain "options: $all" || return
    for option in $all; do
        grep -qE -e "^\.It Fl -$option( |\$)" "$page" || complain "$2.1 lacks --$option" || return
    done
    grep -q "^\.Nm $2\$" "$page"
}

is_well_formed() { # FOLDER NAME
    groff -mdoc -ww -Tascii "$ASHLAR_SOURCE/$1/programs/$2.1" >"$scratch/page" 2>"$scratch/said"
    cat "$scratch/said"
    [ ! -s "$scratch/said" ] && [ "$(wc -l <"$scratch/page")" -gt 50 ]
}

is_installed() { # NAME
    meson introspect --installed "$ASHLAR_BUILD" | grep -F "man1/$1.1"
}

for program in rnn/ashlar-train rnn/ashlar-sample bench/ashlar-bench bench/ashlar-replay; do
    name=${program#*/}
    check "each_option_of_${name}_is_in_its_page" has_each_option "${program%/*}" "$name"
    check "the_page_of_${name}_is_installed" is_installed "$name"
    if command -v groff >/dev/null; then
        check "the_page_of_${name}_is_well_formed" is_well_formed "${program%/*}" "$name"
    else
        skip "the_page_of_${name}_is_well_formed" 'no groff'
    fi
done
check_report
