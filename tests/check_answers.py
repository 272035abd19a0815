"""check_answers.py - plant faults in PyTorch's own snapshots, and have ashlar-replay name them.

    python3 check_answers.py ASHLAR_REPLAY [SNAPSHOT...]

The history of each snapshot, ../shared's if none is given, is done several times over, which makes
steps of it. Then a line keeps a block of each step, or the blocks of one line and size get 5 % larger
with each: --diff and --assert name that line first. Other cases are made here. Output: TAP.
"""

import collections
import functools
import gzip
import itertools
import json
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import tap

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPS = 6
FRESH = 0x600000000000
MIB = 1 << 20


def save(path, events, segments=(), annotations=()):
    with open(path, "wb") as file:
        pickle.dump({"segments": list(segments), "device_traces": [events],
                     "external_annotations": list(annotations)}, file)  # fmt: skip
    return path


def label(event):
    """FILE:LINE (FUNCTION) of the innermost frame that is the program's."""
    own = [f for f in event["frames"] if f["filename"].endswith(".py") and "site-packages" not in f["filename"]]
    frame = own[0] if own else {"filename": "", "line": 0, "name": ""}
    return f"{'/'.join(frame['filename'].split('/')[-2:])}:{frame['line']} ({frame['name']})"


class History:
    """What is allocated and freed in a snapshot of PyTorch's."""

    def __init__(self, path):
        with gzip.open(path) as file:
            snapshot = pickle.load(file)
        self.events = [e for e in snapshot["device_traces"][0] if e["action"] in
                       ("alloc", "free_requested", "free_completed")]
        self.labels = {id(e["frames"]): label(e) for e in self.events}
        self.segments, last = snapshot["segments"], {e["addr"]: e["action"] for e in self.events}
        for block in (b for s in self.segments for b in s["blocks"] if last.get(b["address"]) == "alloc"):
            block["state"] = "inactive"  # repeated() frees what the history allocates

    def save(self, path, **planted):
        events = [{**e, "time_us": i} for i, e in enumerate(self.repeated(**planted))]
        return save(path, events, self.segments)

    def sites(self):
        """Lines and sizes, those that allocate most first."""
        sums = collections.Counter()
        for e in self.events:
            if e["action"] == "alloc" and not self.labels[id(e["frames"])].startswith(":"):
                sums[self.labels[id(e["frames"])], e["size"]] += e["size"]
        return [site for site, _ in sums.most_common()]

    def repeated(self, leak=None, grow=None):
        """The events STEPS times. At the end of each time what it left is freed, but for the first block
        of the line `leak`. Blocks of the line and size `grow` are 5 % larger each time; the first one
        stays until the next time has its own. What is planted lies elsewhere."""
        places, live, kept = itertools.count(FRESH, 1 << 32), {}, None
        for step in range(STEPS):
            has_kept = False
            for e in self.events:
                e, place, line = dict(e), e["addr"], self.labels[id(e["frames"])]
                if e["action"] == "alloc":
                    grows = (line, e["size"]) == grow
                    keeps = (grows or line == leak) and not has_kept
                    if grows or keeps:
                        e["addr"], e["size"] = next(places), e["size"] * (20 + grows * step) // 20
                    if grows and keeps:
                        yield from freed(kept)
                        kept = e
                    live[place] = None if keeps else e
                    has_kept = has_kept or keeps
                else:
                    block = live.get(place, e if step == 0 else None)
                    if block is None:  # kept, or of a time before
                        continue
                    e["addr"], e["size"] = block["addr"], block["size"]
                    if e["action"] == "free_completed":
                        live.pop(place, None)
                yield e
            for e in live.values():
                yield from freed(e)
            live.clear()


def freed(block):
    return [{**block, "action": f"free_{word}"} for word in ("requested", "completed") if block]


