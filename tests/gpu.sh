#!/bin/sh
#
# gpu.sh - what needs a GPU, from a build: what its driver does and costs, training, tests, drop-in
# libraries, PyTorch, CuPy, benchmarks. `./run gpu` builds and calls it.
#
# usage: tests/gpu.sh BUILD [--first SECONDS | --second SECONDS] [--limit [STEP=]SECONDS]...
#                     [--archive FILE.tar.gz] [--out FOLDER] [--only STEP,...] [--resume]
#                     [--smoke] [--dry] [--list]
#
# The steps are in two parts: what tells most in the least time, and full lengths. --first and
# --second run one of them, and end within so many seconds; --limit has all end within them, or
# gives a step another limit than its own. A step that takes longer is ended.
#
# Each step leaves a line in FOLDER/ran.txt when it ends (passed, failed, or could not and why), and
# all of its output in BUILD/gpu/. FOLDER is bench/results/DATE-GPU. The archive, FOLDER/all.tar.gz,
# holds both and is written anew at the end of each step and every 10 s, so that whoever kills the
# run has what came before. --resume leaves out what an earlier run passed; --dry runs on stand-ins
# of the build, and says what each step would prove. Nothing is fetched from anywhere. Status: 0, 1
# where something failed, 77 where there is no GPU; what could not be run is no failure.

set -u

here=$(cd "$(dirname "$0")/.." && pwd -P) || exit 1
[ $# -gt 0 ] || exit 2
build=$(cd "$1" && pwd -P) || exit 1
shift
began=${ASHLAR_RUN_BEGAN:-$(date +%s)} # a build before it counts

refuse() { # WORDS
    echo "gpu.sh: $*" >&2
    exit 2
}

is_seconds() { # OPTION NUMBER
    case $2 in '' | *[!0-9]* | 0*) refuse "$1: '$2' is no number of seconds from 1" ;; esac
}

smoke='' out='' only='' resume='' dry='' mode=run part='' limit=0 limits='' archive=''
while [ $# -gt 0 ]; do
    option=$1
    case $option in
    --*=*) option=${1%%=*} value=${1#*=} ;;
    --out | --only | --limit | --first | --second | --archive)
        [ $# -gt 1 ] || refuse "$1 needs a value"
        value=$2
        shift
        ;;
    esac
    case $option in
    --smoke) smoke=--smoke ;;
    --out) out=$value ;;
    --only) only=$value ;;
    --archive) archive=$value ;;
    --first | --second)
        is_seconds "$option" "$value"
        part=${option#--} limit=$value
        ;;
    --limit)
        is_seconds "$option" "${value#*=}"
        case $value in *=*) limits="$limits $value" ;; *) limit=$value ;; esac
        ;;
    --resume) resume=1 ;;
    --dry) dry=1 smoke=--smoke ;;
    --list) mode=list ;;
    *)
        refuse "$1: takes --smoke --out FOLDER --only STEP,... --first SECONDS --second SECONDS" \
            "--limit [STEP=]SECONDS --archive FILE --resume --dry --list"
        ;;
    esac
    shift
done

bench=$build/bench/ashlar-bench
logs=$build/gpu
failed=0
case_s=30  # so long a case of the preload may go on
spare_s=10 # what killing a step that will not end, and the archive, may take of the time for all
least_s=5  # with less left than that, no step begins
unset ASHLAR_DEVICE ASHLAR_CONF

has() {
    command -v "$1" >/dev/null 2>&1
}

if [ -d "$build/lib" ]; then # of a build that was packed (gpu_pack.sh)
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$build/lib
    export LD_LIBRARY_PATH
fi

# Stand-ins for the driver, cuDNN, and cuBLAS, and a runtime for what brings its own along.
runtime=''
if [ -n "$dry" ]; then
    LD_LIBRARY_PATH=$build/tests/cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    ASHLAR_CUDNN=$build/tests/libfake_cudnn.so ASHLAR_CUBLAS=$build/tests/libfake_cublas.so
    runtime=$build/tests/cuda/libcudart_12.so:$build/tests/cuda/libcudart.so.13
    runtime=$runtime:$build/tests/cuda/libcudart_rest.so
    export LD_LIBRARY_PATH ASHLAR_CUDNN ASHLAR_CUBLAS
    out=${out:-$logs/dry}
fi

# --- time ----------------------------------------------------------------------------------------

now() { # in seconds since the beginning
    echo $(($(date +%s) - began))
}

# The command has a process group of its own, which the terminal's signals do not reach.
job='' saver='' holder='' end_s=$((limit > 0 ? limit : 60))
trap '[ -z "$job" ] || { kill "$job" && wait "$job"; }; exit 1' HUP INT TERM

