#!/bin/sh
#
# fuzz.sh - look for inputs that break the parsers: fuzz.sh [SECONDS]
#
# So long (60 s) for each target, by libFuzzer; a target's corpus is kept from run to run.

set -u
here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd -P) || exit 1
# shellcheck source=tools/set_up.sh
. "$here/tools/set_up.sh"

# shellcheck source=tests/fuzzers.sh
. "$here/tests/fuzzers.sh"

# One target: explore, keep what is new in its corpus, and tell how it ended.
fuzz_target() { # NAME SECONDS
    programs=$folder/tests/fuzz corpus=$builds/fuzz/corpus/$1 log=$builds/fuzz/$1.log
    mkdir -p "$corpus" && "$programs/replay_$1" --seeds "$corpus" || return
    runner=''
    setarch -R true 2>/dev/null && runner='setarch -R' # as for asan
    # The inputs are small: length finds nothing here that 1 KiB does not.
    if $runner "$programs/fuzz_$1" -max_total_time="$2" -max_len=1024 -timeout=20 \
        -print_final_stats=1 -artifact_prefix="$builds/fuzz/$1-" "$corpus" >"$log" 2>&1; then
        tried=$(awk '/number_of_executed_units/ { print $2 }' "$log")
        printf '%-12s %s inputs tried, no defect\n' "$1" "${tried:-some}"
        return
    fi
    printf '%-12s found a defect\n' "$1"
    tail -n 40 "$log"
    found=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    echo "the input: ${found:-none was kept}"
    echo "try it again: $programs/replay_$1 ${found:-FILE}"
    return 1
}

check_seconds fuzz "${1-60}"
build_fuzzers
set_up_ended
failed=0
for name in $names; do
    fuzz_target "$name" "${1-60}" || failed=1
done
exit "$failed"
