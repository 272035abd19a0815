#!/bin/sh
#
# mcdc.sh - which conditions of the allocator and the arena the tests show to matter, by clang's MC/DC

set -u
here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd -P) || exit 1
# shellcheck source=tools/set_up.sh
. "$here/tools/set_up.sh"

set_up mcdc
rm -rf "$builds/profiles" || exit 1 # those of earlier runs would count as this one's
CFLAGS="${CFLAGS:-} -w -fprofile-instr-generate=$builds/profiles/%m.profraw"
CFLAGS="$CFLAGS -fcoverage-mapping -fcoverage-mcdc -I$here -include $here/tests/measured.h"
export CFLAGS
set_up_ended
"$here/tests/builds.sh" mcdc
! grep -qx '0 1 0' "$builds/tally" || exit 1 # else what was not built would count as not covered
find_folder mcdc
exec python3 "$here/tests/mcdc.py" "$folder" "$builds/profiles" "$builds/mcdc.txt"
