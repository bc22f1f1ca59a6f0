"""Unpacks untrusted archives: a small file must not fill the memory or the disk.

gzip and zip can expand one byte to as many as a thousand, and an HDF5 or tar file can
claim any size. Weights hardly compress: D7x with its optimizer and its moving averages
is 1.3 GB, and the files that hold it are about that large.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import pathlib
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

from effdet_keras.errors import InvalidValueError

_ALWAYS_ALLOWED = 2**30  # bytes to which any file may unpack
_NEVER_ALLOWED = 2**33  # bytes beyond which no file may unpack
_MOST_EXPANSION = 50  # between these two limits: unpacked bytes per packed byte
_MOST_FILES = 100_000  # in one archive; the largest SavedModels have a few dozen
# The first bytes of compressed files, and the function that opens each kind.
_COMPRESSIONS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
_HEAD = 8  # bytes, enough to tell the kinds apart


class UnpackedSizeError(InvalidValueError):
    """Raised for a file that claims more data than weights of its size can have."""


def most_unpacked(packed: int) -> int:
    """Returns the most bytes to which a file of `packed` bytes may unpack."""
    return min(_NEVER_ALLOWED, max(_ALWAYS_ALLOWED, _MOST_EXPANSION * packed))


def check_unpacked_size(path: Any, unpacked: int, packed: int) -> None:
    """Raises an error if a file of `packed` bytes may not unpack to `unpacked`."""
    most = most_unpacked(packed)
    if unpacked > most:
        raise UnpackedSizeError(
            f"'{os.fspath(path)}' has {packed:,} bytes, and would unpack to "
            f"{unpacked:,} or more. At most {most:,} are read of a file of this size: "
            "it is damaged, or made to fill the memory or the disk."
        )


@contextlib.contextmanager
def open_zip(file: Any, path: Any = None) -> Iterator[zipfile.ZipFile]:
    """Opens a zip file, if its entries together are not larger than allowed.

    Args:
        file: path of the file, or the file itself, open for reading.
        path: name of the file in messages, if `file` is not a path.

    Raises:
        ValueError: If the entries are too large.
        zipfile.BadZipFile: If it is not a zip file.
    """
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        packed = archive.fp.seek(0, os.SEEK_END)
        # `zipfile` reads at most `file_size` bytes of an entry.
        unpacked = sum(entry.file_size for entry in entries)
        check_unpacked_size(file if path is None else path, unpacked, packed)
        yield archive


def is_tar(path: str | os.PathLike) -> bool:
    """Returns whether a file is a tar file, compressed or not.

    Raises:
        ValueError: If it claims more data than allowed; see `unpack_tar`.
    """
    try:
        with _open_tar(path):
            return True
    except (tarfile.TarError, OSError, EOFError, lzma.LZMAError, zlib.error):
        return False


def unpack_tar(path: str | os.PathLike, folder: str | os.PathLike) -> None:
    """Unpacks a tar file, compressed or not, and never writes outside of the folder.

    Raises:
        ValueError: If it has more bytes or more files than allowed.
        tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError: If it is
            damaged, or an entry leads out of the folder.
    """
    packed, unpacked = os.path.getsize(path), 0
    with _open_tar(path) as archive:
        for number, member in enumerate(archive):
            # A sparse file takes less space in the archive than its size.
            unpacked += member.size
            check_unpacked_size(path, unpacked, packed)
            if number >= _MOST_FILES:
                raise UnpackedSizeError(
                    f"'{os.fspath(path)}' holds more than {_MOST_FILES:,} files: it "
                    "is no archive of weights."
                )
            archive.extract(member, folder, filter="data")


@contextlib.contextmanager
def _open_tar(path):
    path = pathlib.Path(path)
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(open(path, "rb"))
        head = stream.read(_HEAD)
        stream.seek(0)
        for start, opener in _COMPRESSIONS.items():
            if head.startswith(start):
                stream = stack.enter_context(opener(stream))
        limited = _LimitedReader(stream, path)
        yield stack.enter_context(tarfile.open(fileobj=limited, mode="r:"))


class _LimitedReader:
    """A file that raises an error when more than its allowed bytes are read.

    `tarfile` reads some headers into memory, however large they claim to be.
    """

    def __init__(self, stream: IO[bytes], path: pathlib.Path) -> None:
        self._stream, self._path = stream, path
        self._packed = os.path.getsize(path)

    def read(self, size: int) -> bytes:
        check_unpacked_size(self._path, self.tell() + size, self._packed)
        return self._stream.read(size)

    def seek(self, place: int) -> int:
        check_unpacked_size(self._path, place, self._packed)
        return self._stream.seek(place)

    def tell(self) -> int:
        return self._stream.tell()
