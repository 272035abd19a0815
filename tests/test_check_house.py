"""test_check_house.py - check_house.py finds what is planted in a small project, and nothing else.

Speaks TAP, as the C tests do (check.h). The project has two files for each room, the lower of which
the upper calls, a table, and a test; each case copies it with its objects and spoils one thing.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from check_house import MOST_SOURCES, ROOMS

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check_house.py")
NAMES = [name for name, _ in ROOMS]
LOW, MIDDLE, HIGH = NAMES[0], NAMES[1], NAMES[2]
CC = os.environ.get("CC", "cc").split()

MACROS = """/*
 * compiler.h - the one place that knows compilers.
 */
#define ASHLAR_ASSERT(expr) ((expr) ? (void)0 : __builtin_trap())
#define ASHLAR_TABLE_IS_FULL(table, count) \\
    _Static_assert(sizeof(table) / sizeof((table)[0]) == (count), "full")
"""
KINDS = """/*
 * kinds.h - the kinds that there are of things.
 */
#define ASHLAR_HUE_MAP(X) \\
    X(RED, "red") /* as a rose */ \\
    X(BLUE, "blue")
#define ASHLAR_HUE_ENUM(name, text) ASHLAR_HUE_##name,
typedef enum ashlar_hue { ASHLAR_HUE_MAP(ASHLAR_HUE_ENUM) ASHLAR_HUE_COUNT } ashlar_hue;
typedef enum ashlar_kind {
    ASHLAR_KIND_ONE,
    ASHLAR_KIND_TWO, /* and not, as before, ASHLAR_KIND_NONE */
    ASHLAR_KIND_THREE,
    ASHLAR_KIND_COUNT
} ashlar_kind;
"""
TABLES = """/* tables.c - the names of kinds and hues in plain text. */
#include "%(low)s/kinds.h"
#include "%(low)s/compiler.h"

static const char *const kinds[] = {
    [ASHLAR_KIND_ONE] = "one, {and",
    [ASHLAR_KIND_TWO] = "two",
    [ASHLAR_KIND_THREE] = "three",
};
ASHLAR_TABLE_IS_FULL(kinds, ASHLAR_KIND_COUNT);

