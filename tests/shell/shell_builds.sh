#!/bin/sh
#
# shell_builds.sh - builds that others make of ashlar: with link-time optimisation, as distributions'
# packages are, and with another C library, musl.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

cc=${CC:-cc}
version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$ASHLAR_SOURCE/meson.build")
unset ASHLAR_CONF ASHLAR_PRELOAD ASHLAR_REPORT

configures() { # FOLDER MESON-OPTION...: without what is not ours, and quick to compile
    folder=$scratch/$1
    shift
    meson setup "$folder" "$ASHLAR_SOURCE" --buildtype=plain -Dtests=no -Dcuda=disabled \
        -Djemalloc=disabled -Dmpi=disabled \
        -Ddefault_library=shared "$@"
}

trains() { # FOLDER
    write_text "$scratch/text"
    "$scratch/$1/rnn/ashlar-train" --device soft --data "$scratch/text" --hidden 8 --steps 3
}

# ---- link-time optimisation ----

configures_lto() {
    CFLAGS='-O1 -flto=auto -ffat-lto-objects' configures lto
}

links_lto() {
    ninja -C "$scratch/lto" allocator/dropin/libashlar-torch.so allocator/dropin/libashlar-preload.so \
        "libashlar.so.$version"
}

serves_lto() { # a program of the preload's tests
    LD_LIBRARY_PATH=$ASHLAR_BUILD/tests/cuda \
        LD_PRELOAD=$scratch/lto/allocator/dropin/libashlar-preload.so \
        "$ASHLAR_BUILD/tests/preload/program_driver" names loop | tee "$scratch/out"
    grep -x 'driver allocations: [1-9][0-9]* at first, 0 later' "$scratch/out"
}

if [ ! -f "$ASHLAR_BUILD/allocator/dropin/libashlar-preload.so" ]; then
    skip 'link_time_optimisation' 'the preload, which is what it may break, is not built here'
elif echo 'int main(void) { return 0; }' >"$scratch/one.c" &&
    ! $cc -flto=auto -ffat-lto-objects "$scratch/one.c" -o "$scratch/one" 2>"$scratch/lto.log"; then
    skip 'link_time_optimisation' "the compiler cannot: $(head -n 1 "$scratch/lto.log")"
else
    check 'ashlar_is_configured_for_link_time_optimisation' configures_lto
    check 'its_libraries_link' links_lto
    check 'the_preload_serves' serves_lto
fi

# ---- musl ----

# musl-gcc finds musl's headers alone; the kernel's are those of the system.
find_kernel_headers() {
    headers=$(echo '#include <asm/unistd.h>' | $cc -E - | sed -n 's|^# 1 "\(.*\)/asm/unistd.h".*|\1|p')
    mkdir "$scratch/kernel" && ln -s /usr/include/linux /usr/include/asm-generic "$headers/asm" \
        "$scratch/kernel"
}

configures_musl() {
    find_kernel_headers && CC=musl-gcc CFLAGS="-isystem $scratch/kernel" configures musl
}

links_musl() {
    ninja -C "$scratch/musl"
}

# NVIDIA's driver needs glibc, and so does what stands before it.
has_no_preload() {
    [ ! -e "$scratch/musl/allocator/dropin/libashlar-preload.so" ]
}

if command -v musl-gcc >/dev/null; then
    check 'ashlar_is_configured_with_musl' configures_musl
    check 'its_libraries_and_programs_link' links_musl
    check 'a_training_runs' trains musl
    check 'the_preload_is_left_out' has_no_preload
else
    skip 'musl' 'there is no musl-gcc (musl-tools)'
fi
check_report
