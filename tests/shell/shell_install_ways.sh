#!/bin/sh
#
# shell_install_ways.sh - ashlar without its installation: from the build folder through pkg-config,
# and as a Meson subproject, which builds the libraries and nothing else unless asked; and installed
# in a prefix of one's own, on a system that does not tell Meson where its libraries are.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

cc=${CC:-cc}

# The tutorial's program, as printed there.
mkdir -p "$scratch/user/subprojects"
program_of_tutorial rnn >"$scratch/user/user.c"

runs_well() { # PROGRAM
    got=$("$1") || return
    case $got in
    '0 driver calls after the warm-up, '*) ;;
    *) complain "printed '$got'" ;;
    esac
}

# ---- the build folder ----

flags() {
    PKG_CONFIG_PATH=$ASHLAR_BUILD/meson-uninstalled pkg-config --cflags --libs ashlar
}

compiles_uninstalled() {
    flags | grep -F -e "-L$ASHLAR_BUILD" || complain 'another ashlar was found' || return
    # shellcheck disable=SC2046 # words
    $cc -std=c17 -Wall -Wextra -Werror "$scratch/user/user.c" -o "$scratch/uninstalled" $(flags)
}

runs_uninstalled() {
    LD_LIBRARY_PATH=$ASHLAR_BUILD runs_well "$scratch/uninstalled"
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
        -Dashlar:cuda=disabled -Dashlar:default_library=static
}

builds() {
    ninja -C "$scratch/out"
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

lists_tests_when_asked() {
    meson configure "$scratch/out" -Dashlar:tests=yes &&
        ninja -C "$scratch/out" build.ninja &&
        meson test -C "$scratch/out" --list | grep 'ashlar:unit.* / allocator$'
}

# ---- a prefix of one's own, as docs/building.md has it ----

prefix=$scratch/prefix

# A Debian without dpkg-dev has no dpkg-architecture, and Meson's own choice is lib64 there.
without_dpkg_dev() {
    mkdir -p "$scratch/bin" && printf '#!/bin/sh\nexit 127\n' >"$scratch/bin/dpkg-architecture" &&
        chmod +x "$scratch/bin/dpkg-architecture"
    PATH=$scratch/bin:$PATH "$@"
}

installs_in_prefix() {
    CFLAGS='' without_dpkg_dev meson setup --prefix "$prefix" "$scratch/mine" "$ASHLAR_SOURCE" \
        --buildtype=plain -Dprograms=no -Dtests=no -Dcuda=disabled -Djemalloc=disabled \
        -Ddefault_library=shared && meson install -C "$scratch/mine"
}

runs_from_prefix() {
    # shellcheck disable=SC2046 # words
    $cc "$scratch/user/user.c" -o "$scratch/installed" \
        $(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs ashlar) &&
        LD_LIBRARY_PATH=$prefix/lib runs_well "$scratch/installed"
}

leaves_nothing() {
    ninja -C "$scratch/mine" uninstall && [ -z "$(find "$prefix" ! -type d)" ]
}

check 'a_program_builds_with_the_uninstalled_library' compiles_uninstalled
check 'and_runs' runs_uninstalled
check 'a_project_with_ashlar_in_it_is_configured' configures
check 'and_is_built' builds
check 'its_program_runs' runs_well "$scratch/out/user"
check 'nothing_more_is_made_than_it_asked_for' only_what_was_asked_for
check 'programs_are_built_when_asked_for' builds_programs_when_asked
check 'tests_are_there_when_asked_for' lists_tests_when_asked
check 'ashlar_is_installed_in_a_prefix_of_ones_own' installs_in_prefix
check 'a_program_finds_it_in_lib_and_runs' runs_from_prefix
check 'and_uninstalled_it_leaves_no_file' leaves_nothing
check_report
