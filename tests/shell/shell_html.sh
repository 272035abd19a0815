#!/bin/sh
#
# shell_html.sh - the page of a training: the viewer, and the document in it.

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
check 'it_is_the_viewer_with_the_report_of_json' on_page "d == load('$scratch/r.json')"
check 'names_of_files_are_escaped' on_page "d['data'] == ['$data'] and 'a<b>' not in page"

# --- one step, and all of them ---

no_overlap="all(a['address'] + a['bytes'] <= b['address'] or b['address'] + b['bytes'] <= a['address'] or
    a['given'] <= b['taken'] or b['given'] <= a['taken']
    for i, a in enumerate(rows(d['step']['blocks'])) for b in rows(d['step']['blocks'])[:i])"

check 'no_two_buffers_share_a_place' on_page "$no_overlap"
check 'each_step_has_its_loss' on_page "len(rows(d['losses'])) == 60 and
    rows(d['losses'])[0]['loss'] > rows(d['losses'])[-1]['loss'] and
    abs(rows(d['losses'])[-1]['recent'] - d['loss_last']) < 1e-6"
check 'what_is_reserved_is_flat' on_page "len(rows(d['memory'])) == 60 and
    len({s['reserved_bytes'] for s in rows(d['memory'])}) == 1 and
    all(s['live_bytes'] <= s['reserved_bytes'] for s in rows(d['memory']))"

# --- the training is the one without a page ---

changes_no_loss() {
    trains --steps 8 --quiet --losses "$scratch/with" && timeout 60 "$train" --data "$data" \
        --device soft --layers 1 --hidden 160 --batch 16 --max-length 64 --steps 8 --quiet \
        --losses "$scratch/without" </dev/null && cmp "$scratch/with" "$scratch/without"
}
check 'a_page_changes_no_loss' changes_no_loss

# --- mistakes ---

fails() { # STATUS WORDS OPTION...
    want=$1 words=$2
    shift 2
    trains --steps 2 "$@" >"$scratch/out" 2>&1
    got=$?
    cat "$scratch/out"
    [ "$got" -eq "$want" ] && grep -q -e "$words" "$scratch/out"
}
check 'nothing_is_trained_for_a_page_that_cannot_be_written' fails 1 "cannot" \
    --html "$scratch/none/r.html"
check 'fit_trains_nothing' fails 2 'leave out one' --fit 64MiB
check_report
