#!/bin/sh
#
# without_paths.sh - copy text that may be kept or shown elsewhere, without the places of this
# machine: of a path below one of FOLDER... what lies below it stays, of another its last part.
#
# usage: bench/without_paths.sh FOLDER... <TEXT

set -u

for folder in "$@"; do
    pattern=$(printf '%s\n' "$folder" | sed 's/[][\.*^$|]/\\&/g')
    shift
    set -- "$@" -e "s|$pattern/||g"
done
exec sed "$@" -e 's#\(^\|[^[:alnum:]._/-]\)/[^[:space:]:,;"'"'"'()]*/#\1#g'
