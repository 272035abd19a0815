"""_library - loads libashlar.so, calls its functions by ctypes, and lends it PyTorch's threads."""

import ctypes
import functools
import os

INSTALLED = "@LIBRARY@"  # filled in when it is installed
STATUS = ctypes.c_int  # an ashlar_status, as it is in C


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


@functools.lru_cache(None)
def function(name, *arguments, result=STATUS):
    """A function of libashlar, with the ctypes of its arguments and result, None for void. A status
    other than ASHLAR_OK, which is 0, becomes an Error."""
    found = _library()[name]  # an object of its own at each look-up
    found.argtypes, found.restype = arguments, result
    if result is not STATUS:
        return found

    def call(*given):
        if found(*given):
            raise Error(function("ashlar_error_detail", result=ctypes.c_char_p)().decode())
    return call


def structure(**fields):
    """A struct of a header, by its fields' names and ctypes."""
    return type("Structure", (ctypes.Structure,), {"_fields_": list(fields.items())})


@functools.lru_cache(None)
def device_and_allocator(name):
    """An open device ("soft:0", "cuda:1") and its allocator, which live as long as the process."""
    device, allocator = ctypes.c_void_p(), ctypes.c_void_p()
    function("ashlar_device_open", ctypes.c_char_p, ctypes.c_void_p)(
        name.encode(), ctypes.byref(device))
    function("ashlar_allocator_create", ctypes.c_void_p, ctypes.c_void_p)(
        device, ctypes.byref(allocator))
    return device, allocator


# The threads of PyTorch's OpenMP; None: libashlar has its own.
_openmp = ctypes.cast(getattr(ctypes.CDLL(None), "GOMP_parallel", None), ctypes.c_void_p)


def lend_threads(count):
    """Before work on the CPU: compute it on so many of PyTorch's threads."""
    function("ashlar_set_threads", ctypes.c_size_t, ctypes.c_void_p)(count, _openmp)