def replay(*words):
    """Returns the exit status, the lines of errors, and the JSON."""
    report = pathlib.Path(words[0]).with_suffix(".json")
    done = subprocess.run([sys.argv[1], *words, "--json", report], capture_output=True, text=True)
    return done.returncode, done.stderr.splitlines(), json.loads(report.read_text())


def answers_of(path, *words):
    status, errors, report = replay(path, *words)
    assert status == 0 and not errors, errors
    check_sums(report["answers"][0])
    return report["answers"][0]


def check_sums(answers):
    """What holds the peak adds up to it, in each way to cut it."""
    for cut in ("peak_by_line", "peak_by_annotation", "peak_by_size"):
        assert sum(row[1] for row in answers[cut]["rows"]) == answers["live_peak_bytes"], cut


def check_planted(history, folder, line, **planted):
    """Returns the bytes that a step leaves, and the rows of --diff."""
    path = history.save(folder / "planted.pickle", **planted)
    status, errors, report = replay(path, "--assert", "grown<=0", "--junit", folder / "junit.xml")
    assert status == 1 and len(errors) == 1 and f"{line} grows by" in errors[0], (planted, errors)
    answers = report["answers"][0]
    check_sums(answers)
    assert answers["growth_by_line"]["rows"] == [[line, answers["grown_bytes"], 1]], planted
    failure = xml.etree.ElementTree.parse(folder / "junit.xml").find("testcase/failure")
    assert failure.get("message") in errors[0], failure.attrib
    status, errors, report = replay(folder / "base.pickle", path, "--diff", "--assert", "peak<=1B")
    rows = report[0]["changes"]["rows"]
    assert rows[0][:2] == [line, None] and rows[0][2] < rows[0][3], (planted, rows[:3])
    assert status == 1 and f"{line} has" in errors[0], (planted, errors)
    return answers["grown_bytes"], rows


