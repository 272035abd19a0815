#!/bin/sh
#
# shell_devices.sh - a training on several devices in one process: the bits of one device, and the
# shares, files and failures of several ranks.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

for _ in 1 2 3 4 5 6; do
    printf 'a stone lies on a stone\n%%\nno gap is left between\n%%\nand one more stone\n%%\n'
done >"$scratch/text"
for _ in 1 2 3 4 5 6 7 8; do
    printf 'the\tD\nstone\tN\nlies\tV\n\nit\tP\nlies\tV\nstill\tA\n\n'
done >"$scratch/tags"

on() { # DEVICES SOFT FILE OPTION...
    n=$1 ASHLAR_SOFT=$2 file=$3
    export ASHLAR_SOFT
    shift 3
    timeout 100 "$train" --devices "$n" --device soft --batch 8 --steps 12 --quiet \
        --timeout 20 --save "$file" "$@"
}

text() { # DEVICES SOFT FILE OPTION...
    on "$@" --data "$scratch/text" --sample 0 --hidden 16 --max-length 32
}

tags() { # as text
    on "$@" --data "$scratch/tags" --model tagger --hidden 12 --embedding 8 --char-hidden 6 \
        --char-embedding 6
}

same_bits() { # SOFT text | tags OPTION...
    soft=devices=4,memory=128MiB,$1 model=$2
    shift 2
    "$model" 1 "$soft" "$scratch/one" --reproducible "$@" || return
    for n in 2 4; do
        "$model" "$n" "$soft" "$scratch/many" --reproducible "$@" || return
        cmp "$scratch/one" "$scratch/many" || return
    done
}

# As many calls as one device makes after the warm-up: none. And a row for each device.
ranks_are_reported() {
    text 2 devices=2 "$scratch/saved" --shard --json "$scratch/json" || return
    python3 - "$scratch/json" <<'END'
import json, sys

report = json.load(open(sys.argv[1]))
print(report["ranks"], report["driver_calls_after_warmup"])
sys.exit(not (len(report["ranks"]) == 2 and report["driver_calls_after_warmup"] == 0 and
              all(rank["driver_calls_after_warmup"] == 0 for rank in report["ranks"])))
END
}

goes_on_elsewhere() {
    text 4 devices=4 "$scratch/saved" --reproducible --shard || return
    text 2 devices=2 "$scratch/two" --reproducible --steps 20 --resume "$scratch/saved" || return
    text 1 devices=1 "$scratch/one" --reproducible --steps 20 --resume "$scratch/saved" || return
    cmp "$scratch/one" "$scratch/two"
}

refuses() { # WORDS COMMAND...
    words=$1
    shift
    "$@" >"$scratch/out" 2>&1 && complain "it trains" && return 1
    cat "$scratch/out"
    [ ! -e "$scratch/none" ] || complain "a file is left" || return
    [ "$(grep -c '^ashlar-train:' "$scratch/out")" -eq 1 ] || complain "not one line" || return
    grep -q -e "$words" "$scratch/out" || complain "no line with '$words'"
}

with_a_launcher() {
    PMI_SIZE=2 text 2 devices=2 "$scratch/none"
}

# The losses of rank 0 cannot be written when the training begins: the other waits for it.
a_rank_that_fails_ends_all() {
    refuses 'cannot write' text 2 devices=2 "$scratch/none" --losses "$scratch/absent/losses"
}

is_stopped() {
    ASHLAR_SOFT=devices=2
    export ASHLAR_SOFT
    : >"$scratch/losses"
    "$train" --devices 2 --device soft --data "$scratch/text" --hidden 16 --max-length 32 --batch 8 \
        --steps 10000000 --sample 0 --quiet --save "$scratch/stopped" --losses "$scratch/losses" &
    job=$!
    until [ -s "$scratch/losses" ]; do
        kill -0 "$job" || return
        sleep 0.05
    done
    kill "$job"
    wait "$job"
    [ $? -eq 143 ] || complain "another status" || return
    done=$(wc -l <"$scratch/losses")
    text 1 devices=1 "$scratch/on" --steps $((done + 2)) --resume "$scratch/stopped"
}

by_nccl() {
    LD_LIBRARY_PATH=$ASHLAR_BUILD/tests/cuda
    ASHLAR_CUDNN=$ASHLAR_BUILD/tests/libfake_cudnn.so
    ASHLAR_CUBLAS=$ASHLAR_BUILD/tests/libfake_cublas.so
    ASHLAR_NCCL=$ASHLAR_BUILD/tests/libfake_nccl.so
    export LD_LIBRARY_PATH ASHLAR_CUDNN ASHLAR_CUBLAS ASHLAR_NCCL
    for n in 1 2 4; do
        on "$n" devices=4,memory=64MiB "$scratch/by$n" --data "$scratch/text" --device cuda --sample 0 \
            --layers 1 --hidden 4 --embedding 4 --max-length 8 --threads 1 --steps 6 \
            --reproducible --shard || return
        cmp "$scratch/by1" "$scratch/by$n" || return
    done
    unset LD_LIBRARY_PATH ASHLAR_CUDNN ASHLAR_CUBLAS ASHLAR_NCCL
}

check 'two and four devices have the bits of one' same_bits mode=eager text
check 'so they have when they work beside the program' same_bits mode=overlap text
check 'so they have when they work late' same_bits mode=adversarial text
check 'so they have with a divided optimizer' same_bits mode=eager text --shard --bptt 12
check 'so has a tagger' same_bits mode=eager tags --dropout 0.3
check 'each device is reported, with no call' ranks_are_reported
check 'a file goes on with another number of devices' goes_on_elsewhere
check 'too few devices' refuses 'only 2 such devices.*set ASHLAR_SOFT=devices=N' \
    text 4 devices=2 "$scratch/none"
check 'one device by its number' refuses 'name its kind' \
    on 2 devices=2 "$scratch/none" --data "$scratch/text" --device soft:1
check 'a batch that does not divide' refuses 'equal shares' \
    text 2 devices=2 "$scratch/none" --batch 3
check 'with a launcher' refuses 'a launcher has started 2 processes' with_a_launcher
check 'a rank that fails ends all' a_rank_that_fails_ends_all
check 'a signal ends all, with everything kept' is_stopped
if [ -e "$ASHLAR_BUILD/tests/libfake_cudnn.so" ] && [ -e "$ASHLAR_BUILD/tests/libfake_cublas.so" ]; then
    check 'CUDA devices of one process, by NCCL' by_nccl
else
    skip 'CUDA devices of one process' 'this build has no CUDA headers'
fi
check_report
