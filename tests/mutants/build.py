"""build.py - the copy of the sources that has every mutant in it, and its build."""

import hashlib
import json
import multiprocessing
import os
import pickle
import shlex
import shutil
import subprocess
import sys

from places import find_groups, rewrite
from syntax import Text, parse

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COPIED = ("allocator", "arena", "rnn", "bench", "docs", "examples", "include", "tests")
MUTATED = ("allocator/", "arena/")
SELECTION = ("--suite", "unit", "--suite", "whole", "--no-suite", "rnn")
# What the first keeps back is that a test program is wrong, not that the library is. The others are
# at work only in programs with CUDA's runtime, with kernels by nvcc or with an MPI: not here.
NOT_MUTATED = ("allocator/base/check_level.", "allocator/dropin/cuda.",
               "allocator/trace/nvtx_memory.", "arena/compute/cuda_kernels.",
               "arena/optimizer/optimizer_cuda.", "arena/reduce/ranks_mpi.")


class Build:
    """In a folder of its own: source/ (rewritten), build/ (Meson's), places (what was changed)."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.source = os.path.join(self.folder, "source")
        self.build = os.path.join(self.folder, "build")
        self.places = []

    def make(self):
        """As it is if nothing has changed since."""
        stamp, kept = self.stamp(), os.path.join(self.folder, "places")
        if os.path.exists(kept):
            with open(kept, "rb") as file:
                made_for, self.places = pickle.load(file)
            if made_for == stamp:
                return
            os.remove(kept)
            self.places = []  # those were of other sources
        self.copy()
        self.configure()
        self.mutate()
        self.compile()
        with open(kept, "wb") as file:
            pickle.dump((stamp, self.places), file)

    def files(self):
        for top in COPIED:
            for folder, folders, names in os.walk(os.path.join(ROOT, top)):
                folders[:] = sorted(name for name in folders if name != "__pycache__")
                yield from (os.path.join(folder, name) for name in sorted(names))
        yield from (os.path.join(ROOT, name) for name in sorted(os.listdir(ROOT))
                    if os.path.isfile(os.path.join(ROOT, name)))

    def stamp(self):
        """Of all that goes into the build."""
        found = hashlib.sha256()
        for path in self.files():
            if os.path.isfile(path) and "/results/" not in path and not path.endswith(".txt"):
                found.update(path.encode())
                with open(path, "rb") as file:
                    found.update(file.read())
        return found.hexdigest()

    def copy(self):
        shutil.rmtree(self.source, ignore_errors=True)
        for path in self.files():
            to = os.path.join(self.source, os.path.relpath(path, ROOT))
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copy2(path, to, follow_symlinks=False)

    def configure(self):
        shutil.rmtree(self.build, ignore_errors=True)
        native = os.path.join(HERE, "..", "native", "mutants.ini")
        # The leak sanitizer notices what is not given back, and costs nothing else; the one of
        # bounds, which traps, an index beyond an array, be it the last of a structure. A variable
        # that a mutant leaves unset has a value all the same: what a compiler may choose otherwise
        # is often the right one.
        environment = dict(os.environ, LDFLAGS="-fsanitize=leak",
                           CFLAGS="-w -fsanitize=bounds -fsanitize-trap=bounds "
                                  "-fstrict-flex-arrays=3 -ftrivial-auto-var-init=pattern "
                                  "-include %s/tests/mutants/mutant.h" % self.source)
        self.run("meson", "setup", "--native-file", native, "-Dwerror=false", self.build,
                 self.source, env=environment)

    def mutate(self):
        commands = list(self.commands())
        with multiprocessing.Pool() as pool:
            units = pool.map(find_in_unit, [(self.source, *command) for command in commands])
        found, seen = {}, set()
        for unit in units:
            for path, key, groups in unit:
                if key not in seen:
                    seen.add(key)
                    found.setdefault(path, []).extend(groups)
        for path in sorted(found):
            self.rewrite(path, found[path])
        self.append_choice()

    def commands(self):
        """Once for each source of ours, how it is compiled."""
        with open(os.path.join(self.build, "compile_commands.json"), encoding="utf-8") as file:
            units = json.load(file)
        seen = set()
        for unit in units:
            path = os.path.normpath(os.path.join(unit["directory"], unit["file"]))
            name = os.path.relpath(path, self.source)
            if name.startswith(MUTATED) and name.endswith(".c") and path not in seen:
                seen.add(path)
                words = shlex.split(unit["command"])
                yield [*words[1:words.index("-MD")], unit["file"]], unit["directory"]

    def rewrite(self, path, groups):
        text = Text(path)
        counts = {}
        for group in groups:
            for place in group.places:
                self.places.append(place)
                place.path = os.path.relpath(path, self.source)
                place.number = len(self.places)
                counts[place.key()] = place.index = counts.get(place.key(), 0) + 1
        with open(path, "w", encoding="latin-1", newline="") as file:
            file.write(rewrite(text.text, groups))

    def append_choice(self):
        with open(os.path.join(HERE, "mutant.c"), encoding="utf-8") as file:
            text = file.read()
        with open(self.source + "/allocator/base/check_level.c", "a", encoding="utf-8") as file:
            file.write("#define ASHLAR_MUTANT_COUNT %d\n%s" % (len(self.places) + 1, text))

    def compile(self):
        done = subprocess.run([sys.executable, os.path.join(HERE, "..", "test_targets.py"),
                               self.build, *SELECTION], check=True, stdout=subprocess.PIPE)
        self.run("ninja", "-C", self.build, *done.stdout.decode().split())

    def run(self, *words, env=None):
        log = self.folder + "/log"
        with open(log, "wb") as out:
            if subprocess.run(words, stdout=out, stderr=out, env=env, check=False).returncode:
                with open(log, encoding="utf-8", errors="replace") as file:
                    print(*file.readlines()[-30:], sep="", file=sys.stderr)
                sys.exit("mutants.py: failed: %s (%s)" % (" ".join(words), log))


def find_in_unit(unit):
    """As find_groups()."""
    source, command, folder = unit
    declarations = parse(command, folder)
    names = {os.path.relpath(node["loc"]["file"], source) for node in declarations
             if node.get("loc", {}).get("file")}
    texts = {os.path.join(source, name): Text(os.path.join(source, name)) for name in names
             if name.startswith(MUTATED) and not name.startswith(NOT_MUTATED)}
    return list(find_groups(declarations, texts))
