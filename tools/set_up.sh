# set_up.sh - installs the packages that a build needs, and makes build folders, for `run` and the
# scripts of tests/. They source it, after setting `here` to the folder of the repository.
# shellcheck shell=sh disable=SC2154 # its caller's `here`

builds=$here/build
[ ! -e "$builds/meson-private" ] || builds=$here/build-run # build/ itself is somebody's Meson build
text=/usr/share/games/fortunes # text to train on, from Debian's packages fortunes and fortunes-min
no_install=${ASHLAR_NO_INSTALL-}

say() {
    printf 'run: %s\n' "$*" >&2
}

die() {
    say "$*"
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# Run a command with its output in LOG; show that only if the command fails.
quietly() { # LOG COMMAND...
    log=$1
    shift
    "$@" >"$log" 2>&1 </dev/null && return
    grep -v '^\[[0-9]*/[0-9]*\] [A-Z]' "$log" >&2 # leave out ninja's lines of progress
    say "failed: $* (all of its output: $log)"
    return 1
}

# --- packages ------------------------------------------------------------------------------------

# Often a compiler is there, but not the C library's headers, so compile a file that includes one.
compiles_c() { # COMPILER
    # shellcheck disable=SC2086 # CC may be "ccache gcc"
    echo '#include <stdlib.h>' | $1 -E - >/dev/null 2>&1
}

# libFuzzer comes with clang's run-time libraries, which Debian packages by themselves.
has_fuzzer() {
    echo 'int LLVMFuzzerTestOneInput(const char *data, unsigned long bytes) {
        return data == 0 && bytes != 0;
    }' |
        clang -fsanitize=fuzzer,address -x c - -o "$builds/has-fuzzer" >/dev/null 2>&1
}

# If pkg-config does not find a library whose package is installed (as when another pkg-config comes
# first on PATH), count it as there: to install the package again would not change that.
has_library() { # NAME PACKAGE
    pkg-config --exists "$1" 2>/dev/null ||
        dpkg-query -W -f '${Status}' "$2" 2>/dev/null | grep -q 'ok installed'
}

has_selenium() {
    /usr/bin/python3 -c 'import selenium' 2>/dev/null
}

# These two add packages to the list `tools` or `libraries`, unless the command succeeds.
tool() { # 'PACKAGE...' COMMAND...
    packages=$1
    shift
    "$@" >/dev/null 2>&1 || tools="$tools $packages"
}

library() { # 'PACKAGE...' COMMAND...
    packages=$1
    shift
    "$@" >/dev/null 2>&1 || libraries="$libraries $packages"
}

# List the packages that this machine lacks: without `tools` nothing works, without `libraries` only
# some tests are skipped. WANTED: words for what the caller is about to do, such as "all fuzz".
find_missing() { # WANTED
    tools='' libraries='' advice=''
    if [ -n "${CC:-}" ]; then
        compiles_c "$CC" || die "CC=$CC compiles nothing here: install it, or unset CC"
    else
        compiles_c cc || compiles_c gcc || compiles_c clang || tools=' gcc libc6-dev'
    fi
    tool meson has meson
    tool ninja-build has ninja
    tool pkg-config has pkg-config
    library libjemalloc-dev has_library jemalloc libjemalloc-dev
    case " $1 " in *' text '*)
        tool 'fortunes fortunes-min' test -d "$text"
        advice=' (train --data FILE does without fortunes)'
        ;;
    esac
    case " $1 " in *' ranks '*)
        tool 'libopenmpi-dev openmpi-bin' has mpirun
        tool libopenmpi-dev has mpicc
        ;;
    esac
    case " $1 " in *' fuzz '*) tool 'clang libclang-rt-dev' has_fuzzer ;; esac
    case " $1 " in *' mcdc '*)
        tool 'clang-19 libclang-rt-19-dev' compiles_c clang-19
        tool llvm-19 has llvm-cov-19
        ;;
    esac
    case " $1 " in *' all '*) # all tests: without one of these packages, some are skipped
        library 'libopenmpi-dev openmpi-bin' has_library ompi-c libopenmpi-dev
        library 'libmpich-dev mpich' has_library mpich libmpich-dev
        library iproute2 has ip
        library g++ has c++
        library clang has clang
        library cmake has cmake
        library groff has groff
        library valgrind has valgrind
        library 'chromium chromium-driver' has chromedriver
        library python3-selenium has_selenium
        ;;
    esac
    case " $1 " in *' slow '*)
        library musl-tools has musl-gcc
        library debootstrap has debootstrap
        library 'gcc-aarch64-linux-gnu libc6-dev-arm64-cross' compiles_c aarch64-linux-gnu-gcc
        library qemu-user has qemu-aarch64
        ;;
    esac
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 "$@"
}

