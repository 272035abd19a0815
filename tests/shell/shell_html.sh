#!/bin/sh
#
# shell_html.sh - the page of a training: its figures, its pictures, the ways that it compares.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

data="$scratch/a<b>&c.txt"
page=$scratch/r.html
write_text "$data"

trains() { # OPTION...
    timeout 300 "$train" --data "$data" --device soft --layers 1 --hidden 160 --batch 16 \
        --max-length 64 --html "$page" "$@" </dev/null
}

on_page() { # EXPRESSION [PAGE]
    python3 "$ASHLAR_SOURCE/tests/check_page.py" "${2-$page}" "$1"
}

check 'a_training_writes_its_page' trains --steps 60 --json "$scratch/r.json"
check 'the_page_is_whole_and_leads_nowhere' on_page '"Training report" in text'
check 'its_five_figures_are_those_of_json' on_page "all(data[k] == load('$scratch/r.json')[k] for k
    in ('driver_calls_after_warmup', 'step_reserved_bytes', 'reserved_peak_bytes', 'loss_last',
        'tokens_per_s'))"
check 'names_of_files_are_escaped' on_page "'a<b>&c.txt' in text and 'a<b>' not in page"

# --- ways to take memory ---

check 'five_ways_are_compared' on_page "len(rows['comparison']) == 1 + 5 and
    all(ms['way-%d' % i] > 0 and len(calls['way-%d' % i]) == 6 for i in range(5))"
check 'with_a_call_per_allocation_every_step_calls' on_page \
    "all(n >= 8 and n % 2 == 0 for n in calls['way-0'])"
check 'without_a_warm_up_the_first_steps_call' on_page "calls['way-1'][0] > 0 and
    sum(calls['way-1']) < sum(calls['way-0'])"
check 'behind_the_warm_up_no_step_calls' on_page \
    "all(calls['way-%d' % i] == [0] * 6 for i in (2, 3, 4))"
check 'they_compute_the_same' on_page "'the same losses, to the last bit' in text"
check 'recomputation_takes_less_and_the_driver_is_counted' on_page \
    "taken['way-4'] < taken['way-3'] and taken['way-0'] > data['step_reserved_bytes']"

# --- pictures ---

check 'each_buffer_of_a_step_is_a_box' on_page "len(boxes) >= 8 and
    'takes %d buffers' % len(boxes) in text and len(rows['buffers']) == 1 + len(boxes) and
    len(boxes) * 2 == max(int(b['aria-label'].split()[-1]) for b in boxes)"
check 'boxes_have_names_for_all_who_read' on_page "all(b['role'] == 'img' and 'tabindex' in b and
    ': ' in b['aria-label'] for b in boxes)"
check 'no_two_boxes_share_a_place' on_page 'overlaps == [] and
    all(b["left"] + b["width"] <= 100.01 and b["bottom"] + b["height"] <= 100.01 for b in boxes)'
check 'the_loss_of_each_step_is_on_a_line' on_page "len(lines['raw']) == 60 and
    len(lines['test']) == 2 and lines['raw'][0][1] < lines['raw'][-1][1] and
    data['bits_per_byte'] == load('$scratch/r.json')['held_out_bits_per_byte']"
check 'what_is_reserved_is_flat' on_page "len({y for x, y in lines['second']}) == 1 and
    min(y for x, y in lines['main']) > lines['second'][0][1]"

check 'text_can_be_read_by_day_and_by_night' on_page "len(contrasts) == 2 and
    all(len(c) >= 8 + 8 and min(c.values()) >= 4.5 for c in contrasts)"

# --- larger, and other, trainings ---

# The least and the greatest loss, which set the frame, stay: each has a twentieth of room beyond it.
long() {
    timeout 300 "$train" --data "$data" --device soft --layers 1 --hidden 8 --batch 1 \
        --max-length 16 --steps 1000 --quiet --html "$scratch/long.html" </dev/null || return
    on_page "600 < len(lines['raw']) <= 800 and
        [round(f(y for x, y in lines['raw']), 1) for f in (min, max)] == [45.5, 954.5] and
        lines['raw'][0][0] < 5 and lines['raw'][-1][0] > 995" "$scratch/long.html"
}
check 'a_thousand_steps_are_thinned' long

check 'recomputation_has_its_page' trains --steps 4 --recompute 2 --batch 2 --quiet
check 'with_as_many_steps_as_there_were' on_page \
    "len(boxes) > 4 and overlaps == [] and all(len(calls['way-%d' % i]) == 4 for i in range(5))"
check 'graphs_are_recorded_too' trains --steps 20 --graphs --quiet
check 'with_each_step_that_is_launched' on_page "len(boxes) >= 8 and
    len({y for x, y in lines['main']}) > 1 and calls['way-3'] == [0] * 6"

# What is left of a way that fails is given back, or the next one would lack it.
too_large() {
    (ASHLAR_SOFT=memory=40MiB && export ASHLAR_SOFT && trains --steps 4 --batch 64 \
        --max-length 256 --recompute auto --quiet) &&
        on_page "all('memory' in rows['comparison'][i][1] for i in (1, 2, 3, 4)) and
            list(calls) == ['way-4'] and 'the same losses' not in text"
}
check 'what_does_not_fit_is_said_in_its_row' too_large

check 'steps_in_parts_and_pieces_without_a_plan_have_theirs' trains --steps 8 --bptt 16 \
    --accumulate 2 --no-plan --quiet
check 'with_a_plan_in_the_comparison_alone' on_page \
    "'The plan has room' not in text and calls['way-3'] == [0] * 6 and overlaps == []"

changes_no_loss() {
    trains --steps 8 --quiet --losses "$scratch/with" && timeout 60 "$train" --data "$data" \
        --device soft --layers 1 --hidden 160 --batch 16 --max-length 64 --steps 8 --quiet \
        --losses "$scratch/without" </dev/null && cmp "$scratch/with" "$scratch/without"
}
check 'a_page_changes_no_loss' changes_no_loss

tags() {
    "$ASHLAR_SOURCE/rnn/data/make_tags.sh" 300 7 >"$scratch/tags.txt" || return
    timeout 120 "$train" --model tagger --data "$scratch/tags.txt" --device soft --steps 12 \
        --batch 16 --hidden 32 --quiet --html "$page" </dev/null &&
        on_page "len(rows['comparison']) == 1 + 4 and calls['way-3'] == [0] * 6 and
            len(boxes) > 8 and set(calls['way-0']) == {2 * len(boxes)} and
            'words trained on' in text and 'All compute the same losses' in text"
}
check 'a_tagger_has_its_page' tags

# --- mistakes ---

fails() { # STATUS WORDS OPTION...
    want=$1 words=$2
    shift 2
    trains --steps 2 "$@" >"$scratch/out" 2>&1
    got=$?
    cat "$scratch/out"
    [ "$got" -eq "$want" ] && grep -q -e "$words" "$scratch/out"
}
check 'two_outputs_are_two_files' fails 2 'both name' --json "$page"
check 'nothing_is_trained_for_a_page_that_cannot_be_written' fails 1 "cannot" \
    --html "$scratch/none/r.html"
check 'fit_trains_nothing' fails 2 'leave out one' --fit 64MiB
check_report
