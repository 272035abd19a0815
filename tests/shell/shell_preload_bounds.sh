#!/bin/sh
#
# shell_preload_bounds.sh - how much libashlar-preload.so reserves for programs whose steps differ in
# length, or that free and take without an end, beside what was live and what the heap alone
# reserves (ashlar-replay); and that memory which such programs get of the driver alone is there for
# them during captures, too.

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

# At most so many percent of what the heap alone reserves are reserved, for so many events and calls
# of the driver.
is_near_the_heap() { # PERCENT EVENTS CALLS SOFT WORD...
    percent=$1 events=$2 calls=$3 soft=$4
    shift 4
    env ASHLAR_PRELOAD=report ASHLAR_SOFT="memory=8GiB,$soft" LD_PRELOAD="$preload" \
        "$programs/drawn_driver" names "$@" "$scratch/log.csv" \
        >"$scratch/out" 2>"$scratch/report" || return
    cat "$scratch/out" "$scratch/report"
    "$ASHLAR_BUILD/bench/ashlar-replay" "$scratch/log.csv" | tee "$scratch/heap"
    awk -v percent="$percent" -v events="$events" -v calls="$calls" '
        $1 == "live" { recorded = $4; called = $6; rows++ }
        / live, [0-9]+ reserved/ { sub(/.* live, /, ""); reserved = $1 / 1048576; rows++ }
        /peak live .* reserved/ { sub(/.*reserved /, ""); heap = $1; rows++ }
        END {
            exit rows != 3 || reserved == 0 || 100 * reserved > percent * heap ||
                recorded > events || called > calls
        }
    ' "$scratch/out" "$scratch/report" "$scratch/heap"
}

is_near_the_heap_in_time() {
    for _ in 1 2 3; do
        is_near_the_heap "$@" && return
    done
    return 1
}

# There are 60 steps, of 12 or 36 blocks, or 200 blocks; on a stream that is not blocking an event
# is recorded there, too, if it is not idle.
for stream in legacy blocking unordered; do
    for wait in none stream device; do
        check "steps_${wait}_${stream}" reserves 110 60 mode=eager steps $wait $stream 1
        check "lengths_${wait}_${stream}" reserves 130 240 mode=eager lengths $wait $stream 1
        check "one_by_one_${wait}_${stream}" reserves 110 200 mode=eager stream $wait $stream 1
    done
    check "a_wait_for_the_device_needs_no_event_${stream}" \
        reserves 110 0 mode=overlap steps device $stream 1
    check "a_wait_for_the_stream_is_one_for_what_was_freed_${stream}" \
        reserves_in_time 130 120 mode=overlap steps stream $stream 1
    check "a_wait_after_each_block_is_one_${stream}" \
        reserves_in_time 130 400 mode=overlap stream stream $stream 1
    for what in steps lengths stream; do
        check "without_a_wait_twice_as_much_is_enough_${what}_${stream}" \
            reserves_in_time 200 720 mode=overlap $what none $stream 1
    done
done

# Of 60 steps, or 200 blocks taken anew.
for wait in none stream device; do
    for row in steps,115,60,300 lengths,115,250,1200 again,115,60,480 arenas,115,60,480 \
        resize,115,80,1000; do
        what=${row%%,*} percent=${row#*,} counts=${row#*,*,}
        percent=${percent%%,*}
        check "near_the_heap_${what}_${wait}" \
            is_near_the_heap "$percent" "${counts%,*}" "${counts#*,}" \
            mode=eager "$what" $wait legacy 1
        check "near_the_heap_while_work_goes_on_${what}_${wait}" is_near_the_heap_in_time 125 \
            1000 10000000 mode=overlap "$what" $wait legacy 1
    done
done

captures() { # SOFT WHAT
    ASHLAR_SOFT="memory=256MiB,$1" "$programs/captures_driver" procs "$2" &&
        env ASHLAR_SOFT="memory=256MiB,$1" LD_PRELOAD="$preload" "$programs/captures_driver" procs "$2"
}

for soft in mode=eager mode=overlap mode=adversarial,seed=1 mode=adversarial,seed=2; do
    for what in again beside before; do
        check "captures_have_memory_${what}_${soft}" captures "$soft" "$what"
    done
done
check_report
