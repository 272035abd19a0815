"""Add up the TAP lines of Meson's log: count_cases.py NAME LOG STATUS OUTPUT TALLY

NAME is the build's, LOG Meson's testlog.json, STATUS that of `meson test`, OUTPUT what it printed.
What failed is shown. The three sums are printed, and added to the file TALLY as a line. What is a
failure here is one in run_suite.py too. Stricter than Meson's own verdict: a program without a
plan, or with another number of cases than planned, or that ends badly after its last case, has
failed. So has a run that Meson itself calls bad, for a reason unknown here.
"""

import json
import os
import re
import sys


def judge(status, output, stopped=""):
    """Cases that passed, failed and were skipped, and why it is bad although no case says so.

    status: of the program; stopped: by what it was ended, if it did not end by itself
    """
    out = output.splitlines()
    cases = [line for line in out if re.match(r"(not )?ok\b", line)]
    plans = [re.match(r"1\.\.(\d+)(\s*# *skip)?", line, re.I) for line in out]
    plans = [plan for plan in plans if plan]
    bad = [line for line in cases if line.startswith("not ok")]
    skipped = sum(bool(re.match(r"ok\b.*# *skip", line, re.I)) for line in cases)
    skips_itself = status == 77 or (status == 0 and len(plans) == 1 and plans[0][2])
    why = ""
    if stopped:
        why = "stopped: " + stopped
    elif skips_itself and not cases:
        return 0, 0, 1, ""
    elif status not in ((0, 1) if bad else (0,)):
        why = "ended with status %d" % status
    elif not cases:
        why = "printed no test case"
    elif len(plans) != 1 or int(plans[0][1]) != len(cases):
        why = "ran %d cases, which is not its plan" % len(cases)
    return len(cases) - len(bad) - skipped, len(bad) + bool(why), skipped, why


def count(name, log, status, output):
    """Passed, failed, skipped."""
    total = [0, 0, 0]
    tests = [json.loads(line) for line in open(log)] if os.path.exists(log) else []
    for test in tests:
        result = test["result"].lower()
        *counts, why = judge(test["returncode"], test.get("stdout", ""),
                             result if result in ("timeout", "interrupt") else "")
        total = [a + b for a, b in zip(total, counts)]
        if counts[1]:
            print("--- %s: %s %s" % (name, test["name"], why))
            print((test.get("stdout", "") + test.get("stderr", "")).rstrip())
    if not tests:
        print("--- %s: no test ran" % name)
        total[1] += 1
    elif status != "0" and total[1] == 0:
        print("--- %s: meson test ended with status %s" % (name, status))
        print("".join(open(output, errors="replace").readlines()[-40:]).rstrip())
        total[1] += 1
    return total


def main(name, log, status, output, tally):
    sys.stdout.reconfigure(errors="backslashreplace")  # a test may print any byte
    total = count(name, log, status, output)
    print("%-8s %d passed, %d failed, %d skipped" % (name, *total))
    with open(tally, "a") as file:
        print(*total, file=file)


if __name__ == "__main__":
    main(*sys.argv[1:])
