"""test_wheel.py - pip makes a wheel of a copy of this tree and installs it: with the library in it,
without PyTorch, and beside it. It needs PyPI, or meson-python where pip finds it."""

import os
import shutil
import subprocess
import sys
import tempfile
import time

from cases import SOURCE, case, run, torch

SECONDS_MAX = 60 # for `pip install` and the three lines on two processors, when nothing else runs
SAYS = """
try:
    import ashlar.torch
except ImportError as error:
    print(error)
"""
TRAINS = """
import torch, ashlar, ashlar.torch, ashlar_torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
arena = ashlar.torch.contiguous(model)
optimizer = ashlar.torch.AdamW(arena, lr=1e-2)
for step in range(20):
    loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
arena.check()
print("trained", loss.item() >= 0, ashlar_torch.find_library())
"""


def call(*arguments, **options):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("ASHLAR_") and name != "PYTHONPATH"}
    return subprocess.run(arguments, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**environment, **options})


def install(folder):
    """A virtual environment with the package; None: pip cannot reach what it builds with."""
    tree, home = folder + "/tree", folder + "/venv"
    shutil.copytree(SOURCE, tree, ignore=shutil.ignore_patterns("build", ".git", "results"))
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    done = call(home + "/bin/pip", "install", tree)
    if done.returncode:
        assert "No matching distribution" in done.stdout or "ConnectionError" in done.stdout, done.stdout
        return None
    return home + "/bin/python"


@case
def pip_installs_it_and_three_lines_train():
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        python = install(folder)
        if python is None:
            print("# skip: pip reaches no meson-python")
            return
        print("# pip install: %.0f s; aim: %d" % (time.monotonic() - began, SECONDS_MAX))
        said = call(python, "-c", SAYS)
        assert said.stdout == "ashlar.torch needs PyTorch, 2.4 or later: pip install torch\n", said.stdout
        packages = os.path.dirname(os.path.dirname(torch.__file__))
        said = call(python, "-c", TRAINS, PYTHONPATH=packages)
        assert said.returncode == 0 and "trained True" in said.stdout, said.stdout
        assert said.stdout.strip().endswith("ashlar/libashlar-torch.so"), said.stdout


run()
