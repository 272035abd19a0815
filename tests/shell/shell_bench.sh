#!/bin/sh
#
# shell_bench.sh - the benchmark runs, and its rows hold what they promise. No timing is judged.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

# Meson has glibc fill all memory that is freed, which for a benchmark of it is gigabytes.
unset MALLOC_PERTURB_

bench=$ASHLAR_BUILD/bench/ashlar-bench
rows=$scratch/rows.json
peers=$ASHLAR_BUILD/tests

# One row for each workload and subject, whose figures agree with each other.
rows_are_complete() {
    json_holds "$rows" '(lambda rows: {"one_size", "mix", "random", "latency", "handoff", "live_1e6",
            "rnn_warm", "rnn_cold"} <= {x["workload"] for x in rows} and
        {"ashlar", "floor", "driver"} <= {x["subject"] for x in rows} and
        len({(x["workload"], x["variant"], x["threads"], x["subject"]) for x in rows}) == len(rows)
        and all(0 < x["ns_pair_low"] <= x["ns_pair"] <= x["ns_pair_high"] for x in rows))(r["rows"])' &&
        json_holds "$rows" 'all(x["over_ashlar"] == 1 and x["reserved_over_live"] > 0.99
            for x in r["rows"] if x["subject"] == "ashlar" and x["workload"] != "handoff")' ||
        return
    # Blocks are reused: what the driver is asked does not grow with the pairs. Its own pairs do ask.
    json_holds "$rows" '(lambda calls: calls["one_size", "4096", "ashlar"] <= 4 and
        calls["one_size", "4096", "driver"] == 512 and calls["rnn_warm", "", "ashlar"] <= 3 and
        calls["rnn_warm", "", "driver"] == 40000)({(x["workload"], x["variant"], x["subject"]):
            x["driver_calls"] for x in r["rows"] if x["threads"] == 1})'
}

prints_a_table_and_targets() {
    grep -q '^workload .* x floor ' "$scratch/table" || complain 'no head' || return
    [ "$(grep -c '^rnn_cold  ' "$scratch/table")" -ge 4 ] || complain 'no rows' || return
    grep -q '^\(met\|NOT MET\) *one_size  *4096 .*pair cost / floor' "$scratch/table" || return
    grep -q '^  cub: half of the pairs within ' "$scratch/table" ||
        ! grep -q '^one_size .* cub ' "$scratch/table" || complain 'no latencies' || return
    grep -q '^  floor: .* bytes of host memory for each live block' "$scratch/table"
}

# It says so before its figures, and behind them.
smoke_run() {
    "$bench" alloc --smoke --device soft --json "$rows" >"$scratch/table" || return
    said='A smoke run: a few short rounds, to see it run. Its figures mean nothing.'
    [ "$(head -n 1 "$scratch/table")" = "$said" ] && [ "$(tail -n 1 "$scratch/table")" = "$said" ]
}

takes_only_what_is_asked_for() {
    "$bench" alloc --smoke --device soft --workload mix/shuffled --workload random \
        --subject floor --subject none --threads 2 --json "$rows" || return
    json_holds "$rows" '[(x["workload"], x["variant"], x["threads"], x["subject"])
            for x in r["rows"]] == [(w, v, 2, s) for w, v in (("mix", "shuffled"), ("random", ""))
            for s in ("floor", "none")]'
}

# A shared object runs beside the others, in the same lists; who calls the driver is not known.
measures_a_loaded_peer() {
    "$bench" alloc --smoke --device soft --workload one_size/4096 --workload mix/shuffled \
        --peer "$peers/stone.so" --subject ashlar --subject stone --json "$rows" || return
    json_holds "$rows" '[(x["variant"], x["threads"], x["subject"]) for x in r["rows"]] ==
        [(v, t, s) for v, t in (("4096", 1), ("4096", 2), ("shuffled", 1), ("shuffled", 2))
         for s in ("ashlar", "stone")]' || return
    json_holds "$rows" 'all(x["over_ashlar"] > 0 and
        (x["driver_calls"] is None) == (x["subject"] == "stone") for x in r["rows"])'
}