def check_snapshot(path, folder):
    history, copy = History(path), folder / "real.pickle.gz"  # the JSON is put beside it
    copy.write_bytes(path.read_bytes())
    real = answers_of(copy)
    base = answers_of(history.save(folder / "base.pickle"), "--assert", "grown<=0")
    assert base["steps"] == STEPS - 1 and base["live_peak_bytes"] == real["live_peak_bytes"], base
    sites = history.sites()
    for line, size in (sites[0], sites[len(sites) // 2], sites[-1]):
        check_planted(history, folder, line, leak=line)
        if size >= 20:
            grown, rows = check_planted(history, folder, line, grow=(line, size))
            larger = {size * (20 + step) // 20 for step in range(1, STEPS)}
            assert grown >= size // 20 and {row[0] for row in rows} == {line}, (grown, rows[:3])
            assert {row[1] for row in rows} - {size} == {None, *larger}, (size, rows)


def event(action, address, size, line=1, note="", file="/x/run/train.py"):
    frames = [{"filename": "/lib/python3/site-packages/torch/nn/a.py", "line": 9, "name": "forward"},
              {"filename": file, "line": line, "name": "step"}] if line else []  # fmt: skip
    return {"action": action, "addr": address, "device_free": address, "size": size, "stream": 0,
            "frames": frames, "user_metadata": note, "time_us": 0}  # fmt: skip


def check_peak(folder):
    """Own frames, nodes of autograd, metadata, annotations; a block a stream has; later blocks."""
    events = [event("segment_alloc", 0, 20 * MIB), event("alloc", 0, 3 * MIB), event("alloc", 4 * MIB, MIB, 2, "m"),
              event("free_requested", 4 * MIB, MIB, 2), event("alloc", 8 * MIB, 2 * MIB, 0),
              event("alloc", 12 * MIB, 512, 0), event("free_completed", 8 * MIB, 2 * MIB, 0),
              event("alloc", 16 * MIB, MIB)]  # fmt: skip
    events[5]["frames"] = [{"filename": "??", "line": 0, "name": name} for name in
                           ("at::_ops::mul::call(x)", "torch::autograd::generated::MulBackward0_apply_f()")]
    for i, e in enumerate(events):
        e["time_us"] = 10 * i
    spans = [{"stage": stage, "name": name, "device": 0, "time_us": at} for stage, name, at in
             (("START", "outer", 1), ("START", "inner", 15), ("END", "inner", 25), ("END", "outer", 45))]
    a = answers_of(save(folder / "a.pickle", events, annotations=spans))
    assert (a["live_peak_bytes"], a["completed_peak_bytes"]) == (5 * MIB + 512, 6 * MIB + 512), a
    assert a["peak_by_line"]["rows"] == [["run/train.py:1 (step)", 3 * MIB, 1], ["no stack", 2 * MIB, 1],
                                         ["MulBackward0", 512, 1]], a["peak_by_line"]
    assert a["peak_by_annotation"]["rows"] == [["outer", 5 * MIB, 2], ["none", 512, 1]], a["peak_by_annotation"]
    assert a["peak_by_size"]["rows"][0] == [3 * MIB, 3 * MIB, 1] and a["reserved_peak_bytes"] == 20 * MIB, a
    spans = [{"stage": stage, "name": "none", "device": 0, "time_us": at} for at in (5, 15, 16, 35, 99, 99)
             for stage in ("END", "START")]  # fmt: skip
    a = answers_of(save(folder / "a.pickle", events, annotations=spans))
    assert (a["steps"], a["steps_by"]) == (2, "annotation none"), a  # two at once, and two behind the end
    a = answers_of(save(folder / "a.pickle", events[:3]))
    assert a["peak_by_annotation"]["rows"] == [["none", 3 * MIB, 1], ["m", MIB, 1]], a["peak_by_annotation"]
    high = 0xFF00FFFFFFE00000  # as on GPUs of Intel; and a frame of which Python knows no line
    events = [event("segment_alloc", high, 2 * MIB), event("alloc", high, MIB, (1 << 64) - 1)]
    a = answers_of(save(folder / "a.pickle", events))
    assert a["peak_by_line"]["rows"] == [["run/train.py:0 (step)", MIB, 1]], a["peak_by_line"]


def check_oom(folder):
    """The largest hole lies between blocks, not across segments; one of an expandable segment may."""
    events = [event("segment_alloc", 0, 4 * MIB), event("segment_alloc", 4 * MIB, 4 * MIB),
              event("alloc", 0, 2 * MIB), event("alloc", 7 * MIB, MIB), event("oom", MIB, 8 * MIB, 7)]  # fmt: skip
    a = answers_of(save(folder / "a.pickle", events))
    assert a["out_of_memory"]["rows"] == [["run/train.py:7 (step)", 4, 8 * MIB, 3 * MIB, 8 * MIB, MIB, 3 * MIB]], a
    for e in events[:2]:
        e["action"] = "segment_map"
    out = subprocess.run([sys.argv[1], save(folder / "a.pickle", events)], capture_output=True, text=True).stdout
    assert "the largest hole 5.0 MiB" in out and "3.0 MiB less would have been served; no allocator" in out, out


def check_diff(folder):
    """Lines that have moved are the same ones; where there is one more, they are not."""
    a = save(folder / "a.pickle", [event("alloc", 0, MIB, 10), event("alloc", MIB, MIB, 20)])
    b = save(folder / "b.pickle", [event("alloc", 0, MIB, 11), event("alloc", MIB, 2 * MIB, 22)])
    rows = replay(a, b, "--diff")[2][0]["changes"]["rows"]
    assert rows == [["run/train.py:22 (step)", None, MIB, 2 * MIB, MIB, 2 * MIB],
                    ["run/train.py:22 (step)", 2 * MIB, 0, 2 * MIB, 0, 2 * MIB],
                    ["run/train.py:22 (step)", MIB, MIB, 0, MIB, 0]], rows  # fmt: skip
    save(b, [event("alloc", MIB * n, MIB, 10 * n) for n in (1, 2, 3)])
    rows = replay(a, b, "--diff")[2][0]["changes"]["rows"]
    assert rows[0][:4] == ["run/train.py:30 (step)", None, 0, MIB] and len(rows) == 2, rows


def check_gaps(folder):
    """Whichever events are lost: what fits to the others is answered for, and a line tells of the rest.
    Events that a ring had in another order get their times' again."""
    events, at = [event("segment_alloc", 0, 20 * MIB)], lambda n: n % 5 * 4 * MIB
    for step in range(12):
        events += [event("alloc", at(step), MIB, step % 3), *freed(event("", at(step + 3), MIB))[:2 * (step > 1)]]
    events += [event("segment_free", 0, 20 * MIB), event("segment_alloc", 0, 20 * MIB)]
    for i, e in enumerate(events):
        e["time_us"] = 10_000 * i
    whole, rng = answers_of(save(folder / "a.pickle", events)), random.Random(7)
    ring = events[10:] + events[:10]
    assert answers_of(save(folder / "a.pickle", ring)) == whole, "not in order"
    for _ in range(60):
        draw = rng.random()
        left = [e for e in events if rng.random() < draw and (draw < 0.9 or "free" not in e["action"])]
        out = subprocess.run([sys.argv[1], save(folder / "a.pickle", left)], capture_output=True, text=True)
        assert out.returncode == 0 and not out.stderr, (left, out.stderr)
    lost = [e for e in events if "free" not in e["action"]]  # as by skip_actions of PyTorch
    out = subprocess.run([sys.argv[1], save(folder / "a.pickle", lost)], capture_output=True, text=True).stdout
    assert "events are missing from the history" in out and "at most 5.0 MiB live" in out, out


def check_devices(folder):
    """Steps are those of the program, though an annotation names the device that is current: one that is
    idle does not grow. Of two ranks each has a device of its own. Without a history there is no peak."""
    own = [event("alloc", MIB * n, MIB) for n in range(6)]
    for n, e in enumerate(own):
        e["time_us"] = 10 * n + 9
    steps = [{"stage": "START", "name": "s", "device": 1, "time_us": 10 * n} for n in range(6)]
    a, b, kept = folder / "a.pickle", folder / "b.pickle", {"size": MIB, "state": "active_allocated"}
    segment = {"address": 0, "total_size": MIB, "blocks": [kept]}
    def saved(path, *traces):
        path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[*t] for t in traces],
                                       "external_annotations": steps}))  # fmt: skip
        return path
    status, errors, report = replay(saved(a, own, own, own[:1], []), "--assert", "grown<=0")
    assert status == 1 and [f", device {d}: grown<=0: 1.0 MiB a step" in errors[d] for d in (0, 1)], errors
    assert len(errors) == 2 and [x["steps"] for x in report["answers"]] == [5, 5, 0], errors
    diff = replay(saved(a, own[:4]), saved(b, [], [], own), "--diff")[2]
    assert [(d["device_a"], d["device_b"], d["live_peak_bytes_a"], d["live_peak_bytes_b"]) for d in diff] == [
        (0, 2, 4 * MIB, 6 * MIB)], diff
    diff = replay(saved(a, own, own), saved(b, own), "--diff")[2]  # where one has gone
    assert [(d["device_b"], d["live_peak_bytes_b"]) for d in diff] == [(0, 6 * MIB), (1, 0)], diff
    for snapshot in {"segments": [segment], "device_traces": [[]]}, [segment]:  # memory_snapshot() has no more
        a.write_bytes(pickle.dumps(snapshot))
        status, errors, report = replay(a, *[w for kind in ("peak", "grown", "reserved", "live") for w in
                                             ("--assert", f"{kind}<=1GiB")])  # fmt: skip
        assert status == 1 and len(errors) == 3 and all("no history; call torch" in e for e in errors), errors
        assert report["answers"][0]["live_bytes"] == MIB, report


