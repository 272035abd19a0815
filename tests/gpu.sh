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

# Stand-ins for the driver, cuDNN, cuBLAS and CUPTI, and a runtime for what brings its own along.
runtime=''
if [ -n "$dry" ]; then
    LD_LIBRARY_PATH=$build/tests/cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    ASHLAR_CUDNN=$build/tests/libfake_cudnn.so ASHLAR_CUBLAS=$build/tests/libfake_cublas.so
    ASHLAR_CUPTI=$build/tests/gpu/libfake_cupti.so
    runtime=$build/tests/cuda/libcudart.so.13:$build/tests/cuda/libcudart_rest.so
    export LD_LIBRARY_PATH ASHLAR_CUDNN ASHLAR_CUBLAS ASHLAR_CUPTI
    out=${out:-$logs/dry}
fi

# Asked of the driver itself, by the way that all of the library goes.
mkdir -p "$logs" || exit 1
if [ ! -x "$bench" ]; then
    echo "gpu.sh: $build has no bench/ashlar-bench: it is no build of ashlar" >&2
    exit 1
fi
if [ "$mode" = run ] && ! reason=$("$bench" machine --device cuda ${smoke:+"$smoke"} \
    --json "$logs/machine.json" 2>&1); then
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

# shellcheck source=tests/gpu/steps.sh
. "$here/tests/gpu/steps.sh"

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
    step train 'a training after its warm-up makes no call for memory' quiet "$(few 2000 2)"
    step train_graphs 'so it is where each step is one launch of a graph' \
        quiet "$(few 2000 2)" --graphs
    step calls "nor do the process's libraries in 60 s of it, as CUPTI counts" counted
    step sanitizer 'compute-sanitizer finds no bad access of our kernels' sanitized
    for group in arena rnn; do
        step "bench_$group" "the figures of $group on the device" bench_group "$group"
    done
    for size in small medium large; do
        step "step_$size" "ashlar's step beside PyTorch's, float and bf16, $size" torch_step "$size"
    done
    step bench_alloc 'the allocator beside the driver, its pool, PyTorch and RMM' bench_group alloc
    step tests "our kernels, cuDNN and cuBLAS agree with the CPU's results" suite
    step pytorch 'PyTorch trains to the same losses in our memory' pytorch
    step pytorch_calls 'all that PyTorch asks of an allocator is answered' \
        framework torch_calls.py
    step cupy_calls 'all that CuPy asks of an allocator is answered' framework cupy_calls.py
    # The groups that this program has stand in the first line of its help.
    for group in $("$bench" --help | sed -n '1s/.*\[\([a-z|]*\)\].*/\1/p' | tr '|' ' '); do
        case $group in alloc | arena | rnn | ranks) continue ;; esac # done; trains on the CPU
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

for file in "$out"/*.json; do
    case $file in
    */machine.json | */torch.json) continue ;;
    esac
    [ ! -e "$file" ] || "$bench" report "$out" || failed=1
    break
done
printf '\nresults: %s (all output: %s)\n' "$out" "$logs"
exit "$failed"
