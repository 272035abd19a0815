#!/bin/sh
#
# shell_install.sh - what `meson install` leaves is enough to build against, away from the source and
# build folders: headers, pkg-config files, shared and static libraries, CMake's package. So is the
# build folder, a Meson subproject, which builds the libraries and nothing else unless asked, and an
# installation in a prefix of one's own on a system that does not tell Meson where libraries are.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

cc=${CC:-cc}
warnings='-Wall -Wextra -Wpedantic -Werror'
strict="-std=c17 $warnings"
root=$scratch/root

# The tutorial's program, as printed there.
mkdir -p "$scratch/user/subprojects" "$scratch/cmake"
program_of_tutorial rnn >"$scratch/user.c"
cp "$scratch/user.c" "$scratch/user"
cp "$scratch/user.c" "$scratch/cmake"

runs_well() { # PROGRAM
    got=$(LD_LIBRARY_PATH=${libraries-} "$1") || return
    case $got in
    '0 driver calls after the warm-up, '*) ;;
    *) complain "printed '$got'" ;;
    esac
}

install_files() {
    DESTDIR=$root meson install -C "$ASHLAR_BUILD" --no-rebuild
}

# The installed tree stands under $root, and its pkg-config files do not know that.
move_pkgconfig() {
    config=$(find "$root" -name ashlar.pc)
    [ -n "$config" ] || complain 'no ashlar.pc' || return
    prefix=$root$(sed -n 's/^prefix=//p' "$config")
    mkdir -p "$scratch/pkgconfig" && sed "s|^prefix=.*|prefix=$prefix|" "$config" \
        >"$scratch/pkgconfig/ashlar.pc"
}

flags() { # PKG-CONFIG-OPTION...
    PKG_CONFIG_PATH=$scratch/pkgconfig pkg-config "$@" ashlar
}

