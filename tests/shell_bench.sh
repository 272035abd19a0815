#!/bin/sh
#
# shell_bench.sh - the benchmark runs, and its rows hold what they promise. No timing is judged.

# shellcheck source=tests/tap.sh
. "$(dirname "$0")/tap.sh"

bench=$ASHLAR_BUILD/bench/ashlar-bench
rows=$scratch/rows.json

rows_are_complete() {
    python3 - "$rows" <<'END'
import json, sys
rows = json.load(open(sys.argv[1]))
keys = {"workload", "variant", "threads", "subject", "ns_pair", "driver_calls", "reserved_over_live"}
assert rows and all(set(row) == keys and row["ns_pair"] > 0 for row in rows), rows
ours = [row for row in rows if row["subject"] == "ashlar"]
driver = [row for row in rows if row["subject"] == "driver"]
assert len(ours) == len(driver) == 3, rows
# Blocks are reused: what the driver is asked does not grow with the pairs. Its own pairs do ask.
assert all(row["driver_calls"] <= 3 for row in ours), ours
assert all(row["driver_calls"] > 100 for row in driver), driver
END
}

refuses_unknown_words() {
    "$bench" nonsense 2>"$scratch/stderr"
    [ $? -eq 2 ] && [ "$(wc -l <"$scratch/stderr")" -eq 1 ] && grep -q nonsense "$scratch/stderr"
}

check 'a_smoke_run_succeeds' "$bench" alloc --smoke --device soft --json "$rows"
check 'its_rows_are_complete' rows_are_complete
check 'unknown_words_are_refused' refuses_unknown_words
check_report