# Every list on the three subjects, and the packing.
measures_plans() {
    "$bench" plan --smoke --device soft --json "$rows" >"$scratch/table" || return
    grep -q '^\(met\|NOT MET\) *pack  *training .*gap' "$scratch/table" || return
    json_holds "$rows" '{(x["workload"], x["subject"]) for x in r["rows"]} >=
        {("one_size", "plan"), ("rnn_step", "plan"), ("rnn_warm", "floor")} and
        [x["driver_calls"] for x in r["rows"]
            if (x["workload"], x["subject"]) == ("rnn_warm", "plan")] == [0] and
        len(r["packings"]) == 4 and all(0 <= x["gap"] <= 0.03 and x["seed"] > 0 and
            (x["optimal"] or x["gap"] > 0) for x in r["packings"])'
}

# Every case and operation on its subjects, and no path in the file.
measures_arenas() {
    mkdir "$scratch/folder"
    (TMPDIR=$scratch/folder && export TMPDIR &&
        "$bench" arena --smoke --device soft --json "$rows") >"$scratch/table" || return
    rmdir "$scratch/folder" || complain 'checkpoints are left' || return
    ! grep -F "$scratch" "$rows" || complain 'a path' || return
    grep -q '^\(met\|NOT MET\) *large  *adamw .*copy loop' "$scratch/table" || return
    json_holds "$rows" '{x["operation"] for x in r["rows"]} == {"adamw", "zero", "norm", "flatten",
            "save_state", "load_state"} and len(r["rows"]) == 5 * 6 * 2 and
        all(0 < x["ns_low"] <= x["ns"] <= x["ns_high"] for x in r["rows"])'
}

# Every case and subject.
measures_rnns() {
    "$bench" rnn --smoke --device soft --threads 1 --json "$rows" >"$scratch/table" || return
    grep -q '^\(met\|NOT MET\) *lstm_T64_B32_H256_L2  *ashlar / static' "$scratch/table" || return
    json_holds "$rows" 'len({x["case"] for x in r["rows"]}) >= 9 and r["threads"] == 1 and
        {"ashlar", "driver_each_step", "static_buffer"} <= {x["subject"] for x in r["rows"]} and
        all(0 < x["ms_step_low"] <= x["ms_step"] <= x["ms_step_high"] and x["over_static"] > 0 and
            (x["ms_backward"] is None) == ("inference" in x["case"]) for x in r["rows"])'
}

# All cases, with a python3 that has no PyTorch: where several ranks can run, on 1, 2 and 4.
trains_on_ranks() {
    (PYTHONPATH=$scratch/bare && export PYTHONPATH && mkdir -p "$PYTHONPATH/torch" &&
        echo 'raise ImportError' >"$PYTHONPATH/torch/__init__.py" &&
        python3 "$ASHLAR_SOURCE/bench/ranks.py" "$ASHLAR_BUILD/rnn/ashlar-train" --smoke \
            --json "$rows") >"$scratch/table" || return
    grep -qx 'torch_gloo is left out: python3 has no PyTorch.' "$scratch/table" || return
    json_holds "$rows" '{(x["case"], x["subject"]) for x in r["rows"]} == {(c, s)
            for c in ("strong", "weak") for s in ("ashlar", "reproducible")} and
        all(x["ms_step"] > 0 and x["parameters"] > 0 and "over_torch" not in x for x in r["rows"])'
}

