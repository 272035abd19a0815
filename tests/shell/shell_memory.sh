#!/bin/sh
#
# shell_memory.sh - trainings in a given memory, from the outside: the bits of the same chunks, no
# more memory than was given, and one line where it does not do.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

data=$scratch/data.txt
python3 - >"$data" <<'END'
words = "a training in a given memory is that of the same chunks in any other".split()
print("\n%\n".join(" ".join(words[i * k % 15] for k in range(1, 40 + i % 7)) for i in range(1, 60)))
END

text() { # NAME OPTION...
    name=$1
    shift
    timeout 300 "$train" --data "$data" --device soft --steps 6 --layers 2 --hidden 64 --batch 16 \
        --max-length 160 --held-out 0 --seed 7 --json "$scratch/$name.json" \
        --save "$scratch/$name.safetensors" --losses "$scratch/$name.losses" --sample 0 --quiet \
        "$@" </dev/null
}

same_bits() { # NAME NAME
    cmp "$scratch/$1.losses" "$scratch/$2.losses" &&
        cmp "$scratch/$1.safetensors" "$scratch/$2.safetensors"
}

# A training in MIB has the bits of one whose chunks all go forward twice, and takes no more.
does_in() { # MIB OPTION...
    mib=$1
    shift
    text given --recompute 16 --memory "${mib}MiB" "$@" && same_bits twice given &&
        json_holds "$scratch/given.json" "r['reserved_peak_bytes'] <= $mib << 20 and
            r['driver_calls_after_warmup'] == 0 and r['plan_misses'] == 0"
}

holds() { # PYTHON-EXPRESSION over r, the report of the last training
    json_holds "$scratch/given.json" "$1"
}

least_of() { # of the last training
    python3 -c "import json; print(json.load(open('$scratch/given.json'))['tiers']['least_bytes'] >> 20)"
}

refuses() { # STATUS TEXT OPTION...
    status=$1 wanted=$2
    shift 2
    timeout 60 "$train" --data "$data" --device soft "$@" >"$scratch/stdout" 2>"$scratch/stderr"
    [ $? -eq "$status" ] && cat "$scratch/stderr" && [ "$(wc -l <"$scratch/stderr")" -eq 1 ] &&
        grep -qF -e "$wanted" "$scratch/stderr"
}

check 'chunks_go_forward_twice' text twice --recompute 16
check 'or_are_kept_with_the_same_bits' does_in 64
check 'all_on_the_device' holds "r['tiers']['host_bytes'] == r['tiers']['recomputed_bytes'] == 0"
least=$(least_of)
check 'or_on_the_host' does_in $((least + 4))
check 'half_of_it_there' holds "r['tiers']['host_bytes'] >= r['tiers']['resident_bytes'] > 0"
check 'which_is_expected_to_take_little_time' holds "1 <= r['tiers']['time'] < 1.1"

# What a trace says lies where is what the report says, in the longest step, and nothing in the end.
is_traced() { # MIB
    (ASHLAR_SOFT=time=on,trace=$scratch/trace.json && export ASHLAR_SOFT && does_in "$1") &&
        python3 - "$scratch/trace.json" "$scratch/given.json" <<'END'
import json, sys
events, report = (json.load(open(file)) for file in sys.argv[1:])
names = {"resident": "resident_bytes", "host": "host_bytes", "computed again": "recomputed_bytes"}
now, most = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
for event in sorted((e for e in events if e["cat"] == "tier"), key=lambda e: e["ts"]):
    tier = event["name"]
    now[tier] += event["args"]["bytes"]
    if now["resident"] > 0:  # set-up is over, which tries where the optimizer's state has room
        most = {t: max(most[t], now[t]) for t in names}
    assert now[tier] >= 0, event
tiers = {t: report["tiers"][names[t]] for t in names}
tiers["host"] += report["tiers"]["state_bytes"]
assert not any(now.values()) and most == tiers, (now, most, tiers)
END
}
check 'a_trace_says_what_is_away_when' is_traced $((least + 4))
check 'or_dropped' is_traced "$least"
adversarial() { # the order of the device's work
    for seed in 1 2 3; do
        ASHLAR_SOFT=mode=adversarial,seed=$seed does_in $((least + 4)) || return
    done
}
check 'in_any_order_of_the_device_s_work' adversarial
check 'in_the_least_memory' does_in "$least"
check 'not_in_less' refuses 1 "--memory: this training takes at least $least MiB, and may have" \
    --layers 2 --hidden 64 --batch 16 --max-length 160 --held-out 0 \
    --recompute 16 --memory $((least - 2))MiB
