"""check_docs.py - what README.md and docs/ print is run: programs, commands, and what they print.

    ASHLAR_BUILD=FOLDER python3 tests/check_docs.py [PAGE...]

Speaks TAP; a case is one block of code. By the word behind its three backquotes:

    c        a program, whose first line is its name: /* NAME.c: ... */. It compiles without a
             warning
    console  `$ COMMAND` runs, in the page's own folder with the programs above it, and prints the
             lines that follow. There `...` stands for any text, a line `...` for any lines. If the
             command trains, numbers may be others
    sh       is read by sh; then it runs, if it does not install, build, test or measure
    cpp      compiles as C++17, with a small likeness of RMM
    python   is read by Python, and runs unless it is for PyTorch
    text     is a picture, or a part of a file

Here `./run train` and `./run sample` are the build's programs, on a small text with a small model
for a few steps. What needs CUDA's headers runs on the stand-ins for its libraries, or is skipped.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_WORDS = {"README.md": 1000}
STRICT = "-std=c17 -Wall -Wextra -Wpedantic -Werror".split()
LANGUAGES = ("c", "console", "sh", "cpp", "python", "text")
BLOCK = re.compile(r"^```(\S*)\n(.*?)^```$", re.M | re.S)
PROGRAM = re.compile(r"\A/\* (\w+)\.c: ")
NEEDS_CUDA = re.compile(r"cuda_runtime|CUDA_PATH|LD_PRELOAD")
ONLY_READ = re.compile(r"\./run (--\S+ )*(test|bench|gpu)\b|^ *(sudo|meson|ninja|apt|git|pip)\b",
                       re.M)
RUN = r"""#!/bin/sh
program=$1
shift
small() {
    for option in $1; do
        name=${option%%=*}
        case " $* " in *" --$name "*) ;; *) set -- "$@" "--$name" "${option#*=}" ;; esac
    done
    shift
    exec "$ASHLAR_BUILD/rnn/ashlar-$program" "$@"
}
case $program in
train) small "data=$PWD/stones.txt steps=4 hidden=16 max-length=40 sample=20" "$@" ;;
sample) exec "$ASHLAR_BUILD/rnn/ashlar-sample" "$@" ;;
*) exit 9 ;;
esac
"""


class Failure(Exception):
    """Why a case has failed."""


class Skip(Exception):
    """Why a case cannot be tried here."""


def call(command, folder, env):
    """Run it; what it writes to standard error comes behind the rest, as on a terminal."""
    done = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, timeout=300,
                          capture_output=True, check=False, text=True, errors="replace")
    return subprocess.CompletedProcess(command, done.returncode, done.stdout + done.stderr)


def must(command, folder, env):
    done = call(command, folder, env)
    if done.returncode != 0:
        raise Failure("status %d\n%s" % (done.returncode, done.stdout))
    return done.stdout


class Place:
    """A folder for one page, and an environment in which an installed ashlar is there."""

    def __init__(self, build):
        self.folder = tempfile.mkdtemp()
        self.build = build
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("ASHLAR_")}
        bench, train, dropin, self.cuda, packages = (
            os.path.join(build, part)
            for part in ("bench", "rnn", "allocator/dropin", "tests/cuda", "meson-uninstalled"))
        self.env.update(
            ASHLAR_BUILD=build, LC_ALL="C", PKG_CONFIG_PATH=packages,
            LD_LIBRARY_PATH=":".join((build, dropin)), CUDA_PATH=os.path.join(self.folder, "cuda"),
            PATH=":".join((train, bench, os.environ["PATH"])))
        self.has_cuda = self.stand_in()
        with open(os.path.join(self.folder, "run"), "w", encoding="ascii") as file:
            file.write(RUN)
        os.chmod(file.name, 0o755)
        with open(os.path.join(self.folder, "stones.txt"), "w", encoding="ascii") as file:
            for i in range(120):
                file.write("Stone %d is laid on stone %d; no gap is left.\n%%\n" % (i, i * 31 % 97))

    def stand_in(self):
        """CUDA's own headers, and a library that runs on the software device."""
        nvcc = shutil.which("nvcc")
        real = os.environ.get("CUDA_PATH") or (
            nvcc and os.path.dirname(os.path.dirname(os.path.realpath(nvcc))))
        runtime = os.path.join(self.cuda, "libcudart.so.13")
        if not real or not os.path.exists(runtime):
            return False
        os.makedirs(os.path.join(self.folder, "cuda/lib64"))
        os.symlink(os.path.join(real, "include"), os.path.join(self.folder, "cuda/include"))
        os.symlink(runtime, os.path.join(self.folder, "cuda/lib64/libcudart.so"))
        return True

    def env_of(self, text):
        if not NEEDS_CUDA.search(text):
            return self.env
        if not self.has_cuda:
            raise Skip("no CUDA headers")
        return dict(self.env, LD_LIBRARY_PATH=self.env["LD_LIBRARY_PATH"] + ":" + self.cuda)


