# tap.sh - helpers of the shell tests, which speak TAP as the C tests do. Sourced, never run.
#
# A test script sources this, calls `check` for each case and ends with `check_report`. It finds
#   ASHLAR_SOURCE  the source folder; the default is found from the script's own place
#   ASHLAR_BUILD   a release build folder, with a shared and a static library
#   scratch        an empty folder of its own, removed at the end
# shellcheck shell=sh

set -u

: "${ASHLAR_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${ASHLAR_BUILD:=$ASHLAR_SOURCE/build/release}"
# shellcheck disable=SC2034 # for those who source this
train=$ASHLAR_BUILD/rnn/ashlar-train

# No setting of the caller may decide a test; nor may Meson, which puts every folder there that has a
# library which a test stands on, the stand-in for libcuda.so.1 among them.
unset ASHLAR_DEVICE ASHLAR_SOFT LD_LIBRARY_PATH
LC_ALL=C
ASHLAR_SOFT_DEFAULTS=strict=on # as in check.h
export LC_ALL ASHLAR_SOFT_DEFAULTS

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

# For a script that is slow, or needs more than Debian's packages: it is one skipped case elsewhere.
only_in_slow() {
    if [ -z "${ASHLAR_TEST_SLOW-}" ]; then
        echo '1..0 # SKIP only ./run test slow runs it'
        exit
    fi
}

# For a script about a fresh Debian, made in $root: it is one skipped case where none can be made.
make_debian() { # RELEASE [DEBOOTSTRAP-OPTION...]
    only_in_slow
    if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
        echo '1..0 # SKIP needs root and debootstrap'
        exit
    fi
    root=$scratch/root release=$1
    shift
    mirror=${ASHLAR_DEBIAN_MIRROR:-http://deb.debian.org/debian}
    if ! debootstrap --variant=minbase "$@" "$release" "$root" "$mirror" >"$scratch/log" 2>&1; then
        tail -n 3 "$scratch/log" | sed 's/^/# /'
        echo "1..0 # SKIP no Debian can be made from $mirror"
        exit
    fi
}

# For a script about libashlar-preload.so, and programs that find the tests' CUDA beside it.
# shellcheck disable=SC2034 # for those who source this
about_preload() {
    preload=$ASHLAR_BUILD/allocator/dropin/libashlar-preload.so
    programs=$ASHLAR_BUILD/tests/preload
    LD_LIBRARY_PATH=$ASHLAR_BUILD/tests/cuda
    export LD_LIBRARY_PATH
    unset ASHLAR_CONF ASHLAR_PRELOAD ASHLAR_REPORT ASHLAR_PEERS
}

# The script is one skipped case without the library, or without a program of its own.
needs_preload() { # CASE PROGRAM
    if [ ! -f "$preload" ] || [ ! -x "$2" ]; then
        skip "$1" 'libashlar-preload.so is not built for this processor'
        check_report
    fi
}

check_count=0
check_bad=0

# One case: it passes if COMMAND succeeds. What COMMAND prints is shown if it does not.
check() { # NAME COMMAND...
    check_name=$1
    shift
    check_count=$((check_count + 1))
    if "$@" >"$scratch/check.log" 2>&1; then
        echo "ok $check_count - $check_name"
    else
        check_bad=$((check_bad + 1))
        sed 's/^/# /' "$scratch/check.log"
        echo "not ok $check_count - $check_name"
    fi
}

skip() { # NAME REASON
    check_count=$((check_count + 1))
    echo "ok $check_count - $1 # SKIP $2"
}

check_report() {
    echo "1..$check_count"
    [ "$check_bad" -eq 0 ] && [ "$check_count" -gt 0 ]
    exit
}

# Print a complaint and fail, for use inside a case: [ ... ] || complain "..."
complain() {
    echo "$*"
    return 1
}

# Run COMMAND; expect STATUS, and on failure one line on stderr with each of WORDS (a list). What it
# prints is in $scratch/stdout and $scratch/stderr.
ends_with() { # STATUS WORDS COMMAND...
    want_status=$1 want_words=$2
    shift 2
    "$@" >"$scratch/stdout" 2>"$scratch/stderr" </dev/null
    got=$?
    cat "$scratch/stdout" "$scratch/stderr"
    [ "$got" -eq "$want_status" ] || complain "status $got, want $want_status" || return
    lines=$(wc -l <"$scratch/stderr")
    [ "$lines" -eq "$((want_status != 0))" ] || complain "$lines lines on stderr" || return
    for word in $want_words; do
        grep -qF -e "$word" "$scratch/stderr" || complain "stderr lacks '$word'" || return
    done
}

# Python's EXPRESSION over the JSON file, as r, is true.
json_holds() { # FILE EXPRESSION
    python3 - "$@" <<'END'
import json, sys
r = json.load(open(sys.argv[1]))
print(r)
sys.exit(not eval("(" + sys.argv[2] + ")"))
END
}

# Text enough to train on: records in the form of fortune(6), of different lengths.
write_text() { # FILE
    awk 'BEGIN {
        for (i = 1; i <= 120; i++) {
            for (j = 0; j <= i % 7; j++)
                printf "Stone %d is laid on stone %d; ", i, (i * 31 + j) % 97
            for (j = 0; j < i % 11; j++)
                printf "and "
            printf "no gap is left.\n%%\n"
        }
    }' >"$1"
}

# A program of docs/tutorial.md, as printed there.
program_of_tutorial() { # NAME
    awk -v first="/* $1.c: " '/^```/ { inside = 0; begins = /^```c$/; next }
        begins { inside = index($0, first) == 1; begins = 0 }
        inside' "$ASHLAR_SOURCE/docs/tutorial.md"
}
