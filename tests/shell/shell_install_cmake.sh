#!/bin/sh
#
# shell_install_cmake.sh - a CMake project finds what `meson install` leaves, wherever that was
# moved to: by version and component, shared and static.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

if ! command -v cmake >/dev/null; then
    skip 'a_cmake_project_finds_ashlar' 'no cmake'
    check_report
fi
root=$scratch/root

# The tutorial's program, as printed there.
mkdir "$scratch/user"
program_of_tutorial rnn >"$scratch/user/user.c"
# WANT: the arguments of find_package; LIBRARY: the target.
cat >"$scratch/user/CMakeLists.txt" <<'END'
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

install_files() {
    DESTDIR=$root meson install -C "$ASHLAR_BUILD" --no-rebuild
    prefix=$(dirname "$(find "$root" -type d -name include)")
    [ -d "$prefix" ]
}

configure() { # WANT LIBRARY SOURCE
    rm -rf "$scratch/out"
    cmake -S "$scratch/user" -B "$scratch/out" -DCMAKE_PREFIX_PATH="$prefix" "-DWANT=$1" \
        -DLIBRARY="$2" -DSOURCE="$3"
}

builds() { # WANT LIBRARY SOURCE
    configure "$@" && cmake --build "$scratch/out"
}

runs_well() {
    got=$("$scratch/out/user") || return
    case $got in
    '0 driver calls after the warm-up, '*) ;;
    *) complain "printed '$got'" ;;
    esac
}

is_dynamic() {
    readelf -d "$scratch/out/user" | grep -F 'NEEDED' | grep -F '[libashlar.so'
}

is_static() {
    ! is_dynamic
}

is_refused() { # WANT PART-OF-THE-REASON
    ! configure "$1" ashlar::ashlar user.c >"$scratch/why" 2>&1 || complain 'was found' || return
    cat "$scratch/why"
    tr -s '\n ' ' ' <"$scratch/why" | grep -F "$2" # CMake breaks lines
}

# Packages for those who build are made by this tag.
is_for_development() {
    DESTDIR=$scratch/devel meson install -C "$ASHLAR_BUILD" --no-rebuild --tags devel &&
        [ "$(find "$scratch/devel" -name 'ashlar-config*.cmake' | wc -l)" -eq 2 ]
}

check 'install_succeeds' install_files
check 'the_package_file_is_tagged' is_for_development
check 'a_cmake_project_builds' builds 0.1 ashlar::ashlar user.c
check 'it_is_linked_with_the_shared_library' is_dynamic
check 'and_runs' runs_well
check 'it_builds_with_the_static_library_too' builds '0.1;EXACT' ashlar::ashlar_static user.c
check 'which_is_all_it_needs' is_static
check 'and_runs_the_same' runs_well
check 'any_version_is_found_where_none_is_asked_for' configure REQUIRED ashlar::ashlar user.c
check 'a_version_in_a_range_is_found' configure 0.0.1...1 ashlar::ashlar user.c
check 'also_at_its_end' configure 0.0.1...0.1 ashlar::ashlar user.c
check 'unless_that_is_left_out' is_refused '0.0.1...<0.1' 0.0.1
check 'nor_is_one_behind_it_found' is_refused 0.0.1...0.0.9 0.0.1
check 'nor_one_before_it' is_refused 0.2...1 0.2
check 'a_newer_version_is_not_there' is_refused 0.99 0.99
check 'nor_one_that_is_not_compatible' is_refused 1.0 1.0
check 'nor_a_part_that_was_not_built' is_refused 'COMPONENTS;nonsense' "without its part 'nonsense'"

# As a build with --default-library=static installs it.
find "$root" -name 'libashlar*.so*' -exec rm -f {} +
check 'without_the_shared_library_the_static_one_is_taken' builds 0.1 ashlar::ashlar user.c
check 'and_runs_by_itself' runs_well
find "$root" -name 'libashlar*.a' -exec rm -f {} +
check 'without_either_nothing_is_found' is_refused 0.1 'no libashlar'
check_report
