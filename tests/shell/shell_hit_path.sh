#!/bin/sh
#
# shell_hit_path.sh - the machine code of a hit in a thread's cache: no locked instruction, no
# fence, no system call, and no way out of the few functions named here.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

library=$(find "$ASHLAR_BUILD" -name 'libashlar.so*' -type f -not -path '*.p/*' | head -n 1)

# Where a hit begins; what it may go through, the inline functions too, which a compiler may keep
# apart; and where it has ended without one. The last four of these go on without a lock: with a
# plan, for a request that was not expected; with the zones that the cache owns, where
# alloc_miss() may take the lock in the end; and with what is freed for another thread.
roots='ashlar_alloc ashlar_alloc_tagged ashlar_free'
helpers='allocate hand_out take_back alloc_otherwise alloc_unexpected alloc_of_other free_otherwise
    free_of_other free_marked free_slot_block free_slot_block_at_peak
    ashlar__replay_serve ashlar__replay_slot_block
    ashlar__cache_switch find_cache magazines_of
    ashlar__cache_enter ashlar__cache_leave ashlar__cache_find ashlar__cache_find_state
    ashlar__cache_pop ashlar__cache_pop_large ashlar__cache_push ashlar__cache_add_pending
    ashlar__is_remote ashlar__cycle_is_tight ashlar__cache_is_empty
    ashlar__count_alloc ashlar__count_free ashlar__count_peak'
ends='ashlar__alloc_slow ashlar__alloc_unplanned ashlar__free_slow ashlar__free_from
    ashlar__replay_serve_otherwise alloc_miss free_miss ashlar__remote_free'

# Print each instruction of FUNCTIONS that a hit must not have, of a listing that objdump wrote.
# Functions that the compiler cut off others (x.cold, x.part.0) belong to the one they are named
# for. Anything that changes the flow is taken for a jump: none may be unknown to this.
offences() { # LISTING FUNCTIONS REACHABLE
    awk -v functions="$2" -v reachable="$3" '
        function base(name) {
            sub(/[.+].*/, "", name)
            return name
        }
        BEGIN {
            count = split(functions, names)
            for (i = 1; i <= count; i++) is_looked_at[names[i]] = 1
            count = split(reachable, names)
            for (i = 1; i <= count; i++) is_reachable[names[i]] = 1
        }
        /^[0-9a-f]+ <.*>:$/ {
            name = $2
            gsub(/[<>:]/, "", name)
            is_inside = base(name) in is_looked_at
            next
        }
        !is_inside || NF < 2 { next }
        {
            code = $0
            sub(/^[^:]*:[ \t]*/, "", code)
            sub(/[ \t]*#.*/, "", code)
            is_bad = code ~ /(^| )lock / || code ~ /[lms]fence/ || code ~ /^(syscall|sysenter|int) ?/
            is_bad = is_bad || (code ~ /^xchg/ && code ~ /\(/)
            if (code ~ /^((bnd|notrack) )*(call|j|loop|xbegin)/) {
                target = code
                is_named = sub(/^[^<]*</, "", target)
                sub(/>$/, "", target)
                is_bad = is_bad || !is_named || code ~ /\*/ || target ~ /@/ ||
                    !(base(target) in is_reachable)
            }
            if (is_bad) print name ": " code
        }' "$1"
}

has_each_root() {
    for root in $roots; do
        grep -q "<$root>:\$" "$scratch/listing" || complain "no function $root" || return 1
    done
}

has_no_offence() {
    offences "$scratch/listing" "$roots $helpers" "$roots $helpers $ends" >"$scratch/offences"
    cat "$scratch/offences"
    [ ! -s "$scratch/offences" ]
}

if ! command -v objdump >/dev/null; then
    skip 'a_hit_takes_no_lock_and_leaves_its_functions_nowhere' 'there is no objdump'
elif [ "$(uname -m)" != x86_64 ]; then
    skip 'a_hit_takes_no_lock_and_leaves_its_functions_nowhere' "$(uname -m) is not known here"
else
    objdump -d --no-show-raw-insn "$library" >"$scratch/listing"
    check 'the_library_has_the_functions' has_each_root
    check 'a_hit_takes_no_lock_and_leaves_its_functions_nowhere' has_no_offence
fi
check_report
