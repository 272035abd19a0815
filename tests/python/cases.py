"""cases.py - what the tests of the Python package share: the package of this tree on the libraries of
$ASHLAR_BUILD, a Python that has PyTorch ($ASHLAR_TORCH_PYTHON, or this one), and cases that print TAP."""

import os
import sys
import traceback

SOURCE = os.environ.get("ASHLAR_SOURCE") or os.path.abspath(__file__ + "/../../..")
BUILD = os.environ.get("ASHLAR_BUILD") or SOURCE + "/build/dev"
FOLDERS = [SOURCE + "/tools/python", SOURCE + "/allocator/dropin", SOURCE + "/tests/python"]
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
    failed, chosen = 0, [c for c in CASES if len(sys.argv) < 2 or c.__name__ in sys.argv[1:]]
    for number, function in enumerate(chosen, 1):
        torch.manual_seed(number)
        try:
            function()
            print("ok %d - %s" % (number, function.__name__))
        except Exception: # whatever it is, the next case runs
            failed += 1
            print("# " + traceback.format_exc().strip().replace("\n", "\n# "))
            print("not ok %d - %s" % (number, function.__name__))
        sys.stdout.flush()
    print("1..%d" % len(chosen))
    sys.exit(failed > 0)
