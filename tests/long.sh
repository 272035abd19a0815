#!/bin/sh
#
# long.sh - all that is random, for long: long.sh [SECONDS [SEED [PART...]]] (tests/long.py)

set -u
here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd -P) || exit 1
# shellcheck source=tools/set_up.sh
. "$here/tools/set_up.sh"

# shellcheck source=tests/fuzzers.sh
. "$here/tests/fuzzers.sh"

check_seconds long "${1-3600}"
build_fuzzers
configure strict --native-file "$here/tests/native/strict.ini" || exit 1
# shellcheck disable=SC2046 # words
build strict $(python3 "$here/tests/long.py" --targets) || exit 1
set_up_ended
exec python3 "$here/tests/long.py" "$folder" "$builds/fuzz" "$@"
