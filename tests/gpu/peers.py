"""Make the allocators of other Python packages subjects of `ashlar-bench alloc`: peers.py FOLDER

What Python has of PyTorch and RMM is compiled against its own headers, as FOLDER/torch.so and
FOLDER/rmm.so; an argument --peer for each goes to standard output, and a line about each that could
not be made to standard error. Status: 0.
"""

import glob
import importlib.util
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def folder_of(package):
    """Without importing it, which may want a GPU."""
    try:
        spec = importlib.util.find_spec(package)
    except ImportError:
        spec = None
    return next(iter(spec.submodule_search_locations or ()), None) if spec else None


def cuda_includes():
    """The toolkit's headers: CUDA_PATH's, those of Python's packages, or where they usually are."""
    roots = [os.path.join(os.environ.get("CUDA_PATH", "/usr/local/cuda"), "include")]
    nvidia = folder_of("nvidia")
    roots += sorted(glob.glob(os.path.join(nvidia, "*", "include"))) if nvidia else []
    return [root for root in roots if os.path.exists(os.path.join(root, "cuda_runtime_api.h"))]


def runtime():
    """CUDA's runtime, which headers call; a package has it under its full name only."""
    nvidia = folder_of("nvidia")
    found = glob.glob(os.path.join(os.environ.get("CUDA_PATH", "/usr/local/cuda"),
                                   "lib*/libcudart.so.1[0-9]"))
    found += glob.glob(os.path.join(nvidia, "*/lib/libcudart.so.1[0-9]")) if nvidia else []
    return found[:1] + ["-Wl,-rpath," + os.path.dirname(path) for path in found[:1]]


def torch_flags():
    root = folder_of("torch")
    lib = root and os.path.join(root, "lib")
    return root and ["-std=c++20", "-isystem", os.path.join(root, "include"), "-L", lib,
                     "-Wl,-rpath," + lib, "-Wl,--no-as-needed", "-lc10_cuda", "-lc10"]


def rmm_flags():
    root, logger = folder_of("librmm"), folder_of("rapids_logger")
    if not root or not logger:
        return None
    flags = ["-std=c++20", "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"]
    for folder in (os.path.join(root, "include"), os.path.join(root, "include/rapids"),
                   os.path.join(logger, "include")):
        flags += ["-isystem", folder]
    for folder in os.path.join(root, "lib64"), os.path.join(logger, "lib64"):
        flags += ["-L", folder, "-Wl,-rpath," + folder]
    return flags + runtime() + ["-lrmm", "-lrapids_logger"]


def build(name, flags, folder):
    """What went wrong; "" if nothing did."""
    if not flags:
        return "Python does not have it"
    includes = [word for root in cuda_includes() for word in ("-isystem", root)]
    command = [os.environ.get("CXX", "c++"), "-O2", "-shared", "-fPIC",
               os.path.join(HERE, "peer_%s.cpp" % name), "-o",
               os.path.join(folder, "%s.so" % name), *flags[:-2], *includes, *flags[-2:]]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "no C++ compiler: %s" % error
    lines = [line for line in done.stdout.decode(errors="replace").splitlines() if "rror" in line]
    return "" if done.returncode == 0 else "it does not compile: %s" % (lines or ["?"])[0]


def main(folder):
    for name, flags in ("torch", torch_flags()), ("rmm", rmm_flags()):
        wrong = build(name, flags, folder)
        if wrong:
            print("%s is no peer: %s" % (name, wrong), file=sys.stderr)
        else:
            print("--peer=%s:%s_alloc,%s_free" % (os.path.join(folder, name + ".so"), name, name))


if __name__ == "__main__":
    main(sys.argv[1])
