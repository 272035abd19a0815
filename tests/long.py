"""Look for faults for long: long.py BUILD FUZZ [SECONDS [SEED [PART...]]], or
--targets

For SECONDS (3600), on all processors: the campaigns, the random tests and the fuzz targets, in
programs of the folders BUILD (Meson's) and FUZZ (build/ is libFuzzer's, corpus/ is kept), or only
the PARTs named. SEED is the first seed; without it, or with 0, the clock gives one. Prints each
part's rate; a part that fails is shown with what repeats it. --targets prints what ninja has to make.
"""

import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LATEST_S = 900  # so long after its time, a program hangs
SEEDS_APART = 1 << 20  # of a part that runs on several processors

# A program takes its seed from `words` or ASHLAR_SEED, and its time from `words` if {seconds} is in
# it; else it is run again and again. `seeds`: how many seeds a run goes through; `done`: what it
# says it did, or a number that every run does; `weight`: its share of the time.
Part = collections.namedtuple("Part", "name path words environment seeds unit done weight")

# One line for each campaign program, which runs for so long as it is told:
#   Part("stone", "tests/test_stone", "--seconds {seconds} --seed {seed}", {}, 1, "operations",
#        r"^stone: (\d+) operations", 10),
CAMPAIGNS = [
    Part("world", "tests/test_world", "--seconds {seconds} --seed {seed} --mode adversarial", {}, 1,
         "operations", r"^world: (\d+) operations", 10),
    Part("programs", "tests/preload/random_programs",
         "--seconds {seconds} --seed {seed} --acts 600", {}, 1, "requests",
         r"^programs: \d+ programs, (\d+) requests", 4),
    Part("thread_orders", "tests/orders/test_thread_orders", "--seconds {seconds} --seed {seed}", {},
         1, "orders", r"^# orders: \d+ programs, (\d+) orders", 2),
]
MODELS = [
    Part("step_model", "tests/test_step_model", "", {}, 1, "episodes", r"^ok \d+", 2),
]
FUZZ = ("-max_total_time={seconds} -seed={seed} -max_len=1024 -timeout=20 -print_final_stats=1 "
        "-artifact_prefix={fuzz}/{name}- {fuzz}/corpus/{name}")


def find_fuzzers():
    """Every fuzz target that there is a source of."""
    for file in sorted(os.listdir(os.path.join(ROOT, "tests", "fuzz"))):
        if file.startswith("fuzz_") and file.endswith(".c"):
            name = file[len("fuzz_"):-len(".c")]
            yield Part(name, "tests/fuzz/fuzz_" + name, FUZZ, {}, 1, "inputs",
                       r"number_of_executed_units: *(\d+)", 0.25)


class Outcome:
    def __init__(self, part, seed):
        self.part = part
        self.seed = seed
        self.done = self.runs = 0
        self.begin = time.monotonic()
        self.seconds = 0.0
        self.failure = ""

    def line(self):
        return "%-16s %12d %-10s in %5d s, %s/s%s" % (
            self.part.name, self.done, self.part.unit, self.seconds, short(self.rate()),
            ": FAILED" if self.failure else "")

    def rate(self):
        return self.done / max(self.seconds, 0.001)


def short(number):
    return "%d" % number if number >= 100 else "%.1f" % number


