#!/bin/sh
#
# shell_dlopen.sh - every library can be loaded by a program that runs already, as plugins are: alone,
# and after libraries that have used up what the C library keeps free for thread-local variables.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

for name in libashlar.so libashlar-preload.so libashlar-torch.so; do
    find "$ASHLAR_BUILD" -name "$name*" -type f -not -path '*.p/*' -not -name '*.symbols'
done >"$scratch/libraries"

# Load FILE... in one process, in this order, and use each in a second thread, which has
# thread-local variables of its own.
load() { # FILE...
    python3 - "$@" <<'PY'
import ctypes, sys, threading
for name in sys.argv[1:]:
    library = ctypes.CDLL(name)
    if hasattr(library, "ashlar_error_detail"):
        library.ashlar_error_detail.restype = ctypes.c_char_p
        texts = []
        thread = threading.Thread(target=lambda: texts.append(library.ashlar_error_detail()))
        thread.start()
        thread.join()
        if texts != [b""]:
            sys.exit(f"{name}: a new thread's error detail is {texts}")
PY
}

# Bytes of thread-local storage that a library wants of those that are there at the start.
static_bytes() { # FILE
    readelf -dW "$1" | grep -q STATIC_TLS || { echo 0; return; }
    echo $(($(readelf -lW "$1" | awk '$1 == "TLS" { print $6 }')))
}

has_little() { # FILE
    [ "$(static_bytes "$1")" -le 128 ] || complain "$1: $(static_bytes "$1") bytes"
}

# C source of a library that takes up BYTES of that storage.
glutton() { # BYTES
    printf '__attribute__((tls_model("initial-exec"))) _Thread_local char room[%d];\n' "$1"
    printf 'char *eat(void) { return room; }\n'
}

check 'there_are_libraries' [ "$(wc -l <"$scratch/libraries")" -ge 1 ]
if command -v readelf >/dev/null; then
    while read -r library; do
        check "$(basename "$library")_wants_little_thread_local_storage" has_little "$library"
    done <"$scratch/libraries"
fi
while read -r library; do
    check "$(basename "$library")_is_loaded_alone" load "$library"
done <"$scratch/libraries"
glutton 1024 >"$scratch/glutton.c"
${CC:-cc} -shared -fPIC -o "$scratch/glutton.so" "$scratch/glutton.c" || exit 1
while read -r library; do
    check "$(basename "$library")_is_loaded_late" load "$scratch/glutton.so" "$library"
done <"$scratch/libraries"
check_report