def check_command(folder):
    """Exit statuses, steps by a period, and JUnit's XML of what holds and does not."""
    events = [event("alloc", 512 * i, 512, 7 + i % 2, file="b.py" if i % 2 else "/x/train.py") for i in range(20)]
    a, x = save(folder / "a.pickle", events), folder / "x.xml"
    (folder / "log.csv").write_text("Thread,Time,Action,Pointer,Size,Stream\n1,0,allocate,0x1,1,0\n")
    (folder / "a.events").write_text("ashlar-events/1\n")
    status, errors, _ = replay(a, "--assert", "peak<=1KiB", "--assert", "live<=1MiB", "--junit", x)
    assert status == 1 and errors == [f"ashlar-replay: {a}, device 0: peak<=1KiB: 10.0 KiB, 9.0 KiB too much; "
                                      "b.py:8 (step) holds 5.0 KiB"], errors
    cases = xml.etree.ElementTree.parse(x).findall("testcase")
    assert [(c.get("name"), len(c)) for c in cases] == [("peak<=1KiB", 1), ("live<=1MiB", 0)]
    status, errors, _ = replay(a, "--assert", "grown<=1023B")
    assert status == 1 and "1.0 KiB a step, 1 B too much; b.py:8 (step) grows by 512 B" in errors[0], errors
    status, errors, _ = replay(save(folder / "b.pickle", events[:4]), "--assert", "grown<=0")
    assert status == 1 and "no steps found" in errors[0], errors
    log, b = folder / "log.csv", folder / "a.events"
    for words, said in ((["--diff", a], "name both"), ([a, "--junit", x], "give one"),
                        ([a, a, "--junit", x, "--assert", "peak<=1B"], "one snapshot"),
                        ([a, "--assert", "peak<1B"], "as peak<=22GiB"), (["--diff", a, log], "log.csv: --diff"),
                        ([log, "--assert", "peak<=1B"], "log.csv: --assert is about snapshots"),
                        ([b, "--assert", "peak<=1B"], "a.events: --assert is about snapshots"),
                        (["--pack", log, "--assert", "peak<=1B"], "leave out --assert")):  # fmt: skip
        done = subprocess.run([sys.argv[1], *words], capture_output=True, text=True)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and said in done.stderr, done
    x.write_bytes(b"")
    for words, said in (([folder / "no", "--assert", "peak<=1B"], "no: No such file"), (["--diff", a, x], "empty"),
                        (["/dev/stdin"], "put it into a file"), ([x, "--assert", "live<=0"], "x.xml: empty"),
                        (["/dev/stdin", "--assert", "peak<=1B"], "/dev/stdin")):  # fmt: skip
        done = subprocess.run([sys.argv[1], *words], capture_output=True, input=a.read_bytes())
        assert done.returncode == 1 and said in done.stderr.decode() and done.stderr.count(b"\n") == 1, done


def in_a_folder(check):
    with tempfile.TemporaryDirectory() as folder:
        check(pathlib.Path(folder))


def main():
    shared = (ROOT.parent / "shared" / "traces" / "snapshots").glob("*.pickle.gz")
    cases = {"the_peak_is_cut_by_line_and_annotation": check_peak, "a_failed_request_has_its_hole": check_oom,
             "moved_lines_are_the_same": check_diff,
             "what_a_history_lacks_is_told": check_gaps, "steps_are_those_of_all_devices": check_devices,
             "the_command_line_is_checked": check_command}  # fmt: skip
    for path in sorted(map(pathlib.Path, sys.argv[2:] or shared)):
        name = f"what_is_planted_in_{path.name.split('.')[0]}_is_named_first"
        cases[name] = functools.partial(check_snapshot, path)
    return tap.run([(name, functools.partial(in_a_folder, check)) for name, check in cases.items()])


if __name__ == "__main__":
    sys.exit(main())
