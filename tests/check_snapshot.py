"""check_snapshot.py - have tools/memory_viz.py make what PyTorch's viewers read, and hold it to what
they rely on.

    python3 check_snapshot.py MEMORY.json EXPRESSION

EXPRESSION is true of the snapshot s, its segments, its blocks, the trace of its device, and the file.
"""

import json
import pathlib
import pickle
import subprocess
import sys
import tempfile

TOOL = pathlib.Path(__file__).resolve().parents[1] / "tools" / "memory_viz.py"
SEGMENT = {
    "device", "address", "total_size", "allocated_size", "active_size", "requested_size",
    "stream", "segment_type", "segment_pool_id", "is_expandable", "frames", "blocks",
}  # fmt: skip
BLOCK = {"address", "size", "requested_size", "state", "frames"}
EVENT = {"action", "size", "stream", "time_us", "compile_context", "user_metadata", "frames"}
SETTINGS = {
    "PYTORCH_CUDA_ALLOC_CONF", "max_split_size", "garbage_collection_threshold",
    "expandable_segments", "pinned_num_register_threads", "release_lock_on_cudamalloc",
    "pinned_use_cuda_host_register", "graph_capture_record_stream_reuse",
    "roundup_power2_divisions",
}  # fmt: skip


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError("refused: %s.%s" % (module, name))

    def persistent_load(self, pid):
        raise pickle.UnpicklingError("refused: %r" % (pid,))


def check_segment(segment):
    assert set(segment) == SEGMENT, segment.keys()
    blocks = segment["blocks"]
    active = [b for b in blocks if b["state"] == "active_allocated"]
    address = segment["address"]
    for block in blocks:
        assert set(block) == BLOCK, block.keys()
        assert block["state"] in ("active_allocated", "active_pending_free", "inactive")
        assert block["address"] == address and block["size"] > 0 and block["frames"] == []
        assert (block["state"] == "active_allocated") == (block["requested_size"] > 0)
        assert block["requested_size"] <= block["size"]
        address += block["size"]
    assert address - segment["address"] == segment["total_size"]
    # The summary of segments: what is free outside and inside of blocks, and what is asked for.
    outside = sum(b["size"] for b in blocks if b["state"] != "active_allocated")
    inside = sum(b["size"] - b["requested_size"] for b in active)
    requested = sum(b["requested_size"] for b in active)
    assert outside + inside + requested == segment["total_size"]
    assert segment["allocated_size"] == segment["active_size"] == requested + inside
    assert segment["requested_size"] == requested
    assert segment["segment_type"] in ("large", "small") and segment["segment_pool_id"] == (0, 0)
    assert segment["is_expandable"] is True and segment["stream"] == 0


def check_event(event):
    key = "device_free" if event["action"] == "oom" else "addr"
    assert set(event) == EVENT | {key}, event.keys()
    assert event["action"] in (
        "alloc", "free_requested", "free_completed", "segment_map", "segment_unmap", "oom",
    )  # fmt: skip
    for name in (key, "size", "stream", "time_us"):
        assert type(event[name]) is int and event[name] >= 0, (name, event[name])
    assert event["frames"] == [] and event["compile_context"] == "N/A"


def main():
    path, expression = sys.argv[1:]
    with tempfile.NamedTemporaryFile() as made:
        subprocess.run([sys.executable, TOOL, path, made.name], check=True)
        s = Unpickler(made).load()
        assert made.read() == b"", "something follows the pickle"
    assert set(s) == {"segments", "device_traces", "allocator_settings", "external_annotations"}
    segments, trace = s["segments"], s["device_traces"][-1]
    assert s["external_annotations"] == [] and set(s["allocator_settings"]) == SETTINGS
    assert not any(s["device_traces"][:-1])
    for segment in segments:
        check_segment(segment)
        assert segment["device"] == len(s["device_traces"]) - 1
    for event in trace:
        check_event(event)
    blocks = [block for segment in segments for block in segment["blocks"]]
    names = {"s": s, "segments": segments, "blocks": blocks, "trace": trace,
             "file": json.loads(pathlib.Path(path).read_text())}
    if not eval("(" + expression + ")", names):
        for name in ("blocks", "trace"):
            print("%d %s: %s ..." % (len(names[name]), name, names[name][:4]))
        sys.exit("the expression is false")


main()
