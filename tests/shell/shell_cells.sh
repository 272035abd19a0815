#!/bin/sh
#
# shell_cells.sh - every kind of stack from the outside: it trains, it is saved, it writes text.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

sample=$(dirname "$train")/ashlar-sample
data=$scratch/data.txt
write_text "$data"
model=$scratch/model.safetensors

# A training of the stack that the options say, and a text of the model that it saved.
trains() { # OPTION...
    timeout 120 "$train" --data "$data" --device soft --steps 30 --layers 2 --hidden 48 --batch 4 \
        --max-length 64 --learning-rate 0.01 --quiet --save "$model" --json "$scratch/report.json" \
        "$@" </dev/null
}

learns() { # OPTION...
    trains "$@" && json_holds "$scratch/report.json" \
        'r["loss_last"] < 0.9 * r["loss_first"] and r["driver_calls_after_warmup"] == 0 and
        r["plan_misses"] == 0 and r["weights_contiguous"]'
}

writes() {
    timeout 60 "$sample" --model "$model" --bytes 100 >"$scratch/text" || return
    bytes=$(wc -c <"$scratch/text")
    [ "$bytes" -ge 100 ] || complain "$bytes bytes of text"
}

# The tensors of the saved file, as NAME SHAPE lines.
tensors() {
    python3 - "$model" <<'END'
import json, struct, sys
with open(sys.argv[1], 'rb') as file:
    header = json.loads(file.read(struct.unpack('<Q', file.read(8))[0]))
print(*(f'{k} {v}' for k, v in sorted(header.pop('__metadata__').items())), sep='\n')
print(*(f'{k} {v["shape"]}' for k, v in sorted(header.items())), sep='\n')
END
}

file_has() { # LINE...
    tensors >"$scratch/tensors"
    for line in "$@"; do
        grep -qxF -e "$line" "$scratch/tensors" || complain "lacks '$line'" || return
    done
}

check 'an_lstm_learns' learns --cell lstm
check 'its_file_says_what_it_is' file_has 'ashlar.cell lstm' 'ashlar.projection 0' \
    'ashlar.dropout 0' 'lstm.weight_hh_l1 [192, 48]'

check 'a_gru_learns' learns --cell gru
check 'a_gru_writes' writes
check 'a_gru_has_three_gates' file_has 'ashlar.cell gru' 'gru.weight_ih_l0 [144, 64]'
check 'a_tanh_network_learns' learns --cell tanh
check 'a_projected_lstm_learns' learns --projection 20
check 'a_projected_lstm_writes' writes
check 'its_projection_is_saved' file_has 'ashlar.projection 20' 'lstm.weight_hr_l0 [20, 48]' \
    'lstm.weight_ih_l1 [192, 20]' 'linear.weight [256, 20]'
check 'a_stack_learns_with_dropout' learns --dropout 0.2

loss() { # OPTION...: the last loss, with all its digits
    trains --steps 5 "$@" >/dev/null &&
        python3 -c 'import json, sys; print(repr(json.load(open(sys.argv[1]))["loss_last"]))' \
            "$scratch/report.json"
}

repeats() {
    one=$(loss --dropout 0.5 --seed 3) two=$(loss --dropout 0.5 --seed 3) other=$(loss --seed 3)
    echo "$one $two $other"
    [ -n "$one" ] && [ "$one" = "$two" ] && [ "$one" != "$other" ]
}
check 'the_same_seed_drops_the_same_outputs' repeats
check_report
