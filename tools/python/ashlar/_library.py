"""_library - loads libashlar.so, and calls its functions by ctypes."""

import ctypes
import os

INSTALLED = "@LIBRARY@"  # filled in when it is installed
STATUS_OK = 0


class Error(RuntimeError):
    """A call of ashlar failed; the text is ashlar_error_detail()."""


def find_library():
    """The file: $ASHLAR_LIBRARY, the wheel's own, the installed one, or what the linker finds."""
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libashlar.so")
    known = (path for path in (here, INSTALLED) if os.path.exists(path))
    return os.environ.get("ASHLAR_LIBRARY") or next(known, "libashlar.so")


_library = None


def function(name, *arguments, result=None):
    """A function of libashlar: its ctypes arguments; result=None: it returns an ashlar_status, which
    becomes an Error unless it is ASHLAR_OK."""
    global _library
    _library = _library or ctypes.CDLL(find_library())
    found = _library[name]  # an object of its own at each look-up
    found.argtypes, found.restype = arguments, result or ctypes.c_int
    if result is not None:
        return found

    def call(*given):
        if found(*given) != STATUS_OK:
            raise Error(function("ashlar_error_detail", result=ctypes.c_char_p)().decode())
    return call


_devices = {}


def device_and_allocator(name):
    """An open device ("soft:0", "cuda:1") and its allocator, which live as long as the process."""
    if name not in _devices:
        device, allocator = ctypes.c_void_p(), ctypes.c_void_p()
        function("ashlar_device_open", ctypes.c_char_p, ctypes.c_void_p)(
            name.encode(), ctypes.byref(device))
        function("ashlar_allocator_create", ctypes.c_void_p, ctypes.c_void_p)(
            device, ctypes.byref(allocator))
        _devices[name] = device, allocator
    return _devices[name]
