"""_library - loads libashlar.so, calls its functions by ctypes, and lends it PyTorch's threads."""

import ctypes
import functools
import os

INSTALLED = "@LIBRARY@"  # filled in when it is installed
TYPES = {"bool": ctypes.c_bool, "int": ctypes.c_int, "unsigned": ctypes.c_uint,
         "double": ctypes.c_double, "size": ctypes.c_size_t, "u32": ctypes.c_uint32, "void": None,
         "u64": ctypes.c_uint64, "string": ctypes.c_char_p, "pointer": ctypes.c_void_p}


class Error(RuntimeError):
    """A call of ashlar failed; the text is ashlar_error_detail()."""


def find_library():
    """The file: $ASHLAR_LIBRARY, the wheel's own, the installed one, or what the linker finds."""
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libashlar.so")
    known = (path for path in (here, INSTALLED) if os.path.exists(path))
    return os.environ.get("ASHLAR_LIBRARY") or next(known, "libashlar.so")


@functools.lru_cache(None)
def _library():
    return ctypes.CDLL(find_library())


def function(name, arguments="", result="status"):
    """A function of libashlar, by the words of TYPES for its arguments and its result, which may
    also be a ctypes type. A status other than ASHLAR_OK, which is 0, becomes an Error."""
    found = _library()["ashlar_" + name]  # an object of its own at each look-up
    found.argtypes = [TYPES[word] for word in arguments.split()]
    if result != "status":
        found.restype = TYPES.get(result, result)
        return found

    def call(*given):
        if found(*given):
            raise Error(function("error_detail", result="string")().decode())
    return call


def structure(fields):
    """A struct of a header, from its fields: "bool is_frozen; double beta1 beta2 ns[3]"."""
    listed = []
    for kind, *names in map(str.split, fields.split(";")):
        for name, _, count in (name.rstrip("]").partition("[") for name in names):
            listed.append((name, TYPES[kind] * int(count) if count else TYPES[kind]))
    return type("Structure", (ctypes.Structure,), {"_fields_": listed})


@functools.lru_cache(None)
def device_and_allocator(name):
    """An open device ("soft:0", "cuda:1") and its allocator, which live as long as the process."""
    device, allocator = ctypes.c_void_p(), ctypes.c_void_p()
    function("device_open", "string pointer")(name.encode(), ctypes.byref(device))
    function("allocator_create", "pointer pointer")(device, ctypes.byref(allocator))
    return device, allocator


# The threads of PyTorch's OpenMP; None: libashlar has its own.
_openmp = ctypes.cast(getattr(ctypes.CDLL(None), "GOMP_parallel", None), ctypes.c_void_p)
_set_threads = functools.lru_cache(None)(lambda: function("set_threads", "size pointer"))


def lend_threads(count):
    """Before work on the CPU: compute it on so many of PyTorch's threads."""
    _set_threads()(count, _openmp)
