#!/bin/sh
#
# shell_install_debian.sh - on a fresh Debian 12 with nothing but what ./run installs: README's recipe
# for building and installing, in the system and in a prefix of one's own, and back out again.
#
# It is made by debootstrap, which needs root and a mirror; the tests are not built there, for they
# are not installed either.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

make_debian bookworm
cp /etc/resolv.conf "$root/etc/" 2>/dev/null
mkdir "$root/src" && tar -C "$ASHLAR_SOURCE" --exclude=./build --exclude=./.git -c . |
    tar -C "$root/src" -x || exit 1
program_of_tutorial rnn >"$root/user.c"

inside() { # SCRIPT
    chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C \
        HOME=/root sh -ec "$1"
}

user_runs() { # PROGRAM: the program of the tutorial, in there
    inside "$1" | grep '^0 driver calls after the warm-up, '
}

runs_the_first_command() {
    inside 'cd /src && ./run sample --version' | grep '^ashlar-sample (ashlar) '
}

has_only_what_run_installs() {
    ! inside 'command -v g++ || command -v dpkg-architecture || command -v cmake'
}

installs_as_readme_says() {
    grep -qF 'meson setup build/release && ninja -C build/release && sudo meson install' \
        "$ASHLAR_SOURCE/README.md" || complain 'README has another recipe' || return
    inside 'cd /src && meson setup -Dtests=no build/own && ninja -C build/own &&
        meson install -C build/own && ldconfig'
}

runs_from_the_system() {
    user_runs 'gcc /user.c $(pkg-config --cflags --libs ashlar) -o /user && /user' &&
        inside 'ashlar-train --version && test -e /usr/local/share/man/man1/ashlar-train.1 &&
            grep -q -e --steps /usr/local/share/bash-completion/completions/ashlar-train'
}

installs_in_a_prefix() {
    inside "cd /src && meson configure --prefix /root/ashlar build/own" &&
    inside 'cd /src && meson install -C build/own'
}

runs_from_the_prefix() {
    user_runs 'export PKG_CONFIG_PATH=/root/ashlar/lib/pkgconfig LD_LIBRARY_PATH=/root/ashlar/lib
        gcc /user.c $(pkg-config --cflags --libs ashlar) -o /user2 && /user2'
}

leaves_nothing() { # FOLDER
    inside 'cd /src && ninja -C build/own uninstall' >/dev/null &&
        [ -z "$(find "$root$1" -name '*ashlar*' ! -type d)" ]
}

check 'the_first_command_installs_what_it_needs' runs_the_first_command
check 'and_no_more' has_only_what_run_installs
check 'readmes_recipe_installs' installs_as_readme_says
check 'a_program_finds_it' runs_from_the_system
check 'uninstalled_it_leaves_no_file' leaves_nothing /usr/local
check 'it_installs_in_a_prefix_of_ones_own' installs_in_a_prefix
check 'a_program_finds_it_there' runs_from_the_prefix
check 'uninstalled_from_there_it_leaves_no_file' leaves_nothing /root
check_report
