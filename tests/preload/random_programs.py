#!/usr/bin/env python3
"""Compare programs of drawn requests with themselves under the preload:
random_programs.py [--build BUILD] [--programs N] [--seconds S] [--seed SEED] [--acts N]
[--words WORD...]

For N programs (tests/preload/program_random.c), or for S seconds: the least device on which the
program runs alone is looked for; under libashlar-preload.so it must run on one that is larger by
2 MiB for each zone of addresses (or the next one on which it runs alone), in three modes of the
device, and be told of as much free memory; and on one that is too small nothing may happen but
refusals. What fails is printed.
"""

import argparse
import collections
import os
import random
import re
import subprocess
import sys
import time

PAGE_MIB = 2
ROOM_MIB = 1024  # where every program runs
ENDS = {2: "usage", 3: "refused", 4: "an error", 5: "overwritten"}
INFO = re.compile(r"^(\d+) .*info: (\d+) MiB free", re.M)
NEEDS = re.compile(r"^done (\d+), refused (\d+), peak (\d+) MiB, zones (\d+)$", re.M)

# What is wrong, and the run that shows it.
Fault = collections.namedtuple("Fault", "kind mib mode preload words run")


class Run:
    """One run of a program."""

    def __init__(self, status, output):
        self.status, self.output = status, output
        found = NEEDS.search(output)
        self.done, _, self.peak, self.zones = map(int, found.groups()) if found else (0, 0, 0, 0)
        self.free = dict((int(number), int(mib)) for number, mib in INFO.findall(output))

    def how(self):
        return ENDS.get(self.status, "signal %d" % -self.status if self.status < 0 else
                        "status %d" % self.status)


class Program:
    """A program of a seed."""

    def __init__(self, build, seed, acts, words):
        draw = random.Random(seed)
        self.build, self.seed, self.acts = build, seed, acts
        self.done = 0
        self.words = words + [word for word in ("any", "plain", "devices") if draw.random() < 0.4]
        self.overhead = draw.choice([0, 0, 2, 8])
        self.serves = draw.choice(["on", "on", "on", "ipc"])
        self.modes = ["eager", "adversarial,seed=%d" % (seed % 1000 + 1), "overlap"]

    def command(self, words=()):
        return [os.path.join(self.build, "tests/preload/program_random"), str(self.seed),
                str(self.acts), *self.words, *words]

    def settings(self, mib, mode, preload):
        given = {"LD_LIBRARY_PATH": os.path.join(self.build, "tests/cuda"),
                 "ASHLAR_SOFT_DEFAULTS": "strict=on",
                 "ASHLAR_SOFT": "memory=%dMiB,devices=%d,overhead=%dMiB,mode=%s" % (
                     mib, 1 + ("devices" in self.words), self.overhead, mode)}
        if preload:
            given["ASHLAR_PRELOAD"] = self.serves
            given["LD_PRELOAD"] = os.path.join(self.build,
                                               "allocator/dropin/libashlar-preload.so")
        return given

    def run(self, mib, mode="eager", preload=False, words=()):
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith("ASHLAR_")}
        try:
            ran = subprocess.run(self.command(words), stdin=subprocess.DEVNULL,
                                 env={**clean, **self.settings(mib, mode, preload)},
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                                 timeout=60)
            return Run(ran.returncode, ran.stdout.decode(errors="replace"))
        except subprocess.TimeoutExpired as late:
            return Run(124, (late.stdout or b"").decode(errors="replace"))

    def least(self, peak):
        """The smallest device on which it runs alone, in MiB."""
        def runs(mib):
            return self.run(mib).status == 0
        below = peak - PAGE_MIB  # what is live at a time does not fit
        above = below + PAGE_MIB
        while not runs(above):
            below, above = above, min(above + max(above - peak, PAGE_MIB) * 2, ROOM_MIB)
            if below == ROOM_MIB:
                return None
        while above - below > PAGE_MIB:
            middle = (above + below) // 2 // PAGE_MIB * PAGE_MIB
            below, above = (below, middle) if runs(middle) else (middle, above)
        return above

    def enough(self, mib, mode):
        """The smallest device, of `mib` MiB or more, on which it runs alone in a mode: it may fail
        on one that is larger than its least, where a pool keeps more until the driver lacks it."""
        while mib < ROOM_MIB and self.run(mib, mode).status != 0:
            mib += PAGE_MIB
        return mib

    def faults(self):
        """What is wrong with it. Counts in `done` what it did under the preload."""
        alone = self.run(ROOM_MIB)
        least = self.least(alone.peak) if alone.status == 0 else None
        if least is None:
            yield Fault("it fails alone", ROOM_MIB, "eager", False, (), alone)
            return
        room, small = PAGE_MIB * alone.zones, max(alone.peak * 2 // 3, 16)
        for mode in self.modes:
            for mib, words in [(self.enough(least + room, mode), ()), (small, ("on",))]:
                run = self.run(mib, mode, True, words)
                self.done += run.done
                if run.status != 0:
                    yield Fault(run.how(), mib, mode, True, words, run)
                elif not words and mode == "eager":
                    yield from self.told_less(run, mib, room)

    def told_less(self, run, mib, room):
        """Less free memory than alone on such a device, and not for its zones."""
        given = self.run(mib)
        for number, free in run.free.items():
            if free < given.free.get(number, 0) - room:
                run.output += "at %d: alone %d MiB are free\n" % (number, given.free[number])
                yield Fault("told of less", mib, "eager", True, (), run)
                return


def tell(program, fault):
    settings = program.settings(fault.mib, fault.mode, fault.preload)
    again = " ".join(["%s=%s" % item for item in settings.items()] + program.command(fault.words))
    return ["program %d: %s" % (program.seed, fault.kind), "again: " + again,
            *("    " + line for line in fault.run.output.splitlines()[-60:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    # ninja puts a copy beside the program.
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--build", default=os.environ.get("ASHLAR_BUILD", here))
    parser.add_argument("--programs", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--acts", type=int, default=300)
    parser.add_argument("--words", nargs="*", default=[], help="for each program: no-captures ...")
    parser.add_argument("--tap", action="store_true", help="as one case of a test")
    given = parser.parse_args()
    if not os.path.exists(os.path.join(given.build, "tests/preload/program_random")):
        print("1..0 # SKIP the preload is not built for this processor")
        return 0
    mark = "# " if given.tap else ""
    until = time.monotonic() + given.seconds
    programs = done = faults = 0
    while programs < given.programs or time.monotonic() < until:
        program = Program(given.build, given.seed + programs, given.acts, given.words)
        fault = next(program.faults(), None)
        programs, done = programs + 1, done + program.done
        if fault is not None:
            faults += 1
            print("\n".join(mark + line for line in tell(program, fault)), flush=True)
    print("%sprograms: %d programs, %d requests, %d faults" % (mark, programs, done, faults))
    if given.tap:
        print("%sok 1 - random_programs\n1..1" % ("not " if faults else ""))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