# Their times are virtual, the same every time: 200 launches and 4 of 5 us more, each shorter. So is
# the picture of docs/pytorch.md.
counts_launches() {
    "$ASHLAR_SOURCE/bench/arena/launches.py" "$bench" --smoke --out "$rows" \
        --traces "$scratch/traces" || return
    cmp "$scratch/traces/launches.svg" "$ASHLAR_SOURCE/docs/launches.svg" || return
    json_holds "$scratch/traces/per_tensor.json" 'len(r["traceEvents"]) == 2 * 202 + 1' || return
    json_holds "$rows" '[x["launches"] for x in r["rows"]] == [202, 1, 8, 0] and
        30 < r["rows"][1]["at_5_us"] < 40 and r["rows"][0]["at_10_us"] > 202 * 10 and
        r["rows"][2]["at_10_us"] > 80 and r["lstm_forward_ms"] > 0'
}

is_usage_error() { # WORD-OF-THE-MESSAGE ARGUMENT...
    word=$1
    shift
    "$bench" "$@" 2>"$scratch/stderr"
    [ $? -eq 2 ] && [ "$(wc -l <"$scratch/stderr")" -eq 1 ] && grep -q -e "$word" "$scratch/stderr"
}

refuses_unknown_words() {
    is_usage_error nonsense nonsense || complain 'a word' || return
    is_usage_error chaos alloc --workload chaos || complain 'a workload' || return
    is_usage_error rnn_step plan --workload mix || complain 'a workload of another group' || return
    is_usage_error 10000_tensors arena --workload mix || complain 'a workload of alloc' || return
    is_usage_error --workload arena --subject arena || complain 'an option of alloc' || return
    is_usage_error lstm_T64 rnn --workload mix || complain 'a case' || return
    is_usage_error static_buffer rnn --subject cub || complain 'a subject of alloc' || return
    is_usage_error --subject rnn --pairs 3 || complain 'an option of alloc' || return
    is_usage_error ceiling alloc --subject ceiling || complain 'a subject' || return
    is_usage_error --threads alloc --threads 65 || complain 'threads' || return
    is_usage_error gpu alloc --device gpu || complain 'a device'
}

fails_before_it_measures() {
    timeout 5 "$bench" alloc --json /nowhere/at/all.json >"$scratch/table" 2>"$scratch/stderr"
    [ $? -eq 1 ] && [ ! -s "$scratch/table" ] && grep -q nowhere "$scratch/stderr"
}

# The same count every time, to half an instruction; without valgrind it says what is missing.
counts_instructions() {
    mkdir "$scratch/tmp"
    (TMPDIR=$scratch/tmp && export TMPDIR &&
        "$ASHLAR_SOURCE/bench/instructions.sh" "$bench" floor >"$scratch/once" &&
        "$ASHLAR_SOURCE/bench/instructions.sh" "$bench" floor >"$scratch/twice") &&
        rmdir "$scratch/tmp" || return
    # What differs is how often a thread looks whether the others are awake.
    [ "$(paste "$scratch/once" "$scratch/twice" | awk '$2 == "floor" && 20 < $3 && $3 < 100 &&
        ($3 - $7) ^ 2 < 0.25' | wc -l)" -eq 2 ]
}

check 'a_smoke_run_succeeds' smoke_run
check 'its_rows_are_complete' rows_are_complete
check 'it_prints_a_table_and_targets' prints_a_table_and_targets
check 'only_what_is_asked_for_is_measured' takes_only_what_is_asked_for
check 'a_shared_object_is_measured_beside_the_others' measures_a_loaded_peer
check 'a_plan_is_measured_beside_the_cache' measures_plans
check 'arenas_are_measured_beside_scattered_tensors' measures_arenas
check 'launches_are_counted_and_cost_virtual_time' counts_launches
check 'rnns_are_measured_beside_pytorch' measures_rnns
check 'ranks_are_trained_on_beside_one_process' trains_on_ranks
check 'unknown_words_are_refused' refuses_unknown_words
check 'a_file_that_cannot_be_written_fails_first' fails_before_it_measures
if command -v valgrind >/dev/null; then
    check 'instructions_are_counted_exactly' counts_instructions
else
    skip 'instructions_are_counted_exactly' 'valgrind is not installed'
fi
check_report
