"""cases.py - what the tests of the Python package share: the package of this tree on the libraries of
$ASHLAR_BUILD, a Python that has PyTorch ($ASHLAR_TORCH_PYTHON, or this one), and cases that print TAP."""

import functools
import os
import sys

SOURCE = os.environ.get("ASHLAR_SOURCE") or os.path.abspath(__file__ + "/../../..")
BUILD = os.environ.get("ASHLAR_BUILD") or SOURCE + "/build/dev"
FOLDERS = [SOURCE + folder for folder in (
    "/tools/python", "/allocator/dropin", "/tests/python", "/tests")]
os.environ["ASHLAR_LIBRARY"] = BUILD + "/libashlar.so"
os.environ["PYTHONPATH"] = ":".join(FOLDERS) # of processes that a test starts
sys.path[:0] = FOLDERS
sys.dont_write_bytecode = True

python = os.path.abspath(os.environ.get("ASHLAR_TORCH_PYTHON") or sys.executable)
if python != os.path.abspath(sys.executable):
    os.execv(python, [python, *sys.argv])
try:
    import torch
except ImportError:
    print("1..0 # skip there is no PyTorch")
    sys.exit(0)
import tap

CASES = []


def case(function):
    """A test; its name is a sentence."""
    CASES.append(function)
    return function


def same(got, wanted, tolerance):
    """Whether the largest difference is at most tolerance * (1 + |wanted|)."""
    difference = (got.detach() - wanted.detach()).abs() / (1 + wanted.detach().abs())
    return bool(difference.le(tolerance).all())


def refusal(kind, function, *arguments, **options):
    """The line with which function(...) is refused."""
    try:
        function(*arguments, **options)
    except kind as error:
        assert "\n" not in str(error).strip(), error
        return str(error)
    raise AssertionError("was not refused")


def run():
    """Run the cases, or those whose names are arguments, and end."""
    torch.set_num_threads(1) # the tensors are small

    def seeded(number, function):
        torch.manual_seed(number)
        function()

    chosen = [c for c in CASES if len(sys.argv) < 2 or c.__name__ in sys.argv[1:]]
    sys.exit(tap.run([(c.__name__, functools.partial(seeded, number, c))
                      for number, c in enumerate(chosen, 1)]))