const char *ashlar__hue_name(int hue) {
    int seen[ASHLAR_KIND_COUNT] = {0};
    static const char *const hues[] = {
#define X(name, text) [ASHLAR_HUE_##name] = text,
        ASHLAR_HUE_MAP(X)
#undef X
    };
    ASHLAR_TABLE_IS_FULL(hues, ASHLAR_HUE_COUNT);
    return seen[0] ? kinds[hue] : hues[hue];
}
"""


def function_of(room):
    return "ashlar__" + room.replace("/", "_")


def header_of(room):
    return "%s/%s.h" % (room, room.split("/")[1])


def source_of(room):
    return header_of(room)[:-1] + "c"


def archive_of(room):
    return "%s/libashlar-%s.a" % (room, room.replace("/", "-"))


class Project:
    """A project in a folder, with the files that Meson would write for it in its folder `build`."""

    def __init__(self, root):
        self.root = root
        self.links = {}  # the archives of each test

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def edit(self, path, old, new):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            text = file.read()
        assert old in text, "%s has no %r" % (path, old)
        self.write(path, text.replace(old, new, 1))

    def append(self, path, text):
        self.edit(path, "/*", "/*")
        with open(os.path.join(self.root, path), "a", encoding="utf-8") as file:
            file.write(text)

    def fill(self):
        """A file for each room, which calls that of the room below."""
        self.write(LOW + "/compiler.h", MACROS)
        self.write(LOW + "/kinds.h", KINDS)
        self.write(LOW + "/tables.c", TABLES % {"low": LOW})
        self.write("include/ashlar/kind.h", "/*\n * kind.h - what every program may know.\n */\n")
        below = None
        for room in NAMES:
            name = os.path.basename(header_of(room))
            self.write(header_of(room), "/*\n * %s - what the room %s can do (internal).\n */\n"
                       "void %s(void);\n" % (name, room, function_of(room)))
            include = '#include "%s"\n' % header_of(below) if below else ""
            call = "    %s();\n" % function_of(below) if below else ""
            self.write(source_of(room), "/* %sc - all that the room does, in one function. */\n"
                       '#include "%s"\n\n#include <ashlar/kind.h>\n%s\nvoid %s(void) {\n%s}\n' %
                       (name[:-1], header_of(room), include, function_of(room), call))
            below = room
        self.write("tests/check.h", "/*\n * check.h - what every test of a room needs.\n */\n")
        self.add_test(MIDDLE, [LOW, MIDDLE])

    def add_test(self, room, linked):
        path = "tests/%s/test_it.c" % room
        self.write(path, "/* test_it.c - the function of the room is called. */\n"
                   '#include "check.h"\n#include "%s"\n' % header_of(room))
        self.links[path] = [archive_of(name) for name in linked]

    def build(self, *paths):
        """Compile these sources, or all of the product, and write down what there is."""
        sources = paths or self.sources()
        for path in sources:
            target = os.path.join(self.root, self.object_of(path))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            subprocess.run([*CC, "-c", "-Iinclude", "-I.", "-o", target, path], cwd=self.root,
                           check=True)
        self.describe()

    def sources(self):
        return [os.path.relpath(os.path.join(folder, name), self.root)
                for top in ("allocator", "arena", "rnn", "bench")
                for folder, _, names in os.walk(os.path.join(self.root, top))
                for name in sorted(names) if name.endswith(".c")]

    def object_of(self, path):
        return "build/" + os.path.join(os.path.dirname(path), "it.p", os.path.basename(path) + ".o")

    def describe(self):
        """compile_commands.json and build.ninja, as Meson writes them."""
        commands = [{"directory": os.path.join(self.root, "build"), "file": "../" + path,
                     "output": os.path.relpath(self.object_of(path), "build")}
                    for path in [*self.sources(), *self.links]]
        self.write("build/compile_commands.json", json.dumps(commands))
        lines = ["build %s: c_LINKER %s | /usr/lib/libdl.a %s\n LINK_ARGS = -Wl,--start-group\n" %
                 (path[:-2], os.path.relpath(self.object_of(path), "build"), " ".join(archives))
                 for path, archives in self.links.items()]
        lines += ["build %s: STATIC_LINKER %s\n LINK_ARGS = csrDT\n" %
                  (archive_of(room), os.path.relpath(self.object_of(source_of(room)), "build"))
                 for room in NAMES]
        lines += ["build libashlar.so: c_LINKER | %s\n" % " ".join(map(archive_of, NAMES)),
                  "build libashlar.so.symbols: SHSYM libashlar.so\n"]
        self.write("build/build.ninja", "\n".join(lines))

    def check(self, *options):
        """The script's status, its findings and its last line."""
        done = subprocess.run([sys.executable, SCRIPT, "--root", self.root, *options],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        lines = done.stdout.decode().splitlines()
        return done.returncode, lines[:-1], lines[-1]

    def expect(self, *patterns):
        """Findings as these, one for each, and no other."""
        status, findings, last = self.check("--build", os.path.join(self.root, "build"))
        print("\n".join("# " + line for line in [*findings, last]))
        assert status == (1 if patterns else 0), "status %d" % status
        assert len(findings) == len(patterns), "%d findings" % len(findings)
        for pattern in patterns:
            assert any(re.match(pattern, line) for line in findings), "none is like " + pattern


# ---- cases: each is given a clean project with its objects ----

def a_clean_project_has_no_finding(p):
    p.expect()


def without_a_build_folder_it_says_what_it_did_not_look_at(p):
    status, findings, last = p.check()
    assert (status, findings) == (0, []) and "not looked at" in last, last


def an_upward_include_is_found(p):
    p.append(header_of(LOW), '#include "%s"\n' % header_of(MIDDLE))
    p.expect(r"%s:5: .*higher %s\. \w" % (header_of(LOW), MIDDLE))


def an_include_of_the_own_room_or_a_comment_is_fine(p):
    p.append(header_of(MIDDLE), '#include "%s"\n/* #include "%s" */\n' %
             (header_of(MIDDLE), header_of(HIGH)))
    p.expect()


def an_include_without_its_room_is_found(p):
    p.append(source_of(LOW), '#include "kinds.h"\n#include <sys/kinds.h>\n')
    p.expect(r"%s:\d+: .*write \"%s/kinds.h\"" % (source_of(LOW), LOW))


def a_test_that_includes_a_higher_room_is_found(p):
    p.append("tests/%s/test_it.c" % MIDDLE, '#include "%s"\n' % header_of(HIGH))
    p.expect(r"tests/%s/test_it.c:4: a test .*Move this test to tests/%s" % (MIDDLE, HIGH))


def a_test_that_includes_it_through_a_helper_is_found(p):
    p.write("tests/all.h", '/*\n * all.h - whatever the higher tests need.\n */\n#include "%s"\n' %
            header_of(HIGH))
    p.append("tests/%s/test_it.c" % MIDDLE, '#include "tests/all.h"\n')
    p.expect(r"tests/%s/test_it.c:4: .*by way of tests/all.h" % MIDDLE)


def product_code_that_includes_a_helper_of_tests_is_found(p):
    p.append(source_of(HIGH), '#include "tests/check.h"\n')
    p.expect(r"%s:\d+: product code includes tests/check.h" % source_of(HIGH))


def an_upward_call_is_found(p):
    p.append(source_of(LOW), "void %s(void);\nvoid ashlar__rise(void) {\n    %s();\n}\n" %
             (function_of(HIGH), function_of(HIGH)))
    p.build(source_of(LOW))
    p.expect(r"%s:\d+: %s calls %s of the higher %s" %
             (source_of(LOW), LOW, function_of(HIGH), HIGH))


def what_is_not_ours_joins_no_rooms(p):
    p.append(source_of(HIGH), "int cuMemAlloc(void) {\n    return 0;\n}\n")
    p.append(source_of(LOW), "int cuMemAlloc(void);\nint ashlar__take(void) {\n"
             "    return cuMemAlloc();\n}\n")
    p.build(source_of(LOW), source_of(HIGH))
    p.expect()


def add_circle(p, count):
    for i in range(count):
        p.write("%s/ring_%d.c" % (LOW, i), "/* ring_%d.c - one link of a chain of files. */\n"
                "void ashlar__ring_%d(void);\nvoid ashlar__ring_%d(void);\n"
                "void ashlar__ring_%d(void) {\n    ashlar__ring_%d();\n}\n" %
                (i, i, (i + 1) % count, i, (i + 1) % count))
    p.build(*("%s/ring_%d.c" % (LOW, i) for i in range(count)))


def a_circle_of_four_files_is_found(p):
    add_circle(p, 4)
    p.expect(r"%s/ring_0.c:3: a circle of 4 files: .*ring_0.c, .*ring_1.c, .*ring_3.c\. Cut" % LOW)


def a_circle_of_three_files_is_none(p):
    add_circle(p, 3)
    p.expect()


def a_file_without_an_opening_is_found(p):
    p.edit(source_of(LOW), "/* ", "#include <stddef.h>\n/* ")
    p.expect(r"%s:1: opens without a comment\. Open it with /\* " % source_of(LOW))


def an_opening_with_another_name_is_found(p):
    p.edit(LOW + "/kinds.h", " * kinds.h", " * sorts.h")
    p.expect(r"%s/kinds.h:1: calls itself sorts.h" % LOW)


def an_opening_without_a_name_is_found(p):
    p.edit(LOW + "/kinds.h", " * kinds.h - the", " * The")
    p.expect(r"%s/kinds.h:1: its first comment does not begin with its name" % LOW)


def an_opening_of_two_words_is_found(p):
    p.edit("tests/check.h", "what every test of a room needs.", "for tests.\n *\n * All they need.")
    p.expect(r"tests/check.h:1: its first comment has no sentence")


def a_table_short_of_a_row_in_the_middle_is_found(p):
    p.edit(LOW + "/tables.c", '    [ASHLAR_KIND_TWO] = "two",\n', "")
    p.expect(r"%s/tables.c:5: a table has no row for ASHLAR_KIND_TWO\." % LOW)


def a_table_in_order_short_of_a_row_is_found(p):
    p.append(LOW + "/tables.c", 'static const char *const orders[] = {"first", "second, third"};\n'
             "ASHLAR_TABLE_IS_FULL(orders, ASHLAR_KIND_COUNT);\n")
    p.expect(r"%s/tables.c:\d+: table orders has 2 rows of 3\." % LOW)


def a_table_with_a_length_of_its_own_is_found(p):
    p.edit(LOW + "/tables.c", "kinds[] =", "kinds[ASHLAR_KIND_COUNT] =")
    p.expect(r"%s/tables.c:5: table kinds\[ASHLAR_KIND_COUNT\] is zero" % LOW)


def a_table_without_an_assertion_is_found(p):
    p.edit(LOW + "/tables.c", "ASHLAR_TABLE_IS_FULL(hues, ASHLAR_HUE_COUNT);", "")
    p.expect(r"%s/tables.c:14: nothing asserts the length of table hues\." % LOW)


def a_row_short_of_a_column_is_found(p):
    p.append(LOW + "/tables.c", "int ashlar__wide[2][ASHLAR_KIND_COUNT] = {{1, 2, 3}, {1, 2}};\n")
    p.expect(r"%s/tables.c:\d+: a row of table ashlar__wide has 2 columns of 3" % LOW)


def a_table_in_a_struct_short_of_a_row_is_found(p):
    p.append(LOW + "/tables.c", "struct { int of[ASHLAR_HUE_COUNT]; } ashlar__in = {\n"
             "    .of = {[ASHLAR_HUE_RED] = 1}};\n")
    p.expect(r"%s/tables.c:\d+: a table has no row for ASHLAR_HUE_BLUE\." % LOW)


def a_room_of_too_many_sources_is_found(p):
    for i in range(MOST_SOURCES):
        p.write("%s/more_%d.c" % (MIDDLE, i), "/* more_%d.c - one more of too many. */\n" % i)
    p.expect(r"%s:1: this room has %d .c files\. Split it" % (MIDDLE, MOST_SOURCES + 1))


def a_source_in_no_room_is_found(p):
    p.write("allocator/loose.c", "/* loose.c - what nobody has tidied away. */\n")
    p.write("tests/rnn/loose/test_it.c", "/* test_it.c - a test of no room. */\n")
    p.expect(r"allocator/loose.c:1: lies in no room", r"tests/rnn/loose/test_it.c:1: lies in no")


def an_empty_room_is_found(p):
    shutil.rmtree(os.path.join(p.root, NAMES[-1]))
    p.expect(r"%s:1: this room has no sources" % NAMES[-1])


def a_test_that_links_a_higher_room_is_found(p):
    p.add_test(MIDDLE, [LOW, MIDDLE, HIGH])
    p.describe()
    p.expect(r"tests/%s/test_it.c:1: a test of %s links %s" % (MIDDLE, MIDDLE, archive_of(HIGH)))


def a_test_that_links_all_rooms_in_one_is_found(p):
    p.links["tests/%s/test_it.c" % MIDDLE] = ["libashlar.so.symbols"]
    p.describe()
    p.expect(r"tests/%s/test_it.c:1: a test of .* links libashlar.so.symbols, which hold .*%s" %
             (MIDDLE, NAMES[-1]))


def a_build_without_objects_is_found(p):
    for path in p.sources():
        os.remove(os.path.join(p.root, p.object_of(path)))
    p.expect(r".*build:1: no object of this build is there\. Run ninja")


def as_tap_it_has_a_case_for_each_check(p):
    p.edit("tests/check.h", "check.h", "checks.h")
    status, findings, last = p.check("--tap")
    cases = [line for line in findings if re.match("(not )?ok", line)]
    assert status == 1 and last == "1..%d" % len(cases), last
    assert [line.split(" - ")[1] for line in cases if line.startswith("not")] == [
        "files_open_with_what_they_own"], cases


def figures_count_assertions_by_room(p):
    p.append(source_of(LOW), "void ashlar__two(int x) {\n    ASHLAR_ASSERT(x ==\n        1);\n"
             "    /* ASHLAR_ASSERT(x); */\n    ASHLAR_ASSERT(x != 2);\n}\n")
    p.write(LOW + "/check_level.h", "/*\n * check_level.h - checks for our own bugs.\n */\n"
            "#define ASHLAR_ASSERT(expr) ((void)0)\n")
    status, lines, _ = p.check("--figures")
    row = next(line.split() for line in lines if line.startswith(LOW + " "))
    lines_of_room, without, assertions = int(row[3]), int(row[4]), int(row[5])
    assert status == 0 and assertions == 4 and lines_of_room - without == 5, row


CASES = [
    value for value in list(globals().values())
    if callable(value) and getattr(value, "__code__", None) and
    value.__code__.co_varnames[:value.__code__.co_argcount] == ("p",)
]


def run_case(clean, case):
    """A copy of the clean project, spoilt; its objects stay newer than their sources."""
    with tempfile.TemporaryDirectory() as scratch:
        root = os.path.join(scratch, "project")
        shutil.copytree(clean.root, root)
        copy = Project(root)
        copy.links = dict(clean.links)
        copy.describe()
        case(copy)


def main():
    for tool in CC[-1], "nm":
        if not shutil.which(tool):
            print("1..0 # SKIP no %s" % tool)
            return 0
    bad = 0
    with tempfile.TemporaryDirectory() as scratch:
        clean = Project(scratch)
        clean.fill()
        clean.build()
        for number, case in enumerate(CASES, 1):
            try:
                run_case(clean, case)
                print("ok %d - %s" % (number, case.__name__))
            except (AssertionError, subprocess.CalledProcessError) as error:
                bad += 1
                print("# %s\nnot ok %d - %s" % (error, number, case.__name__))
    print("1..%d" % len(CASES))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
