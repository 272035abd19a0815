"""check_events.py - hold tools/snapshot_events.py to what it says of PyTorch's snapshots.

    python3 check_events.py [SNAPSHOT.pickle.gz...]

The events of each snapshot, done again from the segments that the tool found for the beginning, end
at the segments and blocks that the snapshot has. Snapshots of all versions are drawn by seed, with a
beginning that is known; those given, or in ../shared, are PyTorch's own. What is no snapshot, or a
hostile one, gets one line, and nothing of it is run.
"""

import bisect
import copy
import gzip
import importlib.util
import os
import pathlib
import pickle
import random
import sys
import tempfile

import tap

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOL = ROOT / "tools" / "snapshot_events.py"
MIB = 1 << 20
WORDS = {"active": "active_allocated", "pending": "active_pending_free", "inactive": "inactive"}
LINES = [{"filename": "train.py", "line": line, "name": "step"} for line in range(9)]
OF_C = {"filename": "??", "line": 0, "name": "at::empty(int)"}
FRAMES = [[OF_C] + [LINES[line] for line in (1, i, 3, 4, 5)] for i in range(9)]  # alike but for one
spec = importlib.util.spec_from_file_location("snapshot_events", TOOL)
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)


class Memory:
    """Segments and their blocks in use; events change them, as those of PyTorch's allocator would."""

    def __init__(self, settings):
        self.rounded, self.most_split = tool.rounding(settings), settings.get("max_split_size", -1)
        self.segments, self.blocks = {}, {}  # address: [size, stream, kind, pool, is_expandable]
        self.starts = []  # of blocks                    [size, requested, state]

    def segment_of(self, address):
        return next(s for s, x in self.segments.items() if s <= address < s + x[0])

    def ranges(self, start):
        """A segment's blocks and the free ranges between them: address, size, requested, state."""
        at, end = start, start + self.segments[start][0]
        inside = self.starts[bisect.bisect_left(self.starts, start):bisect.bisect_left(self.starts, end)]
        for block in inside + [end]:
            if block > at:
                yield at, block - at, 0, "inactive"
            if block < end:
                yield (block, *self.blocks[block])
                at = block + self.blocks[block][0]

    def put(self, address, *block):
        bisect.insort(self.starts, address)
        self.blocks[address] = list(block)

    def apply(self, action, address, size, stream, pool, kind=None):
        if action == "alloc":
            start = self.segment_of(address)
            segment = self.segments[start]
            room = next(r[1] for r in self.ranges(start) if r[0] == address and r[3] == "inactive")
            taken = self.rounded(size)
            segment[2] = segment[2] or ("small" if taken <= MIB else "large")
            if segment[2] == "large" and not segment[4] and \
                    (room - taken <= MIB or 0 < self.most_split <= taken):
                taken = room
            assert taken <= room and segment[1] == stream
            self.put(address, taken, size, "active")
        elif action == "free_requested":
            assert self.blocks[address][1:] == [size, "active"]
            self.blocks[address][2] = "pending"
        elif action == "free_completed":
            assert self.blocks.pop(address)[1:] == [size, "pending"]
            self.starts.remove(address)
        elif action in ("segment_alloc", "segment_map"):
            new, end = [size, stream, kind, pool, int(action == "segment_map")], address + size
            for start, old in list(self.segments.items()):
                if new[4] and old[4] and old[1] == stream and (start + old[0] == address or start == end):
                    del self.segments[start]
                    address, new = min(address, start), [new[0] + old[0], *old[1:]]
            self.segments[address] = new
        elif action in ("segment_free", "segment_unmap"):
            start, end = self.segment_of(address), address + size
            assert any(r[0] <= address and end <= r[0] + r[1] and r[3] == "inactive"
                       for r in self.ranges(start))  # fmt: skip
            old = self.segments.pop(start)
            for first, last in ((start, address), (end, start + old[0])):
                if last > first:
                    self.segments[first] = [last - first, *old[1:]]


