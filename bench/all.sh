#!/bin/sh
#
# all.sh - run every group of ashlar-bench, and leave a folder with what was measured, where, and a
# page about it. `./run bench` calls it; the program has been built.
#
# usage: bench/all.sh PROGRAM [--smoke] [--device NAME] [--peer FILE.so]... [--out FOLDER]
#
# The folder is bench/results/DATE-MACHINE, or build/bench-smoke for a smoke run. The results are
# put there at the end, all at once, so an interrupted run changes nothing there; other files in the
# folder stay as they are. If a group cannot be measured, the others are, and the status is 1.

set -u

here=$(cd "$(dirname "$0")/.." && pwd -P) || exit 1
program=$1
shift

usage() {
    echo "all.sh: $1: takes --smoke, --device NAME, --peer FILE.so and --out FOLDER" >&2
    exit 2
}

# What is left in "$@" at the end are the peers.
smoke='' device='' out='' failed=0 left=$#
while [ "$left" -gt 0 ]; do
    case $1 in
    --smoke)
        smoke=$1
        shift
        left=$((left - 1))
        continue
        ;;
    --device=* | --peer=* | --out=*)
        option=${1%%=*} value=${1#*=}
        shift
        left=$((left - 1))
        ;;
    --device | --peer | --out)
        [ "$left" -gt 1 ] || usage "$1"
        option=$1 value=$2
        shift 2
        left=$((left - 2))
        ;;
    *) usage "$1" ;;
    esac
    case $option in
    --device) device=$value ;;
    --peer) set -- "$@" --peer "$value" ;;
    --out) out=$value ;;
    esac
done

scratch=$(mktemp -d) || exit 1
made=$scratch/made new=''
trap 'rm -rf "$scratch"; [ -z "$new" ] || rmdir "$new" 2>/dev/null' EXIT
trap 'echo "all.sh: stopped; nothing was written" >&2; exit 1' HUP INT TERM

# "AMD EPYC 9B14" is "amd-epyc-9b14".
slug() {
    tr '[:upper:]' '[:lower:]' | sed 's/([a-z]*)//g; s/[^a-z0-9]\{1,\}/-/g; s/^-//; s/-$//'
}

member() { # NAME, of machine.json
    sed -n "s/^  \"$1\": \"\\(.*\\)\",*\$/\\1/p" "$made/machine.json"
}

# A CUDA device names the machine, else the processor does.
name_folder() {
    name=$(member processor)
    [ -z "$(member driver)" ] || name=$(member device)
    [ -n "$name" ] || name=$(uname -m)
    printf '%s-%s' "$(member date)" "$(printf '%s' "$name" | slug)"
}

# Fail here for a bad word or peer, not after the other groups have been measured.
[ $# -eq 0 ] ||
    "$program" alloc --pairs 1 --subject floor ${device:+--device "$device"} "$@" >/dev/null ||
    exit

commit=''
[ ! -e "$here/.git" ] || commit=$(git -C "$here" describe --always --dirty --abbrev=9 2>/dev/null)
mkdir "$made" || exit 1
"$program" machine ${smoke:+"$smoke"} ${device:+--device "$device"} ${commit:+--commit "$commit"} \
    --json "$made/machine.json" || exit
if [ -z "$out" ]; then
    out=$here/build/bench-smoke
    [ -n "$smoke" ] || out=$here/bench/results/$(name_folder)
fi
[ -d "$out" ] || new=$out
mkdir -p "$out" || exit 1
if [ ! -w "$out" ]; then
    echo "all.sh: $out cannot be written" >&2
    exit 1
fi

# The table goes to the terminal and, for the report, into a file.
measure() { # GROUP [OPTION...]
    group=$1
    shift
    printf '\n== %s ==\n' "$group"
    {
        "$program" "$group" ${smoke:+"$smoke"} ${device:+--device "$device"} "$@" \
            --json "$made/$group.json" 2>"$scratch/stderr"
        echo $? >"$scratch/status"
    } | tee "$made/$group.txt" || exit
    cat "$scratch/stderr" >&2
    if [ "$(cat "$scratch/status")" -ne 0 ]; then
        failed=1
        printf '%s: could not: %s\n' "$group" "$(tail -n 1 "$scratch/stderr")" |
            "$here/bench/without_paths.sh" "$here" >>"$made/ran.txt"
        rm -f "$made/$group.txt" "$made/$group.json"
    fi
}

# The groups that this program has stand in the first line of its help.
groups=$("$program" --help | sed -n '1s/.*\[\([a-z|]*\)\].*/\1/p' | tr '|' ' ')
for group in $groups; do
    case $group in
    alloc | plan) measure "$group" "$@" ;;
    *) measure "$group" ;;
    esac
done

"$here/bench/report.py" "$made" || exit
if ! cp -R "$made" "$out/.new.$$"; then
    rm -rf "$out/.new.$$"
    exit 1
fi
trap '' HUP INT TERM # a moment in which the folder holds neither the old files nor all of the new
for group in $groups; do
    rm -f "$out/$group.json" "$out/$group.txt"
done
rm -f "$out/ran.txt"
mv "$out/.new.$$"/* "$out" && rmdir "$out/.new.$$" || exit 1
printf '\nresults, and a page about them, report.html: %s\n' "$out"
exit "$failed"
