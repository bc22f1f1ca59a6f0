"""How much memory this process had, how much is free, and how much a batch needs."""

from __future__ import annotations

import dataclasses
import pathlib
import re

# Of Linux; elsewhere nothing is known.
_STATUS = pathlib.Path("/proc/self/status")
_MEMINFO = pathlib.Path("/proc/meminfo")
# Of a container: its limit, and what is taken of it.
_CGROUP = pathlib.Path("/sys/fs/cgroup")


def peak_bytes() -> int:
    """The most memory that this process had so far; 0 where it cannot be known.

    Example:
        >>> peak_bytes() >= 0
        True
    """
    found = _kilobytes(_STATUS, "VmHWM")
    return 0 if found is None else found


def available_bytes(
    meminfo: pathlib.Path = _MEMINFO, cgroup: pathlib.Path = _CGROUP
) -> int | None:
    """The memory that is free for this process; None where it cannot be known.

    Args:
        meminfo: path of Linux' file of memory.
        cgroup: path of the folder with the limits of a container.

    Example:
        >>> free = available_bytes()
        >>> free is None or free > 0
        True
    """
    found = _kilobytes(meminfo, "MemAvailable")
    free = [] if found is None else [found]
    limit, taken = (_number_in(cgroup / f"memory.{n}") for n in ("max", "current"))
    if limit is not None and taken is not None:
        # Of files that were read the system lets go when memory is short.
        stat = cgroup / "memory.stat"
        found = re.search(r"^inactive_file (\d+)", _text(stat), re.MULTILINE)
        of_files = int(found[1]) if found else 0
        free.append(max(limit - taken + of_files, 0))
    return min(free, default=None)


@dataclasses.dataclass(frozen=True)
class Growth:
    """How the memory of a process grows with the batch.

    Args:
        base: int, bytes before the first step.
        size: int, the batch that was done.
        peak: int, the most bytes with it.
    """

    base: int
    size: int
    peak: int

    def expected(self, size: int) -> int:
        """The bytes to expect with a larger batch, if they grow with its images.

        Example:
            >>> Growth(base=100, size=2, peak=140).expected(4)
            180
        """
        return self.base + (self.peak - self.base) * size // self.size


def _kilobytes(path, name):
    """The bytes of a line such as `VmHWM:  12 kB`; None without one."""
    found = re.search(rf"^{name}:\s+(\d+) kB", _text(path), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _number_in(path):
    """The number in a file; None where there is none, such as "max" for no limit."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path):
    return path.read_text() if path.is_file() else ""
