#!/bin/sh
#
# shell_train.sh - a small training from the outside: its report, its repeatability, its silence.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

data=$scratch/data.txt
write_text "$data"

small() { # JSON OPTION...
    report=$1
    shift
    timeout 120 "$train" --data "$data" --device soft --steps 12 --layers 1 --hidden 32 \
        --batch 4 --max-length 64 --json "$report" "$@" </dev/null
}

# The value of a key of the report, numbers with all the digits they were written with.
value() { # JSON KEY
    python3 - "$1" "$2" <<'END'
import json, sys
value = json.load(open(sys.argv[1]), parse_float=str)[sys.argv[2]]
print(str(value).lower() if isinstance(value, bool) else value)
END
}

is() { # KEY WANTED
    got=$(value "$scratch/a.json" "$1")
    [ "$got" = "$2" ] || complain "$1 is '$got', want '$2'"
}

names_software() {
    value "$scratch/a.json" device | grep -x 'soft:[0-9]*'
}

is_above() { # KEY BOUND
    got=$(value "$scratch/a.json" "$1")
    echo "$1 is '$got', want more than $2"
    case $got in *[!0-9.eE+-]* | '') return 1 ;; esac # nan, inf, a string
    awk -v got="$got" -v bound="$2" 'BEGIN { exit !(got + 0 > bound + 0) }'
}

is_json() {
    python3 -m json.tool "$1" >/dev/null
}

same() { # KEY FILE FILE
    one=$(value "$2" "$1") two=$(value "$3" "$1")
    echo "$1: '$one' and '$two'"
    [ -n "$one" ] && [ "$one" = "$two" ]
}

peak_fits_what_is_reserved() {
    is_above live_peak_bytes 0 || return
    is_above reserved_peak_bytes "$(($(value "$scratch/a.json" live_peak_bytes) - 1))"
}

says_nothing() {
    small "$scratch/quiet.json" --seed 7 --quiet >"$scratch/stdout" || return
    cat "$scratch/stdout"
    [ ! -s "$scratch/stdout" ] && [ -s "$scratch/quiet.json" ]
}

# With the report of leaks on, which goes to stderr.
leaves_nothing() {
    (ASHLAR_CONF=leaks=on && export ASHLAR_CONF && small "$scratch/leaks.json" --seed 7) \
        2>"$scratch/stderr" || return
    cat "$scratch/stderr"
    ! grep leak "$scratch/stderr"
}

check 'a_small_training_succeeds' small "$scratch/a.json" --seed 7
check 'the_report_is_json' is_json "$scratch/a.json"
check 'no_block_is_left_at_the_end' leaves_nothing
check 'the_report_names_the_software_device' names_software
check 'no_step_after_warm_up_calls_the_driver' is driver_calls_after_warmup 0
check 'the_weights_are_contiguous' is weights_contiguous true
check 'the_peak_of_live_bytes_fits_the_reserved' peak_fits_what_is_reserved

check 'the_same_seed_runs_again' small "$scratch/b.json" --seed 7
check 'the_same_seed_gives_the_same_first_loss' same loss_first "$scratch/a.json" "$scratch/b.json"
check 'the_same_seed_gives_the_same_last_loss' same loss_last "$scratch/a.json" "$scratch/b.json"
check 'quiet_prints_nothing' says_nothing

# A plan decides where blocks lie, and nothing else.
check 'without_a_plan_it_runs_too' small "$scratch/unplanned.json" --seed 7 --no-plan
check 'no_plan_changes_no_loss' same loss_last "$scratch/a.json" "$scratch/unplanned.json"

check 'with_three_plans_it_runs_too' small "$scratch/buckets.json" --seed 7 --buckets 3
check 'more_plans_change_no_loss' same loss_last "$scratch/a.json" "$scratch/buckets.json"
check 'every_step_is_replayed' is steps_replayed 12

# What saves memory says what it saves, and trains as the whole batch does.
saves() { # JSON OPTION...
    report=$1
    small "$@" --seed 7 >"$scratch/stdout" &&
        json_holds "$report" 'r["plan_bytes"] == r["bound_bytes"] and r["plan_misses"] == 0 and
            r["driver_calls_after_warmup"] == 0'
}
is_near() { # JSON: its loss is that of the first training, to rounding
    python3 - "$scratch/a.json" "$1" <<'END'
import json, sys
a, b = (json.load(open(path))["loss_last"] for path in sys.argv[1:])
print(a, b)
sys.exit(not abs(a - b) < 1e-5 * a)
END
}
whole=$(value "$scratch/a.json" plan_bytes)
check 'a_batch_is_worked_off_in_pieces' saves "$scratch/saved.json" --accumulate 4
check 'the_report_says_it_too' json_holds "$scratch/saved.json" \
    "r['step_bytes_without'] == {'accumulate': $whole} and r['plan_bytes'] < 0.3 * $whole"
