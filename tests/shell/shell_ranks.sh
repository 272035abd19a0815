#!/bin/sh
#
# shell_ranks.sh - a training of several processes, under each MPI that the build has: the results of
# one, the same bits with --reproducible, and one line where a rank fails.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

# shellcheck source=tests/shell/ranks.sh
. "$(dirname "$0")/ranks.sh"

write_text "$scratch/text"
program=$ASHLAR_BUILD/tests/ranks_program

train_on() { # RANKS OPTION...
    n=$1
    shift
    set -- "$train" --device soft --layers 2 --batch 16 --quiet "$@"
    [ "$n" = 1 ] || set -- start "$n" "$@"
    "$@"
}

text() { # RANKS FILE OPTION...
    n=$1 file=$2
    shift 2
    train_on "$n" --data "$scratch/text" --steps 40 --hidden 16 --max-length 32 --sample 0 \
        --save "$file" "$@"
}

near() { # RANKS WHAT OPTION...
    many=$1 what=$2 # text has an n of its own
    shift 2
    "$what" 1 "$scratch/one" "$@" && "$what" "$many" "$scratch/many" "$@" &&
        are_near "$scratch/one" "$scratch/many"
}

same() { # RANKS... -- WHAT OPTION...
    counts=
    while [ "$1" != -- ]; do
        counts="$counts $1"
        shift
    done
    what=$2
    shift 2
    "$what" 1 "$scratch/one" --reproducible "$@" || return
    for n in $counts; do
        "$what" "$n" "$scratch/many" --reproducible "$@" || return
        cmp "$scratch/one" "$scratch/many" || return
    done
}

# Where queued work runs late, or beside the program.
same_in_mode() { # MODE
    ASHLAR_SOFT=mode=$1
    export ASHLAR_SOFT
    same 2 -- text
    status=$?
    unset ASHLAR_SOFT
    return "$status"
}

another_number_goes_on() {
    text 1 "$scratch/one" --reproducible --dropout 0.3 || return
    text 4 "$scratch/a" --reproducible --dropout 0.3 --steps 13 || return
    text 2 "$scratch/b" --reproducible --dropout 0.3 --steps 25 --save-every 5 \
        --resume "$scratch/a" || return
    text 1 "$scratch/c" --reproducible --dropout 0.3 --resume "$scratch/b" || return
    cmp "$scratch/one" "$scratch/c"
}

no_allocation_after_warm_up() {
    text 2 "$scratch/many" --json "$scratch/json" "$@" || return
    json_holds "$scratch/json" 'r["driver_calls_after_warmup"] == 0 and r["steps"] == 40' &&
        json_holds "$scratch/json" 'len(r["ranks"]) == 2 and all(
            k["driver_calls_after_warmup"] == 0 and k["live_peak_bytes"] > 0
            and 0 <= k["sum_seconds"] <= k["seconds"] for k in r["ranks"])'
}

fails_with() { # HOW WORDS
    start 3 "$program" "$1" >"$scratch/out" 2>&1
    cat "$scratch/out"
    [ "$(grep -c '^LINE' "$scratch/out")" -eq 1 ] || complain "not one line" || return
    grep '^LINE' "$scratch/out" | grep -q -e "$2"
}

# One rank was started with another seed.
one_differs() {
    set -- "$train" --data "$scratch/text" --device soft --steps 40 --hidden 16 --quiet --timeout 5
    timeout 60 "$launcher" -n 1 "$@" : -n 1 "$@" --seed 2 >"$scratch/out" 2>&1 </dev/null &&
        complain "it trains" && return 1
    cat "$scratch/out"
    [ "$(grep -c 'rank 1 has diverged.*options' "$scratch/out")" -eq 1 ] || complain "not one line"
}

# A rank that is another program, which never joins.
one_never_joins() {
    timeout 60 "$launcher" -n 1 "$train" --data "$scratch/text" --device soft --steps 4 \
        --hidden 16 --quiet --timeout 3 : -n 1 sleep 50 >"$scratch/out" 2>&1 </dev/null &&
        complain "it trains" && return 1
    cat "$scratch/out"
    [ "$(grep -c '^ashlar-train: not all of 2 ranks have joined within 3 s' "$scratch/out")" -eq 1 ] ||
        complain "not one line"
}