compiles() { # PROGRAM PKG-CONFIG-OPTION...
    out=$scratch/$1
    shift
    # shellcheck disable=SC2046,SC2086 # words
    $cc $strict "$scratch/user.c" -o "$out" $(flags --cflags --libs "$@")
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

# The headers that are C++ alone, and which need a newer one.
cpp_headers_compile() {
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

# ---- CMake ----

# WANT: the arguments of find_package; LIBRARY: the target.
cat >"$scratch/cmake/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.10)
project(user C)
set(CMAKE_C_STANDARD 17)
find_package(ashlar ${WANT})
if(NOT ashlar_FOUND)
  message(FATAL_ERROR "not found: ${ashlar_NOT_FOUND_MESSAGE}")
endif()
find_package(ashlar ${WANT}) # a second time, as by another part of the project
add_executable(user ${SOURCE})
target_link_libraries(user ${LIBRARY})
END

configure_by_cmake() { # WANT LIBRARY SOURCE
    rm -rf "$scratch/cmake-out"
    cmake -S "$scratch/cmake" -B "$scratch/cmake-out" -DCMAKE_PREFIX_PATH="$(flags --variable=prefix)" "-DWANT=$1" \
        -DLIBRARY="$2" -DSOURCE="$3"
}

builds_by_cmake() { # WANT LIBRARY SOURCE
    configure_by_cmake "$@" && cmake --build "$scratch/cmake-out"
}

is_refused() { # WANT PART-OF-THE-REASON
    ! configure_by_cmake "$1" ashlar::ashlar user.c >"$scratch/why" 2>&1 || complain 'was found' || return
    cat "$scratch/why"
    tr -s '\n ' ' ' <"$scratch/why" | grep -F "$2" # CMake breaks lines
}

# ---- the build folder ----

runs_uninstalled() {
    words=$(PKG_CONFIG_PATH=$ASHLAR_BUILD/meson-uninstalled pkg-config --cflags --libs ashlar)
    # shellcheck disable=SC2086 # words
    $cc $strict "$scratch/user.c" -o "$scratch/uninstalled" $words &&
        libraries=$ASHLAR_BUILD runs_well "$scratch/uninstalled"
}

# ---- a subproject ----

# A project with stricter and other settings than ours, which must not meet; its own option has the
# name of one of ours.
ln -s "$ASHLAR_SOURCE" "$scratch/user/subprojects/ashlar"
cat >"$scratch/user/meson.build" <<'END'
project('user', 'c', default_options: ['c_std=c99', 'warning_level=1', 'buildtype=plain'])
if get_option('tests') != 'mine'
  error('the option is ours')
endif
ashlar_dep = dependency('ashlar', fallback: ['ashlar', 'ashlar_dep'])
executable('user', 'user.c', dependencies: ashlar_dep, c_args: ['-Wall', '-Wextra', '-Werror'])
cc = meson.get_compiler('c')
# What ashlar is compiled with would be an error here: no prototype, and an undefined macro.
executable('ours', 'ours.c', c_args: '-Werror')
END
echo "option('tests', type: 'string', value: 'mine')" >"$scratch/user/meson_options.txt"
cat >"$scratch/user/ours.c" <<'END'
#if NOT_DEFINED
#endif
int without_prototype(void) { return 0; }
#ifdef ASHLAR_DEBUG
#error "an argument of the subproject's"
#endif
int main(void) { return without_prototype(); }
END

configures() {
    CFLAGS='' meson setup "$scratch/out" "$scratch/user" --wrap-mode=forcefallback \
        -Dashlar:cuda=disabled -Dashlar:default_library=static && ninja -C "$scratch/out"
}

made() { # what was built, by name
    find "$scratch/out" -path '*/meson-private' -prune -o -type f -perm -u+x -print |
        sed 's|.*/||' | sort | tr '\n' ' '
}

only_what_was_asked_for() {
    [ "$(made)" = "ours user " ] || complain "made: $(made)" || return
    tests=$(meson test -C "$scratch/out" --list 2>/dev/null | grep -F ' / ')
    [ -z "$tests" ] || complain "tests: $tests" || return
    ! meson introspect --installed "$scratch/out" | grep -E 'bin/|ashlar-(torch|preload)' ||
        complain 'programs would be installed'
}

builds_programs_when_asked() {
    meson configure "$scratch/out" -Dashlar:programs=yes &&
        ninja -C "$scratch/out" subprojects/ashlar/rnn/ashlar-sample &&
        "$scratch/out/subprojects/ashlar/rnn/ashlar-sample" --help
}

# ---- a prefix of one's own, as docs/building.md has it ----

own=$scratch/own

# A Debian without dpkg-dev has no dpkg-architecture, and Meson's own choice is lib64 there.
without_dpkg_dev() {
    mkdir -p "$scratch/bin" && printf '#!/bin/sh\nexit 127\n' >"$scratch/bin/dpkg-architecture" &&
        chmod +x "$scratch/bin/dpkg-architecture"
    PATH=$scratch/bin:$PATH "$@"
}

installs_in_prefix() {
    CFLAGS='' without_dpkg_dev meson setup --prefix "$own" "$scratch/mine" "$ASHLAR_SOURCE" \
        --buildtype=plain -Dprograms=no -Dtests=no -Dcuda=disabled -Djemalloc=disabled \
        -Ddefault_library=shared && meson install -C "$scratch/mine"
}

runs_from_prefix() {
    # shellcheck disable=SC2046 # words
    $cc "$scratch/user.c" -o "$scratch/installed" \
        $(PKG_CONFIG_PATH=$own/lib/pkgconfig pkg-config --cflags --libs ashlar) &&
        libraries=$own/lib runs_well "$scratch/installed"
}

leaves_nothing() {
    ninja -C "$scratch/mine" uninstall && [ -z "$(find "$own" ! -type d)" ]
}

check 'install_succeeds' install_files
headers=$(find "$ASHLAR_SOURCE/include/ashlar" -name '*.h')
[ -n "${ASHLAR_CUDA_INCLUDE-}" ] || headers=$(echo "$headers" | grep -v '/cuda_dropin\.h$')
check 'a_pkg_config_file_is_installed' move_pkgconfig
libraries=$(flags --variable=libdir)
check 'every_public_header_is_installed_and_stands_alone' headers_stand_alone
if command -v c++ >/dev/null; then
    check 'every_public_header_compiles_as_cpp' headers_are_cpp c++
    check 'the_headers_of_cpp_compile' cpp_headers_compile
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
check 'it_makes_no_driver_call_after_its_warm_up' runs_well "$scratch/shared"
check 'it_is_linked_dynamically' needs_library shared libashlar
check 'the_programs_run_from_where_they_are_installed' programs_run
check 'the_drop_in_library_is_beside_the_others' test -f "$libraries/libashlar-torch.so"
check 'the_manual_is_installed' test -f "$(find "$root" -name ashlar-train.1)"
if command -v cmake >/dev/null; then
    check 'a_cmake_project_builds' builds_by_cmake 0.1 ashlar::ashlar user.c
    check 'and_runs' runs_well "$scratch/cmake-out/user"
    check 'a_version_in_a_range_is_found' configure_by_cmake 0.0.1...1 ashlar::ashlar user.c
    check 'a_newer_version_is_not_there' is_refused 0.99 0.99
    check 'nor_a_part_that_was_not_built' \
        is_refused 'COMPONENTS;nonsense' "without its part 'nonsense'"
else
    skip 'a_cmake_project_builds' 'no cmake'
fi

check 'a_program_runs_with_the_uninstalled_library' runs_uninstalled
check 'a_project_with_ashlar_in_it_builds' configures
check 'its_program_runs' runs_well "$scratch/out/user"
check 'nothing_more_is_made_than_it_asked_for' only_what_was_asked_for
check 'programs_are_built_when_asked_for' builds_programs_when_asked
check 'ashlar_is_installed_in_a_prefix_of_ones_own' installs_in_prefix
check 'a_program_finds_it_in_lib_and_runs' runs_from_prefix
check 'and_uninstalled_it_leaves_no_file' leaves_nothing

# With the shared libraries gone, -lashlar is the static one.
find "$root" -name 'libashlar*.so*' -exec rm -f {} +
check 'it_links_with_the_static_library' compiles static --static
check 'and_runs_the_same_without_the_shared_one' runs_well "$scratch/static"
check_report
