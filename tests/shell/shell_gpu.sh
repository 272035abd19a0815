#!/bin/sh
# shellcheck disable=SC2016,SC2086 # stand-ins have words of their own
#
# shell_gpu.sh - what `./run gpu` does, on a machine without a GPU: the driver is a stand-in on the
# software device, and so is what is not at hand: a build of tests, PyTorch.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

run=$ASHLAR_SOURCE/run
driver=$ASHLAR_BUILD/tests/cuda
build=$scratch/build
bin=$scratch/bin
results=$scratch/results
unset FAKE_CUDA PYTHONPATH MALLOC_PERTURB_

# --- where there is none -------------------------------------------------------------------------

has_a_gpu() {
    nvidia-smi -L >/dev/null 2>&1 || [ -e /dev/nvidiactl ] || [ -e /dev/nvidia0 ] || [ -e /dev/dxg ]
}

says_that_there_is_no_gpu() {
    ends_with 77 'no GPU' "$run" gpu && ends_with 77 'no GPU' "$run" gpu --build "$ASHLAR_BUILD" &&
        ends_with 77 'no GPU' "$ASHLAR_SOURCE/tests/gpu.sh" "$ASHLAR_BUILD"
}

on_stand_in() { # COMMAND...
    LD_LIBRARY_PATH=$driver "$@"
}

asks_the_driver() {
    FAKE_CUDA=nodevice && export FAKE_CUDA
    on_stand_in ends_with 77 'no GPU' "$run" gpu "--build=$ASHLAR_BUILD"
    status=$?
    unset FAKE_CUDA
    return "$status"
}

refuses_bad_words() {
    on_stand_in ends_with 2 '--frob: takes --smoke' "$run" gpu --build "$ASHLAR_BUILD" --frob || return
    on_stand_in ends_with 2 '--limit soon' "$run" gpu --build "$ASHLAR_BUILD" --limit train=soon &&
        on_stand_in ends_with 2 '--first 0' "$run" gpu --build "$ASHLAR_BUILD" --first 0 &&
        on_stand_in ends_with 2 '--archive needs' "$run" gpu --build "$ASHLAR_BUILD" --archive &&
        on_stand_in ends_with 1 --build "$run" gpu --build || return
    mkdir "$scratch/empty"
    on_stand_in ends_with 1 'no build' "$run" gpu --build "$scratch/empty"
}

# --- a build of stand-ins ------------------------------------------------------------------------

stand_in() { # FILE SCRIPT
    mkdir -p "$(dirname "$1")"
    printf '#!/bin/sh\n%s\n' "$2" >"$1"
    chmod +x "$1"
}

# Of the benchmark: enough for all.sh.
bench_script='
while [ $# -gt 0 ]; do
    case $1 in
    --json) json=$2 ;;
    --help) echo "Usage: [alloc|arena]"; exit ;;
    machine | alloc | arena | rnn) what=$1 ;;
    esac
    shift
done
case ${what-} in
machine) printf "{\n  \"date\": \"d\",\n  \"device\": \"A GPU, 1\",\n  \"driver\": \"x\"\n}\n" ;;
alloc | rnn) echo "[]" ;;
arena) echo "arenas are for the CPU" >&2; exit 1 ;;
esac >"${json:-$0.out}"'

# Tests of a suite, as Meson describes them, in folders that are now elsewhere.
describe_tests() { # NAME=SCRIPT...
    mkdir -p "$build/meson-info" "$build/tests"
    echo '{"directories": {"build": "/old/build", "source": "/old/source"}}' \
        >"$build/meson-info/meson-info.json"
    separator='['
    for word in "$@"; do
        name=${word%%=*}
        stand_in "$build/tests/$name" "${word#*=}"
        printf '%s{"name": "%s", "suite": ["ashlar:gpu"], "timeout": 60, "workdir": null,
            "cmd": ["/old/build/tests/%s"], "env": {"TOLD": "/old/build/x"}}' "$separator" "$name" \
            "$name"
        separator=', '
    done >"$build/meson-info/intro-tests.json"
    printf ', {"name": "other", "suite": ["ashlar:unit"], "timeout": 2, "workdir": null,
        "cmd": ["false"], "env": {}}]\n' >>"$build/meson-info/intro-tests.json"
}

