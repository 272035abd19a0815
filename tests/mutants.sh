#!/bin/sh
#
# mutants.sh - which mistakes the tests would notice: mutants.sh [N [SEED [PATH]]] (tests/mutants/)

set -u
here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd -P) || exit 1
# shellcheck source=tools/set_up.sh
. "$here/tools/set_up.sh"

set_up mcdc
mkdir -p "$builds/mutants" || exit 1
set_up_ended
exec python3 "$here/tests/mutants/mutants.py" "$builds/mutants" "$@"
