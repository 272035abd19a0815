#!/usr/bin/env python3
"""What launches cost: 100 Linear(128, 128) by AdamW with clipping, tensor by tensor and contiguous; an
LSTM's weights, scattered and compacted at each call, and packed.

usage: bench/arena/launches.py ASHLAR_BENCH [--smoke] [--out FILE.json] [--traces FOLDER]

Launches are counted. CPU times are this machine's, medians. The other times are virtual, of the
software device with time=on: each launch costs the host 2, 5 or 10 us, and each kernel takes 2 us
and the time for its bytes at 2 TB/s; copies as allocator/soft/soft_time.c has them.

--traces writes of the step, at 5 us, what the host and the stream did when: per_tensor.json and
contiguous.json for tools/viewer.html, or Perfetto, and launches.svg, the picture of both.
"""

import argparse
import json
import os
import pathlib
import subprocess

COSTS_US, TRACE_US = (2, 5, 10), 5
KERNEL_NS, BYTES_PER_NS = 2000, 2000
STEP, LSTM = "100x128x128/adamw", "lstm_H256_L2/flatten"
BYTES = 100 * 128 * 128 * 4 * 8  # that a step reads and writes: bench_arena.h


def measure(program, group, workload, options, soft=None):
    """The rows of ashlar-bench by subject."""
    environment = dict(os.environ, ASHLAR_SOFT=soft or "memory=4GiB")
    done = subprocess.run([program, group, "--device", "soft", "--workload", workload, "--json", "-",
                           *options], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=True)
    return {row["subject"]: row for row in json.loads(done.stdout)["rows"]}


def soft_of(cost_us, launches, bytes_):
    """The software device on which a launch costs so much, and a kernel takes its share of bytes."""
    kernel = KERNEL_NS + bytes_ / launches / BYTES_PER_NS
    return "memory=4GiB,time=on,launch=%d,kernel=%d" % (1000 * cost_us, kernel)


def row_of(program, case, workload, subject, bytes_, options):
    """Launches, time on the CPU, and virtual times by the cost of a launch."""
    here = measure(program, "arena", workload, options)[subject]
    row = {"case": case, "launches": here["launches"], "cpu_us": here["ns"] / 1000}
    for cost in COSTS_US:
        soft = soft_of(cost, here["launches"], bytes_)
        virtual = measure(program, "arena", workload, ["--smoke"], soft)[subject]
        row["at_%d_us" % cost] = virtual["ns"] / 1000
    return row


def trace_of(program, subject, launches, file):
    """What a step does, from its first call to the end of its wait: the newest such in the run."""
    soft = soft_of(TRACE_US, launches, BYTES) + ",trace=%s" % file
    measure(program, "arena", STEP, ["--smoke"], soft)
    steps, last = [[]], None
    for event in json.loads(file.read_text()):
        if last == "cuStreamSynchronize" != event["name"]:
            steps.append([])
        steps[-1].append(event)
        last = event["name"]
    events = [s for s in steps if sum(e["cat"] == "kernel" for e in s) == launches][-1]
    first = events[0]["ts"]
    for event in events:
        event["ts"] = round(event["ts"] - first, 3)
    file.write_text(json.dumps({"traceEvents": events}))
    return events


SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 186" width="760" fill="#768390"
     font-family="sans-serif" font-size="14" role="img" aria-labelledby="title">
<title id="title">A step of 100 Linear(128, 128) by AdamW with clipping: %s</title>
%s
</svg>
"""
MARKS = (("kernel", "#2f81f7", 34, "a kernel"), ("cuStreamSynchronize", "#afb8c1", 12, "a wait"),
         ("cuLaunchHostFunc", "#bf8700", 12, "a launch: %d \u00b5s of the host" % TRACE_US))


def write_traces(program, folder, launches):
    """Traces of the step tensor by tensor and contiguous, and both below each other, to one scale."""
    folder.mkdir(parents=True, exist_ok=True)
    steps = [trace_of(program, subject, count, folder / file) for subject, count, file in
             zip(("per_tensor", "arena"), launches, ("per_tensor.json", "contiguous.json"))]
    ends = [max(e["ts"] + e["dur"] for e in step) for step in steps]
    scale, titles, texts, paths = 690 / max(ends), [], [], []
    for i, (step, name) in enumerate(zip(steps, ("tensor by tensor", "contiguous"))):
        top = 16 + 76 * i
        titles.append("%s: %d launch%s, %.0f \u00b5s" % (name, launches[i], "es" * (i == 0), ends[i]))
        texts += [(0, top, titles[i]), (0, top + 24, "host"), (0, top + 46, "device")]
        paths += [(colour, "".join("M%.1f %dh%.1fv16h-%.1fz" % (
            60 + scale * e["ts"], top + down, scale * e["dur"], scale * e["dur"])
                                   for e in step if what in (e["cat"], e["name"])))
                  for what, colour, down, _ in MARKS]
    for i, (_, colour, _, text) in enumerate(MARKS):
        paths.append((colour, "M%d 164h14v14h-14z" % (60 + 160 * i)))
        texts.append((82 + 160 * i, 176, text))
    lines = ['<path fill="%s" d="%s"/>' % p for p in paths] + ['<text x="%d" y="%d">%s</text>' % t for t in texts]
    (folder / "launches.svg").write_text(SVG % ("; ".join(titles), "\n".join(lines)), "utf-8")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    arguments.add_argument("program")
    arguments.add_argument("--smoke", action="store_true")
    arguments.add_argument("--out")
    arguments.add_argument("--traces", type=pathlib.Path)
    given = arguments.parse_args()
    options = ["--smoke"] if given.smoke else []
    rows = [row_of(given.program, "100 Linear(128, 128), tensor by tensor", STEP, "per_tensor", BYTES,
                   options),
            row_of(given.program, "the same, contiguous", STEP, "arena", BYTES, options),
            row_of(given.program, "an LSTM's weights, compacted at each call", LSTM, "per_tensor", 0,
                   options)]
    rows.append({"case": "the same, packed", "launches": 0, "cpu_us": 0,
                 **{"at_%d_us" % cost: 0 for cost in COSTS_US}})
    forward = measure(given.program, "rnn", "lstm_T64_B32_H256_L2", options)["ashlar"]["ms_forward"]
    heads = ["launches", "cpu_us", *("at_%d_us" % cost for cost in COSTS_US)]
    print("%-44s" % "us" + "".join("%10s" % head for head in heads))
    for row in rows:
        print("%-44s" % row["case"] + "".join("%10.1f" % row[head] for head in heads))
    print("One forward pass of that LSTM, lstm_T64_B32_H256_L2, takes %.1f ms here." % forward)
    if given.traces:
        write_traces(given.program, given.traces, [row["launches"] for row in rows[:2]])
    if given.out:
        with open(given.out, "w") as file:
            json.dump({"schema": "ashlar-launches/1", "smoke": given.smoke, "rows": rows,
                       "lstm_forward_ms": forward}, file, indent=1)


if __name__ == "__main__":
    main()