# A training of 3 ranks without an end in sight, which saves to $saved; send one a signal behind a
# step. Each training has a file of its own, by which its ranks are known: one of the training before
# may still be ending.
trainings=0
send() { # SIGNAL RANK STEP OPTION...
    signal=$1 rank=$2 step=$3
    shift 3
    trainings=$((trainings + 1))
    saved=$scratch/$trainings.saved
    rm -f "$scratch"/*.saved*
    : >"$scratch/losses"
    text 3 "$saved" --batch 15 --steps 1000000 --timeout 2 \
        --losses "$scratch/losses" "$@" >"$scratch/out" 2>&1 &
    job=$!
    until [ "$(wc -l <"$scratch/losses")" -gt "$step" ]; do
        kill -0 "$job" || complain "it never came to step $step" || return
        sleep 0.05
    done
    victim=
    for folder in /proc/[0-9]*; do
        tr '\0' '\n' 2>/dev/null <"$folder/environ" |
            grep -qx -e "OMPI_COMM_WORLD_RANK=$rank" -e "PMI_RANK=$rank" || continue
        tr '\0' ' ' 2>/dev/null <"$folder/cmdline" | grep -q -e "--save $saved " &&
            victim=${folder#/proc/}
    done
    [ -n "$victim" ] || complain "there is no rank $rank" || return
    kill "-$signal" "$victim"
}

# Stop or kill a rank; all end soon, and what was saved is whole.
rank_is_hit() { # SIGNAL WORDS RANK STEP
    send "$1" "$3" "$4" --save-every 20 || return
    before=$(date +%s)
    wait "$job" && complain "it ended well" && return 1
    cat "$scratch/out"
    [ $(($(date +%s) - before)) -le 10 ] || complain "the others went on" || return
    grep -q -e "$2" "$scratch/out" || complain "no line with '$2'" || return
    # Rank 0 may be killed while it writes: then what it began lies beside what it saved before.
    [ "$(find "$scratch" -name "$trainings.saved*" | wc -l)" -le 2 ] ||
        complain "it began more than one file" || return
    steps=$(($(wc -l <"$scratch/losses") + 5))
    text "${5:-5}" "$scratch/on" --batch 15 --steps "$steps" --resume "$saved"
}

# Kill each rank in turn, at random moments; as a campaign: ASHLAR_KILLS=50 for each rank.
each_rank_is_killed() {
    for seed in $(seq "${ASHLAR_KILLS:-1}"); do
        for rank in 0 1 2; do
            step=$(awk -v seed="$seed$rank" 'BEGIN { srand(seed); print 20 + int(60 * rand()) }')
            # MPICH's launcher says "EXIT CODE: 9"; another rank may end before it is told to.
            rank_is_hit KILL 'signal 9\|EXIT CODE: [69]\|told to end' "$rank" "$step" 3 ||
                complain "rank $rank, killed after step $step" || return
        done
    done
}

# Ask rank 1 alone to end; all end after the same step, and nothing of it is lost.
rank_is_asked() {
    send TERM 1 45 || return
    wait "$job"
    status=$?
    cat "$scratch/out"
    steps=$(wc -l <"$scratch/losses")
    [ "$status" -eq 143 ] || complain "status $status" || return
    grep -q "SIGTERM ended the training after step $steps of 1000000; go on with --resume" \
        "$scratch/out" && grep -qx 'ashlar-train: rank 1 was told to end' "$scratch/out" &&
        [ "$(grep -c ashlar-train: "$scratch/out")" -eq 2 ] || return
    text 3 "$scratch/on" --batch 15 --steps "$((steps + 1))" --resume "$saved"
}

without_the_library_one_line() {
    OMPI_COMM_WORLD_SIZE=2 ASHLAR_MPI=$scratch/none.so ends_with 1 'none.so ASHLAR_MPI' \
        text 1 "$scratch/none"
}

without_a_launcher_the_same_bits() {
    text 1 "$scratch/one" --reproducible --threads 1 &&
        text 1 "$scratch/many" --reproducible --threads 2 && cmp "$scratch/one" "$scratch/many"
}

check 'the same bits for any number of threads' without_a_launcher_the_same_bits
check 'without ashlar-mpi several ranks end with one line' without_the_library_one_line
found=0
for mpi in $ASHLAR_MPIS; do
    name=${mpi#-}
    if ! launcher_of "$mpi"; then
        skip "$name" "its launcher, mpirun.$name, is not installed"
        continue
    fi
    found=1
    for n in 1 2 4; do
        check "$name: collectives of $n ranks give what they should" start "$n" "$program" all
    done
    check "$name: four ranks train as one does" near 4 text --accumulate 2 --bptt 12
    check "$name: the same bits" same 2 4 8 -- text
    check "$name: the same bits in pieces, with dropout" \
        same 2 4 -- text --accumulate 2 --bptt 12 --dropout 0.3
    check "$name: the same bits of devices that work late" same_in_mode adversarial
    check "$name: another number of ranks goes on" another_number_goes_on
    check "$name: no allocation after the warm-up" no_allocation_after_warm_up
    check "$name: other options are found" one_differs
    check "$name: a rank that never joins is not waited for" one_never_joins
    check "$name: another shape is found" fails_with shape 'rank 1 .* bucket 1 of step 7'
    check "$name: a rank that is killed ends all" each_rank_is_killed
    check "$name: a rank that is asked to end ends all after a step" rank_is_asked
done
[ "$found" = 1 ] || skip 'several ranks' 'this build has no MPI'
check_report
