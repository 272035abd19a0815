#!/bin/sh
#
# shell_replay.sh - what ashlar-replay prints, writes and answers; and that it replays the recorded
# trainings beside the source folder, where they are, in little more memory than they need.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

replay=$ASHLAR_BUILD/bench/ashlar-replay
traces=$ASHLAR_SOURCE/../shared/traces/pytorch
log=$scratch/stone.csv
json=$scratch/out.json
header=Thread,Time,Action,Pointer,Size,Stream

# Two threads, streams as RMM writes them, a block of 3 MiB and one of 1 MiB together.
cat >"$log" <<END
$header
71,10:00:00.000001,allocate,0x7f00,3145728,0
72,10:00:00.000002,allocate,0x7f80,1048576,55aa00f0
71,10:00:00.000003,allocate failure,(nil),99999999999,0
72,10:00:00.000004,free,0x7f00,3145728,55aa00f0
72,10:00:00.000005,allocate,0x7f00,2097152,55aa00f0
END

runs() { # STATUS WORDS ARGUMENT...
    status=$1 words=$2
    shift 2
    rm -f "$json"
    ends_with "$status" "$words" timeout 60 "$replay" "$@"
}

holds() { # EXPRESSION
    json_holds "$json" "$1"
}

helps() {
    runs 0 '' --help || return
    wide=$(awk 'length > 80' "$scratch/stdout")
    [ -z "$wide" ] || complain "wider than 80 columns: $wide" || return
    [ "$(wc -l <"$scratch/stdout")" -le 24 ] || return
    for word in FILE... --memory --find-capacity --repeat --plan --json --html --help 1TiB; do
        grep -qF -e "$word" "$scratch/stdout" || complain "lacks $word" || return
    done
}

# Where memory is plenty no stream waits for another one's: each has its own.
writes_figures() {
    runs 0 '' "$log" --memory 1GiB --json "$json" || return
    holds 'r == {"schema": "ashlar-replay/1", "trace": r["trace"], "memory_bytes": 1 << 30,
        "events": 5, "allocations": 3, "threads": 2, "streams": 2, "recorded_failures": 1, "failures": 0, "live_peak_bytes": 4 << 20,
        "reserved_peak_bytes": 8 << 20, "passes": 1, "reserved_after_pass_bytes": [8 << 20],
        "driver_calls": r["driver_calls"], "hit_rate": 0} and r["driver_calls"] > 0' || return
    holds 'r["trace"].endswith("/stone.csv")' &&
        grep -qF 'stone.csv: 5 events, 3 allocations, 0 failed; threads 2, streams 2' \
            "$scratch/stdout" &&
        grep -qF 'peak live 4.0 MiB, reserved 8.0 MiB (2.000 x), of 1024 MiB' "$scratch/stdout" &&
        ! grep -q 'passes' "$scratch/stdout" || return
    [ -z "$(find "$scratch" -name '*.tmp')" ] || complain 'a temporary is left'
}

finds_capacity() {
    runs 0 '' --find-capacity --json "$json" "$log" || return
    grep -qF '1 request failed in the log itself, and is not made again: with it at least' \
        "$scratch/stdout" &&
        grep -qF 'and not with 2 MiB less, but for what failed in the log' "$scratch/stdout" || return
    holds 'r["capacity_bytes"] == 4 << 20 and r["memory_bytes"] == 1 << 40 and r["passes"] == 20' &&
        grep -qF 'all passes succeed on a device of 4 MiB and not with 2 MiB less' \
            "$scratch/stdout" || return
    runs 0 '' --find-capacity --repeat=1 --json "$json" "$log" || return
    holds 'r["capacity_bytes"] == 4 << 20 and r["passes"] == 1' &&
        grep -qF '  passes on a device of 4 MiB and not with 2 MiB less' "$scratch/stdout"
}

on_page() { # EXPRESSION
    python3 "$ASHLAR_SOURCE/tests/check_page.py" "$scratch/out.html" "$1"
}

draws() {
    html=$scratch/out.html
    runs 0 '' "$log" --find-capacity --repeat 1 --html "$html" --json "$scratch/out.json" || return
    on_page "d == load('$scratch/out.json') and d['reserved_peak_bytes'] == 8 << 20 and
        [(b['bytes'], b['begin'], b['end']) for b in rows(d['blocks'])] ==
            [(3145728, 0, 3), (1048576, 1, 5), (2097152, 4, 5)]" || return
    runs 2 '--html' "$log" "$log" --html "$html" &&
        runs 1 /nowhere/out.html "$log" --html /nowhere/out.html && [ ! -s "$scratch/stdout" ] ||
        return
    # What did not fit is not there; the others are.
    runs 1 "$log:2:" "$log" --memory 2MiB --html "$html" &&
        on_page "1048576 in [b['bytes'] for b in rows(d['blocks'])] and
            3145728 not in [b['bytes'] for b in rows(d['blocks'])]"
}

