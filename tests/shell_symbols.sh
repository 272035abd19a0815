#!/bin/sh
#
# shell_symbols.sh - the shared library exports what the public headers declare, and no more.

# shellcheck source=tests/tap.sh
. "$(dirname "$0")/tap.sh"

library=$(find "$ASHLAR_BUILD" -name 'libashlar.so*' -type f -not -path '*.p/*' | head -n 1)

# Names declared ASHLAR_API: directives and comments away, one declaration a line, then the name
# before the first bracket.
declared() {
    sed '/^ *#/d' "$ASHLAR_SOURCE"/include/ashlar/*.h | tr '\n' ' ' |
        sed 's|\*/|\n|g' | sed 's|/\*.*||' | tr '\n' ' ' | tr ';' '\n' | grep ASHLAR_API |
        sed -n -e 's/.*ASHLAR_API//' -e 's/^[^(]*[ *]\(ashlar_[a-z0-9_]*\) *(.*/\1/p' | sort
}

nothing() { # FILE
    cat "$1"
    [ ! -s "$1" ]
}

is_named_for_what_it_is() { # the dynamic linker must tell incompatible versions apart
    readelf -d "$library" | grep SONAME | grep -E '\[libashlar\.so\.[0-9]+\]'
}

declared >"$scratch/declared"
nm -D --defined-only "$library" | awk '{ print $3 }' | sed 's/@.*//' | sort >"$scratch/exported"
comm -13 "$scratch/declared" "$scratch/exported" >"$scratch/undeclared"
comm -23 "$scratch/declared" "$scratch/exported" >"$scratch/missing"

check 'the_headers_declare_functions' grep -x ashlar_status_name "$scratch/declared"
check 'the_library_exports_functions' grep -x ashlar_status_name "$scratch/exported"
check 'every_exported_symbol_is_declared_public' nothing "$scratch/undeclared"
check 'every_public_function_is_exported' nothing "$scratch/missing"
check 'the_library_has_a_versioned_soname' is_named_for_what_it_is
check_report
