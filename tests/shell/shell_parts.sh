#!/bin/sh
#
# shell_parts.sh - the allocator alone (-Dparts=allocator) builds, is small, and installs by itself: a
# program finds its headers and library, and nothing of the arena is there.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

build=$scratch/build prefix=$scratch/prefix

builds() {
    meson setup -Dparts=allocator -Dprograms=no -Ddefault_library=shared --buildtype=release \
        --prefix "$prefix" "$build" "$ASHLAR_SOURCE" && meson install -C "$build"
}

# Code and constants: what a program carries along.
is_small() {
    bytes=$(size "$prefix"/lib/libashlar.so | awk 'NR == 2 { print $1 }')
    [ "$bytes" -gt 0 ] && [ "$bytes" -lt 450000 ] || complain "$bytes bytes of text"
}

has_the_allocator_alone() {
    [ -e "$prefix/include/ashlar/allocator.h" ] && [ -e "$prefix/include/ashlar/rmm_adaptor.hpp" ] &&
        [ ! -e "$prefix/include/ashlar/arena.h" ] && [ ! -e "$prefix/include/ashlar/ashlar.h" ] &&
        [ ! -e "$prefix/bin" ]
}

# README's loop.
serves_a_program() {
    sed -n '/^\/\* loop.c/,/^```/p' "$ASHLAR_SOURCE/README.md" | sed '$d' >"$scratch/loop.c"
    flags=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs ashlar) || return
    # shellcheck disable=SC2086 # words
    ${CC:-cc} "$scratch/loop.c" $flags -o "$scratch/loop" &&
        LD_LIBRARY_PATH=$prefix/lib "$scratch/loop" | grep 'calls in 1000 steps: 0$'
}

check 'the_allocator_builds_alone' builds
check 'it_is_small' is_small
check 'it_installs_its_headers_and_no_others' has_the_allocator_alone
check 'a_program_runs_on_it' serves_a_program
check_report
