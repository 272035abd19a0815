"""Run tests of one of Meson's suites from a build folder and without Meson:
run_suite.py BUILD SUITE SECONDS TEST...

For machines that have a build, perhaps made elsewhere and carried along, and no Meson. A test that
takes more than SECONDS, or than Meson gives it, is ended. Prints a line for each test, the output
of those that fail, and a count of their cases. Status: 0, 1 where a test failed, 77 where none ran
or all were skipped.
"""

import json
import os
import subprocess
import sys

from count_cases import judge


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


def run(test, seconds):
    """Its status, its output, and by what it was ended if not by itself."""
    limit = min(test["timeout"] or seconds, seconds)
    try:
        done = subprocess.run(test["cmd"], env={**os.environ, **test["env"]}, cwd=test["workdir"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=limit)
        return done.returncode, done.stdout.decode(errors="replace"), ""
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace"), "timeout"
    except OSError as error:
        return 127, str(error), ""


def main(build, suite, seconds, *names):
    total = [0, 0, 0]
    for test in find_tests(os.path.abspath(build), suite):
        if test["name"] not in names:
            continue
        status, output, stopped = run(test, max(int(seconds), 1))
        *counts, why = judge(status, output, stopped)
        total = [a + b for a, b in zip(total, counts)]
        print("%s: %d passed, %d failed, %d skipped%s" %
              (test["name"], *counts, why and ": " + why), flush=True)
        if counts[1]:
            print(output.rstrip(), flush=True)
    print("%d passed, %d failed, %d skipped" % tuple(total))
    return 1 if total[1] else 0 if total[0] else 77


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
