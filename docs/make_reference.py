"""make_reference.py - run doxygen: make_reference.py DOXYGEN DOXYFILE FOLDER [--tap]

Makes FOLDER, with html/ and man/. A warning of doxygen is a failure. With --tap it speaks TAP, and
looks at what was made: each public function has its manual page.
"""

import glob
import os
import re
import shutil
import subprocess
import sys

HEADERS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                       "include/ashlar/*.h")
FUNCTION = re.compile(r"^ASHLAR_API[^;]*?\b(ashlar_\w+)\(", re.M)


def make(doxygen, doxyfile, folder):
    """What doxygen warned about."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(doxyfile, encoding="utf-8") as file:
        text = re.sub(r"^OUTPUT_DIRECTORY .*", "OUTPUT_DIRECTORY = " + folder, file.read(),
                      flags=re.M)
    done = subprocess.run([doxygen, "-"], input=text, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = done.stdout.strip()
    if done.returncode != 0 and not said:
        said = "doxygen: status %d" % done.returncode
    return said


def find_missing(folder):
    """Public functions without a manual page."""
    for path in sorted(glob.glob(HEADERS)):
        with open(path, encoding="utf-8") as file:
            names = FUNCTION.findall(file.read())
        for name in names:
            page = os.path.join(folder, "man/man3/%s.3" % name)
            if not os.path.exists(page):
                yield "%s has no page" % name


def main():
    doxygen, doxyfile, folder = sys.argv[1:4]
    said = make(doxygen, doxyfile, os.path.abspath(folder))
    if "--tap" not in sys.argv:
        print(said, end="\n" if said else "")
        return 1 if said else 0
    missing = "\n".join(find_missing(folder))
    for number, (bad, name) in enumerate(
            ((said, "doxygen_warns_of_nothing"), (missing, "each_public_function_has_a_page")), 1):
        print("# " + bad.replace("\n", "\n# ") + "\nnot " if bad else "", end="")
        print("ok %d - %s" % (number, name))
    print("1..2")
    return 1 if said or missing else 0


if __name__ == "__main__":
    sys.exit(main())
