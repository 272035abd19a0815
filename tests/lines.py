"""Which lines of a Python script are run: lines.py FILE SCRIPT ARGUMENT... runs it as python3 does, and
adds the lines that ran, in all of its threads, to FILE. lines.py FILE SCRIPT prints those that none
of the runs has reached; its status is 1 where there are any.
"""

import os
import runpy
import sys
import threading


def lines_of(code):
    """The numbers of the lines that have code. A comment or a document has none."""
    found = {line for _, _, line in code.co_lines() if line}
    for constant in code.co_consts:
        if hasattr(constant, "co_lines"):
            found |= lines_of(constant)
    return found


def run(path, arguments, file):
    """Each line is written when it is first run: a child of fork() may end at once."""
    ran = set()

    def follow(frame, event, _):
        if frame.f_code.co_filename != path:
            return None
        if frame.f_lineno not in ran:
            ran.add(frame.f_lineno)
            os.write(file, b"%d\n" % frame.f_lineno)
        return follow

    sys.argv = [path] + arguments
    sys.path[0] = os.path.dirname(path)
    threading.settrace(follow)
    sys.settrace(follow)
    runpy.run_path(path, run_name="__main__")


def main(counts, script, *arguments):
    path = os.path.abspath(script)
    if arguments:
        run(path, list(arguments), os.open(counts, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666))
        return 0
    with open(path) as file:
        source = file.read()
    with open(counts) as file:
        ran = set(map(int, file))
    missing = sorted(lines_of(compile(source, path, "exec")) - ran)
    for line in missing:
        print("%s:%d: %s" % (script, line, source.splitlines()[line - 1]))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
