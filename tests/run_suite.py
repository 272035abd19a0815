"""Run one of Meson's test suites from a build folder, without Meson: run_suite.py BUILD SUITE

For machines that have a build, perhaps made elsewhere and carried along, and no Meson. Prints a line
for each test, the output of those that fail, and a count of their cases. Status: 0, 1 where a test
failed, 77 where none ran or all were skipped.
"""

import json
import os
import re
import subprocess
import sys


def read(build, name):
    with open(os.path.join(build, "meson-info", name)) as file:
        return json.load(file)


def find_tests(build, suite):
    """The suite's tests, with the folders that Meson wrote down replaced by where they are now."""
    folders = read(build, "meson-info.json")["directories"]
    source = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

    def move(text):
        for old, new in (folders["build"], build), (folders["source"], source):
            text = text.replace(old, new)
        return text

    for test in read(build, "intro-tests.json"):
        if any(name.split(":")[-1] == suite for name in test["suite"]):
            yield {
                "name": test["name"],
                "timeout": test["timeout"],
                "cmd": [move(word) for word in test["cmd"]],
                "env": {key: move(value) for key, value in test["env"].items()},
                "workdir": move(test["workdir"]) if test["workdir"] else build,
            }


def run(test):
    """Its status (None: it took too long) and its output."""
    try:
        done = subprocess.run(test["cmd"], env={**os.environ, **test["env"]}, cwd=test["workdir"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=test["timeout"] or None)
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace")
    except OSError as error:
        return 127, str(error)


def judge(status, output):
    """Cases that passed, failed and were skipped, and why it is bad although no case says so."""
    cases = re.findall(r"^(ok|not ok)\b(.*)$", output, re.M)
    plan = re.findall(r"^1\.\.(\d+)", output, re.M)
    bad = sum(verdict == "not ok" for verdict, _ in cases)
    skipped = sum(verdict == "ok" and "# skip" in rest.lower() for verdict, rest in cases)
    why = ""
    if status == 77 and not cases:
        return 0, 0, 1, ""
    if status is None:
        why = "took too long"
    elif status != 0 and not bad:
        why = "ended with status %d" % status
    elif not cases:
        why = "printed no test case"
    elif plan != [str(len(cases))]:
        why = "ran %d cases, which is not its plan" % len(cases)
    return len(cases) - bad - skipped, bad + bool(why), skipped, why


def main(build, suite):
    total = [0, 0, 0]
    for test in find_tests(os.path.abspath(build), suite):
        status, output = run(test)
        *counts, why = judge(status, output)
        total = [a + b for a, b in zip(total, counts)]
        print("%s: %d passed, %d failed, %d skipped%s" %
              (test["name"], *counts, why and ": " + why), flush=True)
        if counts[1]:
            print(output.rstrip(), flush=True)
    print("%d passed, %d failed, %d skipped" % tuple(total))
    return 1 if total[1] else 0 if total[0] else 77


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
