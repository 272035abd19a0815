#!/bin/sh
#
# gpu.sh - what needs a GPU, from a build: what its driver does and costs, training, tests, drop-in
# libraries, PyTorch, CuPy, benchmarks. `./run gpu` builds and calls it.
#
# usage: tests/gpu.sh BUILD [--smoke] [--out FOLDER] [--only STEP,...] [--resume] [--dry] [--list]
#
# Each step leaves a line in FOLDER/ran.txt when it ends (passed, failed, or could not and why), and
# all of its output in BUILD/gpu/; one that takes 9 minutes is ended. FOLDER is
# bench/results/DATE-GPU. --resume leaves out what an earlier run passed; --dry runs on stand-ins of
# the build, and says what each step would prove. Nothing is fetched from anywhere. Status: 0, 1
# where something failed, 77 where there is no GPU; what could not be run is no failure.

set -u

here=$(cd "$(dirname "$0")/.." && pwd -P) || exit 1
[ $# -gt 0 ] || exit 2
build=$(cd "$1" && pwd -P) || exit 1
shift

smoke='' out='' only='' resume='' dry='' mode=run
while [ $# -gt 0 ]; do
    case $1 in
    --smoke) smoke=$1 ;;
    --out)
        [ $# -gt 1 ] || exit 2
        out=$2
        shift
        ;;
    --out=*) out=${1#*=} ;;
    --only)
        [ $# -gt 1 ] || exit 2
        only=$2
        shift
        ;;
    --only=*) only=${1#*=} ;;
    --resume) resume=1 ;;
    --dry) dry=1 smoke=--smoke ;;
    --list) mode=list ;;
    *)
        echo "gpu.sh: $1: takes --smoke --out FOLDER --only STEP,... --resume --dry --list" >&2
        exit 2
        ;;
    esac
    shift
done

bench=$build/bench/ashlar-bench
logs=$build/gpu
failed=0
case_s=30 step_s=500 # so long a case of the preload, or another step, may go on
unset ASHLAR_DEVICE ASHLAR_CONF

has() {
    command -v "$1" >/dev/null 2>&1
}

if [ -d "$build/lib" ]; then # of a build that was packed (gpu_pack.sh)
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$build/lib
    export LD_LIBRARY_PATH
fi

# Stand-ins for the driver, cuDNN, cuBLAS and CUPTI.
if [ -n "$dry" ]; then
    LD_LIBRARY_PATH=$build/tests/cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    ASHLAR_CUDNN=$build/tests/libfake_cudnn.so ASHLAR_CUBLAS=$build/tests/libfake_cublas.so
    ASHLAR_CUPTI=$build/tests/gpu/libfake_cupti.so
    export LD_LIBRARY_PATH ASHLAR_CUDNN ASHLAR_CUBLAS ASHLAR_CUPTI
    out=${out:-$logs/dry}
fi

# Asked of the driver itself, by the way that all of the library goes.
mkdir -p "$logs" || exit 1
if [ ! -x "$bench" ]; then
    echo "gpu.sh: $build has no bench/ashlar-bench: it is no build of ashlar" >&2
    exit 1
fi
if [ "$mode" = run ] && ! reason=$("$bench" machine --device cuda --json "$logs/machine.json" 2>&1); then
    echo "gpu: no GPU was found, so nothing was run: $reason" >&2
    exit 77
fi

member() { # NAME, of machine.json
    sed -n "s/^  \"$1\": \"\\(.*\\)\",*\$/\\1/p" "$logs/machine.json"
}

if [ "$mode" = run ] && [ -z "$out" ]; then
    gpu=$(member device | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9]\{1,\}/-/g; s/^-//; s/-$//')
    out=$here/bench/results/$(member date)-$gpu
    [ -z "$smoke" ] || out=$build/gpu/results
fi

# --- what is said of a step ----------------------------------------------------------------------

say() { # STEP WORDS, which may be kept
    printf '%s\n' "$1: $2" | "$here/bench/without_paths.sh" "$build" "$here" |
        tee -a "$logs/ran.txt"
    cp "$logs/ran.txt" "$out/ran.txt"
}

# The last line of a step's output says how it went.
end_step() { # STEP STATUS
    last=$(tail -n 1 "$logs/$1.log")
    case $2 in
    0) say "$1" "passed: $last" ;;
    77) say "$1" "could not: $last" ;;
    *)
        failed=1
        tail -n 60 "$logs/$1.log"
        say "$1" "FAILED: $last"
        ;;
    esac
}