# Three marked steps of two blocks each; the third one's first block is larger than recorded.
replays_on_a_plan() {
    {
        echo "$header"
        for bytes in 3000000,2000 1000000,2000 3000000,2100; do
            echo 71,,step,,0,0
            echo "71,,allocate,0x10,${bytes%,*},0"
            echo "71,,allocate,0x20,${bytes#*,},0"
            echo 71,,free,0x10,0,0
            echo 71,,free,0x20,0,0
        done
    } >"$scratch/steps.csv"
    runs 0 '' "$scratch/steps.csv" --plan --json "$json" || return
    holds 'r["steps"] == 3 and r["step_allocations"] == 2 and r["is_log_repeated"] is False and
        r["bound_bytes"] == 3002368 == r["plan_bytes"] and r["gap"] == 0 and
        r["plan_hits"] == 3 and r["plan_misses"] == 1 and r["plan_unplanned"] == 0 and
        r["plan_misses_by_reason"]["larger than recorded"] == 1 and
        sum(r["plan_misses_by_reason"].values()) == 1' || return
    grep -qF 'plan 2.9 MiB, bound 2.9 MiB, gap 0.000 %' "$scratch/stdout" &&
        grep -qF 'missed 1: larger than recorded' "$scratch/stdout" || return
    runs 0 '' "$log" --plan --json "$json" &&
        holds 'r["is_log_repeated"] and r["steps"] == 2 == r["passes"] and r["events"] == 5' ||
        return
    runs 0 '' "$scratch/steps.csv" --plan --repeat 4 --json "$json" &&
        holds 'r["steps"] == 12 and r["plan_bytes"] == 3002368 and r["passes"] == 4 and
            r["plan_hits"] == 3 + 3 * 5 and r["plan_misses"] == 4' || return
    runs 0 '' "$log" --json "$json" && holds '"steps" not in r and "plan_bytes" not in r'
}

refuses_bad_log() {
    printf '%s\n1,0,allocate,0x10,5,0\n1,0,free,0x20,5,0\n' "$header" >"$scratch/bad.csv"
    runs 1 "$scratch/bad.csv:3: 0x20" "$scratch/bad.csv" --json "$json" || return
    [ ! -e "$json" ] && [ ! -s "$scratch/stdout" ]
}

usage_is_2() {
    runs 2 '--repeat: "0"' "$log" --repeat 0 && runs 2 'leave out --repeat' --pack x --repeat 2 &&
        runs 2 'no log given' && runs 2 '--nonsense' "$log" --nonsense && runs 2 '-x:' "$log" -x &&
        runs 2 'json' "$log" --json || return
    printf 'ashlar-events/1\n' >"$scratch/a.events"
    runs 2 '--torch is about snapshots' "$log" --torch max_split_size_mb:40 &&
        runs 2 '--repeat is about logs' "$scratch/a.events" --repeat 2 --plan &&
        runs 2 '--plan is about logs' "$scratch/a.events" --plan || return
    for size in '' 4 GiB 0GiB -1GiB 4gib 4GB 1MiB 1B 65TiB 1,5GiB '4 GiB' 4GiB,seed=1 \
        99999999999999999999TiB; do
        runs 2 '--memory' "$log" --memory "$size" || return
    done
}

does_not_lose_output() {
    "$replay" "$log" >/dev/full 2>"$scratch/stderr"
    [ $? -eq 1 ] && [ "$(wc -l <"$scratch/stderr")" -eq 1 ] || return
    runs 1 /nowhere/out.json "$log" --json /nowhere/out.json || return
    [ ! -s "$scratch/stdout" ] # said before the work, not after it
}

# The same trace twenty times. What the allocator keeps from pass to pass may cost a few percent.
repeats_in_bounds() { # FILE LIVE
    runs 0 '' "$1" --find-capacity --json "$json" || return
    holds "r['failures'] == 0 and r['passes'] == 20 == len(r['reserved_after_pass_bytes']) and
        max(r['reserved_after_pass_bytes']) <= r['reserved_peak_bytes'] and
        r['live_peak_bytes'] <= r['capacity_bytes'] <= r['reserved_peak_bytes'] <= 1.08 * $2 * 2**20"
}

# LIVE and BEST are what is live at peak and what best fit in one growing range took, in MiB; BEST
# is inf where that was not measured.
replays_in_little_memory() { # FILE LIVE BEST
    runs 0 '' "$1" --find-capacity --repeat 1 --json "$json" || return
    holds "r['failures'] == 0 and r['live_peak_bytes'] >> 20 == $2 and r['capacity_bytes'] >= r['live_peak_bytes'] and
        max(r['reserved_peak_bytes'], r['capacity_bytes']) <= 1.02 * float('$3') * 2**20"
}

check 'help_fits_on_a_screen_and_names_everything' helps
check 'the_figures_are_those_of_the_log' writes_figures
check 'the_smallest_device_is_found' finds_capacity
check 'a_page_shows_where_the_blocks_were' draws
check 'steps_are_replayed_on_a_plan' replays_on_a_plan
check 'a_bad_log_is_refused_by_its_line' refuses_bad_log
check 'bad_options_are_usage' usage_is_2
check 'what_cannot_be_written_is_a_failure' does_not_lose_output
for trace in 'gpt_medium_128_inference 1658 inf' 'gpt_medium_128_train 6690 6897' \
    'gpt_medium_512_train 11852 11944'; do
    # shellcheck disable=SC2086 # words
    set -- $trace
    file=$traces/$1.rmm.csv.gz
    if [ ! -e "$file" ]; then
        skip "$1_is_replayed_in_little_memory" "no $file"
        skip "$1_is_repeated_in_bounds" "no $file"
    else
        gzip -dc "$file" >"$scratch/$1.csv" && file=$scratch/$1.csv
        check "$1_is_replayed_in_little_memory" replays_in_little_memory "$file" "$2" "$3"
        check "$1_is_repeated_in_bounds" repeats_in_bounds "$file" "$2"
    fi
done
check_report
