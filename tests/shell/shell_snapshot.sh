#!/bin/sh
#
# shell_snapshot.sh - of a snapshot tools/memory_viz.py makes what PyTorch's viewers can show, read
# by an unpickler that builds plain values only (check_snapshot.py).

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

# Write the snapshot NAME; EXPRESSION is true of it.
holds() { # NAME EXPRESSION
    "$ASHLAR_BUILD/tests/write_snapshot" "$1" "$scratch/$1.json" &&
        python3 "$ASHLAR_SOURCE/tests/check_snapshot.py" "$scratch/$1.json" "$2"
}

# The second device's trace comes behind an empty one; six events, the last of two parts. Small and
# large blocks lie in segments of their own.
has_allocator() {
    holds allocator 'len(s["device_traces"]) == 2 and
        [x["requested_size"] for x in segments] == [1000 + 100000, 0] and
        [b["requested_size"] for b in blocks if b["state"] == "active_allocated"] ==
            [1000, 100000] and
        [(e["action"], e["size"]) for e in trace] == [("segment_map", 2 << 20), ("alloc", 1000),
            ("segment_map", 4 << 20), ("alloc", 3 << 20), ("alloc", 100000),
            ("free_requested", 3 << 20), ("free_completed", 3 << 20)] and
        [b["address"] for b in blocks if b["requested_size"]] ==
            [trace[1]["addr"], trace[4]["addr"]] and
        [e["user_metadata"] for e in trace[1:4:2]] == ["weights", "user"]'
}

has_everything() {
    holds large 'len(blocks) == 3001 and len(trace) == 6 + 4 * 1000 + 1 and
        sum(b["state"] == "inactive" for b in blocks) == 2000 and
        [e["action"] for e in trace[:6]] == ["segment_map", "alloc", "segment_map",
            "free_requested", "free_completed", "segment_unmap"] and
        [e["size"] for e in trace[:3]] == [2 << 20, 1, 3000 << 10] and
        [e["user_metadata"] for e in trace[6:10]] == ["saved", "user", "user", "user"] and
        [e["size"] for e in trace[6:14]] == [1000, 1000, 1000, 1] + [1000] * 3 + [4]'
}

is_replayed() {
    "$ASHLAR_BUILD/tests/write_snapshot" rmm "$scratch/log.csv" && cat "$scratch/log.csv" &&
        "$ASHLAR_BUILD/bench/ashlar-replay" "$scratch/log.csv" >"$scratch/stdout" || return
    cat "$scratch/stdout"
    grep -qF 'log.csv: 4 events, 3 allocations, 0 failed; threads 1, streams 1' "$scratch/stdout"
}

refuses_others() {
    echo '{"schema": "ashlar-train/1"}' >"$scratch/other.json"
    echo '{' >"$scratch/cut.json"
    for name in other cut none; do
        if python3 "$ASHLAR_SOURCE/tools/memory_viz.py" "$scratch/$name.json" "$scratch/none.pickle" \
            2>"$scratch/stderr"; then
            return 1
        fi
        cat "$scratch/stderr"
        [ "$(wc -l <"$scratch/stderr")" -eq 1 ] && grep -qF "$scratch/$name.json" "$scratch/stderr" &&
            [ ! -e "$scratch/none.pickle" ] || return
    done
}

check 'an_allocator_is_shown_with_its_trace' has_allocator
check 'every_block_and_event_is_there' has_everything
check 'the_trace_of_an_allocator_can_be_replayed' is_replayed
check 'the_tool_refuses_other_files_in_one_line' refuses_others
check_report
