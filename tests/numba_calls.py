"""numba-cuda's own tests of memory, streams and contexts: numba_calls.py PRELOAD LIBCUDA_FOLDER

They run under the preload, on the libcuda.so.1 of our tests, each module in a process of its own.
That driver runs no kernels of others: a test that loads one is counted as skipped. Status: 0, 1,
or 77 where Python has no numba-cuda with its tests, or what these need.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

NEEDED = ("numba_cuda", "numba", "cuda.bindings", "cuda.core", "pytest", "filecheck", "cffi")
TESTS = "numba.cuda.tests."
LEFT_OUT = "graph_builder" # in a test's name: it launches kernels from a graph built node by node
SECONDS = 240

# By what they need of the driver: module, words of ASHLAR_PRELOAD. CUDA exports what is cuMemAlloc's.
MODULES = {
    "cudadrv.test_array_attr": "on",
    "cudadrv.test_context_stack": "on",
    "cudadrv.test_cuda_array_slicing": "on",
    "cudadrv.test_cuda_auto_context": "on",
    "cudadrv.test_cuda_devicerecord": "on",
    "cudadrv.test_cuda_driver": "on",
    "cudadrv.test_cuda_memory": "on",
    "cudadrv.test_cuda_ndarray": "on",
    "cudadrv.test_deallocations": "on",
    "cudadrv.test_emm_plugins": "on",
    "cudadrv.test_events": "on",
    "cudadrv.test_host_alloc": "on",
    "cudadrv.test_init": "on",
    "cudadrv.test_managed_alloc": "on",
    "cudadrv.test_pinned": "on",
    "cudadrv.test_reset_device": "on",
    "cudadrv.test_select_device": "on",
    "cudadrv.test_streams": "on",
    "cudapy.test_cuda_array_interface": "on",
    "cudapy.test_ipc": "ipc",
    "cudapy.test_stream_api": "on",
}

# What is in the traceback of a test that is not for this driver, and why it is not.
NOT_FOR_IT = {
    "in load_module_image": "needs a kernel",
    "could not import 'cupy'": "needs CuPy",
    "CUipcMemHandle' object has no attribute": "needs the cuda-bindings that numba-cuda knows",
}


def each(tests):
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


def child(module, path):
    found = unittest.defaultTestLoader.loadTestsFromName(TESTS + module)
    of_it = sys.modules[TESTS + module]
    if hasattr(of_it, "FUTURE_TIMEOUT"):
        of_it.FUTURE_TIMEOUT = SECONDS # for a machine that has more to do
    tests = unittest.TestSuite(test for test in each(found) if LEFT_OUT not in test.id())
    with open(os.devnull, "w") as nowhere:
        result = unittest.TextTestRunner(stream=nowhere).run(tests)
    failed, skipped = [], [why for _, why in result.skipped]
    for test, trace in result.errors + result.failures:
        whys = [why for words, why in NOT_FOR_IT.items() if words in trace]
        if whys:
            skipped.append(whys[0])
        else:
            failed.append("%s\n%s" % (test, trace))
    with open(path, "w") as out:
        json.dump({"run": result.testsRun, "failed": failed, "skipped": skipped}, out)


def run(module, words, preload, folder):
    """What the child has found, or None if it has died."""
    env = dict(os.environ, LD_PRELOAD=preload, LD_LIBRARY_PATH=folder, ASHLAR_PRELOAD=words)
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "found")
        try:
            status = subprocess.run([sys.executable, __file__, "--child", module, path], env=env,
                                    timeout=SECONDS, stdout=subprocess.DEVNULL).returncode
        except subprocess.TimeoutExpired:
            status = "none within %d seconds" % SECONDS
        if status == 0:
            with open(path) as found:
                return json.load(found)
    print("%s: ended with status %s" % (module, status))
    return None


def main(preload, folder):
    for name in NEEDED:
        try:
            is_there = importlib.util.find_spec(name) is not None
        except ImportError:
            is_there = False
        if not is_there:
            print("no " + name)
            return 77
    bad = 0
    for module, words in MODULES.items():
        found = run(module, words, preload, folder)
        if found is None:
            bad += 1
            continue
        whys = found["skipped"]
        print("%s: %d run, %d failed, %d skipped %s" % (
            module, found["run"], len(found["failed"]), len(whys), sorted(set(whys))))
        print("".join(found["failed"]), end="")
        bad += len(found["failed"]) > 0
    return bad > 0


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(sys.argv[2], sys.argv[3])
    else:
        sys.exit(main(sys.argv[1], sys.argv[2]))
