# set_up.sh - what `run` and the scripts of tests/ build with: packages, and build folders that can be
# trusted. Sourced, never run. Its caller has set `here`, the folder of the repository.
# shellcheck shell=sh disable=SC2154 # its caller's `here`

builds=$here/build
[ ! -e "$builds/meson-private" ] || builds=$here/build-run # somebody's own build folder
text=/usr/share/games/fortunes # of Debian's fortunes and fortunes-min
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
    grep -v '^\[[0-9]*/[0-9]*\] [A-Z]' "$log" >&2 # without ninja's lines of progress
    say "failed: $* (all of its output: $log)"
    return 1
}

# --- packages ------------------------------------------------------------------------------------

# A compiler without the C library's headers is the usual half-installed state.
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

# A library may be there without pkg-config's finding it (another pkg-config comes first on PATH);
# installing its package again would not change that.
has_library() { # NAME PACKAGE
    pkg-config --exists "$1" 2>/dev/null ||
        dpkg-query -W -f '${Status}' "$2" 2>/dev/null | grep -q 'ok installed'
}

has_selenium() {
    /usr/bin/python3 -c 'import selenium' 2>/dev/null
}

# These add packages to a list unless the command succeeds.
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

# The packages that this machine lacks: `tools` cannot be done without, `libraries` can (without
# them tests are skipped). WANTED: words for what is to be done.
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
    case " $1 " in *' all '*) # without which a case is skipped
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

# Make ready for building. Two first calls at once would configure into one folder.
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

# Let others build: a long training must not hold the lock.
set_up_ended() {
    exec 9>&-
}

# The folder of a build. One that is there and lacks our mark is somebody else's: it is left alone,
# and ours is beside it.
find_folder() { # NAME
    folder=$builds/$1
    is_ours "$folder" || folder=$builds/run-$1
    is_ours "$folder" || die "$folder was not made by ./run: move it away"
}

is_ours() { # FOLDER
    [ ! -e "$1" ] || [ -e "$1/configured" ]
}

# A build folder is taken as it is only if it was configured to the end, from here, by this Meson
# and with these settings. Otherwise (an interrupted set-up, an upgrade, a moved checkout) it is
# made anew: mending a half-written folder is what fails.
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

# On a terminal ninja itself shows how far it is.
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

# What users run. Warnings are no errors here: a newer compiler than ours must not stop a newcomer.
build_release() { # [TARGET...]
    configure release --buildtype=release -Dwerror=false && build release "$@"
}
