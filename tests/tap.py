"""tap.py - runs the cases of a test that is written in Python, and prints TAP."""

import sys
import traceback


def run(cases):
    """Run (name, function) pairs, the next one whatever becomes of one; returns the exit status. A
    function that returns a text is a skipped case, for that reason."""
    failed = 0
    print("1..%d" % len(cases))
    for number, (name, function) in enumerate(cases, 1):
        try:
            reason = function()
            print("ok %d - %s%s" % (number, name, " # SKIP " + reason if reason else ""))
        except Exception: # an assertion, or whatever else it is
            failed = 1
            print("# " + traceback.format_exc().strip().replace("\n", "\n# "))
            print("not ok %d - %s" % (number, name))
        sys.stdout.flush()
    return failed
