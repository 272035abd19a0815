# shellcheck shell=sh disable=SC2154 # a part of gpu.sh, whose variables these are
#
# steps.sh - what the steps of gpu.sh do. Each function ends with a line that says how it went, and
# with status 77 where it could not be run.

# The fewer rounds of a smoke run; words of a command.
few() { # WHOLE SMOKE
    if [ -n "$smoke" ]; then echo "$2"; else echo "$1"; fi
}

# The step's form for a smoke run.
briefly() { # COMMAND...
    whole=$smoke smoke=--smoke
    "$@"
    status=$?
    smoke=$whole
    return "$status"
}

# On several streams cuBLAS may choose anew which products are split, and so change bits.
one_workspace=CUBLAS_WORKSPACE_CONFIG=:4096:8

# The test of the step's name.
suite() {
    has python3 || cannot 'there is no python3 to run the tests with' || return
    for_at_most "$step_s" env "$one_workspace" python3 "$here/tests/run_suite.py" "$build" gpu \
        "$((step_s - 2))" "$name" && return
    status=$?
    [ "$status" -ne 77 ] || cannot 'this build has no such test that ran' || return
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

drop_in() { # shared|static|procs|names: the runtime, or the driver by either way
    preload=$build/allocator/dropin/libashlar-preload.so
    [ -f "$preload" ] || cannot 'this build has no libashlar-preload.so' || return
    case $1 in
    shared | static)
        program=toolkit_$1 # NVIDIA's own
        [ -z "$dry" ] || program=program_$1
        shift
        ;;
    *) program=program_driver ;;
    esac
    [ -x "$build/tests/preload/$program" ] ||
        cannot "this build has no tests/preload/$program" || return
    preload_cases "$build/tests/preload/$program" "$@"
}

framework() { # SCRIPT ARGUMENT...
    library=$build/allocator/dropin/libashlar-torch.so
    script=$here/tests/$1
    shift
    [ -f "$library" ] || cannot 'this build has no libashlar-torch.so' || return
    has python3 || cannot 'there is no python3' || return
    for_at_most "$step_s" env ${runtime:+"LD_PRELOAD=$runtime"} python3 "$script" "$library" "$@"
}

# Kernels are what a training is about, and PyTorch's are not for stand-ins, nor is CuPy, which has a
# CUDA runtime in itself.
needs_kernels() { # COMMAND...
    [ -z "$dry" ] || cannot 'it has kernels of its own, which a dry run has no device for' || return
    "$@"
}

pytorch() {
    needs_kernels framework torch_lstm.py "$out/torch.json" "$(few 200 20)"
}

torch_step() { # small|medium|large
    program=$build/rnn/ashlar-train
    [ -x "$program" ] || cannot 'this build has no rnn/ashlar-train' || return
    has python3 || cannot 'there is no python3' || return
    needs_kernels for_at_most "$step_s" python3 "$here/tests/torch_step.py" "$program" \
        "$out/step_$1.json" "$(few "$1" smoke)"
}

# The device's are the last lines.
facts() {
    for_at_most 30 sh -c 'nvidia-smi -q; uname -a; nproc; free -g; python3 -m pip list
        /sbin/ldconfig -p | grep -E "libcuda|libcudnn|libcublas|libnccl"'
    probe facts
}

probe() { # facts|rules|costs|updates|products
    asks=$build/tests/gpu/probe
    [ -x "$asks" ] || cannot 'this build has no tests/gpu/probe' || return
    file=$out/$1.json
    case $1 in facts | rules) file='' ;; esac
    for_at_most "$step_s" "$asks" "$1" ${smoke:+"$smoke"} ${file:+"$file"} && return
    status=$?
    [ -z "$file" ] || rm -f "$file" # a part of it would be no JSON, and no page would be made
    return "$status"
}