class Program(Memory):
    """Draws what a program does on a device, and keeps the events as PyTorch writes them."""

    def __init__(self, seed, settings):
        super().__init__(settings)
        self.seed, self.rng, self.events, self.top = seed, random.Random(seed), [], 1 << 40

    def happen(self, action, address, size, stream, pool, kind=None):
        self.apply(action, address, size, stream, pool, kind)
        self.events.append({
            "action": action, "addr": address, "size": size, "stream": stream, "time_us": len(self.events),
            "pool_id": tuple(map(int, pool.split(":"))), "compile_context": "N/A",
            "user_metadata": "a\tb\\c\n", "frames": self.rng.choice(FRAMES)})  # fmt: skip

    def free(self, action, address):
        _, stream, _, pool, _ = self.segments[self.segment_of(address)]
        self.happen(action, address, self.blocks[address][1], stream, pool)

    def allocate(self, size):
        kind, stream = "small" if self.rounded(size) <= MIB else "large", self.rng.choice((0, 7))
        pool = self.rng.choice(("0:0", "0:1"))
        room = [r[0] for s, x in self.segments.items() if x[1:4] == [stream, kind, pool]
                for r in self.ranges(s) if r[3] == "inactive" and r[1] >= self.rounded(size)]  # fmt: skip
        if not room:
            room, is_expandable = [self.top], self.rng.random() < 0.5
            chunk = 2 * MIB if kind == "small" else 20 * MIB
            for _ in range(1 + is_expandable):
                self.happen("segment_map" if is_expandable else "segment_alloc", self.top, chunk, stream,
                            pool, kind)  # fmt: skip
                self.top += chunk
            self.top += 64 * MIB
        self.happen("alloc", self.rng.choice(room), size, stream, pool)

    def step(self, count):
        """For a while it allocates, then it frees, so that whole segments become free."""
        draw = self.rng.random()
        addresses = list(self.blocks)[1:]  # the first one is kept
        if draw < (0, 0.6, 0)[count // 40 % 3] or not self.blocks:
            self.allocate(self.rng.choice((self.rng.randrange(1, MIB), self.rng.randrange(MIB + 1, 9 * MIB))))
        elif draw < 0.85 and addresses:
            address = self.rng.choice(addresses)
            self.free("free_requested" if self.blocks[address][2] == "active" else "free_completed", address)
        else:
            start = self.rng.choice(list(self.segments))
            size, stream, kind, pool, is_expandable = self.segments[start]
            chunk = 2 * MIB if kind == "small" else 20 * MIB
            whole = [r[3] for r in self.ranges(start)] == ["inactive"]
            half = size // 2 if is_expandable and size % (2 * chunk) == 0 else 0
            if whole:
                self.happen("segment_unmap" if is_expandable else "segment_free", start + half, size - half,
                            stream, pool)  # fmt: skip

    def snapshot(self, first_event):
        keys = "address", "size", "requested_size", "state", "frames"
        return {
            "segments": [
                {"device": 1, "address": start, "total_size": size, "stream": stream, "segment_type": kind,
                 "segment_pool_id": tuple(map(int, pool.split(":"))), "is_expandable": bool(is_expandable),
                 "frames": FRAMES[0][:self.seed % 2],
                 "blocks": [dict(zip(keys, (*r[:3], WORDS[r[3]], FRAMES[0][self.seed % 2 * 9:])))
                            for r in self.ranges(start)]}
                for start, (size, stream, kind, pool, is_expandable) in self.segments.items()],
            "device_traces": [[], self.events[first_event:]],
            "external_annotations": [{"stage": "START", "name": "s", "device": 1,
                                      "time_us": first_event + 50}],
        }  # fmt: skip


def records_of(snapshot):
    records = {"setting": [], "event": []}
    for line in list(tool.History(copy.deepcopy(snapshot)).records())[1:]:
        word, *fields = line.rstrip("\n").split("\t")
        records.setdefault(word, []).append(fields)
    return records


def memory_of(records, device, settings):
    memory, ends = Memory(settings), {}
    for number, address, size, stream, kind, pool, is_expandable in records.get("segment", []):
        if int(number) == device:
            memory.segments[int(address, 16)] = [int(size), int(stream), kind, pool, int(is_expandable)]
    for number, address, size, requested, state in records.get("block", []):
        if int(number) == device:
            start = memory.segment_of(int(address, 16))
            assert ends.get(start, start) == int(address, 16), "blocks leave a gap"
            ends[start] = int(address, 16) + int(size)
            if state != "inactive":
                memory.put(int(address, 16), int(size), int(requested), state)
    assert ends == {s: s + x[0] for s, x in memory.segments.items()}, "blocks do not fill segments"
    return memory


def check_walk(snapshot, records, device, settings):
    """Do the events again, from the beginning to the end: that is what is there without a history."""
    memory = memory_of(records, device, settings)
    last = memory_of(records_of({**snapshot, "device_traces": []}), device, settings)
    for number, action, address, size, stream, _, pool in records["event"]:
        if int(number) == device:
            memory.apply(action, int(address, 16), int(size), int(stream), pool)
    assert memory.blocks == last.blocks
    for start, segment in memory.segments.items():
        known = last.segments.pop(start)
        assert segment[:2] + segment[4:] == known[:2] + known[4:] and segment[2] in (None, known[2])
    assert not last.segments and "history_missing" not in dict(records["setting"])


def older(snapshot, version):
    """What a version of PyTorch wrote of it."""
    def without(record, *keys):
        return {key: value for key, value in record.items() if key not in keys}

    late = [key for key, since in LATER.items() if since > version]
    snapshot = without(snapshot, *late)
    snapshot["device_traces"] = [[without(e, *late) for e in t] for t in snapshot["device_traces"]]
    snapshot["segments"] = [without(s, *late) for s in snapshot["segments"]]
    if version < 2:
        for segment in snapshot["segments"]:
            segment["blocks"] = [
                {"size": b["size"], "state": b["state"], **({} if b["state"] == "inactive" else {
                    "history": [{"addr": b["address"], "real_size": b["requested_size"],
                                 "frames": b["frames"]}]})} for b in segment["blocks"]]
    return snapshot


# The minor version since which PyTorch 2 writes a key.
LATER = {"allocator_settings": 2, "segment_pool_id": 2, "time_us": 3, "user_metadata": 6,
         "external_annotations": 7, "compile_context": 8, "pool_id": 11}  # fmt: skip


def check_versions(seed):
    """The beginning is the one that was, whichever version wrote the snapshot."""
    settings = {"roundup_power2_divisions": {str(1 << i): 4 * (i == 2) for i in range(16)}}
    for version in (1, 2, 3, 6, 7, 8, 11):
        program = Program(seed, settings if version > 1 else {})
        for count in range(1075):
            if count == 550:
                first_event = len(program.events)
                segments, blocks = copy.deepcopy((program.segments, program.blocks))
            program.step(count)
        snapshot = older({**program.snapshot(first_event), "allocator_settings": settings}, version)
        records = records_of(snapshot)
        check_walk(snapshot, records, 1, snapshot.get("allocator_settings", {}))
        begin = memory_of(records, 1, {})
        assert begin.segments == segments or version < 11  # earlier ones do not tell pools of events
        assert {a: b[1:] for a, b in begin.blocks.items()} == {a: b[1:] for a, b in blocks.items()}
        assert all(0 <= blocks[a][0] - b[0] <= MIB for a, b in begin.blocks.items())
        assert len(records["event"]) == len(program.events) - first_event
        history = tool.History(copy.deepcopy(snapshot))
        lines = {tuple(line for _, line, _ in stack) for stack in history.stacks}
        assert lines == {()} | {(1, i, 3, 4, 5) for i in range(9)}
        assert {f[::2] for stack in history.stacks for f in stack} == {("train.py", "step")}
        assert history.devices[1].annotations == [(50 * (version >= 3), "START", "s")] * (version >= 7)
        assert (version >= 6) == all(e[6] == "a\tb\\c\n" for e in history.devices[1].events)
    for skipped in "free_requested", "free_completed":  # skip_actions of PyTorch
        trace = [e for e in program.events[first_event:] if e["action"] != skipped]
        begin = memory_of(records_of({**snapshot, "device_traces": [[], trace]}), 1, {})
        assert {a for a, b in blocks.items() if b[2] == "active"} <= set(begin.blocks) <= set(blocks)
        assert skipped == "free_completed" or {b[2] for b in begin.blocks.values()} == {"active"}
    del snapshot["device_traces"][1][-1]
    snapshot["device_traces"][1].append({"action": "alloc", "addr": 4096, "size": 1, "stream": 0})
    assert dict(records_of(snapshot)["setting"])["history_missing"] != "0"
    gone = [{"action": f"segment_{word}", "addr": size << 10, "size": size} for word, size in
            (("free", 2 * MIB), ("free", 20 * MIB), ("unmap", 4 * MIB), ("unmap", 40 * MIB))]  # fmt: skip
    records = records_of({"segments": [], "device_traces": [gone]})
    assert [s[4] for s in records["segment"]] == ["small", "small", "large", "large"]  # by address
    hole = {"action": "segment_map", "addr": 20 * MIB, "size": 20 * MIB}
    whole = {"address": 0, "total_size": 60 * MIB, "is_expandable": True,
             "blocks": [{"size": 60 * MIB, "state": "inactive"}]}  # fmt: skip
    records = records_of({"segments": [whole], "device_traces": [[hole]]})
    assert [s[1:3] for s in records["segment"]] == [["0x0", "20971520"], ["0x2800000", "20971520"]]
    rounded = tool.rounding(settings)
    assert [rounded(n) for n in (0, 512, 513, MIB, 4 * MIB, 4 * MIB + 1, 6 * MIB + 1, 8 * MIB + 1)] == [
        512, 512, 1024, MIB, 4 * MIB, 5 * MIB, 7 * MIB, 8 * MIB + 512]  # fmt: skip


def check_real(path):
    """What PyTorch wrote, and the same with a part of its history cut off."""
    snapshot = tool.read(path)
    traces = snapshot["device_traces"]
    for share in (0, 0.1, 0.6, 1):
        snapshot["device_traces"] = [trace[int(share * len(trace)):] for trace in traces]
        records = records_of(snapshot)
        check_walk(snapshot, records, 0, snapshot["allocator_settings"])


def said_of(data, scratch):
    """Run the tool on a file of these bytes. Returns its status, and what it wrote to stderr."""
    (scratch / "given").write_bytes(data)
    kept, said = os.dup(2), os.open(scratch / "said", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 2)
    status = tool.main([str(scratch / "given"), str(scratch / "out")])
    os.dup2(kept, 2)
    os.close(kept)
    os.close(said)
    text = (scratch / "said").read_text()
    assert (status, text.count("\n"), len(text) < 500) in ((0, 0, True), (1, 1, True)), (status, text)
    return status, text


def refuses(scratch, data, words):
    status, text = said_of(data, scratch)
    assert status == 1 and words in text, (words, text)


def small_snapshot():
    program = Program(1, {})
    for count in range(50, 60):
        program.step(count)
    return {**program.snapshot(2), "allocator_settings": {"max_split_size": -1}}


def check_hostile(scratch):
    mark = str(scratch / "was_run").encode()
    text = b"X" + (len(mark) + 6).to_bytes(4, "little") + b"touch " + mark
    for data in (b"cposix\nsystem\n" + text + b"\x85R.", b"(" + text + b"iposix\nsystem\n.",
                 b"(cposix\nsystem\n" + text + b"o.", b"cposix\nsystem\n)\x81.", b"cos\nenviron\n}b.",
                 b"\x8c\x05posix\x8c\x06system\x93" + text + b"\x85R."):  # fmt: skip
        refuses(scratch, b"\x80\x04" + data, "nothing was run")
    for data in (b"Px\n.", b"K\x01Q."):
        refuses(scratch, b"\x80\x02" + data, "persistent")
    assert not pathlib.Path(os.fsdecode(mark)).exists()
    huge = (1 << 63).to_bytes(8, "little")
    for data in (b"\x8d" + huge, b"\x8e" + huge, b"\x96" + huge, b"\x95" + huge, b"\x8b\xff\xff\xff\x7f",
                 b"r\xff\xff\xff\xff", b"}r\xff\xff\xff\x7f.", b"}r\xff\xff\xff\x0f.", b"}p999999999999\n.",
                 b"\x82\x01.", b"(" * 1000000, b"]" * 1000000 + b".", b"I" + b"9" * 100000 + b"\n.",
                 b"})" + b"\x85" * 3000000 + b"Ns."):  # fmt: skip
        refuses(scratch, b"\x80\x04" + data, "snapshot_events.py: ")
    refuses(scratch, gzip.compress(b"\x80\x04" + b"]" * (64 << 20), 1), "memory")
    refuses(scratch, b"", "no pickle")
    refuses(scratch, gzip.compress(b"Thread,Time,Action\n"), "unpack it: zcat")
    refuses(scratch, pickle.dumps([1]), "segments")
    event = {"action": "alloc", "addr": 0, "size": 1}
    block = {"size": 512, "state": "inactive"}
    for segment, trace, words in (
            ({"total_size": 1024}, [event], "segment 0"), ({"address": -1}, [event], "segment 0"),
            ({}, [{**event, "action": "x"}, event], "event 0"),
            ({}, [event, {**event, "addr": -1}], "event 1"),
            ({}, [{**event, "size": 1 << 64}], "event 0"), ({}, [{**event, "action": "new"}], '"new"'), ({}, [7], "event 0")):  # fmt: skip
        segment = {"address": 0, "total_size": 512, "blocks": [block], **segment}
        refuses(scratch, pickle.dumps({"segments": [segment], "device_traces": [trace]}), words)


def check_broken(scratch):
    """Cut at each byte, with a byte changed, with one value in it another."""
    rng, snapshot = random.Random(7), small_snapshot()
    whole = pickle.dumps(snapshot, 4)
    assert said_of(whole, scratch) == (0, "")
    assert said_of(gzip.compress(pickle.dumps(snapshot, 2)), scratch) == (0, "")
    for end in range(len(whole)):
        refuses(scratch, whole[:end], "given: ")
        if end % 4 == 0:
            refuses(scratch, gzip.compress(whole)[:end // 4], "given: ")
    for _ in range(300):
        changed = bytearray(whole)
        changed[rng.randrange(len(whole))] = rng.randrange(256)
        said_of(bytes(changed), scratch)
    for _ in range(500):
        changed = copy.deepcopy(snapshot)
        holder = changed
        while True:
            key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            if not isinstance(holder[key], (dict, list)) or not holder[key] or rng.random() < 0.1:
                break
            holder = holder[key]
        holder[key] = rng.choice((None, -1, 1 << 63, 1 << 5000, "\ud800", [], {}, 1.5, [[1]], {"a": 2}, 0))
        said_of(pickle.dumps(changed), scratch)


def check_all(check, items):
    for item in items:
        check(item)


def main():
    shared = (ROOT.parent / "shared" / "traces" / "snapshots").glob("*.pickle.gz")
    real = sorted(map(pathlib.Path, sys.argv[1:] or shared))
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        return tap.run([
            ("a_beginning_is_found_for_each_version", lambda: check_all(check_versions, range(10))),
            ("hostile_pickles_get_one_line", lambda: check_hostile(scratch)),
            ("broken_snapshots_get_one_line", lambda: check_broken(scratch)),
            ("real_histories_end_where_they_should",
             lambda: check_all(check_real, real) if real else "no ../shared")])


if __name__ == "__main__":
    sys.exit(main())
