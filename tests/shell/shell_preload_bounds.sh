#!/bin/sh
#
# shell_preload_bounds.sh - how much libashlar-preload.so reserves for programs whose steps differ in
# length, or that free and take without an end, beside what was live.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

about_preload
needs_preload bounds "$programs/drawn_driver"

# At most so many percent of what was live are reserved, and so many events recorded.
reserves() { # PERCENT EVENTS SOFT WORD...
    percent=$1 events=$2 soft=$3
    shift 3
    env ASHLAR_PRELOAD=report ASHLAR_SOFT="memory=8GiB,$soft" LD_PRELOAD="$preload" \
        "$programs/drawn_driver" names "$@" >"$scratch/out" 2>"$scratch/report" || return
    cat "$scratch/out" "$scratch/report"
    awk -v percent="$percent" -v events="$events" '
        $1 == "live" { live = $2; recorded = $4 }
        / live, / { sub(/.* live, /, ""); reserved = $1; rows++ }
        END { exit rows != 1 || live == 0 || 100 * reserved > percent * live || recorded > events }
    ' "$scratch/out" "$scratch/report"
}

# Where other threads run the work, a machine that is busy may run it late.
reserves_in_time() {
    for _ in 1 2 3; do
        reserves "$@" && return
    done
    return 1
}

for stream in legacy blocking unordered; do
    for wait in none stream device; do
        check "steps_${wait}_${stream}" reserves 110 60 mode=eager steps $wait $stream 1
        check "lengths_${wait}_${stream}" reserves 130 240 mode=eager lengths $wait $stream 1
    done
    check "a_wait_for_the_device_needs_no_event_${stream}" \
        reserves 110 0 mode=overlap steps device $stream 1
    for what in steps lengths stream; do
        check "without_a_wait_twice_as_much_is_enough_${what}_${stream}" \
            reserves_in_time 200 720 mode=overlap $what none $stream 1
    done
done

check_report
