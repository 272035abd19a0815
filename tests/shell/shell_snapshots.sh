#!/bin/sh
#
# shell_snapshots.sh - what ashlar-replay says of a snapshot of PyTorch's memory: what other
# allocators would have taken; that PyTorch's rules are equal to recorded trainings beside the
# source folder, and to programs drawn for PyTorch itself, where they are.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

replay=$ASHLAR_BUILD/bench/ashlar-replay
snapshots=$ASHLAR_SOURCE/../shared/traces/snapshots
events=$scratch/step.events
json=$scratch/out.json

event() { # ACTION ADDRESS SIZE
    printf 'event\t0\t%s\t%s\t%s\t0\t0\t0:0\n' "$@"
}

# A block of 4 MiB keeps the segment of one of 30 MiB.
{
    printf 'ashlar-events/1\nsetting\texpandable_segments\t0\n'
    event segment_alloc 0x7f0000000000 31457280
    event alloc 0x7f0000000000 31457280
    event free_requested 0x7f0000000000 31457280
    event free_completed 0x7f0000000000 31457280
    event alloc 0x7f0000000000 4194304
    event segment_alloc 0x7f0010000000 33554432
    event alloc 0x7f0010000000 33554432
} >"$events"

runs() { # STATUS WORDS ARGUMENT...
    status=$1 words=$2
    shift 2
    rm -f "$json"
    ends_with "$status" "$words" timeout 300 "$replay" "$@"
}

holds() { # EXPRESSION
    json_holds "$json" "$1"
}

compares_allocators() {
    runs 0 '' "$events" --torch max_split_size_mb:21 --find-capacity --json "$json" || return
    holds 'r["what_if"][0]["equal_segment_events"] == r["what_if"][0]["segment_events"] == 2
        and r["what_if"][0]["equal_places"] == r["what_if"][0]["places"] == 3
        and r["what_if"][0]["left"] == ""' || return
    holds '[(a["allocator"], a["reserved_peak_bytes"] >> 20, a.get("capacity_bytes", 0) >> 20)
        for a in r["what_if"][0]["allocators"]][:4] == [
        ("PyTorch, as recorded", 62, 0), ("PyTorch, with its settings", 62, 62),
        ("PyTorch, expandable_segments:True", 40, 40),
        ("PyTorch, max_split_size_mb:21", 82, 52)]' || return
    holds '[(a["allocator"], a["capacity_bytes"] >> 20)
        for a in r["what_if"][0]["allocators"][4:]] == [
        ("ashlar", 36), ("ashlar, with a plan", 36)]' || return
    grep -q '^  PyTorch, as recorded  *62.0  *2  *26.0  *-$' "$scratch/stdout"
}

says_where_the_record_differs() {
    sed '8s/33554432/35651584/' "$events" >"$scratch/odd.events"
    runs 0 '' "$scratch/odd.events" || return
    grep -qF "odd.events:8: PyTorch recorded segment_alloc of 35651584 bytes" "$scratch/stdout"
}

# Device 0 is not used, and the segments of device 1 are not recorded.
knows_what_a_history_lacks() {
    {
        printf 'ashlar-events/1\n'
        event alloc 0x7f0000000000 4194304 | sed 's/0/1/' # the device
        printf 'event\t0\toom\t0x0\t512\t0\t0\t0:0\n'
    } >"$scratch/bare.events"
    runs 0 '' "$scratch/bare.events" --json "$json" || return
    grep -qF 'bare.events, device 1: 1 events' "$scratch/stdout" || return
    holds '[d["device"] for d in r["what_if"]] == [1]
        and r["what_if"][0]["allocators"][0]["unused_at_peak_bytes"] == 0'
}

# A later version records settings that are not known here.
goes_without_settings_that_are_not_known() {
    { cat "$events" && printf 'setting\tPYTORCH_CUDA_ALLOC_CONF\tnew:[a,b],max_split_size_mb:21\n'; } \
        >"$scratch/later.events"
    runs 0 '' "$scratch/later.events" --json "$json" || return
    holds 'r["what_if"][0]["allocators"][1]["reserved_peak_bytes"] >> 20 == 82' || return
    grep -qF '  recorded settings: PyTorch'\''s allocator has no setting "new"; the rules go without' \
        "$scratch/stdout"
}

refuses_settings_that_pytorch_refuses() {
    runs 2 "ashlar-replay: --torch: PyTorch's allocator has no setting \"max_split\"" "$events" \
        --torch max_split:1
}

is_equal_to_recorded_trainings() {
    for snapshot in "$snapshots"/*.pickle.gz; do
        runs 0 '' "$snapshot" --json "$json" || return
        holds 'all(d["left"] == "" and d["equal_places"] == d["places"] > 0
            and d["equal_segment_events"] == d["segment_events"] for d in r["what_if"])' || return
    done
}

is_equal_to_pytorch_itself() {
    timeout 500 python3 "$ASHLAR_SOURCE/tests/torch_random.py" "$ASHLAR_BUILD" --seeds 2 --events 3000
}

check what_if_compares_allocators compares_allocators
check a_record_that_differs_is_named says_where_the_record_differs
check what_a_history_lacks_is_known knows_what_a_history_lacks
check unknown_settings_of_a_record_are_left_out goes_without_settings_that_are_not_known
check bad_settings_are_refused refuses_settings_that_pytorch_refuses
if [ -d "$snapshots" ]; then
    check rules_are_equal_to_recorded_trainings is_equal_to_recorded_trainings
else
    skip rules_are_equal_to_recorded_trainings 'no recorded snapshots beside the source folder'
fi
if [ -z "${ASHLAR_TEST_SLOW-}" ]; then
    skip rules_are_equal_to_pytorch_itself 'it takes a minute: ./run test slow'
elif python3 -c 'import torch' 2>/dev/null; then
    check rules_are_equal_to_pytorch_itself is_equal_to_pytorch_itself
else
    skip rules_are_equal_to_pytorch_itself 'python3 has no PyTorch'
fi
check_report
