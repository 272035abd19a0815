#!/bin/sh
#
# shell_preload_tells.sh - what libashlar-preload.so lets a user see of a program that knows nothing of
# it: what ASHLAR_CONF has looked for, a trace for ashlar-replay, a snapshot.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

about_preload
program=$programs/program_driver
replay=$ASHLAR_BUILD/bench/ashlar-replay
trace=$scratch/trace.csv
needs_preload 'the_preload_tells' "$program"

# Run the program with the library. What it prints on stderr is in $scratch/stderr.
with() { # WHAT [WAY]
    env LD_PRELOAD="$preload" "$program" "${2:-names}" "$1" 2>"$scratch/stderr"
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

# ---- traces ----

# The replay's figures of all FILEs, one number for each EXPRESSION over a log's report r.
replayed() { # EXPRESSION FILE...
    expression=$1
    shift
    "$replay" "$@" --json "$scratch/json" >"$scratch/replay" || return
    python3 - "$scratch/json" "$expression" <<'END'
import json, sys
logs = json.load(open(sys.argv[1]))
print(*(eval(sys.argv[2]) for r in (logs if isinstance(logs, list) else [logs])))
END
}

# N and M of "N allocations, ...; at most M bytes live".
reported() {
    sed -n 's/^ashlar-preload: \([0-9]*\) allocations,.* at most \([0-9]*\) bytes live.*/\1 \2/p' \
        "$scratch/stderr"
}

# A word more than "report", and the file it leaves, if any.
traced() { # FILE WHAT [WAY]
    file=$1
    shift
    rm -f "$scratch"/trace*
    ASHLAR_PRELOAD=report,trace=$file with "$@"
}

agrees() { # the replayed trace with the report
    got=$(replayed '"%d %d" % (r["allocations"], r["live_peak_bytes"])' "$trace") || return
    echo "replayed: $got; reported: $(reported)"
    [ -n "$got" ] && [ "$got" = "$(reported)" ]
}

has_the_reports_figures() { # WHAT [WAY]
    traced "$trace" "$@" && agrees
}

has_streams_and_threads() {
    has_the_reports_figures threads &&
        [ "$(replayed 'r["streams"] > 2 and r["threads"] > 2' "$trace")" = True ]
}

has_a_file_for_each_device() {
    ASHLAR_SOFT=devices=2 traced "$trace" devices || return
    # shellcheck disable=SC2046 # words
    set -- $(replayed 'r["allocations"]' "$trace" "$trace.1") $(reported)
    [ "$#" -eq 4 ] && [ "$1" -gt 0 ] && [ "$(($1 + $2))" -eq "$3" ]
}

has_the_refused_requests() {
    ASHLAR_SOFT=memory=64MiB,mode=adversarial,seed=2 traced "$trace" full || return
    [ "$(replayed 'r["recorded_failures"]' "$trace")" -eq 2 ]
}

is_whole_though_killed() {
    traced "$trace" killed
    [ "$(replayed '"%d %d" % (r["allocations"], r["events"])' "$trace")" = '6 12' ]
}

has_a_file_for_each_process() {
    traced "$scratch/trace-%p.csv" fork-before || return
    for file in "$scratch"/trace-*.csv; do
        [ "$(replayed 'r["allocations"]' "$file")" -eq 6 ] || return
    done
    [ "$(find "$scratch" -name 'trace-[0-9]*.csv' | wc -l)" -eq 2 ]
}

# One line of it besides the report, and the program runs on.
goes_on() { # WORDS COMMAND...
    words=$1
    shift
    "$@" || return
    grep -F "ashlar-preload: trace: " "$scratch/stderr" | grep -F "$words" || return
    [ "$(wc -l <"$scratch/stderr")" -eq 2 ]
}

check 'a_trace_of_threads_and_streams_has_the_reports_figures' has_streams_and_threads
for way in procs per-thread contexts; do
    check "a_trace_of_threads_has_the_reports_figures_$way" has_the_reports_figures threads "$way"
done
for soft in mode=adversarial,seed=1 vmm=off; do
    ASHLAR_SOFT=$soft
    export ASHLAR_SOFT
    check "a_trace_of_threads_has_the_reports_figures_$soft" has_the_reports_figures threads
    unset ASHLAR_SOFT
done
check 'each_device_has_a_trace' has_a_file_for_each_device
check 'a_trace_has_what_was_refused' has_the_refused_requests
check 'a_trace_is_whole_though_the_process_is_killed' is_whole_though_killed
check 'each_process_has_a_trace' has_a_file_for_each_process
check 'a_trace_that_cannot_be_made_is_told' \
    goes_on 'check the folder, its permissions and space' traced "$scratch/none/trace.csv" loop

# ---- snapshots ----

# Events and live blocks, as Python finds them.
has_a_snapshot() { # ALLOCATIONS LIVE FILE
    python3 - "$@" <<'END'
import json, sys
snapshot = json.load(open(sys.argv[3]))
events = [row[0] for row in snapshot["events"]["rows"]]
states = [row[-1] for row in snapshot["blocks"]["rows"]]
got = events.count("alloc"), states.count("live")
print(got)
sys.exit(got != (int(sys.argv[1]), int(sys.argv[2])))
END
}

is_a_snapshot() {
    file=$scratch/trace.json
    traced "$file" mistakes && has_a_snapshot 2 1 "$file" || return
    traced "$file" reset && has_a_snapshot 1 1 "$file" || return # as it was before the reset
    traced "$file" loop || return
    allocations=$(reported)
    has_a_snapshot "${allocations% *}" 0 "$file"
}

is_a_snapshot_of_the_newest_events() {
    file=$scratch/trace.json
    ASHLAR_CONF=trace=4 traced "$file" loop && has_a_snapshot 0 0 "$file"
}

check 'a_file_of_that_name_gets_a_snapshot' is_a_snapshot
check 'a_snapshot_has_as_many_events_as_asked_for' is_a_snapshot_of_the_newest_events
check 'a_snapshot_that_cannot_be_written_is_told_at_once' \
    goes_on 'check the folder' traced "$scratch/none/trace.json" loop
check_report
