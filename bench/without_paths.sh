#!/bin/sh
#
# without_paths.sh - copy text without this machine's folders, so that it may be published: a path
# below one of FOLDER... is written relative to it; of any other path only the last part stays.
#
# usage: bench/without_paths.sh FOLDER... <TEXT

set -u

for folder in "$@"; do
    pattern=$(printf '%s\n' "$folder" | sed 's/[][\.*^$|]/\\&/g')
    shift
    set -- "$@" -e "s|$pattern/||g"
done
exec sed "$@" -e 's#\(^\|[^[:alnum:]._/-]\)/[^[:space:]:,;"'"'"'()]*/#\1#g'