for_at_most() { # SECONDS COMMAND...: as many, or those that the step has left
    most=$1 left=$((end_s - $(now)))
    shift
    [ "$most" -le "$left" ] || most=$left
    if [ "$most" -le 0 ]; then # what `timeout` would not take for a limit
        echo 'no time was left for it'
        return 124
    fi
    timeout -k 5 "$most" "$@" &
    job=$!
    wait "$job"
    ended=$?
    case $ended in
    124 | 137) # it had to be killed; what it began may still be there
        ended=124
        kill -KILL "-$job" 2>/dev/null
        echo "it took more than $most s"
        ;;
    esac
    job=''
    return "$ended"
}

# --- what there is -------------------------------------------------------------------------------

# Asked of the driver itself, by the way that all of the library goes.
mkdir -p "$logs" || exit 1
if [ ! -x "$bench" ]; then
    echo "gpu.sh: $build has no bench/ashlar-bench: it is no build of ashlar" >&2
    exit 1
fi
if [ "$mode" = run ] && ! reason=$(for_at_most 60 "$bench" machine --device cuda \
    ${smoke:+"$smoke"} --json "$logs/machine.json" 2>&1); then
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

# --- what is kept --------------------------------------------------------------------------------

# Status 1 of tar: a file grew meanwhile. The two who save write files of their own.
save() { # main|beside
    tar -czf "$archive.$1" --exclude="${archive##*/}*" --exclude='*.safetensors' \
        -C "$build" gpu -C "$out/.." "${out##*/}" 2>/dev/null
    [ $? -le 1 ] && mv "$archive.$1" "$archive"
}

finish() {
    for process in $saver $holder; do
        kill "$process"
        wait "$process"
    done 2>/dev/null
    save main
    rm -f "$archive.beside"
}

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
        if [ -n "$is_cut" ] && [ "$(now)" -ge "$end_s" ]; then
            say "$1" "could not: no time left after $step_s s"
            return
        fi
        failed=1
        tail -n 60 "$logs/$1.log"
        say "$1" "FAILED: $last"
        ;;
    esac
}

is_wanted() { # STEP
    [ "${part:-$of}" = "$of" ] || return
    case ,$only, in
    ,, | *,"$1",*) ;;
    *) return 1 ;;
    esac
    [ -z "$resume" ] || ! grep -q "^$1: passed: " "$logs/ran.txt" 2>/dev/null
}

# How long the step may go on: its own limit, or what is left of that for all. False: no step can.
has_time() { # STEP SECONDS
    step_s=$2 is_cut=''
    for word in $limits; do
        [ "${word%%=*}" != "$1" ] || step_s=${word#*=}
    done
    left=$((limit > 0 ? limit - spare_s - $(now) : step_s))
    [ "$step_s" -le "$left" ] || step_s=$left is_cut=1
    end_s=$(($(now) + step_s))
    [ -z "$is_cut" ] || [ "$left" -ge "$least_s" ]
}

step() { # STEP SECONDS WHAT-IT-PROVES COMMAND...
    name=$1 own_s=$2 proves=$3
    shift 3
    case $mode in
    list)
        [ "${part:-$of}" != "$of" ] || printf '%-18s %s\n' "$name" "$proves"
        return
        ;;
    name) printf '%s\n' "$name" && return ;;
    esac
    is_wanted "$name" || return
    if [ -e "$logs/ran.txt" ]; then # what an earlier run says of it
        grep -v "^$name: " "$logs/ran.txt" >"$logs/ran.new"
        mv "$logs/ran.new" "$logs/ran.txt"
    fi
    if ! has_time "$name" "$own_s"; then
        say "$name" 'could not: no time left'
        return
    fi
    printf '== %s (after %s s, at most %s)\n' "$name" "$(now)" "$step_s"
    [ -z "$dry" ] || printf 'on a GPU it will prove: %s\n' "$proves"
    before='' # words that `env` has before a program of ours
    "$@" >"$logs/$name.log" 2>&1 </dev/null
    end_step "$name" $?
    save main
}

cannot() { # WORDS: the end of a step that has nothing to run
    echo "$*"
    return 77
}

# --- the steps -----------------------------------------------------------------------------------

# shellcheck source=tests/gpu/steps.sh
. "$here/tests/gpu/steps.sh"

