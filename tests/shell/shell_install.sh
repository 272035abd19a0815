#!/bin/sh
#
# shell_install.sh - what `meson install` leaves is enough to build against: headers, pkg-config
# files, shared and static libraries, away from the source and build folders.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

cc=${CC:-cc}
warnings='-Wall -Wextra -Wpedantic -Werror'
strict="-std=c17 $warnings"
root=$scratch/root

# The tutorial's program, as printed there.
program_of_tutorial rnn >"$scratch/user.c"

install_files() {
    DESTDIR=$root meson install -C "$ASHLAR_BUILD" --no-rebuild
}

# The installed tree stands under $root, and its pkg-config files do not know that.
move_pkgconfig() { # NAME
    config=$(find "$root" -name "$1.pc")
    [ -n "$config" ] || complain "no $1.pc" || return
    prefix=$root$(sed -n 's/^prefix=//p' "$config")
    mkdir -p "$scratch/pkgconfig" && sed "s|^prefix=.*|prefix=$prefix|" "$config" \
        >"$scratch/pkgconfig/$1.pc"
}

flags_of() { # NAME PKG-CONFIG-OPTION...
    package=$1
    shift
    PKG_CONFIG_PATH=$scratch/pkgconfig pkg-config "$@" "$package"
}

flags() { # PKG-CONFIG-OPTION...
    flags_of ashlar "$@"
}

compiles_with() { # NAME SOURCE PROGRAM PKG-CONFIG-OPTION...
    name=$1 source=$scratch/$2 out=$scratch/$3
    shift 3
    words=$(flags_of "$name" --cflags --libs "$@") || return
    # shellcheck disable=SC2086 # words
    $cc $strict "$source" -o "$out" $words
}

compiles() { # PROGRAM PKG-CONFIG-OPTION...
    compiles_with ashlar user.c "$@"
}

# Compile a file that has one header alone, after CUDA's where that is needed.
compiles_alone() { # HEADER FILE COMPILER...
    alone_name=$1 alone_file=$2
    shift 2
    first=
    [ "$alone_name" != cuda_dropin.h ] || first='#include <cuda_runtime_api.h>'
    printf '%s\n#include <ashlar/%s>\nextern int one;\n' "$first" "$alone_name" >"$alone_file"
    # shellcheck disable=SC2046 # words
    "$@" $(flags --cflags) ${ASHLAR_CUDA_INCLUDE:+-isystem "$ASHLAR_CUDA_INCLUDE"} \
        -fsyntax-only "$alone_file" || complain "$alone_name does not compile alone"
}

# Each header by itself, from the installed folder, in the oldest C that it is for and in ours.
headers_stand_alone() {
    for header in $headers; do
        for standard in c11 c17; do
            # shellcheck disable=SC2086 # words
            compiles_alone "$(basename "$header")" "$scratch/one.c" $cc -std=$standard $warnings ||
                return
        done
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
headers_are_cpp() { # COMPILER...
    for header in $headers; do
        # shellcheck disable=SC2086 # words
        compiles_alone "$(basename "$header")" "$scratch/one.cpp" "$@" -std=c++11 $warnings ||
            return
    done
}

needs_library() { # PROGRAM LIBRARY
    readelf -d "$scratch/$1" | grep -F 'NEEDED' | grep -F "[$2.so"
}

# The error text that ashlar has comes from the other library.
reports_an_error() { # PROGRAM
    LD_LIBRARY_PATH=$libraries "$scratch/$1" | grep -F 'not a live block of this pool'
}

# The headers that are C++ alone, and which need a newer one.
headers_are_cpp() {
    printf '#include <ashlar/%s.hpp>\n' rmm_adaptor step >"$scratch/one.cpp"
    # shellcheck disable=SC2046 # words
    c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror $(flags --cflags) -fsyntax-only \
        "$scratch/one.cpp"
}

programs_run() {
    for program in ashlar-train ashlar-sample; do
        LD_LIBRARY_PATH=$libraries "$(find "$root" -path "*/bin/*" -name "$program")" --help || return
    done
}

check 'install_succeeds' install_files
headers=$(find "$ASHLAR_SOURCE/include/ashlar" -name '*.h')
[ -n "${ASHLAR_CUDA_INCLUDE-}" ] || headers=$(echo "$headers" | grep -v '/cuda_dropin\.h$')
check 'a_pkg_config_file_is_installed' move_pkgconfig ashlar
libraries=$(flags --variable=libdir)
check 'every_public_header_is_installed_and_stands_alone' headers_stand_alone
if command -v c++ >/dev/null; then
    check 'every_public_header_compiles_as_cpp' headers_are_cpp c++
    check 'the_headers_of_cpp_compile' headers_are_cpp
else
    skip 'every_public_header_compiles_as_cpp' 'no C++ compiler'
fi
if command -v clang++ >/dev/null; then
    check 'every_public_header_is_for_who_forbids_null_in_cpp' \
        headers_are_cpp clang++ -Wzero-as-null-pointer-constant
else
    skip 'every_public_header_is_for_who_forbids_null_in_cpp' 'no clang++'
fi
check 'the_program_of_the_tutorial_links_with_the_shared_library' compiles shared
check 'it_makes_no_driver_call_after_its_warm_up' makes_no_driver_call shared
check 'it_is_linked_dynamically' needs_library shared libashlar
check 'the_programs_run_from_where_they_are_installed' programs_run
check 'the_drop_in_library_is_beside_the_others' test -f "$libraries/libashlar-torch.so"
check 'the_manual_is_installed' test -f "$(find "$root" -name ashlar-train.1)"

# With the shared libraries gone, -lashlar is the static one.
find "$root" -name 'libashlar*.so*' -exec rm -f {} +
check 'it_links_with_the_static_library' compiles static --static
check 'and_runs_the_same_without_the_shared_one' makes_no_driver_call static
check_report
