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

# Every workload on every subject of the build, one row each and no other.
rows_are_complete() {
    "$bench" --help | sed -n 's/^Subjects of this build: \(.*\) plan none$/\1/p' \
        >"$scratch/subjects"
    python3 - "$rows" "$scratch/subjects" <<'END'
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
subjects = open(sys.argv[2]).read().split()
assert {"ashlar", "floor", "driver"} <= set(subjects), subjects
one_size = ["512", "4096", "65536", "1048576", "67108864", "4096-fragmented"]
scaled = [("one_size", v) for v in one_size]
scaled += [("mix", "reverse"), ("mix", "shuffled"), ("random", "")]
lists = [(*l, t) for l in scaled for t in (1, 2)]
lists += [("latency", "random", 1), ("handoff", "", 2), ("streams_64", "", 1)]
lists += [("streams_512", "", 1)]
lists += [(name, "", 1) for name in ("live_1e6", "rnn_warm", "rnn_cold")]
# Who cannot run it, and the keys that other lists do not have.
latencies = ["ns_p50", "ns_p99", "ns_p999", "ns_max"]
left_out = {"handoff": ["floor"], "live_1e6": ["cub", "driver"]}
more = {"latency": latencies, "live_1e6": ["host_bytes"]}
keys = ["workload", "variant", "threads", "subject", "ns_pair", "ns_pair_low",
        "ns_pair_high", "driver_calls", "reserved_over_live", "over_floor", "over_ashlar"]
for row in rows:
    scales = ["throughput"] if (row["workload"], row["variant"], 1) in lists and \
        row["threads"] == 2 else []
    has = more.get(row["workload"], [])
    assert list(row) == keys + scales + ["over_one_size"] + has, row
    assert 0 < row["ns_pair_low"] <= row["ns_pair"] <= row["ns_pair_high"], row
    assert all(row[key] > 0 for key in scales + ["ns_pair", "over_one_size"]), row
    assert all(row[key] >= 0 for key in has if key != "host_bytes"), row
    figures = [row[k] for k in has]
    assert row["workload"] != "latency" or sorted(figures) == figures, row
found = [(r["workload"], r["variant"], r["threads"], r["subject"]) for r in rows]
wanted = [(*l, s) for l in lists for s in subjects if s not in left_out.get(l[0], [])]
assert found == wanted, found
for l in lists:
    of = {r["subject"]: r for f, r in zip(found, rows) if f[:3] == l}
    for row in of.values():
        for key, base in ("over_floor", "floor"), ("over_ashlar", "ashlar"):
            assert (abs(row[key] * of[base]["ns_pair"] / row["ns_pair"] - 1) < 1e-9
                    if base in of else row[key] is None), row
pair = {r["subject"]: r["ns_pair"] for f, r in zip(found, rows) if f[:3] == ("one_size", "4096", 1)}
for row in rows:
    assert abs(row["over_one_size"] * pair[row["subject"]] / row["ns_pair"] - 1) < 1e-9, row
    known = row["subject"] == "ashlar" or (row["subject"] == "cub" and row["threads"] == 1)
    ratio = row["reserved_over_live"]
    if row["workload"] != "handoff": # the peak of what is live depends on how the threads meet
        assert (ratio is not None and ratio > 0.99) if known else ratio is None, row
calls = {f[:2] + f[3:]: r["driver_calls"] for f, r in zip(found, rows) if f[2] == 1}
# Blocks are reused: what the driver is asked does not grow with the pairs. Its own pairs do ask.
assert calls["one_size", "4096", "ashlar"] <= 4, calls  # one asks which stream it is
assert calls["one_size", "4096", "driver"] == 512, calls
assert calls["rnn_warm", "", "driver"] == 40000, calls
assert calls["rnn_warm", "", "ashlar"] <= 3, calls
assert all(n == 0 for key, n in calls.items() if key[2] in ("floor", "jemalloc")), calls
END
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

# Killed after its first rows, which take less than all.
leaves_rows() {
    killed=$scratch/killed.json
    "$bench" alloc --device soft --json "$killed" &
    measuring=$!
    while [ ! -e "$killed" ]; do
        kill -0 "$measuring" || return
        sleep 0.1
    done
    kill -KILL "$measuring"
    wait "$measuring" 2>/dev/null
    json_holds "$killed" '0 < len(r["rows"]) < 30 and all(x["ns_pair"] > 0 for x in r["rows"])'
}

takes_only_what_is_asked_for() {
    "$bench" alloc --smoke --device soft --workload mix/shuffled --workload random \
        --subject floor --subject none --threads 2 --json "$rows" || return
    python3 - "$rows" <<'END'
import json, sys
got = [(r["workload"], r["variant"], r["threads"], r["subject"]) for r in json.load(open(sys.argv[1]))["rows"]]
lists = (("mix", "shuffled", 2), ("random", "", 2))
assert got == [(*l, s) for l in lists for s in ("floor", "none")], got
END
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

refuses_what_is_no_peer() {
    is_usage_error /nowhere/a.so alloc --peer /nowhere/a.so || complain 'no file' || return
    is_usage_error '"free"' alloc --peer "$peers/half.so" || complain 'no free' || return
    is_usage_error '"alloc"' alloc --peer libm.so.6 || complain 'no alloc' || return
    is_usage_error already alloc --peer "$peers/stone.so" --peer "$peers/stone.so" ||
        complain 'twice' || return
    is_usage_error --workload arena --peer "$peers/stone.so" || complain 'an arena'
}

# Every list on the three subjects, and the packing.
measures_plans() {
    "$bench" plan --smoke --device soft --json "$rows" >"$scratch/table" || return
    grep -q '^  a step of 20 pairs: ashlar [0-9]* ns, floor ' "$scratch/table" &&
        grep -q 'replayed pair / thread' "$scratch/table" &&
        grep -q '^\(met\|NOT MET\) *pack  *training .*gap' "$scratch/table" || return
    python3 - "$rows" <<'END'
import json, sys
result = json.load(open(sys.argv[1]))
lists = [("one_size", "4096"), ("rnn_step", "1"), ("rnn_step", "64"), ("rnn_warm", "")]
rows = result["rows"]
found = [(r["workload"], r["variant"], r["subject"]) for r in rows]
assert found == [(*l, s) for l in lists for s in ("ashlar", "floor", "plan")], found
assert all(r["threads"] == 1 and r["ns_pair"] > 0 for r in rows), rows
for r in rows:
    pairs = {"one_size": 256, "rnn_warm": 20}.get(r["workload"], 20 * int(r["variant"] or 0))
    assert abs(r["ns_step"] / r["ns_pair"] - pairs) < 1e-6, r
(calls,) = [r["driver_calls"] for r in rows if (r["workload"], r["subject"]) == ("rnn_warm", "plan")]
assert calls == 0, rows
packings = result["packings"]
cases = [("training", 20000), ("network/1 s", 18700), ("network_20000/0.3 s", 20000),
         ("network_60000/0.3 s", 60000)]
assert [(p["case"], p["buffers"]) for p in packings] == cases, packings
for p in packings:
    assert p["subject"] == "ashlar" and p["seed"] > 0 and 0 <= p["gap"] <= 0.03, p
    assert p["optimal"] or p["gap"] > 0, p
END
}

# Every case and operation on its subjects, and no path in the file.
measures_arenas() {
    mkdir "$scratch/folder"
    (TMPDIR=$scratch/folder && export TMPDIR &&
        "$bench" arena --smoke --device soft --json "$rows") >"$scratch/table" || return
    rmdir "$scratch/folder" || complain 'checkpoints are left' || return
    grep -q '^case .* / copy ' "$scratch/table" &&
        grep -q '^\(met\|NOT MET\) *large  *adamw .*copy loop' "$scratch/table" || return
    python3 - "$rows" "$scratch" <<'END'
import json, sys
text = open(sys.argv[1]).read()
rows = json.loads(text)["rows"]
assert sys.argv[2] not in text
keys = ["case", "operation", "subject", "ns", "ns_low", "ns_high", "bytes_per_s",
        "copy_bytes_per_s", "over_arena"]
assert all(list(r) == keys and all(r[k] > 0 for k in keys[3:]) for r in rows), rows
assert all(r["ns_low"] <= r["ns"] <= r["ns_high"] for r in rows), rows
subjects = {o: ["arena", "per_tensor"] for o in ("adamw", "zero", "norm", "flatten")}
subjects["save_state"] = subjects["load_state"] = ["arena", "plain_file"]
want = [(c, o, s) for c in ("100x128x128", "model", "10000_tensors", "large")
        for o in subjects for s in subjects[o]]
assert [tuple(list(r.values())[:3]) for r in rows] == want, rows
END
}

# Every case and subject, and no path in the file.
measures_rnns() {
    "$bench" rnn --smoke --device soft --threads 1 --json "$rows" >"$scratch/table" || return
    grep -q '^case .* / torch ' "$scratch/table" &&
        grep -q '^\(met\|NOT MET\) *lstm_T64_B32_H256_L2  *ashlar / static' "$scratch/table" || return
    python3 - "$rows" <<'END'
import json, sys
result = json.load(open(sys.argv[1]))
assert list(result) == ["schema", "processor", "products", "torch", "threads", "rows"], result
assert result["threads"] == 1
rows = result["rows"]
keys = ["case", "subject", "ms_forward", "ms_backward", "ms_step", "ms_step_low",
        "ms_step_high", "steps_per_s", "over_static", "over_torch", "of_peak", "of_read", "flops_per_s", "read_bytes_per_s"]
for r in rows:
    assert list(r) == keys and all(r[k] > 0 for k in ["ms_forward", "ms_step"] + keys[-4:]), r
    # The same limit for all of a case, and a faster step is nearer to it.
    same = [x for x in rows if x["case"] == r["case"]]
    assert len({x["flops_per_s"] for x in same}) == 1, same
    assert all((x["ms_step"] < r["ms_step"]) == (x["of_peak"] > r["of_peak"]) for x in same), same
subjects = [s for s in ["ashlar", "torch", "driver_each_step", "static_buffer"]
            if s != "torch" or result[s] is not None]
cases = list(dict.fromkeys(r["case"] for r in rows))
assert len(cases) >= 9 and "lstm_T64_B1_H256_L2" in cases, cases
assert [(r["case"], r["subject"]) for r in rows] == [(c, s) for c in cases for s in subjects]
for r in rows:
    assert 0 < r["ms_step_low"] <= r["ms_step"] <= r["ms_step_high"], r
    assert (r["ms_backward"] is None) == ("inference" in r["case"]), r
    assert r["over_static"] > 0, r
    assert (r["over_torch"] is None) == (result["torch"] is None), r
END
}

# All cases, with a python3 that has no PyTorch: where several ranks can run, on 1, 2 and 4.
trains_on_ranks() {
    (PYTHONPATH=$scratch/bare && export PYTHONPATH && mkdir -p "$PYTHONPATH/torch" &&
        echo 'raise ImportError' >"$PYTHONPATH/torch/__init__.py" &&
        python3 "$ASHLAR_SOURCE/bench/ranks.py" "$ASHLAR_BUILD/rnn/ashlar-train" --smoke \
            --json "$rows") >"$scratch/table" || return
    grep -qx 'torch_gloo is left out: python3 has no PyTorch.' "$scratch/table" || return
    several=yes
    ! grep 'Several ranks are left out' "$scratch/table" || several=
    [ -n "$several" ] || [ -z "$ASHLAR_MPIS" ] || ! command -v mpirun || return
    python3 - "$rows" "$several" <<'END'
import json, sys
rows, counts = json.load(open(sys.argv[1]))["rows"], ["1", "2", "4"] if sys.argv[2] else ["1"]
ways = ["ashlar", "reproducible"]
assert [(r["case"], r["ranks"], r["subject"]) for r in rows] == [
    (case, n, way) for case in ("strong", "weak") for n in counts for way in ways], rows
for r in rows:
    assert r["ms_step"] > 0 and "over_torch" not in r, r
    assert r["parameters"] == rows[0]["parameters"] > 0, r
    assert ("sums_share" in r) == (r["ranks"] != "1"), r
# Symbols of a step: of one batch, or of one for each rank.
step = {(r["case"], r["ranks"]): r["tokens_per_s"] * r["ms_step"] for r in rows}
for n in counts:
    assert 0.9 < step["strong", n] / step["strong", "1"] < 1.1, step
    assert 0.9 < step["weak", n] / step["weak", "1"] / int(n) < 1.1, step
END
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
check 'a_run_that_is_killed_leaves_its_rows' leaves_rows
check 'only_what_is_asked_for_is_measured' takes_only_what_is_asked_for
check 'a_shared_object_is_measured_beside_the_others' measures_a_loaded_peer
check 'what_is_no_peer_is_refused' refuses_what_is_no_peer
check 'a_plan_is_measured_beside_the_cache' measures_plans
check 'arenas_are_measured_beside_scattered_tensors' measures_arenas
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
