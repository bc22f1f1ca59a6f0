"""Tells glibc to keep the memory of large tensors instead of giving it back."""

import ctypes
import functools
import os
import platform
import sys

# Parameters of `mallopt`, from malloc.h.
_SETTINGS = {
    -4: 0,  # M_MMAP_MAX: no mapping of its own for a large block
    -1: -1,  # M_TRIM_THRESHOLD: free bytes at the top to keep, without limit
    -2: 2**28,  # M_TOP_PAD: bytes to take from the system at once
}


@functools.cache
def tune_allocator():
    """Makes glibc's allocator suit large tensors that come and go.

    By default glibc gives a large block back to the system as soon as it is free, and
    pays with page faults when the next layer takes it again. After this call it
    keeps the memory: the process then holds the most that it ever needed.

    It does nothing where there is no glibc, nor where an environment variable whose
    name begins with `MALLOC_` says that the user has chosen.

    Example:
        >>> tune_allocator() in (True, False)
        True
    """
    has_glibc = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"
    if not has_glibc or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    done = [mallopt(parameter, value) for parameter, value in _SETTINGS.items()]
    return all(done)