def flags(place):
    return must(["pkg-config", "--cflags", "ashlar"], place.folder, place.env).split()


def try_c(place, text):
    name = PROGRAM.match(text)
    if not name:
        raise Failure("its first line is not /* NAME.c: ... */")
    path = os.path.join(place.folder, name[1] + ".c")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    env = place.env_of(text)
    cuda = ["-isystem", os.path.join(place.folder, "cuda/include")] if env is not place.env else []
    compiler = os.environ.get("CC", "cc").split()
    must([*compiler, *STRICT, *cuda, *flags(place), "-fsyntax-only", path], place.folder, env)
    long = [line for line in text.splitlines() if len(line) > 100]
    if long:
        raise Failure("more than 100 columns: " + long[0])


def try_cpp(place, text):
    if not shutil.which("c++"):
        raise Skip("no C++ compiler")
    path = os.path.join(place.folder, "block.cpp")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    likeness = os.path.join(ROOT, "tests/dropin/rmm_like")
    must(["c++", "-std=c++17", "-Wall", "-Wextra", "-I" + likeness, *flags(place), "-fsyntax-only",
          path], place.folder, place.env)


def try_python(place, text):
    compile(text, "block", "exec")
    if "torch" not in text: # which needs a GPU for what the pages show
        must([sys.executable, "-c", text], place.folder, place.env)


def try_sh(place, text):
    must(["sh", "-n", "-c", text], place.folder, place.env)
    if not ONLY_READ.search(text):
        must(["sh", "-e", "-c", text], place.folder, place.env_of(text))


def try_text(_, text):
    long = [line for line in text.splitlines() if len(line) > 100]
    if long:
        raise Failure("more than 100 columns: " + long[0])


def without_numbers(text):
    return re.sub(r" +", " ", re.sub(r"[0-9]+(\.[0-9]+)?", "N", text))


def pattern_of(lines):
    """A regular expression for the lines that a page prints."""
    parts = []
    for line in lines:
        if line == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*".join(re.escape(part) for part in line.split("...")) + r" *\n")
    return "".join(parts) + r"\Z"


def try_console(place, text):
    """Each command with what it is to print; a status other than 0 is part of a lesson."""
    for step in re.split(r"^\$ ", text, flags=re.M)[1:]:
        lines = step.splitlines()
        command = lines.pop(0)
        while command.endswith("\\"):
            command = command[:-1] + lines.pop(0).lstrip("> ")
        done = call(["sh", "-c", command], place.folder, place.env_of(text))
        got, want = done.stdout, lines
        if command.startswith("./run "):
            got, want = without_numbers(got), [without_numbers(line) for line in want]
        if got and not got.endswith("\n"):
            got += "\n"
        if not re.match(pattern_of(want), got):
            raise Failure("$ %s\nprints\n%sand not\n%s" % (command, done.stdout, "\n".join(lines)))


TRY = {"c": try_c, "console": try_console, "sh": try_sh, "cpp": try_cpp, "python": try_python,
       "text": try_text}


def cases(page, place):
    """Each block of a page as (name, function, block), and what is said of the page as a whole."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        text = file.read()
    stem = re.sub(r"\W+", "_", page.rsplit(".", 1)[0].lower())

    def check_page():
        words = len(text.split())
        if words > MOST_WORDS.get(page, words):
            raise Failure("%d words; at most %d" % (words, MOST_WORDS[page]))
        rest = BLOCK.sub("", text)
        loose = re.search(r"\n\n(    |```).*", rest)
        if loose:
            raise Failure("code that is in no block with a language: " + loose[0])

    yield "%s_has_its_code_in_blocks" % stem, check_page
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        language, block = match[1], match[2]

        def try_block(language=language, block=block):
            if language not in LANGUAGES:
                raise Failure("of no language that is known here: '%s'" % language)
            TRY[language](place, block)

        yield "%s_line_%d_%s" % (stem, line, language or "code"), try_block


def main():
    build = os.path.abspath(os.environ.get("ASHLAR_BUILD", os.path.join(ROOT, "build/release")))
    pages = sys.argv[1:] or ["README.md"] + sorted(
        "docs/" + name for name in os.listdir(os.path.join(ROOT, "docs")) if name.endswith(".md"))
    count, bad = 0, 0
    for page in pages:
        place = Place(build)
        for name, function in cases(page, place):
            count += 1
            verdict, note = "ok", ""
            try:
                function()
            except Skip as why:
                note = " # SKIP %s" % why
            except (Failure, subprocess.TimeoutExpired, SyntaxError) as why:
                verdict, bad = "not ok", bad + 1
                print("# " + str(why).replace("\n", "\n# "))
            print("%s %d - %s%s" % (verdict, count, name, note), flush=True)
        shutil.rmtree(place.folder)
    print("1..%d" % count)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