is_wanted() { # STEP
    case ,$only, in
    ,, | *,"$1",*) ;;
    *) return 1 ;;
    esac
    [ -z "$resume" ] || ! grep -q "^$1: passed: " "$logs/ran.txt" 2>/dev/null
}

step() { # STEP WHAT-IT-PROVES COMMAND...
    name=$1 proves=$2
    shift 2
    case $mode in
    list) printf '%-16s %s\n' "$name" "$proves" && return ;;
    name) printf '%s\n' "$name" && return ;;
    esac
    is_wanted "$name" || return
    printf '== %s\n' "$name"
    [ -z "$dry" ] || printf 'on a GPU it will prove: %s\n' "$proves"
    if [ -e "$logs/ran.txt" ]; then # what an earlier run says of it
        grep -v "^$name: " "$logs/ran.txt" >"$logs/ran.new"
        mv "$logs/ran.new" "$logs/ran.txt"
    fi
    "$@" >"$logs/$name.log" 2>&1 </dev/null
    end_step "$name" $?
}

# The command has a process group of its own, which the terminal's signals do not reach.
job=''
trap '[ -z "$job" ] || { kill "$job" && wait "$job"; }; exit 1' HUP INT TERM

for_at_most() { # SECONDS COMMAND...
    limit=$1
    shift
    timeout -k 10 "$limit" "$@" &
    job=$!
    wait "$job"
    ended=$?
    job=''
    [ "$ended" -ne 124 ] || echo "it took more than $limit s"
    return "$ended"
}

cannot() { # WORDS: the end of a step that has nothing to run
    echo "$*"
    return 77
}

# --- the steps -----------------------------------------------------------------------------------

# The fewer rounds of a smoke run; words of a command.
few() { # WHOLE SMOKE
    if [ -n "$smoke" ]; then echo "$2"; else echo "$1"; fi
}

suite() { # [TEST...]
    has python3 || cannot 'there is no python3 to run the tests with' || return
    for_at_most "$step_s" python3 "$here/tests/run_suite.py" "$build" gpu "$@" && return
    status=$?
    [ "$status" -ne 77 ] || cannot 'this build has no test of the suite gpu that ran' || return
    return "$status"
}

# A program that knows nothing of ashlar, with NVIDIA's own runtime, alone and with the preload.
# What it does alone is what it has to do; if that fails, the case says nothing.
preload_cases() { # PROGRAM...
    ran=0 bad=0 odd=''
    for what in loop threads race capture reset fork-before leave; do
        if ! for_at_most "$case_s" "$@" "$what"; then
            odd="$odd $what"
            continue
        fi
        ran=$((ran + 1))
        if ! for_at_most "$case_s" env ASHLAR_PRELOAD=report LD_PRELOAD="$preload" "$@" "$what" \
            2>"$logs/said" || ! is_served "$what"; then
            echo "$what fails with the preload"
            bad=$((bad + 1))
        fi
        cat "$logs/said"
    done
    [ "$ran" -gt 0 ] || cannot 'without the preload, too, every case fails' || return
    echo "$ran cases, $bad failed${odd:+; alone too fail:$odd}"
    [ "$bad" -eq 0 ]
}

# A preload that is not there, or that hands all on, would let every case pass. Of the loop's
# allocations it tells that only the first few took memory from the driver.
is_served() { # CASE
    [ "$1" != loop ] ||
        grep -q '^ashlar-preload: [1-9][0-9]* allocations, [1-9] of them .*; 0 went to' \
            "$logs/said" || cannot 'the loop was not served from the cache'
}

# The runtime's own folder is told to the program, since it need not be known to the loader.
compile() { # SOURCE NVCC-OPTION...
    has nvcc || cannot 'there is no nvcc to compile a CUDA program with' || return
    root=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
    nvcc -o "$program" "$@" "$sources/program.c" -I"$here/include" -I"$here/allocator" \
        -Xcompiler -pthread -Xlinker -rpath -Xlinker "$root/lib64:$root/lib" -ldl ||
        cannot 'nvcc does not compile a CUDA program here'
}

drop_in() { # shared|static|procs|names: the runtime, or the driver by either way
    preload=$build/allocator/dropin/libashlar-preload.so
    sources=$here/tests/preload
    program=$logs/program_$1
    [ -f "$preload" ] || cannot 'this build has no libashlar-preload.so' || return
    [ -f "$sources/program.c" ] || cannot 'tests/preload is not there' || return
    case $1 in
    shared | static)
        if [ -n "$dry" ]; then # with the stand-in for that runtime
            program=$build/tests/preload/program_$1
            [ -x "$program" ] || cannot "this build has no tests/preload/program_$1" || return
            preload_cases "$program"
            return
        fi
        compile "$sources/program_runtime.c" -cudart "$1" && preload_cases "$program"
        ;;
    *)
        program=$build/tests/preload/program_driver # which needs no runtime and so no nvcc
        [ -x "$program" ] || cannot 'this build has no tests/preload/program_driver' || return
        preload_cases "$program" "$1"
        ;;
    esac
}