# Old package lists name versions that the mirror no longer has, so a failure is worth one update.
apt_install() { # PACKAGE...
    if [ -n "$(find /var/lib/apt/lists -name '*_Packages*' 2>/dev/null | head -n 1)" ]; then
        apt_get install --no-install-recommends "$@" && return
    fi
    apt_get update && apt_get install --no-install-recommends "$@"
}

install_missing() { # WANTED
    find_missing "$1"
    [ -n "$tools$libraries" ] || return 0
    why=''
    if [ -n "$no_install" ]; then
        why='with --no-install nothing is installed'
    elif ! has apt-get; then
        why='there is no apt-get here'
    elif [ "$(id -u)" -ne 0 ] && ! has sudo; then
        why='you are not root and there is no sudo'
    fi
    if [ -n "$why" ]; then
        [ -z "$tools" ] || die "missing (as Debian names it):$tools; $why: have root run:" \
            "apt-get update && apt-get install$tools$libraries$advice"
        say "going on without:$libraries ($why)"
        return
    fi
    say "installing:$tools$libraries"
    # shellcheck disable=SC2086 # lists of words
    quietly "$builds/apt.log" apt_install $tools $libraries || [ -z "$tools" ] ||
        die "have root run: apt-get update && apt-get install$tools$libraries$advice"
    find_missing "$1"
    [ -z "$tools" ] || die "apt-get succeeded, yet missing is still:$tools"
}

# --- builds --------------------------------------------------------------------------------------

# Make ready for building: take the lock, since two callers at once would configure the same folder,
# and install what is missing.
set_up() { # [WANTED]
    if ! mkdir -p "$builds" 2>/dev/null || [ ! -w "$builds" ]; then
        die "$builds cannot be written by $(id -un): make it yours, or work in a clone of your own"
    fi
    if has flock; then
        exec 9>"$builds/lock"
        flock -n 9 || say "waiting for another ./run in $here"
        flock 9
    fi
    install_missing "${1-}"
}

# Drop the lock after the build, so that others can build while, say, a long training runs.
set_up_ended() {
    exec 9>&-
}

# Set `folder` to the folder of a build. If build/NAME exists without the file `configured`, we have
# not made it: leave it alone, and use build/run-NAME.
find_folder() { # NAME
    folder=$builds/$1
    is_ours "$folder" || folder=$builds/run-$1
    is_ours "$folder" || die "$folder was not made by ./run: move it away"
}

is_ours() { # FOLDER
    [ ! -e "$1" ] || [ -e "$1/configured" ]
}

# Use a build folder as it is only if it was configured to the end, in this place, by this Meson and
# with these settings. Otherwise (after an interrupted set-up, an upgrade, a move of the checkout)
# make it anew: Meson often fails to reconfigure such a folder.
configure() { # NAME MESON-OPTION...
    find_folder "$1"
    shift
    key="$here $(meson --version) CC=${CC:-} CFLAGS=${CFLAGS:-} LDFLAGS=${LDFLAGS:-}"
    key="$key PKG_CONFIG_PATH=${PKG_CONFIG_PATH:-} CUDA_PATH=${CUDA_PATH:-} without:$libraries $*"
    for mpi in mpicc mpicc.openmpi mpicc.mpich; do
        ! has "$mpi" || key="$key $mpi"
    done
    case $1 in --*-file) key="$key $(cat "$2")" ;; esac
    if [ -f "$folder/build.ninja" ] &&
        [ "$(cat "$folder/configured" 2>/dev/null)" = "$key" ]; then
        return
    fi
    say "configuring and building ${folder#"$here/"}"
    rm -rf "$folder"
    mkdir -p "$folder" && : >"$folder/configured" || return
    quietly "$folder.log" meson setup "$@" "$folder" "$here" || return
    printf '%s\n' "$key" >"$folder/configured"
}

# On a terminal let ninja show its progress; otherwise be quiet unless it fails.
build() { # NAME [TARGET...]
    find_folder "$1"
    shift
    set -- ninja -C "$folder" -j "$(nproc 2>/dev/null || echo 2)" "$@"
    if [ -t 2 ]; then
        "$@" >&2 </dev/null
    else
        quietly "$folder.log" "$@"
    fi
}

# Build what users run. Warnings are not errors here: a newer compiler than ours may have new ones.
build_release() { # [TARGET...]
    configure release --buildtype=release -Dwerror=false && build release "$@"
}
