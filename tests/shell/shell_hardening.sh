#!/bin/sh
#
# shell_hardening.sh - what the compiler and the linker were asked to add to libraries and programs
# is in them. ASHLAR_HARDENED: what this build's compiler and linker have of it.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

# What is installed, as far as it was built.
for name in libashlar.so libashlar-preload.so libashlar-torch.so \
    ashlar-train ashlar-sample ashlar-bench ashlar-replay; do
    find "$ASHLAR_BUILD" -name "$name*" -type f -not -path '*.p/*' -not -name '*.[1ch]' \
        -not -name '*.symbols' -not -path "$ASHLAR_BUILD/$name"
done >"$scratch/binaries"

# Run TEST with each of them; say which ones fail.
each() { # TEST...
    failed=0
    while read -r binary; do
        "$@" "$binary" || { complain "$(basename "$binary")"; failed=1; }
    done <"$scratch/binaries"
    return "$failed"
}

# Tables of addresses are written before main(), and then they are read-only.
has_relro() { # BINARY
    readelf -lW "$1" | grep -q GNU_RELRO
}

is_bound_at_start() { # BINARY
    readelf -dW "$1" | grep -Eq 'BIND_NOW|FLAGS_1.*NOW'
}

# It calls FUNCTION of the C library.
calls() { # FUNCTION BINARY
    readelf --dyn-syms -W "$2" | grep -Eq "UND +($1)(@|\$)"
}

calls_no() { # FUNCTION BINARY
    ! calls "$@"
}

# Where one is checked: it may be that a program has no function with an array of its own.
library=$(grep 'libashlar\.so' "$scratch/binaries")

check_if() { # WHAT NAME COMMAND...
    what=$1 name=$2
    shift 2
    case " ${ASHLAR_HARDENED-} " in
    *" $what "*) check "$name" "$@" ;;
    *) skip "$name" "this build has no $what" ;;
    esac
}

if ! command -v readelf >/dev/null; then
    skip 'every_binary_has_its_tables_read_only' 'there is no readelf'
else
    check 'there_are_libraries_and_programs' [ "$(wc -l <"$scratch/binaries")" -ge 3 ]
    check_if relro 'every_binary_has_its_tables_read_only' each has_relro
    check_if now 'every_binary_binds_all_its_calls_at_the_start' each is_bound_at_start
    check_if protector 'every_binary_guards_its_stack' each calls '__stack_chk_(fail|guard)'
    check_if fortify 'the_library_checks_the_bounds_of_copies' calls '__[a-z]+_chk' "$library"
    check 'no_binary_reads_an_environment_that_is_not_its_users' each calls_no getenv
fi
check_report
