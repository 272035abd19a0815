#!/usr/bin/env python3
"""What launches cost: 100 Linear(128, 128) by AdamW with clipping, tensor by tensor and contiguous; an
LSTM's weights, scattered and compacted at each call, and packed.

usage: bench/arena/launches.py ASHLAR_BENCH [--smoke] [--out FILE.json]

Launches are counted. CPU times are this machine's, medians. The other times are virtual, of the
software device with time=on: each launch costs the host 2, 5 or 10 us, and each kernel takes 2 us
and the time for its bytes at 2 TB/s; copies as allocator/soft/soft_time.c has them.
"""

import argparse
import json
import os
import subprocess

COSTS_US = 2, 5, 10
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


def row_of(program, case, workload, subject, bytes_, options):
    """Launches, time on the CPU, and virtual times by the cost of a launch."""
    here = measure(program, "arena", workload, options)[subject]
    row = {"case": case, "launches": here["launches"], "cpu_us": here["ns"] / 1000}
    kernel = KERNEL_NS + bytes_ / here["launches"] / BYTES_PER_NS
    for cost in COSTS_US:
        soft = "time=on,launch=%d,kernel=%d" % (1000 * cost, kernel)
        virtual = measure(program, "arena", workload, ["--smoke"], soft)[subject]
        row["at_%d_us" % cost] = virtual["ns"] / 1000
    return row


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    arguments.add_argument("program")
    arguments.add_argument("--smoke", action="store_true")
    arguments.add_argument("--out")
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
    if given.out:
        with open(given.out, "w") as file:
            json.dump({"schema": "ashlar-launches/1", "smoke": given.smoke, "rows": rows,
                       "lstm_forward_ms": forward}, file, indent=1)


if __name__ == "__main__":
    main()
