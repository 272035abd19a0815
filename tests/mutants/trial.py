"""trial.py - one run of a test program: whether it passes, and what stops one that runs wild."""

import os
import resource
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from count_cases import judge  # noqa: E402

MOST_MEMORY = 3 << 30  # bytes that a program may have in memory: mutants may never stop asking
MOST_OUTPUT = 4 << 20
MOST_FILE = 1 << 42  # also of the memory of software devices, which is a file


class Test:
    """A test of the build, and what is known of it without a mutant."""

    def __init__(self, entry):
        self.name = entry["name"]
        self.command, self.environment = entry["cmd"], entry["env"]
        self.folder = entry["workdir"]
        self.suites = {name.split(":")[-1] for name in entry["suite"]}
        self.seconds = 0.0
        self.reached = b""  # by number: 1 if that mutant's place is reached
        self.why = ""       # it cannot be used


def confine():
    """In the child: what it may take, and that it goes first where memory is short."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE, MOST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def memory_of(pid):
    try:
        with open("/proc/%d/statm" % pid, encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def run(test, limit_s, rooms, **environment):
    """("passed", "skipped", "failed" or "time-out", seconds) of a run in a /tmp of its own."""
    begin = time.monotonic()
    child = subprocess.Popen(rooms.enter(test.command), cwd=test.folder, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env={**os.environ, **test.environment, **environment},
                             start_new_session=True, preexec_fn=confine)
    try:
        output, stopped = follow(child, begin + limit_s)
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        status = child.wait()
        child.stdout.close()
    seconds = time.monotonic() - begin
    if stopped:
        return stopped, seconds
    passed, failed, _, _ = judge(status, output.decode(errors="replace"))
    return "failed" if failed else "passed" if passed else "skipped", seconds


def follow(child, until):
    """Its output, and by what it was stopped: the first case that fails is enough."""
    output = b""
    while True:
        left = until - time.monotonic()
        if left <= 0:
            return output, "time-out"
        if select.select([child.stdout], [], [], min(left, 0.2))[0]:
            part = os.read(child.stdout.fileno(), 1 << 16)
            if not part:
                return output, ends_late(child, until)
            output += part
            if b"\nnot ok " in output[-len(part) - 8:] or output.startswith(b"not ok "):
                return output, "failed"
        if len(output) > MOST_OUTPUT or memory_of(child.pid) > MOST_MEMORY:
            return output, "failed"
        if child.poll() is not None and not select.select([child.stdout], [], [], 0)[0]:
            return output, ""  # children of it may still hold the pipe


def ends_late(child, until):
    try:
        child.wait(max(until - time.monotonic(), 0.01))
        return ""
    except subprocess.TimeoutExpired:
        return "time-out"


class Rooms:
    """A /tmp for each run, since what is killed leaves its files, and mutants remove others'."""

    # "$1" is the new /tmp, "$2" the folder that has to stay where it is.
    SCRIPT = """kept=$2 room=$1; shift 2
        case $kept in /tmp/*) mkdir -p "$room${kept#/tmp}" &&
            mount --bind "$kept" "$room${kept#/tmp}" ;; esac &&
        mount --rbind "$room" /tmp && exec "$@" """

    def __init__(self, folder):
        self.folder = os.path.join(folder, "rooms")
        self.kept = folder
        self.count = 0
        self.can = False
        os.makedirs(self.folder, exist_ok=True)
        self.can = subprocess.run(self.enter(["true"], True), check=False,
                                  stderr=subprocess.DEVNULL).returncode == 0

    def enter(self, command, must=False):
        if not (self.can or must):
            return command
        self.count += 1
        room = os.path.join(self.folder, str(self.count))
        os.makedirs(room, exist_ok=True)
        return ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-current-user"]), "sh",
                "-c", self.SCRIPT, "sh", room, self.kept, *command]