train() { # STEPS OPTION...
    program=$build/rnn/ashlar-train count=$1
    shift
    [ -x "$program" ] || cannot 'this build has no rnn/ashlar-train' || return
    # shellcheck disable=SC2046,SC2086 # words
    for_at_most "$step_s" env $before "$program" --device cuda --sample 0 --steps "$count" \
        --data "$here/docs$(few '' /status.md)" \
        $(few '--hidden 1024 --batch 64' '--hidden 16 --batch 2 --max-length 8') "$@" \
        >"$logs/report" 2>&1
    status=$?
    cat "$logs/report"
    ! grep -q 'was not found: install it\|build had no NVTX headers' "$logs/report" || return 77
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
    tool=$build/tests/gpu/calls.so short=$(few 200 2)
    [ -f "$tool" ] || cannot 'this build has no tests/gpu/calls.so: it had no cupti.h' || return
    count_calls "$short" || return
    seconds=$(sed -n 's/.* in \([0-9.]*\) s: .*/\1/p' "$logs/report")
    long=$(few "$(echo "$short $seconds" | awk '{ print $1 + int($1 * 60 / ($2 + 0.1)) }')" 6)
    count_calls "$long" || return
    echo "of $((long - short)) steps more:"
    json=$out/$name.json
    [ "$name" = calls ] || json=$logs/$name.json # of few steps, which are not shown
    awk -v steps=$((long - short)) -v json="$json" -f "$here/tests/gpu/calls.awk" \
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

graph_bits() {
    before=$one_workspace
    for kind in plain again graphs; do
        [ "$kind" = graphs ] && options=--graphs || options=''
        # shellcheck disable=SC2086 # a word, or none
        train "$(few 300 3)" --save "$logs/$kind.safetensors" $options
        status=$?
        [ "$status" -eq 0 ] || return "$status"
    done
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

# In a dry run nothing looks on.
under_sanitizer() { # TOOL OPTIONS COMMAND...
    sanitizer="compute-sanitizer --error-exitcode 9 --tool $1 $2"
    shift 2
    if [ -n "$dry" ]; then
        "$@" || return
        echo "$(tail -n 1 "$logs/$name.log") (dry: without compute-sanitizer)"
        return
    fi
    has compute-sanitizer || cannot 'there is no compute-sanitizer' || return
    before="$before $sanitizer"
    "$@"
}

# Few steps: each access is looked at, and whether it is to a live block. Work is not queued, since
# a block counts as freed as soon as its free is called.
memcheck() {
    before='ASHLAR_CONF=nvtx=on CUDA_LAUNCH_BLOCKING=1'
    under_sanitizer memcheck --nvtx=yes quiet "$(few 3 2)" --hidden 64
}

# By the tests of each kernel. What cuBLAS's do is not looked at.
racecheck() {
    under_sanitizer racecheck '--kernel-regex kns=ashlar_kernel_' kernels
}

kernels() {
    for test in gpu_optimizer gpu_ops; do
        [ -x "$build/tests/test_$test" ] || cannot "this build has no tests/test_$test" || return
        # shellcheck disable=SC2086 # words
        for_at_most "$step_s" env $before "$build/tests/test_$test" || return
    done
    echo 'no race in the tests of our kernels'
}

# PyTorch's allocator and RMM's, where Python has them and they serve: an argument on each line.
find_peers() { # FILE
    : >"$1"
    [ -z "$dry" ] || [ ! -f "$build/tests/stone.so" ] || echo "--peer=$build/tests/stone.so" >"$1"
    has python3 || return
    mkdir -p "$logs/made" &&
        for_at_most 120 python3 "$here/tests/gpu/peers.py" "$logs/made" >"$1.made"
    while read -r peer; do
        [ "${peer#--peer=}" != "$peer" ] || continue # that it took too long
        if on_runtime 60 "$bench" alloc --device cuda --pairs 1 --workload one_size/512 \
            --subject none "$peer"; then
            echo "$peer" >>"$1"
        fi
    done <"$1.made"
}

on_runtime() { # SECONDS COMMAND...
    seconds=$1
    shift
    for_at_most "$seconds" env ${runtime:+"LD_PRELOAD=$runtime"} "$@"
}

# Status 1 is a group's own word that it cannot be measured here; all else is a failure.
bench_group() { # GROUP
    group=$1
    : >"$logs/peers"
    [ "$group" != alloc ] || find_peers "$logs/peers"
    set -- "$bench" "$group" ${smoke:+"$smoke"} --json "$out/$group.json" --device cuda
    while read -r peer; do
        set -- "$@" "$peer"
    done <"$logs/peers"
    rm -f "$out/$group.json" "$out/$group.txt"
    on_runtime "$step_s" "$@" >"$out/$group.txt" 2>"$logs/said"
    status=$?
    cat "$out/$group.txt" "$logs/said"
    if [ "$status" -eq 0 ]; then
        names=$(sed -n 's/.*\/\(.*\)\.so.*/ \1/p' "$logs/peers" | tr -d '\n')
        echo "a table and its rows${names:+, with$names}"
        return
    fi
    [ "$status" -ne 124 ] || return "$status" # the rows that came are kept
    rm -f "$out/$group.json" "$out/$group.txt"
    [ "$status" -eq 1 ] && [ "$group" != alloc ] && status=77
    [ "$group" != alloc ] || echo 'the allocators could not be measured'
    return "$status"
}

