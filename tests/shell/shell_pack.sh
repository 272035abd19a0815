#!/bin/sh
#
# shell_pack.sh - what ashlar-replay --pack prints, writes and answers; and that it solves the
# problems and packs the recorded trainings beside the source folder, where they are.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

replay=$ASHLAR_BUILD/bench/ashlar-replay
traces=$ASHLAR_SOURCE/../shared/traces
problem=$scratch/stone.csv
json=$scratch/out.json
plan=$scratch/plan.csv

cat >"$problem" <<END
id,lower,upper,size
a,0,2,300
b,1,3,200
c,2,4,300
END

packs() { # STATUS WORDS ARGUMENT...
    status=$1 words=$2
    shift 2
    rm -f "$json" "$plan"
    ends_with "$status" "$words" timeout 100 "$replay" "$@"
}

holds() { # EXPRESSION
    json_holds "$json" "$1"
}

# The rows of PROBLEM with offsets, without an overlap, at most CAPACITY high.
is_solution() { # PROBLEM PLAN CAPACITY
    python3 - "$@" <<'END'
import csv, sys
rows = list(csv.DictReader(open(sys.argv[2])))
for row in rows:
    for key in ("lower", "upper", "size", "offset"):
        row[key] = int(row[key])
    assert row["offset"] + row["size"] <= int(sys.argv[3]), row
for i, x in enumerate(rows):
    for y in rows[:i]:
        assert (x["upper"] <= y["lower"] or y["upper"] <= x["lower"]
                or x["offset"] + x["size"] <= y["offset"]
                or y["offset"] + y["size"] <= x["offset"]), (x, y)
want = list(csv.DictReader(open(sys.argv[1])))
assert [r["id"] for r in want] == [r["id"] for r in rows]
END
}

writes_figures() {
    packs 0 '' --pack "$problem" --json "$json" --out "$plan" || return
    holds 'r == {"schema": "ashlar-pack/1", "case": r["case"], "subject": "ashlar", "optimal": True,
        "buffers": 3, "plan_bytes": 500, "bound_bytes": 500,
        "gap": 0, "capacity_bytes": None, "fits": True, "seconds": r["seconds"],
        "strategy": r["strategy"]} and r["seconds"] >= 0 and r["strategy"] != ""' || return
    grep -qF 'stone.csv: 3 buffers, bound 500, plan 500 bytes, gap 0.000 %' "$scratch/stdout" &&
        [ "$(wc -l <"$scratch/stdout")" -eq 1 ] && is_solution "$problem" "$plan" 500
}

meets_capacity() {
    for capacity in '500 500' '501 501' '1KiB 1024'; do
        packs 0 '' --pack "$problem" --capacity "${capacity% *}" --json "$json" || return
        holds "r['fits'] and r['capacity_bytes'] == ${capacity#* }" &&
            grep -qF ': fits' "$scratch/stdout" || return
    done
}

misses_capacity() {
    packs 1 'stone.csv 500 499' --pack "$problem" --capacity 499 --json "$json" --out "$plan" ||
        return
    holds 'not r["fits"] and r["capacity_bytes"] == 499 and r["plan_bytes"] == 500' &&
        grep -qF 'does not fit' "$scratch/stdout" && is_solution "$problem" "$plan" 500
}

refuses_bad_problem() {
    printf 'id,lower,upper,size\n0,1,2,0\n' >"$scratch/bad.csv"
    packs 1 'bad.csv:2: size' --pack "$scratch/bad.csv" --json "$json" && [ ! -e "$json" ] &&
        [ ! -s "$scratch/stdout" ] && packs 1 /nowhere --pack /nowhere/in.csv &&
        packs 1 /nowhere --pack "$problem" --out /nowhere/out.csv
}

usage_is_2() {
    packs 2 -- --capacity 5 && packs 2 --out --out "$plan" &&
        packs 2 other --pack "$problem" "$problem" &&
        packs 2 --find-capacity --pack "$problem" --find-capacity &&
        packs 2 --capacity --pack "$problem" --capacity 0 &&
        packs 2 --capacity --pack "$problem" --capacity 5x
}

solves() { # FILE
    packs 0 '' --pack "$1" --capacity 1048576 --out "$plan" --json "$json" &&
        holds 'r["fits"] and r["plan_bytes"] <= 1048576' && is_solution "$1" "$plan" 1048576
}

# Blocks of a log of RMM as a problem: live from their row to that of their free, or to the end.
draws_the_plan() {
    packs 0 '' --pack "$problem" --html "$scratch/plan.html" --json "$json" || return
    python3 "$ASHLAR_SOURCE/tests/check_page.py" "$scratch/plan.html" "d == load('$json') and
        len(rows(d['blocks'])) == 3 and
        max(b['address'] + b['bytes'] for b in rows(d['blocks'])) == d['plan_bytes']"
}

packs_trace() { # FILE
    python3 - "$1" >"$scratch/trace.csv" <<'END'
import csv, gzip, sys
live, rows = {}, list(csv.DictReader(gzip.open(sys.argv[1], "rt")))
print("id,lower,upper,size")
for i, row in enumerate(rows):
    if row["Action"] == "allocate":
        live[row["Pointer"]] = (i, row["Size"])
    else:
        begin, size = live.pop(row["Pointer"])
        print("%d,%d,%d,%s" % (begin, begin, i, size))
for begin, size in live.values():
    print("%d,%d,%d,%s" % (begin, begin, len(rows), size))
END
    packs 0 '' --pack "$scratch/trace.csv" --json "$json" && holds 'r["gap"] <= 0.005'
}

check 'the_figures_and_the_plan_are_those_of_the_problem' writes_figures
check 'a_page_shows_the_plan' draws_the_plan
check 'a_capacity_is_met' meets_capacity
check 'a_capacity_that_is_missed_is_a_failure_with_figures' misses_capacity
check 'a_bad_problem_is_refused_by_its_line' refuses_bad_problem
check 'bad_options_are_usage' usage_is_2
for name in A B C D E F G H I J K; do
    file=$traces/minimalloc/$name.1048576.csv
    if [ -e "$file" ]; then
        check "minimalloc_${name}_is_solved" solves "$file"
    else
        skip "minimalloc_${name}_is_solved" "no $file"
    fi
done
for name in gpt_medium_128_inference gpt_medium_128_train gpt_medium_512_train; do
    file=$traces/pytorch/$name.rmm.csv.gz
    if [ -e "$file" ]; then
        check "${name}_is_packed_close_to_the_bound" packs_trace "$file"
    else
        skip "${name}_is_packed_close_to_the_bound" "no $file"
    fi
done
check_report
