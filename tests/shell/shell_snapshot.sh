#!/bin/sh
#
# shell_snapshot.sh - of a snapshot tools/memory_viz.py makes what PyTorch's viewers can show, read
# by an unpickler that builds plain values only (check_snapshot.py).

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

write_text "$scratch/text"
ASHLAR_CONF=trace=20000 "$train" --data "$scratch/text" --device soft --layers 1 --hidden 32 \
    --batch 4 --max-length 32 --steps 4 --quiet --json "$scratch/report.json" \
    --snapshot "$scratch/memory.json" </dev/null || exit

# What the file has, block for block and event for event.
is_shown() {
    python3 "$ASHLAR_SOURCE/tests/check_snapshot.py" "$scratch/memory.json" '
        [b["requested_size"] for b in blocks if b["state"] == "active_allocated"] ==
            [row[file["blocks"]["columns"].index("requested")] for row in file["blocks"]["rows"]
             if row[-1] == "live"] != [] and
        sum(e["action"] == "alloc" for e in trace) ==
            sum(row[0] == "alloc" for row in file["events"]["rows"]) > 30 and
        {"weights", "activations"} <= {e["user_metadata"] for e in trace}'
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

check 'a_training_is_shown_with_its_trace' is_shown
check 'the_tool_refuses_other_files_in_one_line' refuses_others
check_report
