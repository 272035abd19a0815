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
    machine | alloc | arena | report) what=$1 folder=${2-} ;;
    esac
    shift
done
case ${what-} in
machine) printf "{\n  \"date\": \"d\",\n  \"device\": \"A GPU, 1\",\n  \"driver\": \"x\"\n}\n" ;;
alloc) echo "[]" ;;
arena) echo "arenas are for the CPU" >&2; exit 1 ;;
report) [ -e "$folder/alloc.json" ] && : >"$folder/report.html" && exit ;;
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

keeps_folders_to_itself() {
    new_build
    stand_in "$build/bench/ashlar-bench" "case \$1 in
        alloc) echo 'cannot read $build/x and $ASHLAR_SOURCE/y' >&2; exit 1 ;; esac$bench_script"
    gpu 1 || return
    tells 'bench_alloc: FAILED: the allocators could not be measured' || return
    ! grep -r -e "$scratch" -e "$ASHLAR_SOURCE" "$results"
}

# --- programs with the preload -------------------------------------------------------------------

# A program that does what it is told, badly where BAD says so; with the preload it tells REPORT.
write_program() { # FILE BAD-ALONE BAD-WITH-PRELOAD REPORT
    stand_in "$1" "[ \$# -eq 1 ] || shift
[ -z \"\${LD_PRELOAD-}\" ] || echo 'ashlar-preload: $4' >&2
case \$1\${LD_PRELOAD-} in $2) exit 1 ;; $3*/*) exit 1 ;; esac"
}

preloads=preload_shared,preload_static,preload_procs,preload_names
served='288 allocations, 3 of them took memory from the driver; 9 live; 0 went to the driver'

with_programs() { # BAD-ALONE BAD-WITH-PRELOAD [REPORT]
    mkdir -p "$build/allocator/dropin"
    ln -s "$(find "$ASHLAR_BUILD" -name 'half.so')" "$build/allocator/dropin/libashlar-preload.so"
    write_program "$build/tests/preload/program_driver" "$1" "$2" "${3-$served}"
    for kind in shared static; do
        cp "$build/tests/preload/program_driver" "$build/tests/preload/toolkit_$kind"
    done
}

runs_programs_with_the_preload() {
    new_build
    with_programs none none
    gpu 0 "$preloads" || return
    tells 'preload_shared: passed: 7 cases, 0 failed' \
            'preload_procs: passed: 7 cases, 0 failed' || return
    new_build
    with_programs reset race
    gpu 1 "$preloads" && tells 'preload_static: FAILED: 6 cases, 1 failed; alone too fail: reset' \
        'preload_names: FAILED: 6 cases, 1 failed; alone too fail: reset' || return
    new_build
    with_programs '*' none
    gpu 0 "$preloads" && tells 'preload_shared: could not: without the preload, too, every case fails'
}

# One that is not there, that asks the driver each time, or that hands all on.
finds_a_preload_that_serves_nothing() {
    for report in '0 allocations, 0 of them none; 0 went to the driver' \
        '288 allocations, 12 of them took memory from the driver; 9 live; 0 went to the driver' \
        '288 allocations, 1 of them took memory from the driver; 9 live; 7 went to the driver'; do
        new_build
        with_programs none none "$report"
        gpu 1 "$preloads" && tells 'preload_static: FAILED: 7 cases, 1 failed' || return
    done
}

tells_what_was_not_built() {
    new_build
    with_programs none none
    rm "$build/tests/preload/toolkit_static"
    gpu 0 "$preloads" && tells 'preload_procs: passed: 7 cases, 0 failed' \
        'preload_static: could not: this build has no tests/preload/toolkit_static'
}

# As though two minutes had gone by.
ends_what_hangs() {
    new_build
    with_programs none none
    stand_in "$bin/timeout" 'shift 3; case "$*" in env*" race") exit 124 ;; esac; exec "$@"'
    gpu 1 "$preloads" && tells 'preload_shared: FAILED: 7 cases, 1 failed' &&
        grep -x 'it took more than 30 s' "$build/gpu/preload_shared.log"
}

# What it ran is told, and nothing of it goes on.
stops() {
    new_build
    with_programs none none
    stand_in "$build/tests/preload/program_driver" "echo \$\$ >'$scratch/hangs'; exec sleep 61"
    LD_LIBRARY_PATH=$driver "$ASHLAR_SOURCE/tests/gpu.sh" "$build" --out "$results" \
        >/dev/null 2>&1 &
    script=$!
    while [ ! -s "$scratch/hangs" ]; do
        kill -0 "$script" || return
        sleep 0.1
    done
    kill -TERM "$script"
    wait "$script"
    [ $? -eq 1 ] && tells 'rules: could not: this build has no tests/gpu/probe' &&
        ! kill -0 "$(cat "$scratch/hangs")"
}

# --- PyTorch -------------------------------------------------------------------------------------

# The stand-in for the module, changed by PROGRAM; ours() is whether the allocator was changed. That
# reserves GROWTH bytes more each time that it is asked.
with_torch() { # PROGRAM STATUS [GROWTH]
    mkdir -p "$build/allocator/dropin"
    cat >"$scratch/torch.c" <<'END'
int ashlar_torch_get_stats(int device, unsigned long *bytes) {
    static unsigned long calls;
    bytes[2] = 4000 + GROWTH * calls++;
    bytes[3] = 4096;
    return device + 1;
}
void ashlar_torch_record_stream(void) {}
void ashlar_torch_begin_graph(void) {}
void ashlar_torch_end_graph(void) {}
void ashlar_torch_release_graph(void) {}
void ashlar_torch_reset(void) {}
void ashlar_torch_memory_fraction(void) {}
void ashlar_torch_base_alloc(void) {}
END
    ${CC:-cc} -shared -fPIC "-DGROWTH=${3:-0}" "$scratch/torch.c" \
        -o "$build/allocator/dropin/libashlar-torch.so" || return
    STAND_IN_TORCH="loss = lambda: 1.5
$1" PYTHONPATH=$ASHLAR_SOURCE/tests/gpu/stand_in gpu "$2" pytorch
}

trains_with_pytorch() {
    new_build
    with_torch '' 0 || return
    grep -q '^pytorch: passed: losses at most 0 apart, no late growth (ms a step' "$results/ran.txt" &&
        json_holds "$results/torch.json" 'r["torch"] == "0.0" and r["steps"] == 200 and
            r["ashlar"]["reserved_bytes"] == 4096 and r["torch_own"]["reserved_bytes"] == 1000'
}

finds_other_losses() {
    new_build
    with_torch 'loss = lambda: 1.5 + ours() * 1e-5' 1 || return
    grep -q '^pytorch: FAILED: losses are up to 1e-05 apart' "$results/ran.txt"
}

finds_a_loss_that_does_not_fall() {
    LD_LIBRARY_PATH=$driver ASHLAR_CUDNN=$ASHLAR_BUILD/tests/libfake_cudnn.so \
        ASHLAR_CUBLAS=$ASHLAR_BUILD/tests/libfake_cublas.so STAND_IN_TORCH='loss = lambda: 1.5' \
        PYTHONPATH=$ASHLAR_SOURCE/tests/gpu/stand_in python3 "$ASHLAR_SOURCE/tests/torch_step.py" \
        "$ASHLAR_BUILD/rnn/ashlar-train" "$scratch/step.json" smoke >"$scratch/stdout"
    [ $? -eq 1 ] && grep -x 'smoke f32, torch: the loss went from 1.5 to 1.5' "$scratch/stdout"
}

finds_growth() {
    new_build
    with_torch '' 1 7 || return
    grep -q '^pytorch: FAILED: 7 bytes more' "$results/ran.txt" &&
        json_holds "$results/torch.json" 'r["ashlar"]["growth_bytes"] == 14'
}

finds_a_training_that_fails() {
    new_build
    with_torch 'loss = lambda: 1 / (not ours())' 1 || return
    tells 'pytorch: FAILED: training with ours failed'
}

needs_a_pytorch_with_a_gpu() {
    new_build
    with_torch 'torch.cuda.is_available.return_value = False' 0 || return
    tells 'pytorch: could not: this PyTorch sees no GPU' || return
    with_torch 'raise ImportError("no torch")' 0 || return
    tells 'pytorch: could not: no PyTorch: no torch'
}

# --- from the sources ----------------------------------------------------------------------------

# On a machine of stand-ins: nothing is asked of apt-get, and a Meson of Python's serves.
builds_offline() {
    rm -rf "$bin" "$scratch/tree"
    mkdir -p "$bin" "$scratch/tree/tests"
    cp "$run" "$scratch/tree/run"
    stand_in "$scratch/tree/tests/gpu.sh" 'printf "<%s>" gpu "${1##*/}" "$2"'
    for tool in sh cat chmod date dirname grep id mkdir nproc readlink rm; do
        ln -s "$(command -v $tool)" "$bin/$tool"
    done
    stand_in "$bin/cc" 'exit 0'
    stand_in "$bin/pkg-config" 'exit 1'
    stand_in "$bin/dpkg-query" 'exit 1'
    stand_in "$bin/apt-get" "echo asked >>'$scratch/asked'"
    stand_in "$bin/nvidia-smi" 'echo GPU 0'
    stand_in "$bin/ninja" 'echo "$*" >>"$2/ninja"'
    stand_in "$bin/python3" 'case "$*" in
        "-c import mesonbuild.mesonmain") exit "${NO_MESON:-0}" ;;
        "-m mesonbuild.mesonmain --version") echo 1.0 ;;
        "-m mesonbuild.mesonmain setup"*) for word; do case $word in */build/*)
            mkdir -p $word && : >$word/build.ninja ;; esac; done ;;
        esac'
    env -i PATH="$bin" /bin/sh "$scratch/tree/run" gpu --smoke >"$scratch/stdout" || return
    [ "$(cat "$scratch/stdout")" = '<gpu><release><--smoke>' ] && [ ! -e "$scratch/asked" ] &&
        [ -e "$scratch/tree/build/release/ninja" ] || return
    rm "$bin/pkg-config" # does without
    env -i PATH="$bin" /bin/sh "$scratch/tree/run" gpu >"$scratch/stdout" || return
    stand_in "$bin/ninja" 'exit 1'
    env -i PATH="$bin" /bin/sh "$scratch/tree/run" gpu && return 1
    stand_in "$scratch/tree/build/release/bench/ashlar-bench" 'exit 0' # the rest is not built
    env -i PATH="$bin" /bin/sh "$scratch/tree/run" gpu || return
    ends_with 1 'meson --build' env -i PATH="$bin" NO_MESON=1 /bin/sh "$scratch/tree/run" gpu
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
    gpu 1 '' --limit graph_bits=1 --second 24 || return
    [ $(($(date +%s) - begin)) -le 24 ] || complain 'it took longer' || return
    tells 'graph_bits: FAILED: it took more than 1 s' 'calls: could not: this build has no tests/gpu/calls.so: it had no cupti.h' || return
    grep -x 'train_graphs: could not: no time left after [0-9]* s' "$results/ran.txt" &&
        tells 'train: could not: no time left' 'bench_rnn: could not: no time left' &&
        ! kill -0 "$(cat "$scratch/left")" &&
        ! grep -q '^facts: ' "$results/ran.txt"
}

leaves_no_half_of_a_file() {
    new_build
    stand_in "$build/tests/gpu/probe" 'echo "[" >"$2"; exec sleep 61'
    gpu 1 costs --limit costs=1 && tells 'costs: FAILED: it took more than 1 s' &&
        [ ! -e "$results/costs.json" ]
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

# As long as steps run, and no longer.
holds_the_device() {
    new_build
    stand_in "$bin/nvidia-smi" "[ \"\$1\" != dmon ] || { echo \$\$ >'$scratch/holds'; exec sleep 61; }"
    describe_tests "gpu_ops=kill -0 \$(cat '$scratch/holds') && echo 'ok 1 - a' && echo 1..1"
    gpu 0 gpu_ops && tells 'gpu_ops: passed: 1 passed, 0 failed, 0 skipped' &&
        ! kill -0 "$(cat "$scratch/holds")"
}

# What failed is run again, and its line replaced; what passed is not.
goes_on() {
    new_build
    describe_tests "gpu_ops=echo 'not ok 1 - a'; echo 1..1; exit 1"
    gpu 1 || return
    describe_tests "$good"
    stand_in "$build/bench/ashlar-bench" "case \$1 in alloc) exit 9 ;; esac$bench_script"
    on_stand_in "$run" gpu --build "$build" --out "$results" --resume || return
    tells 'gpu_ops: passed: 1 passed, 0 failed, 1 skipped' 'bench_alloc: passed: a table and its rows' &&
        [ "$(grep -c '^gpu_ops: ' "$results/ran.txt")" -eq 1 ]
}

# A training that asks for memory after its warm-up, and one that ends badly.
judges_a_training() {
    new_build
    stand_in "$build/rnn/ashlar-train" 'echo "  training, after it     3   72   4"'
    gpu 1 train,train_graphs && tells 'train: FAILED: 3 calls for memory, streams or attributes after the warm-up' \
        'train_graphs: FAILED: 3 calls for memory, streams or attributes after the warm-up' || return
    stand_in "$build/rnn/ashlar-train" 'echo "  training, after it     0   72   4"; exit 1'
    gpu 1 train && grep '^train: FAILED' "$results/ran.txt"
}

# It has to be told of blocks, and of races only those of our kernels count.
runs_under_the_sanitizer() {
    new_build
    stand_in "$bin/compute-sanitizer" "echo \"\${ASHLAR_CONF-} \${CUDA_LAUNCH_BLOCKING-} \$*\" >>'$scratch/asked'
while [ ! -x \"\$1\" ]; do shift; done; exec \"\$@\""
    stand_in "$build/rnn/ashlar-train" 'echo "  training, after it     0   72   4"'
    stand_in "$build/tests/test_gpu_optimizer" 'exit 0'
    stand_in "$build/tests/test_gpu_ops" "exit \$(cat '$scratch/races')"
    rm -f "$scratch/asked"
    echo 0 >"$scratch/races"
    gpu 0 sanitizer,racecheck && tells 'racecheck: passed: no race in the tests of our kernels' || return
    cat "$scratch/asked"
    grep "^nvtx=on 1 .*--tool memcheck --nvtx=yes $build/rnn/ashlar-train " "$scratch/asked" &&
        [ "$(grep -c '^  --.*racecheck --kernel-regex kns=ashlar_kernel_ ' "$scratch/asked")" -eq 2 ] ||
        return
    echo 9 >"$scratch/races"
    gpu 1 racecheck
}

# --- all of it, on the software device -----------------------------------------------------------

passed() { # STEP...
    for name in "$@"; do
        grep "^$name: passed: " "$scratch/dry/ran.txt" || complain "$name did not pass" || return
    done
}

# All but most tests of the GPU, which run on the stand-ins beside this one anyway, further sizes of
# one step, short forms, and PyTorch's training, which has cases of its own.
steps_for_dry() {
    "$run" gpu --build "$ASHLAR_BUILD" --list |
        grep -v '^gpu_[rt]\|^step_[ml]\|^train_\|_smoke \|^pytorch '
}

runs_dry() {
    steps=$(steps_for_dry | cut -d ' ' -f 1 | paste -sd ,)
    "$run" gpu --build "$ASHLAR_BUILD" --dry --out "$scratch/dry" --only "$steps" \
        >"$scratch/stdout" 2>&1
    status=$?
    grep -v '^one_size\|^mix' "$scratch/stdout"
    [ "$status" -eq 0 ] || return
    passed facts rules costs gpu_optimizer gpu_ops updates products graph_bits preload_shared preload_static \
        preload_procs preload_names train racecheck step_small bench_alloc bench_arena \
        bench_rnn || return
    [ ! -e "$ASHLAR_BUILD/tests/gpu/calls.so" ] || passed calls || return
    grep 'sanitizer: could not: .*NVTX headers' "$scratch/dry/ran.txt" || passed sanitizer || return
    json_holds "$scratch/dry/updates.json" 'len(r) == 24 and min(row["ns"] for row in r) > 0' &&
        json_holds "$scratch/dry/products.json" 'len(r) == 18 and min(row["ns"] for row in r) > 0' &&
        json_holds "$scratch/dry/costs.json" 'len(r) == 53 and min(row["ns"] for row in r) > 0' &&
        python3 "$ASHLAR_SOURCE/tests/check_page.py" "$scratch/dry/report.html" \
            "d['machine']['driver'].startswith('CUDA') and 'bench_alloc: passed' in d['ran'] and
            {'alloc', 'costs', 'products', 'updates', 'step_small'} <= set(d['groups'])" || return
    steps_for_dry | while read -r name proves; do
        grep "^$name: " "$scratch/dry/ran.txt" &&
            grep "will prove: $proves" "$scratch/stdout" || exit 1
    done
}

# A fault in what a step looks at fails that step. The training itself cannot see who else in its
# process takes memory.
finds_planted_faults() {
    while read -r fault steps; do
        rm -rf "$scratch/planted"
        [ "$steps" != calls ] || [ -e "$ASHLAR_BUILD/tests/gpu/calls.so" ] || continue
        env "$fault" "$run" gpu --build "$ASHLAR_BUILD" --dry --out "$scratch/planted" \
            --only "$steps" && complain "$fault was not found" && return 1
        grep "^$steps: FAILED: " "$scratch/planted/ran.txt" || return
    done <<END
FAKE_CUDA=wrong gpu_optimizer
FAKE_CUDA=wrong racecheck
FAKE_CUDA=wronggraph graph_bits
FAKE_CUDNN=wrong gpu_rnn_shapes
FAKE_CUDNN=takes calls
END
    grep 'calls: FAILED: .*cuMemAlloc' "$scratch/planted/ran.txt" ||
        [ ! -e "$ASHLAR_BUILD/tests/gpu/calls.so" ]
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
check 'a_crash_is_a_failure' test_ends_with 'FAILED: 1 passed, 1 failed, 0 skipped' \
    "echo 'ok 1 - a'; echo 1..1; exit 139"
check 'so_is_one_beside_a_failing_case' \
    test_ends_with 'FAILED: 0 passed, 2 failed, 0 skipped' "echo 'not ok 1 - a'; echo 1..1; exit 9"
check 'a_missing_plan_is_a_failure' test_ends_with 'FAILED: 1 passed, 1 failed, 0 skipped' \
    "echo 'ok 1 - a'; echo 1..2"
check 'a_test_without_cases_is_a_failure' \
    test_ends_with 'FAILED: 0 passed, 1 failed, 0 skipped' 'exit 0'
check 'a_test_that_takes_too_long_is_a_failure' \
    test_ends_with 'FAILED: 0 passed, 1 failed, 0 skipped' 'exec sleep 60'
check 'a_test_may_skip_itself' test_ends_with \
    'could not: this build has no such test that ran' "echo '1..0 # SKIP no'"
check 'status_77_is_a_skip' test_ends_with \
    'could not: this build has no such test that ran' 'exit 77'
check 'no_folder_is_named_in_results' keeps_folders_to_itself
check 'programs_run_with_the_preload' runs_programs_with_the_preload
check 'a_preload_that_serves_nothing_is_a_failure' finds_a_preload_that_serves_nothing
check 'a_program_that_was_not_built_is_told' tells_what_was_not_built
check 'what_hangs_is_ended' ends_what_hangs
check 'an_interrupted_run_tells_what_it_ran' stops
check 'pytorch_trains_beside_its_own_allocator' trains_with_pytorch
check 'other_losses_are_a_failure' finds_other_losses
check 'a_loss_that_does_not_fall_is_a_failure' finds_a_loss_that_does_not_fall
check 'growth_is_a_failure' finds_growth
check 'a_training_that_fails_is_a_failure' finds_a_training_that_fails
check 'pytorch_without_a_gpu_is_told' needs_a_pytorch_with_a_gpu
check 'it_builds_without_the_network' builds_offline
check 'steps_can_be_chosen' runs_the_steps_that_are_named
check 'steps_are_in_two_parts' has_two_parts
check 'a_part_keeps_to_its_time' keeps_to_its_time
check 'no_half_of_a_file_is_left' leaves_no_half_of_a_file
check 'a_killed_run_leaves_an_archive' leaves_an_archive
check 'the_device_is_held_open' holds_the_device
check 'a_run_goes_on_where_steps_failed' goes_on
check 'a_training_must_not_ask_for_memory' judges_a_training
check 'a_training_and_kernels_run_under_the_sanitizer' runs_under_the_sanitizer
check 'all_of_it_runs_dry' runs_dry
check 'planted_faults_are_found' finds_planted_faults
check 'what_it_needs_can_be_carried' is_carried
check_report
