"""test_ddp.py - contiguous modules in DistributedDataParallel, two processes over gloo."""

import os
import subprocess
import sys
import tempfile

from cases import SOURCE, case, run


def train(order):
    """What both processes print."""
    with tempfile.TemporaryDirectory() as folder:
        processes = [subprocess.Popen(
            [sys.executable, SOURCE + "/tests/python/ddp_worker.py", str(rank), folder + "/meet", order],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"})
            for rank in range(2)]
        said = [process.communicate(timeout=200)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0]
        return ["\n".join(line for line in lines.splitlines() if not line.startswith("[Gloo]"))
                for lines in said]


@case
def losses_are_those_of_a_plain_module_whichever_comes_first():
    plain = [list(map(float, said.split())) for said in train("plain")]
    assert len(plain[0]) == len(plain[1]) == 10 and plain[0] != plain[1]
    for order in "before", "after":
        for losses, wanted in zip(train(order), plain):
            got = list(map(float, losses.split()))
            assert len(got) == 10 and all(abs(a - b) <= 1e-6 for a, b in zip(got, wanted)), (got, wanted)


@case
def gradients_in_buckets_of_ddp_are_found():
    assert all("the gradient of embedding.weight lies outside" in said for said in train("views"))


run()