class Campaign:
    def __init__(self, build, fuzz, seconds, seed, names):
        self.build, self.fuzz = os.path.abspath(build), os.path.abspath(fuzz)
        self.seconds, self.seed = seconds, seed
        known = [*CAMPAIGNS, *MODELS, *find_fuzzers()]
        unknown = set(names) - {part.name for part in known}
        if unknown:
            sys.exit("long: no part %s; there are %s" % (
                ", ".join(sorted(unknown)), " ".join(part.name for part in known)))
        self.parts = [part for part in known if not names or part.name in names]
        # The sanitizer's fixed shadow and a kernel's widest address randomisation do not agree.
        can = subprocess.run(["setarch", "-R", "true"], stderr=subprocess.DEVNULL, check=False)
        self.runner = ["setarch", "-R"] if can.returncode == 0 else []

    def shares(self):
        """A list for each processor, of parts with a first seed and seconds. Where there are more
        processors than parts, a part runs on several."""
        lists = [[] for _ in range(os.cpu_count() or 1)]
        for copy in range(max(len(lists) // len(self.parts), 1)):
            for part in sorted(self.parts, key=lambda part: -part.weight):
                shortest = min(lists, key=lambda parts: sum(p.weight for p, _ in parts))
                shortest.append((part, self.seed + copy * SEEDS_APART))
        for parts in filter(None, lists):
            whole = sum(part.weight for part, _ in parts)
            yield [(part, seed, max(self.seconds * part.weight / whole, 1)) for part, seed in parts]

    def command(self, part, seconds, seed):
        if part.words is FUZZ:
            words = [*self.runner, os.path.join(self.fuzz, "build", part.path)]
        else:
            words = [os.path.join(self.build, part.path)]
        said = part.words.format(seconds=int(seconds) or 1, seed=seed % (1 << 31), fuzz=self.fuzz,
                                 name=part.name)
        return words + said.split()

    def run(self, part, seed, seconds):
        outcome = Outcome(part, seed)
        if part.words is FUZZ:
            corpus = os.path.join(self.fuzz, "corpus", part.name)
            os.makedirs(corpus, exist_ok=True)
            subprocess.run([os.path.join(self.fuzz, "build/tests/fuzz/replay_" + part.name),
                            "--seeds", corpus], check=True)
        until = outcome.begin + seconds
        while not outcome.failure and (outcome.runs == 0 or time.monotonic() < until):
            self.run_once(outcome, self.command(part, seconds, seed), seed)
            seed += part.seeds
            if "{seconds}" in part.words:
                break
        outcome.seconds = time.monotonic() - outcome.begin
        print(outcome.line(), flush=True)
        return outcome

    def run_once(self, outcome, command, seed):
        part = outcome.part
        given = {"ASHLAR_SEED": str(seed), "ASHLAR_SOURCE": ROOT, **part.environment}
        try:
            ran = subprocess.run(command, env={**os.environ, **given}, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                                 timeout=2 * self.seconds + LATEST_S)
            output, how = ran.stdout, "status %d" % ran.returncode if ran.returncode else ""
        except subprocess.TimeoutExpired as late:
            output, how = late.stdout or b"", "it did not end"
        output = output.decode(errors="replace")
        outcome.runs += 1
        outcome.done += count(part.done, output)
        if not how and count(part.done, output) == 0:
            how = "it does not say what it did"
        if how:
            settings = " ".join("%s=%s" % item for item in given.items())
            outcome.failure = "\n".join([*output.splitlines()[-40:], how,
                                         "again: %s %s" % (settings, " ".join(command))])

    def run_all(self):
        def run_share(share):
            return [self.run(*entry) for entry in share]
        shares = list(self.shares())
        with concurrent.futures.ThreadPoolExecutor(len(shares)) as pool:
            return [outcome for done in pool.map(run_share, shares) for outcome in done]


def count(done, output):
    """A number as it is; else the sum of what the expression finds, or how often it is found."""
    if isinstance(done, int):
        return done
    found = re.findall(done, output, re.M)
    return sum(int(text) if text.isdigit() else 1 for text in found)


def main(build, fuzz, seconds="3600", seed="0", *names):
    os.nice(max(10 - os.nice(0), 0))
    first = int(seed) or int(time.time()) * 100
    campaign = Campaign(build, fuzz, int(seconds), first, names)
    print("seed %d" % first, flush=True)
    outcomes = campaign.run_all()
    failures = [outcome for outcome in outcomes if outcome.failure]
    for outcome in failures:
        print("--- %s\n%s" % (outcome.part.name, outcome.failure))
    return 1 if failures else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--targets"]:
        print(*(part.path for part in [*CAMPAIGNS, *MODELS]))
    else:
        sys.exit(main(*sys.argv[1:]))