check 'a_size_that_is_none_is_usage' refuses 2 'neither auto nor a size' --memory 9

uncut_if_it_fits() {
    text plain && text given --memory auto && same_bits plain given &&
        holds "r['config']['recompute'] == 0 and r['tiers']['state_bytes'] == 0"
}
check 'with_enough_memory_nothing_is_cut' uncut_if_it_fits
cut=$(least_of)
check 'the_least_is_that_of_chunks' text given --memory "${cut}MiB"
check 'or_none' refuses 1 "--memory: this training takes at least $cut MiB, and may have" \
    --layers 2 --hidden 64 --batch 16 --max-length 160 --held-out 0 --memory $((cut - 2))MiB
one_loss() { # of the first step, without dropout
    text plain --dropout 0 --steps 1 && text given --dropout 0 --steps 1 --recompute 16 &&
        cmp "$scratch/plain.losses" "$scratch/given.losses"
}
check 'a_loss_in_chunks_is_that_in_one_piece' one_loss
cut_if_it_does_not() {
    text given --memory $((least + 6))MiB && holds "r['config']['recompute'] == 26"
}
check 'with_less_chunks_have_two_roots_of_the_steps' cut_if_it_does_not

launched() { # as one graph, with copies in it
    text twice --recompute 16 --pad && does_in $((least + 4)) --graphs &&
        holds "r['steps_launched'] == 6 and r['tiers']['host_bytes'] > 0 and
            r['graphs_refused_because'] == ''"
}
check 'copies_are_launched_with_the_step' launched
in_parts() {
    text twice --recompute 16 --accumulate 2 --bptt 60 &&
        does_in $((least + 2)) --accumulate 2 --bptt 60
}
check 'with_micro_batches_and_windows' in_parts
reproducible() {
    text twice --recompute 16 --reproducible && does_in $((least + 8)) --reproducible
}
check 'with_shards' reproducible
goes_on() {
    text twice --memory $((least + 4))MiB && text half --memory $((least + 4))MiB --steps 3 &&
        text given --resume "$scratch/half.safetensors" --memory $((least + 6))MiB --steps 6 &&
        tail -n 3 "$scratch/twice.losses" | cmp - "$scratch/given.losses" &&
        cmp "$scratch/twice.safetensors" "$scratch/given.safetensors"
}
check 'a_resumed_training_goes_on_in_its_chunks' goes_on

state_on_host() { # OPTION... : wide layers, of which more is the optimizer's than a step keeps
    text twice --recompute 16 --hidden 288 --max-length 60 "$@" &&
        does_in 64 --hidden 288 --max-length 60 "$@" && holds "r['tiers']['state_bytes'] == 0" &&
        does_in "$(least_of)" --hidden 288 --max-length 60 "$@" &&
        holds "r['tiers']['state_bytes'] > 8 << 20 and r['graphs_refused_because'] == ''"
}
check 'the_optimizer_s_state_is_on_the_host_where_it_has_no_room' state_on_host
check 'also_in_steps_that_are_launched' state_on_host --pad --graphs
check 'also_with_micro_batches_and_shards' state_on_host --accumulate 2 --reproducible
state_is_saved() {
    text twice --hidden 288 --max-length 60 --recompute 16 &&
        text half --hidden 288 --max-length 60 --recompute 16 --memory "$(least_of)MiB" --steps 3 &&
        text given --hidden 288 --max-length 60 --resume "$scratch/half.safetensors" \
            --memory 64MiB --steps 6 && holds "r['tiers']['state_bytes'] == 0" &&
        cmp "$scratch/twice.safetensors" "$scratch/given.safetensors"
}
check 'and_is_saved_from_there' state_is_saved

# Minutes: T = 1,000,000.
million() {
    python3 -c "print(' '.join('a text of a million symbols'[i % 17:] for i in range(60000))[:1000001])" \
        >"$scratch/long.txt"
    set -- --data "$scratch/long.txt" --max-length 1000000 --batch 1 --layers 1 --hidden 64 \
        --embedding 32 --steps 1 --sample 0 --held-out 0 --quiet
    ASHLAR_SOFT=memory=64MiB "$train" "$@" --recompute 2000 --memory auto --losses "$scratch/a" --json "$scratch/given.json" &&
        ASHLAR_SOFT=memory=8GiB "$train" "$@" --losses "$scratch/b" &&
        cmp "$scratch/a" "$scratch/b" && holds "r['tiers']['host_bytes'] + r['tiers']['recomputed_bytes'] > 1 << 30"
}
[ -z "${ASHLAR_TEST_SLOW-}" ] || check 'a_million_steps_in_64_MiB_have_the_loss_of_those_in_one_piece' million
check_report