framework() { # SCRIPT ARGUMENT...
    library=$build/allocator/dropin/libashlar-torch.so
    script=$here/tests/$1
    shift
    [ -f "$library" ] || cannot 'this build has no libashlar-torch.so' || return
    has python3 || cannot 'there is no python3' || return
    for_at_most "$step_s" python3 "$script" "$library" "$@"
}

pytorch() {
    framework torch_lstm.py "$out/torch.json" "$(few 200 20)"
}

probe() { # facts|rules|costs|updates
    asks=$build/tests/gpu/probe
    [ -x "$asks" ] || cannot 'this build has no tests/gpu/probe' || return
    file=$out/$1.json
    case $1 in facts | rules) file='' ;; esac
    for_at_most "$step_s" "$asks" "$1" ${smoke:+"$smoke"} ${file:+"$file"}
}

train() { # STEPS OPTION...
    program=$build/rnn/ashlar-train count=$1
    shift
    [ -x "$program" ] || cannot 'this build has no rnn/ashlar-train' || return
    # shellcheck disable=SC2046,SC2086 # words
    for_at_most "$step_s" ${before-} "$program" --device cuda --sample 0 --steps "$count" \
        --data "$here/docs$(few '' /status.md)" \
        $(few '--hidden 1024 --batch 64' '--hidden 16 --batch 2 --max-length 8') "$@" >"$logs/report" 2>&1
    status=$?
    cat "$logs/report"
    ! grep -q 'was not found: install it' "$logs/report" || return 77
    return "$status"
}

# The report counts ashlar's own calls after the warm-up: there are to be none for memory.
quiet() { # STEPS OPTION...
    train "$@" || return
    calls=$(sed -n 's/^  training, after it *\([0-9]*\) .*/\1/p' "$logs/report")
    echo "${calls:-unknown} calls for memory, streams or attributes after the warm-up"
    [ "$calls" = 0 ]
}

# Whoever makes them in the process: a training's set-up and warm-up make as many calls however long
# it goes on, so what a longer one makes more of is made by its steps.
counted() {
    tool=$build/tests/gpu/calls.so short=$(few 200 4)
    [ -f "$tool" ] || cannot 'this build has no tests/gpu/calls.so: it had no cupti.h' || return
    count_calls "$short" || return
    seconds=$(sed -n 's/.* in \([0-9.]*\) s: .*/\1/p' "$logs/report")
    long=$(few "$(echo "$short $seconds" | awk '{ print $1 + int($1 * 60 / ($2 + 0.1)) }')" 12)
    count_calls "$long" || return
    echo "of $((long - short)) steps more:"
    awk -v steps=$((long - short)) -v json="$out/calls.json" -f "$here/tests/gpu/calls.awk" \
        "$logs/calls_$short" "$logs/calls_$long"
}

count_calls() { # STEPS
    CUDA_INJECTION64_PATH=$tool ASHLAR_CALLS=$logs/calls_$1
    export CUDA_INJECTION64_PATH ASHLAR_CALLS
    rm -f "$ASHLAR_CALLS"
    train "$1"
    status=$?
    unset CUDA_INJECTION64_PATH ASHLAR_CALLS
    [ "$status" -eq 0 ] || return "$status"
    [ -s "$logs/calls_$1" ] || cannot 'CUPTI counted nothing: its library is missing, or refuses'
}

