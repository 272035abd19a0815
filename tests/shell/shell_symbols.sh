#!/bin/sh
#
# shell_symbols.sh - the shared libraries export what the public headers declare, and no more.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

# The shared library whose file name begins so; empty where it is not built.
shared_library() { # NAME
    find "$ASHLAR_BUILD" -name "$1.so*" -type f -not -path '*.p/*' | head -n 1
}

# Names declared ASHLAR_API: directives and comments away, one declaration a line, then the name
# before the first bracket.
declared() { # HEADER...
    sed '/^ *#/d' "$@" | tr '\n' ' ' |
        sed 's|\*/|\n|g' | sed 's|/\*.*||' | tr '\n' ' ' | tr ';' '\n' | grep ASHLAR_API |
        sed -n -e 's/.*ASHLAR_API//' -e 's/^[^(]*[ *]\(ashlar_[a-z0-9_]*\) *(.*/\1/p' | sort
}

nothing() { # FILE
    cat "$1"
    [ ! -s "$1" ]
}

is_named_for_what_it_is() { # LIBRARY NAME: the dynamic linker must tell versions apart
    readelf -d "$1" | grep SONAME | grep -E "\\[$2\\.so\\.[0-9.]+\\]"
}

needs() { # LIBRARY NEEDED
    readelf -d "$1" | grep -F NEEDED | grep -F "[$2.so"
}

needs_no() { # LIBRARY NEEDED
    ! needs "$@"
}

compare_names() { # NAME LIBRARY: with the file NAME.declared, into NAME.undeclared and NAME.missing
    into=$scratch/$1
    nm -D --defined-only "$2" | awk '{ print $3 }' | sed 's/@.*//' | sort >"$into.exported"
    comm -13 "$into.declared" "$into.exported" >"$into.undeclared"
    comm -23 "$into.declared" "$into.exported" >"$into.missing"
}

compare() { # NAME LIBRARY HEADER...
    name=$1 library=$2
    shift 2
    declared "$@" >"$scratch/$name.declared"
    compare_names "$name" "$library"
}

core_headers=$(find "$ASHLAR_SOURCE/include/ashlar" -name '*.h')
core=$(shared_library libashlar)
# shellcheck disable=SC2086 # words
compare core "$core" $core_headers
check 'every_exported_symbol_is_declared_public' nothing "$scratch/core.undeclared"
check 'every_public_function_is_exported' nothing "$scratch/core.missing"
check 'the_library_has_a_versioned_soname' is_named_for_what_it_is "$core" libashlar
check 'the_library_does_not_bring_jemalloc' needs_no "$core" libjemalloc

warns_of_deprecation() {
    echo '#include <ashlar/base.h>
        ASHLAR_API ASHLAR_DEPRECATED("use new_one()") int old_one(void);
        int main(void) { return old_one(); }' >"$scratch/old.c"
    # shellcheck disable=SC2086 # may be several words
    ! ${CC:-cc} -Werror=deprecated-declarations -I "$ASHLAR_SOURCE/include" -c "$scratch/old.c" \
        -o "$scratch/old.o" 2>"$scratch/old.log" && grep -F 'use new_one()' "$scratch/old.log"
}

includes() { # HEADER: the public headers that it brings, by name
    echo "#include <ashlar/$1>" | ${CC:-cc} -I "$ASHLAR_SOURCE/include" -x c -M - |
        grep -oE 'ashlar/[a-z_]+\.h' | sed 's|.*/||' | sort -u
}

includes_all_it_says() {
    find "$ASHLAR_SOURCE/include/ashlar" -name '*.h' | sed 's|.*/||' |
        grep -vx 'cuda_dropin\.h' | sort >"$scratch/public"
    includes ashlar.h | comm -23 "$scratch/public" - >"$scratch/left_out"
    nothing "$scratch/left_out"
}

is_the_allocator_alone() {
    includes allocator.h >"$scratch/of_allocator" && grep -qx plan.h "$scratch/of_allocator" &&
        ! grep -E 'arena|model|rnn|optimizer|reduce' "$scratch/of_allocator"
}

check 'ashlar_h_includes_every_header_that_it_says' includes_all_it_says
check 'allocator_h_is_the_allocator_alone' is_the_allocator_alone
check 'a_deprecated_function_says_what_to_use' warns_of_deprecation

# The drop-in libraries, which programs find by name and which have all of ashlar within.
dropin=$ASHLAR_SOURCE/allocator/dropin
torch=$(shared_library libashlar-torch)
if [ -n "$torch" ]; then
    sed '/^ *#/d' "$dropin/torch.h" | grep -oE 'ashlar_(torch|cupy)_[a-z_]+\(' | tr -d '(' |
        sort -u >"$scratch/torch.declared"
    compare_names torch "$torch"
    check 'torch_exports_nothing_but_its_header' nothing "$scratch/torch.undeclared"
    check 'torch_exports_all_of_its_header' nothing "$scratch/torch.missing"
    check 'torch_needs_no_library_of_ours' needs_no "$torch" libashlar
    check 'torch_does_not_bring_jemalloc' needs_no "$torch" libjemalloc
else
    skip 'torch_exports_what_its_header_declares' 'it is not built'
fi

preload=$(shared_library libashlar-preload)
if [ -n "$preload" ]; then
    { # the map of the functions that it stands in for
        sed -nE 's/^ +X\((cu[A-Za-z0-9_]+), cu.*/\1/p' "$dropin/preload.h"
        echo dlsym
    } | sort >"$scratch/preload.declared"
    compare_names preload "$preload"
    check 'preload_exports_nothing_but_what_it_stands_in_for' nothing "$scratch/preload.undeclared"
    check 'preload_exports_all_that_it_stands_in_for' nothing "$scratch/preload.missing"
    check 'preload_needs_no_library_of_ours' needs_no "$preload" libashlar
else
    skip 'preload_exports_what_it_stands_in_for' 'it is not built for this processor'
fi

check_report
