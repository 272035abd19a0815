"""check_links.py - what the project's own pages name is there.

    python3 tests/check_links.py [--tap]

Looks at ARCHITECTURE.md, CONTRIBUTING.md, README.md and docs/, and at CHANGELOG.md's new names. A
path or file name has to be in the tree, or be a program that a page prints; an ashlar identifier,
function or macro, in a source; a test that is named as `meson test` takes it, in Meson's lists; a
case behind its file, as in `tests/FILE` `case`, in that file; a line of ARCHITECTURE.md and CONTRIBUTING.md is at most 100 columns long. A link leads to a file, and
to a heading where it names one; docs/README.md leads to every page beside it. Prints a line for
each finding. Status: 0, 1 where there is one.
"""

import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "CHANGELOG.md"]
DOCS = "docs"
FOLDERS = ["allocator", "arena", "rnn", "bench", "include", "tests"]
MOST_LINES = {"ARCHITECTURE.md": 250}
MOST_COLUMNS = {"ARCHITECTURE.md": 100, "CONTRIBUTING.md": 100}

SUFFIXES = r"(?:c|h|cpp|hpp|cu|py|sh|ini|build|1|md|txt)"
PATH = re.compile(r"(?<![\w./-])((?:%s)/[\w./-]*\w/?|[\w./-]*[a-z_]\.%s)(?![\w/])" %
                  ("|".join(FOLDERS), SUFFIXES))
NAME = re.compile(r"(?<![\w/-])((?:ashlar_|ASHLAR_)\w+)")
# What the system or the reader has, and names that stand for others.
ELSEWHERE = re.compile(r"(std\w+\.h|string\.h|dlfcn\.h|cuda_runtime(_api)?\.h|cuda\.h|example\.c|train\.py|"
                       r".*\b(ROOM|NAME)\b.*)$")
# What is gone stands in the first column of CHANGELOG.md's tables.
OLD = re.compile(r"^\|[^|]*\|")


LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```.*?^```$", re.M | re.S)
PROGRAM = re.compile(r"^```c\n/\* (\w+\.c): ", re.M)


def list_docs():
    return sorted("%s/%s" % (DOCS, name) for name in os.listdir(os.path.join(ROOT, DOCS))
                  if name.endswith(".md"))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def list_files():
    """Every file of the tree, by its path from the root, builds and hidden folders left out."""
    found = set()
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if not f.startswith(".") and f not in ("build", "shared")]
        found.update(os.path.relpath(os.path.join(folder, name), ROOT) for name in files)
    return found


def list_names(files):
    """Every ashlar identifier that a source has."""
    names = set()
    for path in files:
        if re.search(r"\.(c|h|cpp|hpp|cu|build|py|sh)$", path) and path.split("/")[0] in FOLDERS:
            names.update(NAME.findall(read(path)))
    return names


def is_there(path, files, folders):
    path = re.sub(r"^ashlar/", "include/ashlar/", path.rstrip("/"))
    if path in files or path in folders:
        return True
    return "/" not in path and any(f.endswith("/" + path) for f in files)


def list_programs(pages):
    """The programs that the pages print: /* NAME.c: first in a block."""
    return {name for page in pages for name in PROGRAM.findall(read(page))}


def list_headings(page):
    """The names by which a page's headings are linked to, as GitHub makes them."""
    lines = re.findall(r"^#+ +(.*)$", BLOCK.sub("", read(page)), re.M)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def check_ways(page):
    """Each link of a page leads somewhere."""
    for target in LINK.findall(BLOCK.sub("", read(page))):
        if re.match(r"https?:", target):
            continue
        path, _, heading = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(os.path.join(ROOT, path)):
            yield "%s: the link %s leads nowhere" % (page, target)
        elif heading and heading not in list_headings(path):
            yield "%s: %s has no heading for the link %s" % (page, path, target)


def check_docs(pages):
    """Who begins at docs/README.md finds every page."""
    index = LINK.findall(read(DOCS + "/README.md"))
    for page in pages:
        name = os.path.basename(page)
        if name not in index and name != "README.md":
            yield "%s/README.md: no link to %s" % (DOCS, name)


def check_page(page, files, folders, names):
    for number, line in enumerate(read(page).splitlines(), 1):
        text = OLD.sub("", line) if page == "CHANGELOG.md" else line
        for path in PATH.findall(text):
            if not is_there(path, files, folders) and not ELSEWHERE.match(path):
                yield "%s:%d: %s is not in the tree" % (page, number, path)
        for name in NAME.findall(text):
            starts = name.endswith("_")
            if not (any(n.startswith(name) for n in names) if starts else name in names):
                yield "%s:%d: no source has %s" % (page, number, name)
        if len(line) > MOST_COLUMNS.get(page, len(line)):
            yield "%s:%d: %d columns" % (page, number, len(line))


def check_rooms(names_of_rooms):
    """ARCHITECTURE.md has a row for each room, in their order."""
    rows = re.findall(r"^\| ((?:allocator|arena|rnn|bench)/\w+) \|", read("ARCHITECTURE.md"), re.M)
    if rows != names_of_rooms:
        yield "ARCHITECTURE.md: its rooms are not those of tests/check_house.py, in their order"


def check_tests(page):
    """`meson test -C FOLDER NAME ...` names tests that there are."""
    lists = read("tests/meson.build")
    for words in re.findall(r"meson test -C \S+((?: [a-z_]+)+)", read(page)):
        for name in words.split():
            if not re.search(r"'%s'" % name, lists):
                yield "%s: tests/meson.build has no test %s" % (page, name)


def check_cases(page):
    for path, case in re.findall(r"`(tests/[\w./]+)` `([^`]+)`", read(page)):
        if os.path.exists(os.path.join(ROOT, path)) and case not in read(path):
            yield "%s: %s has no case %s" % (page, path, case)


def findings():
    from check_house import ROOMS
    files = list_files()
    folders = {os.path.dirname(f)[:i] for f in files
               for i in range(1, len(os.path.dirname(f)) + 1)
               if (os.path.dirname(f) + "/")[i] == "/"}
    names = list_names(files)
    docs = list_docs()
    pages = PAGES + docs
    files |= list_programs(pages)
    for page in pages:
        yield from check_page(page, files, folders, names)
        yield from check_tests(page)
        yield from check_cases(page)
        yield from check_ways(page)
        lines = len(read(page).splitlines())
        if lines > MOST_LINES.get(page, lines):
            yield "%s: %d lines; it is to have %d at most" % (page, lines, MOST_LINES[page])
    yield from check_docs(docs)
    yield from check_rooms([name for name, _ in ROOMS])


def main():
    found = list(findings())
    is_tap = "--tap" in sys.argv[1:]
    for finding in found:
        print("# " + finding if is_tap else finding)
    if is_tap:
        print("%sok 1 - what_the_pages_name_is_there\n1..1" % ("not " if found else ""))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
