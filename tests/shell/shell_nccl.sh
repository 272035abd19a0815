#!/bin/sh
#
# shell_nccl.sh - a training of several processes on CUDA devices, by NCCL: libcuda, cuDNN, cuBLAS
# and NCCL are stand-ins, and that for NCCL refuses what NCCL's documentation forbids.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/shell/ranks.sh
. "$(dirname "$0")/ranks.sh"

program=$ASHLAR_BUILD/tests/ranks_program
LD_LIBRARY_PATH=$ASHLAR_BUILD/tests/cuda
ASHLAR_CUDNN=$ASHLAR_BUILD/tests/libfake_cudnn.so
ASHLAR_CUBLAS=$ASHLAR_BUILD/tests/libfake_cublas.so
ASHLAR_NCCL=$ASHLAR_BUILD/tests/libfake_nccl.so
export LD_LIBRARY_PATH ASHLAR_CUDNN ASHLAR_CUBLAS ASHLAR_NCCL
for i in 1 2 3 4 5 6; do
    printf 'a stone lies on a stone\n%%\nno gap is left between\n%%\nand one more stone\n%%\n'
done >"$scratch/text"

in_mode() { # MODE
    ASHLAR_SOFT=memory=64MiB,devices=4,mode=$1
    export ASHLAR_SOFT
}

# Little of it: the stand-ins take their time.
train_on() { # RANKS DEVICE FILE OPTION...
    n=$1 device=$2 file=$3
    shift 3
    start "$n" "$train" --data "$scratch/text" --device "$device" --layers 1 --batch 8 --steps 6 \
        --hidden 4 --embedding 4 --max-length 8 --sample 0 --threads 1 --timeout 30 --quiet \
        --save "$file" "$@"
}

# By NCCL, and by MPI on software devices, which compute by other loops.
trains_as_mpi_does() { # RANKS MODE
    in_mode "$2"
    train_on "$1" cuda "$scratch/nccl" --json "$scratch/json" >"$scratch/out" 2>&1
    status=$?
    cat "$scratch/out"
    [ "$status" -eq 0 ] || return
    grep 'fake_nccl' "$scratch/out" && complain "the contract was broken" && return 1
    json_holds "$scratch/json" 'r["driver_calls_after_warmup"] == 0 and r["steps"] == 6' || return
    train_on "$1" soft "$scratch/mpi" && are_near "$scratch/nccl" "$scratch/mpi"
}

collectives_are_right() { # RANKS MODE
    in_mode "$2"
    start "$1" "$program" all cuda
}

# Memory that is registered changes no bit: the stand-in looks that it is so on all ranks, and is
# given back in order.
registers_its_memory() { # RANKS OPTION...
    n=$1
    shift
    in_mode adversarial
    train_on "$n" cuda "$scratch/apart" "$@" || return
    ASHLAR_CONF=share=on
    FAKE_NCCL_TELLS=1
    export ASHLAR_CONF FAKE_NCCL_TELLS
    train_on "$n" cuda "$scratch/shared" "$@" >"$scratch/out" 2>&1
    status=$?
    unset ASHLAR_CONF FAKE_NCCL_TELLS
    cat "$scratch/out"
    [ "$status" -eq 0 ] || return
    grep 'fake_nccl' "$scratch/out" && complain "the contract was broken" && return 1
    [ "$(grep -c '^registered' "$scratch/out")" -ge "$n" ] || complain "not on all ranks" || return
    cmp "$scratch/apart" "$scratch/shared"
}

the_same_bits() {
    in_mode adversarial
    train_on 1 cuda "$scratch/one" --reproducible || return
    for n in 2 4; do
        train_on "$n" cuda "$scratch/many" --reproducible || return
        cmp "$scratch/one" "$scratch/many" || return
    done
    train_on 1 soft "$scratch/mpi" --reproducible && are_near "$scratch/one" "$scratch/mpi"
}

fails_with() { # HOW WORDS
    in_mode adversarial
    start 3 "$program" "$1" cuda >"$scratch/out" 2>&1
    cat "$scratch/out"
    [ "$(grep -c '^LINE' "$scratch/out")" -ge 1 ] || complain "no line" || return
    grep '^LINE' "$scratch/out" | grep -q -e "$2"
}

# A rank's connections break: NCCL itself says so, long before the timeout.
a_broken_connection_ends_all() {
    FAKE_NCCL_PATIENCE_MS=200
    export FAKE_NCCL_PATIENCE_MS
    fails_with hang 'a collective: .*(6)'
    status=$?
    unset FAKE_NCCL_PATIENCE_MS
    return "$status"
}

is_refused() { # WORDS DEVICE OPTION...
    in_mode eager
    words=$1 device=$2
    shift 2
    train_on 2 "$device" "$scratch/none" "$@" >"$scratch/out" 2>&1 &&
        complain "it trains" && return 1
    cat "$scratch/out"
    grep -q -e "$words" "$scratch/out" || complain "no line with '$words'"
}

without_nccl_one_line() {
    ASHLAR_NCCL=$scratch/none.so
    is_refused 'NCCL was not found.*none.so' cuda
    status=$?
    ASHLAR_NCCL=$ASHLAR_BUILD/tests/libfake_nccl.so
    return "$status"
}

found=0
for mpi in $ASHLAR_MPIS; do
    name=${mpi#-}
    launcher_of "$mpi" && [ -e "$ASHLAR_CUDNN" ] && [ -e "$ASHLAR_CUBLAS" ] || continue
    found=$((found + 1))
    check "$name: two ranks train by NCCL as by MPI" trains_as_mpi_does 2 eager
    [ "$found" -eq 1 ] || continue # the rest is the same for each MPI
    check 'so do four ranks on devices that work late' trains_as_mpi_does 4 adversarial
    check 'collectives of four ranks give what they should' collectives_are_right 4 eager
    check 'another shape is found before NCCL sees it' \
        fails_with shape 'rank 1 has diverged.*bucket 1 of step 7'
    check 'a late rank is named' fails_with late 'rank 1 did not come to bucket 1 of step 7'
    check 'a rank that hangs in a collective is named' \
        fails_with hang 'rank 1 stopped in bucket 0 of step 7'
    check 'a broken connection ends all' a_broken_connection_ends_all
    check 'four ranks do' registers_its_memory 4
    check 'two ranks on one device are refused' is_refused 'the same device' cuda:0
    check 'without NCCL one line' without_nccl_one_line
    check 'the same bits for any number of ranks' the_same_bits
done
[ "$found" -gt 0 ] || skip 'several ranks by NCCL' 'this build has no MPI, or no CUDA headers'
check_report