# The order, and how long each may go on. What is short comes first, and of what is long a short
# form; of equals what would make most of the others wrong.
all_steps() {
    of=first
    step facts 60 'which machine, driver and device these results are of' facts
    step rules 60 'the driver keeps the rules that the allocator relies on' probe rules
    step gpu_optimizer 60 "the optimizer's kernels have the bits of the CPU's" suite
    step gpu_ops 60 "our kernels and cuBLAS agree with the CPU's results" suite
    step gpu_elements 60 "operations on elements agree with the CPU's" suite
    step gpu_rows 60 'rows of every width and alignment are copied whole' suite
    step gpu_rnn_shapes 60 'one RNN descriptor serves batches of changing shapes' suite
    step gpu_train 60 "a training's losses and weights are the CPU's" suite
    step train_smoke 30 'a training runs' briefly quiet 2
    step train_graphs_smoke 30 'so it does where each step is one launch of a graph' \
        briefly quiet 2 --graphs
    step graph_bits_smoke 40 'two short trainings, with and without graphs, have the same bits' \
        briefly graph_bits
    step calls_smoke 40 'CUPTI counts their calls' briefly counted
    step costs 50 'what each call for memory costs, by size and by handles beside it' probe costs
    step updates 50 'how fast the kernels go through memory, beside a copy of as many bytes' \
        probe updates
    step products 40 "what fp32 products cost as we ask for them and as PyTorch does" probe products
    step pytorch_calls 80 'all that PyTorch asks of an allocator is answered' \
        framework torch_calls.py
    step pytorch 80 'PyTorch trains to the same losses in our memory' pytorch
    step cupy_calls 60 'all that CuPy asks of an allocator is answered' \
        needs_kernels framework cupy_calls.py
    for kind in shared static procs names; do
        step "preload_$kind" 60 "programs run under the preload as without it ($kind)" \
            drop_in "$kind"
    done
    step gpu_rnn 120 "cuDNN agrees with the CPU's results" suite
    step step_small 100 "ashlar's step beside PyTorch's, float and bf16, small" torch_step small
    of=second
    step graph_bits 90 'steps that are captured and launched again have the same bits' graph_bits
    step step_large 120 "ashlar's step beside PyTorch's, float and bf16, large" torch_step large
    step sanitizer 90 "compute-sanitizer finds no access outside a training's blocks" memcheck
    step racecheck 90 'nor do threads of our kernels race for shared memory' racecheck
    step calls 110 "nothing in the process calls for memory in a training's 60 s, as CUPTI counts" \
        counted
    step train_graphs 120 'each step is one launch of a graph, and makes no call for memory' \
        quiet "$(few 2000 2)" --graphs
    step train 120 'a training after its warm-up makes no call for memory' quiet "$(few 2000 2)"
    step step_medium 120 "ashlar's step beside PyTorch's, float and bf16, medium" torch_step medium
    step bench_alloc 500 'the allocator beside the driver, its pool, PyTorch and RMM' \
        bench_group alloc
    # The groups that this program has stand in the first line of its help.
    for group in $("$bench" --help | sed -n '1s/.*\[\([a-z|]*\)\].*/\1/p' | tr '|' ' '); do
        case $group in alloc | rnn) continue ;; esac # before; last
        step "bench_$group" 300 "the figures of $group, beside others" bench_group "$group"
    done
    step bench_rnn 500 'the figures of rnn on the device' bench_group rnn
}

if [ "$mode" = list ]; then
    all_steps
    exit
fi
mode=name
for name in $(printf '%s\n' "$only" | tr ',' ' ') $limits; do
    name=${name%%=*}
    if ! all_steps | grep -qxF -e "$name"; then
        refuse "there is no step $name; --list names them"
    fi
done
mode=run
mkdir -p "$out" && out=$(cd "$out" && pwd -P) || exit 1
cp "$logs/machine.json" "$out/machine.json" || exit 1
[ -n "$only$resume$part" ] || rm -f "$logs/ran.txt" "$out/torch.json" # of an earlier run

archive=${archive:-$out/all.tar.gz}
if ! save main; then
    echo "gpu.sh: $archive cannot be written" >&2
    exit 1
fi
trap finish EXIT
(while sleep 10; do save beside; done) >/dev/null 2>&1 &
saver=$!
# Where no process has it open, the driver starts a GPU anew for each that comes.
if [ -z "$dry" ] && has nvidia-smi; then
    nvidia-smi dmon -s pucm -o T >"$logs/dmon.txt" 2>&1 &
    holder=$!
fi
all_steps

for file in "$out"/*.json; do
    case $file in
    */machine.json | */torch.json) continue ;;
    esac
    [ ! -e "$file" ] || "$here/bench/report.py" "$out" || failed=1
    break
done
printf '\n%s s; results: %s (all output: %s; both: %s)\n' "$(now)" "$out" "$logs" "$archive"
exit "$failed"