good="gpu_ops=[ \"\$CUBLAS_WORKSPACE_CONFIG\" = :4096:8 ] && [ \"\$TOLD\" = '$build/x' ] && echo 'ok 1 - a' &&
    echo 'ok 2 - b # SKIP no' && echo 1..2"

new_build() {
    rm -rf "$build" "$results" "$bin"
    mkdir -p "$bin"
    stand_in "$build/bench/ashlar-bench" "$bench_script"
    describe_tests "$good"
}

gpu() { # STATUS [STEP,... [OPTION...]]
    want=$1 only=${2-}
    shift $(($# < 2 ? $# : 2))
    (PATH=$bin:$PATH && export PATH &&
        on_stand_in "$run" gpu --build "$build" --out "$results" ${only:+--only "$only"} "$@") \
        >"$scratch/stdout" 2>&1
    got=$?
    cat "$scratch/stdout"
    [ "$got" -eq "$want" ] || complain "status $got, want $want"
}

tells() { # LINE...: of ran.txt
    for line in "$@"; do
        grep -qxF -e "$line" "$results/ran.txt" || complain "no '$line'" || return
    done
}

runs_what_it_can() {
    new_build
    gpu 0 || return
    tells 'gpu_ops: passed: 1 passed, 0 failed, 1 skipped' \
        'gpu_rnn: could not: this build has no such test that ran' \
        'preload_shared: could not: this build has no libashlar-preload.so' \
        'pytorch: could not: this build has no libashlar-torch.so' \
        'cupy_calls: could not: this build has no libashlar-torch.so' \
        'bench_arena: could not: arenas are for the CPU' \
        'bench_alloc: passed: a table and its rows' 'train: could not: this build has no rnn/ashlar-train' \
        'rules: could not: this build has no tests/gpu/probe' || return
    [ -e "$results/machine.json" ] && [ -e "$build/gpu/gpu_ops.log" ] || return
    echo old >"$results/torch.json" && echo old >"$results/alloc.json"
    stand_in "$build/bench/ashlar-bench" "case \$1 in alloc) exit 1 ;; esac$bench_script"
    gpu 1 && [ ! -e "$results/torch.json" ] || complain "an earlier run's file"
}

test_ends_with() { # LINE SCRIPT
    line=$1
    new_build
    describe_tests "$good" "gpu_train=$2"
    status=1
    case $line in *' 0 failed'* | 'could not'*) status=0 ;; esac
    gpu "$status" gpu_train --limit gpu_train=8 && tells "gpu_train: $line"
}

# --- which steps ---------------------------------------------------------------------------------

runs_the_steps_that_are_named() {
    new_build
    on_stand_in "$run" gpu --build "$build" --out "$results" --only gpu_ops,bench_alloc || return
    tells 'gpu_ops: passed: 1 passed, 0 failed, 1 skipped' 'bench_alloc: passed: a table and its rows' &&
        [ "$(wc -l <"$results/ran.txt")" -eq 2 ] || return
    on_stand_in ends_with 2 'no step frob' "$run" gpu --build "$build" --only facts,frob &&
        on_stand_in ends_with 2 'no step frob' "$run" gpu --build "$build" --limit frob=3
}

part_of() { # --first|--second: its steps
    "$run" gpu --build "$ASHLAR_BUILD" --list "$1" 9 | cut -d ' ' -f 1
}

# In one order, each once. Steps that stand for tests stand for all there are.
has_two_parts() {
    "$run" gpu --build "$ASHLAR_BUILD" --list | cut -d ' ' -f 1 >"$scratch/all"
    { part_of --first; part_of --second; } | cmp - "$scratch/all" || return
    [ -z "$(sort "$scratch/all" | uniq -d)" ] || return
    [ "$(part_of --first | head -n 3 | paste -sd ' ')" = 'facts rules gpu_optimizer' ] &&
        [ "$(part_of --second | tail -n 1)" = bench_rnn ] || return
    for name in $(meson introspect --tests "$ASHLAR_BUILD" | python3 -c 'import json, sys
print(*[t["name"] for t in json.load(sys.stdin) if "ashlar:gpu" in t["suite"]])'); do
        grep -x "$name" "$scratch/all" || complain "no step $name" || return
    done
}

# Two trainings that hang: one has its own limit, and begins what does not end when asked to; the
# other has what is left of the limit for all, and does not end either.
keeps_to_its_time() {
    new_build
    stand_in "$build/rnn/ashlar-train" "case \$* in *--graphs*) trap '' TERM; sleep 61; sleep 61 ;; esac
(trap '' TERM; exec sleep 61) & echo \$! >'$scratch/left'; wait"
    begin=$(date +%s)
    gpu 1 '' --limit graph_bits=3 --second 26 || return
    [ $(($(date +%s) - begin)) -le 26 ] || complain 'it took longer' || return
    grep -q '^graph_bits: FAILED: it took more than [23] s' "$results/ran.txt" || return # a second may end
    tells 'calls: could not: this build has no tests/gpu/calls.so: it had no cupti.h' || return
    grep -x 'train_graphs: could not: no time left after [0-9]* s' "$results/ran.txt" &&
        tells 'train: could not: no time left' 'bench_rnn: could not: no time left' &&
        ! kill -0 "$(cat "$scratch/left")" &&
        ! grep -q '^facts: ' "$results/ran.txt"
}

# Killed in a step, as by who lends a machine for so long and no longer.
leaves_an_archive() {
    new_build
    stand_in "$build/rnn/ashlar-train" "echo \$\$ >'$scratch/trains'; exec sleep 61"
    rm -f "$scratch/trains"
    LD_LIBRARY_PATH=$driver setsid "$ASHLAR_SOURCE/tests/gpu.sh" "$build" --out "$results" \
        --only gpu_ops,train --archive "$scratch/got.tar.gz" >/dev/null 2>&1 &
    script=$!
    until [ -s "$scratch/trains" ]; do
        kill -0 "$script" || return
        sleep 0.1
    done
    tar -tzf "$scratch/got.tar.gz" gpu/gpu_ops.log || return
    until tar -tzf "$scratch/got.tar.gz" gpu/train.log; do # of the step under way
        sleep 0.5
    done
    kill -KILL "$script"
    kill "$(cat "$scratch/trains")"
    mkdir "$scratch/got" && tar -xzf "$scratch/got.tar.gz" -C "$scratch/got" || return
    ! grep '^train: ' "$scratch/got/results/ran.txt" && grep -x 'gpu_ops: passed: .*' "$scratch/got/results/ran.txt" &&
        [ -s "$scratch/got/gpu/gpu_ops.log" ] && [ -s "$scratch/got/results/machine.json" ]
}

# --- all of it, on the software device -----------------------------------------------------------

passed() { # STEP...
    for name in "$@"; do
        grep "^$name: passed: " "$scratch/dry/ran.txt" || complain "$name did not pass" || return
    done
}

# All but most tests of the GPU, which run on the stand-ins beside this one anyway, short forms, and
# what has kernels of its own.
steps_for_dry() {
    "$run" gpu --build "$ASHLAR_BUILD" --list |
        grep -v '^gpu_[rt]\|^step_\|^train_\|_smoke \|^pytorch \|^cupy_calls '
}

runs_dry() {
    steps=$(steps_for_dry | cut -d ' ' -f 1 | paste -sd ,)
    "$run" gpu --build "$ASHLAR_BUILD" --dry --out "$scratch/dry" --only "$steps" \
        >"$scratch/stdout" 2>&1
    status=$?
    grep -v '^one_size\|^mix' "$scratch/stdout"
    [ "$status" -eq 0 ] || return
    passed facts rules costs gpu_optimizer gpu_ops updates products graph_bits preload_shared preload_static \
        preload_procs preload_names train racecheck bench_alloc bench_arena \
        bench_rnn || return
    grep 'sanitizer: could not: .*NVTX headers' "$scratch/dry/ran.txt" || passed sanitizer || return
    json_holds "$scratch/dry/updates.json" 'len(r) == 24 and min(row["ns"] for row in r) > 0' &&
        json_holds "$scratch/dry/products.json" 'len(r) == 18 and min(row["ns"] for row in r) > 0' &&
        json_holds "$scratch/dry/costs.json" 'len(r) == 53 and min(row["ns"] for row in r) > 0' &&
        python3 "$ASHLAR_SOURCE/tests/check_page.py" "$scratch/dry/report.html" \
            "d['machine']['driver'].startswith('CUDA') and 'bench_alloc: passed' in d['ran'] and
            {'alloc', 'costs', 'products', 'updates'} <= set(d['groups'])" || return
    steps_for_dry | while read -r name proves; do
        grep "^$name: " "$scratch/dry/ran.txt" &&
            grep "will prove: $proves" "$scratch/stdout" || exit 1
    done
}

# A fault in what a step looks at fails that step.
finds_planted_faults() {
    while read -r fault steps; do
        rm -rf "$scratch/planted"
        env "$fault" "$run" gpu --build "$ASHLAR_BUILD" --dry --out "$scratch/planted" \
            --only "$steps" && complain "$fault was not found" && return 1
        grep "^$steps: FAILED: " "$scratch/planted/ran.txt" || return
    done <<END
FAKE_CUDA=wrong gpu_optimizer
FAKE_CUDA=wrong racecheck
FAKE_CUDA=wronggraph graph_bits
FAKE_CUDNN=wrong gpu_rnn_shapes
END
}

# What was carried away runs there, from its own folder.
is_carried() {
    "$run" gpu --build "$ASHLAR_BUILD" --pack "$scratch/carried.tar.gz" || return
    (cd "$scratch" && tar -xzf carried.tar.gz && cd ashlar-gpu &&
        ./run gpu --build build --dry --out "$scratch/carried" \
            --only facts,rules,gpu_optimizer,updates,train,preload_static,bench_plan) || return
    [ "$(grep -c ': passed: ' "$scratch/carried/ran.txt")" -eq 7 ]
}

if has_a_gpu; then
    skip 'without_a_gpu_one_line_says_so' 'there is one here'
else
    check 'without_a_gpu_one_line_says_so' says_that_there_is_no_gpu
fi
check 'it_is_the_driver_that_is_asked' asks_the_driver
check 'bad_words_are_refused' refuses_bad_words
check 'what_can_be_run_is_and_the_rest_is_told' runs_what_it_can
check 'a_failing_case_is_a_failure' \
    test_ends_with 'FAILED: 1 passed, 1 failed, 0 skipped' \
    "echo 'not ok 1 - a'; echo 'ok 2 - b'; echo 1..2; exit 1"
check 'a_test_that_takes_too_long_is_a_failure' \
    test_ends_with 'FAILED: 0 passed, 1 failed, 0 skipped' 'exec sleep 60'
check 'steps_can_be_chosen' runs_the_steps_that_are_named
check 'steps_are_in_two_parts' has_two_parts
check 'a_part_keeps_to_its_time' keeps_to_its_time
check 'a_killed_run_leaves_an_archive' leaves_an_archive
check 'all_of_it_runs_dry' runs_dry
check 'planted_faults_are_found' finds_planted_faults
check 'what_it_needs_can_be_carried' is_carried
check_report