# One workspace: on several streams cuBLAS may choose anew which products are split.
graph_bits() {
    CUBLAS_WORKSPACE_CONFIG=:4096:8
    export CUBLAS_WORKSPACE_CONFIG
    for kind in plain again graphs; do
        [ "$kind" = graphs ] && options=--graphs || options=''
        # shellcheck disable=SC2086 # a word, or none
        train "$(few 300 6)" --save "$logs/$kind.safetensors" $options
        status=$?
        [ "$status" -eq 0 ] || break
    done
    unset CUBLAS_WORKSPACE_CONFIG
    [ "$status" -eq 0 ] || return "$status"
    launched=$(sed -n 's/^\([0-9]*\) steps were one launch each.*/\1/p' "$logs/report")
    cmp -s "$logs/plain.safetensors" "$logs/again.safetensors" ||
        cannot 'two trainings without graphs differ, too' || return
    same=0
    cmp "$logs/plain.safetensors" "$logs/graphs.safetensors" || same=1
    rm -f "$logs"/*.safetensors
    echo "${launched:-0} steps were launches of graphs, and the weights $(
        [ "$same" = 0 ] && echo 'the same' || echo differ)"
    [ "$same" = 0 ] && [ "${launched:-0}" -gt 0 ]
}

# Few steps: each access is looked at.
sanitized() {
    if [ -z "$dry" ]; then
        has compute-sanitizer || cannot 'there is no compute-sanitizer' || return
        before='compute-sanitizer --error-exitcode 9'
    fi
    quiet 3 --hidden 64
    status=$?
    before=''
    return "$status"
}

# Status 1 is a group's own word that it cannot be measured here; all else is a failure.
bench_group() { # GROUP
    on='--device cuda'
    [ "$1" != streams ] || on='' # it has software devices of its own
    rm -f "$out/$1.json" "$out/$1.txt" "$out/$1.svg"
    # shellcheck disable=SC2086 # words, or none
    for_at_most "$step_s" "$bench" "$1" ${smoke:+"$smoke"} $on --json "$out/$1.json" \
        >"$out/$1.txt" 2>"$logs/said"
    status=$?
    cat "$out/$1.txt" "$logs/said"
    if [ "$status" -eq 0 ]; then
        echo 'a table and its rows'
        return
    fi
    rm -f "$out/$1.json" "$out/$1.txt"
    [ "$status" -eq 1 ] && [ "$1" != alloc ] && status=77
    [ "$1" != alloc ] || echo 'the allocators could not be measured'
    return "$status"
}

# What the first ten minutes on a device have to say comes first.
all_steps() {
    step facts 'which driver and device these results are of' probe facts
    step rules 'the driver keeps the rules that the allocator relies on' probe rules
    step costs 'what each call for memory costs, by size and by handles beside it' probe costs
    step optimizer "the optimizer's kernels have the bits of the CPU's" suite gpu_optimizer
    step updates 'how fast they go through memory, beside a copy of as many bytes' probe updates
    step rnn_shapes 'one RNN descriptor serves batches of changing shapes' suite gpu_rnn_shapes
    step graph_bits 'steps that are captured and launched again have the same bits' graph_bits
    for kind in shared static procs names; do
        step "preload_$kind" "programs run under the preload as without it ($kind)" drop_in "$kind"
    done
    step train 'a training after its warm-up makes no call for memory' quiet "$(few 2000 4)"
    step train_graphs 'so it is where each step is one launch of a graph' \
        quiet "$(few 2000 4)" --graphs
    step calls "nor do the libraries beside it, in 60 s that CUPTI counts" counted
    step sanitizer 'compute-sanitizer finds no bad access of our kernels' sanitized
    step tests "our kernels, cuDNN and cuBLAS agree with the CPU's results" suite
    step pytorch 'PyTorch trains to the same losses in our memory' pytorch
    step pytorch_calls 'all that PyTorch asks of an allocator is answered' \
        framework torch_calls.py
    step cupy_calls 'all that CuPy asks of an allocator is answered' framework cupy_calls.py
    # The groups that this program has stand in the first line of its help.
    for group in $("$bench" --help | sed -n '1s/.*\[\([a-z|]*\)\].*/\1/p' | tr '|' ' '); do
        [ "$group" != ranks ] || continue # it trains on the CPU
        step "bench_$group" "the figures of $group, beside others" bench_group "$group"
    done
}

if [ "$mode" = list ]; then
    all_steps
    exit
fi
mode=name
for name in $(printf '%s\n' "$only" | tr ',' ' '); do
    if ! all_steps | grep -qxF -e "$name"; then
        echo "gpu.sh: --only: there is no step $name; --list names them" >&2
        exit 2
    fi
done
mode=run
mkdir -p "$out" || exit 1
cp "$logs/machine.json" "$out/machine.json" || exit 1
[ -n "$only$resume" ] || rm -f "$logs/ran.txt" "$out/torch.json" # of an earlier run
all_steps

for file in "$out"/*.txt; do
    case $file in
    */ran.txt) continue ;;
    esac
    [ ! -e "$file" ] || "$bench" report "$out" || failed=1
    break
done
printf '\nresults: %s (all output: %s)\n' "$out" "$logs"
exit "$failed"
