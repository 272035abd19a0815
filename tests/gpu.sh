#!/bin/sh
#
# gpu.sh - what needs a GPU, from a build: tests, drop-in libraries, PyTorch, CuPy, benchmarks.
# `./run gpu` builds and calls it.
#
# usage: tests/gpu.sh BUILD [--smoke] [--out FOLDER]
#
# Each step leaves a line in FOLDER/ran.txt when it ends (passed, failed, or could not and why), and
# all of its output in BUILD/gpu/; one that hangs is ended. FOLDER is bench/results/DATE-GPU.
# Nothing is fetched from anywhere. Status: 0, 1 where something failed, 77 where there is no GPU;
# what could not be run is no failure.

set -u

here=$(cd "$(dirname "$0")/.." && pwd -P) || exit 1
[ $# -gt 0 ] || exit 2
build=$(cd "$1" && pwd -P) || exit 1
shift

smoke='' out=''
while [ $# -gt 0 ]; do
    case $1 in
    --smoke) smoke=$1 ;;
    --out)
        [ $# -gt 1 ] || exit 2
        out=$2
        shift
        ;;
    --out=*) out=${1#*=} ;;
    *)
        echo "gpu.sh: $1: takes --smoke and --out FOLDER" >&2
        exit 2
        ;;
    esac
    shift
done

bench=$build/bench/ashlar-bench
logs=$build/gpu
failed=0
case_s=120 torch_s=900 bench_s=1800 # so long a step, or a case of one, may go on
unset ASHLAR_DEVICE ASHLAR_CONF

has() {
    command -v "$1" >/dev/null 2>&1
}

# Asked of the driver itself, by the way that all of the library goes.
mkdir -p "$logs" || exit 1
if [ ! -x "$bench" ]; then
    echo "gpu.sh: $build has no bench/ashlar-bench: it is no build of ashlar" >&2
    exit 1
fi
if ! reason=$("$bench" machine --device cuda --json "$logs/machine.json" 2>&1); then
    echo "gpu: no GPU was found, so nothing was run: $reason" >&2
    exit 77
fi

member() { # NAME, of machine.json
    sed -n "s/^  \"$1\": \"\\(.*\\)\",*\$/\\1/p" "$logs/machine.json"
}

if [ -z "$out" ]; then
    gpu=$(member device | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9]\{1,\}/-/g; s/^-//; s/-$//')
    out=$here/bench/results/$(member date)-$gpu
    [ -z "$smoke" ] || out=$build/gpu/results
fi
mkdir -p "$out" || exit 1
rm -f "$logs/ran.txt" "$out/ran.txt" "$out/torch.json" # of an earlier run
cp "$logs/machine.json" "$out/machine.json" || exit 1

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

step() { # STEP COMMAND...
    name=$1
    shift
    echo "== $name"
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

suite() {
    has python3 || cannot 'there is no python3 to run the tests with' || return
    python3 "$here/tests/run_suite.py" "$build" gpu && return
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
    for_at_most "$torch_s" python3 "$script" "$library" "$@"
}

pytorch() {
    steps=200
    [ -z "$smoke" ] || steps=20
    framework torch_lstm.py "$out/torch.json" "$steps"
}

# Some groups are measured on the CPU only, and say so; that is no failure.
benchmarks() {
    rm -f "$out/ran.txt" "$out/alloc.svg"
    for_at_most "$bench_s" "$here/bench/all.sh" "$bench" ${smoke:+"$smoke"} --device cuda \
        --out "$out"
    if [ ! -e "$out/alloc.svg" ]; then
        echo 'the allocators could not be measured'
        return 1
    fi
    [ ! -e "$out/ran.txt" ] || cat "$out/ran.txt" >>"$logs/ran.txt"
    echo 'tables, charts and a page'
}

step tests suite
for kind in shared static procs names; do
    step "preload_$kind" drop_in "$kind"
done
step pytorch pytorch
step pytorch_calls framework torch_calls.py
step cupy_calls framework cupy_calls.py
step benchmarks benchmarks

"$bench" report "$out" || failed=1
printf '\nresults: %s (all output: %s)\n' "$out" "$logs"
exit "$failed"
