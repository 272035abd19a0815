"""_library - loads libashlar.so, and calls its functions by ctypes."""

import ctypes
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


_library = None


def function(name, *arguments, result=STATUS):
    """A function of libashlar, with the ctypes of its arguments and result, None for void. A status
    other than ASHLAR_OK, which is 0, becomes an Error."""
    global _library
    _library = _library or ctypes.CDLL(find_library())
    found = _library[name]  # an object of its own at each look-up
    found.argtypes, found.restype = arguments, result
    if result is not STATUS:
        return found

    def call(*given):
        if found(*given):
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
