#!/bin/sh
#
# shell_install.sh - what `meson install` leaves is enough to build against: headers, pkg-config
# file, shared and static library, away from the source and build folders.

# shellcheck source=tests/tap.sh
. "$(dirname "$0")/tap.sh"

cc=${CC:-cc}
strict='-std=c17 -Wall -Wextra -Wpedantic -Werror'
root=$scratch/root

# The README's program, as printed there.
awk '/^```/ { inside = /^```c$/; next } inside' "$ASHLAR_SOURCE/README.md" >"$scratch/user.c"

install_files() {
    DESTDIR=$root meson install -C "$ASHLAR_BUILD" --no-rebuild
}

# The installed tree stands under $root, and its pkg-config file does not know that.
move_pkgconfig() {
    config=$(find "$root" -name ashlar.pc)
    [ -n "$config" ] || complain 'no ashlar.pc' || return
    prefix=$root$(sed -n 's/^prefix=//p' "$config")
    mkdir "$scratch/pkgconfig" && sed "s|^prefix=.*|prefix=$prefix|" "$config" \
        >"$scratch/pkgconfig/ashlar.pc"
}

flags() { # PKG-CONFIG-OPTION...
    PKG_CONFIG_PATH=$scratch/pkgconfig pkg-config "$@" ashlar
}

compiles() { # PROGRAM PKG-CONFIG-OPTION...
    out=$scratch/$1
    shift
    words=$(flags --cflags --libs "$@") || return
    # shellcheck disable=SC2086 # words
    $cc $strict "$scratch/user.c" -o "$out" $words
}

# Each header by itself, from the installed folder.
headers_stand_alone() {
    for header in "$ASHLAR_SOURCE"/include/ashlar/*.h; do
        name=ashlar/$(basename "$header")
        printf "#include <%s>\nextern int one;\n" "$name" >"$scratch/one.c"
        # shellcheck disable=SC2046,SC2086 # words
        $cc $strict $(flags --cflags) -fsyntax-only "$scratch/one.c" ||
            complain "$name does not compile alone" || return
    done
}

makes_no_driver_call() { # PROGRAM
    got=$(LD_LIBRARY_PATH=$libraries "$scratch/$1") || return
    case $got in
    '0 driver calls after the warm-up, '*) ;;
    *) complain "printed '$got'" ;;
    esac
}

# The same headers, for those who write C++.
headers_are_cpp() {
    for header in "$ASHLAR_SOURCE"/include/ashlar/*.h; do
        printf "#include <ashlar/%s>\n" "$(basename "$header")" >"$scratch/one.cpp"
        # shellcheck disable=SC2046 # words
        c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror $(flags --cflags) -fsyntax-only \
            "$scratch/one.cpp" || complain "$(basename "$header") is not C++" || return
    done
}

needs_library() { # PROGRAM
    readelf -d "$scratch/$1" | grep -F 'NEEDED' | grep -F '[libashlar.so'
}

programs_run() {
    for program in ashlar-train ashlar-sample; do
        LD_LIBRARY_PATH=$libraries "$(find "$root" -name "$program")" --help || return
    done
}

check 'install_succeeds' install_files
check 'a_pkg_config_file_is_installed' move_pkgconfig
libraries=$(flags --variable=libdir)
check 'every_public_header_is_installed_and_stands_alone' headers_stand_alone
if command -v c++ >/dev/null; then
    check 'every_public_header_compiles_as_cpp' headers_are_cpp
else
    skip 'every_public_header_compiles_as_cpp' 'no C++ compiler'
fi
check 'the_program_of_the_readme_links_with_the_shared_library' compiles shared
check 'it_makes_no_driver_call_after_its_warm_up' makes_no_driver_call shared
check 'it_is_linked_dynamically' needs_library shared
check 'the_programs_run_from_where_they_are_installed' programs_run

# With the shared library gone, -lashlar is the static one.
find "$root" -name 'libashlar.so*' -exec rm -f {} +
check 'it_links_with_the_static_library' compiles static --static
check 'and_runs_the_same_without_the_shared_one' makes_no_driver_call static
check_report