check 'pieces_change_no_loss_but_by_rounding' is_near "$scratch/saved.json"
check 'activations_are_recomputed' saves "$scratch/saved.json" --recompute auto
check 'in_chunks_of_about_two_roots' json_holds "$scratch/saved.json" 'r["config"]["recompute"] == 16'
check 'that_saves_more_than_half' json_holds "$scratch/saved.json" \
    "r['step_bytes_without'] == {'recompute': $whole} and r['plan_bytes'] < 0.5 * $whole"
check 'recomputing_changes_no_loss_but_by_rounding' is_near "$scratch/saved.json"

snapshot_is_made() { # what the model holds, and the trace that the environment asked for
    ASHLAR_CONF=trace=100000 small "$scratch/traced.json" --seed 7 --quiet \
        --snapshot "$scratch/memory.json" &&
        python3 "$ASHLAR_SOURCE/tests/check_snapshot.py" "$scratch/memory.json" \
            'len(segments) >= 1 and trace[0]["action"] == "segment_map" and
            sum(e["action"] == "alloc" for e in trace) > 12 * 3 and
            {"weights", "gradients", "activations"} <= {e["user_metadata"] for e in trace} and
            sum(b["requested_size"] for b in blocks) > 0'
}

check 'a_snapshot_shows_the_memory_and_the_trace' snapshot_is_made
check 'tracing_changes_no_number' same loss_last "$scratch/a.json" "$scratch/traced.json"

# A model that needs tens of MiB: here the warm-up has something to do, and what it is for shows.
larger() {
    timeout 300 "$train" --data "$data" --device soft --steps 60 --layers 2 --hidden 96 --batch 16 \
        --max-length 240 --json "$scratch/larger.json" --quiet </dev/null
}

holds() { # PYTHON-EXPRESSION over r, the report
    json_holds "$scratch/larger.json" "$1"
}

saves_first() { # a reader that goes away takes neither weights nor report with it
    "$train" --data "$data" --device soft --steps 2 --layers 1 --hidden 16 --batch 2 --max-length 32 \
        --sample 100000 --save "$scratch/piped.safetensors" --json "$scratch/piped.json" |
        head -c 10 >/dev/null
    [ -s "$scratch/piped.safetensors" ] && [ -s "$scratch/piped.json" ]
}

closed_output_changes_nothing() { # descriptor 1 must not become the device's memory
    "$train" --data "$data" --device soft --steps 12 --layers 1 --hidden 32 --batch 4 \
        --max-length 64 --seed 7 --json "$scratch/closed.json" >&- 2>"$scratch/stderr"
    [ $? -eq 1 ] || complain 'a lost output is no success' || return
    same loss_last "$scratch/a.json" "$scratch/closed.json"
}

check 'a_larger_training_succeeds' larger
check 'none_of_its_steps_does' holds 'r["driver_calls_after_warmup"] == 0'
check 'it_reserves_little_more_than_is_live' \
    holds 'r["live_peak_bytes"] <= r["reserved_peak_bytes"] <= r["live_peak_bytes"] + (4 << 20)'
check 'a_step_has_no_more_memory_than_it_needs' \
    holds 'r["bound_bytes"] <= r["step_reserved_bytes"] <= 1.01 * r["bound_bytes"]'
check 'it_learns' holds 'r["loss_last"] < 0.85 * r["loss_first"]'
check 'what_was_trained_is_saved_before_it_is_shown' saves_first
check 'a_closed_output_changes_no_number' closed_output_changes_nothing
# Each buffer of a shorter step is smaller, yet with this shape they fall into other holes than the
# longest step left, and the last one into none: a warm-up of that step alone made 3 calls later.
shapes_that_fall_elsewhere() {
    awk 'BEGIN { for (i = 1; i <= 645; i++) { text = text "x"; print text; print "%" } }' \
        >"$scratch/stairs.txt"
    timeout 300 "$train" --data "$scratch/stairs.txt" --device soft --layers 2 --hidden 33 \
        --embedding 300 --batch 1 --max-length 646 --threads 1 --quiet \
        --json "$scratch/larger.json" "$@" </dev/null &&
        holds 'r["driver_calls_after_warmup"] == 0'
}

check 'with_a_plan_there_are_no_holes' shapes_that_fall_elsewhere --steps 40
# Of small blocks and of large ones, each in handles of their own.
check_report
